//! One period: look, apply the administrator's rules, decide, act, remember.

use crate::ledger::enter;
use crate::record::{Affinity, affinity};
use crate::{
    DaemonError, Event, Ledger, Outcome, Period, PolicyFile, PutRight, Recorder, Restored, Rules, Saved, SavedFile,
};
use scheduler::balance::{BalancePolicy, Decision, record, step};
use scheduler::{
    Action, ActionError, ClientId, Exchange, GroupObservation, Host, Moment, Observation, Observe, ObserveError,
    VcpuGroup, VmKey, VmObservation, home,
};
use std::collections::BTreeMap;
use topology::Machine;

/// Longest time that what is remembered may be older on disk than in memory, in milliseconds.
const SAVE_EVERY_MS: u64 = 30_000;

/// Whether anything is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decisions are carried out.
    Act,
    /// Decisions are only told: neither the host nor a file is changed.
    DryRun,
}

/// Says what the VMs of an observation exchange with each other.
pub type Exchanges = Box<dyn FnMut(&Observation) -> Vec<Exchange>>;

/// Keeps the VMs of a host at home.
pub struct Balancer<H> {
    pub(crate) host: H,
    policy: BalancePolicy,
    rules: Rules,
    mode: Mode,
    file: SavedFile,
    pub(crate) saved: Saved,
    saved_at: Option<Moment>,
    known: Vec<VmKey>,
    recorder: Option<Recorder>,
    ledger: Option<Ledger>,
    exchanges: Option<Exchanges>,
    // What a dry run pretends to have set, beside what was really set then.
    pretended: BTreeMap<(VmKey, ClientId), Pretended>,
}

/// An affinity that a dry run did not set.
struct Pretended {
    real: Affinity,
    planned: Affinity,
}

/// Groups as a look would show them after a bind: figures stay those of the vCPUs.
fn divided(planned: &Affinity, seen: &[GroupObservation]) -> Vec<GroupObservation> {
    let figures = |vcpus: &[u32]| seen.iter().find(|seen| vcpus.iter().all(|vcpu| seen.group.vcpus.contains(vcpu)));
    let group = |group: &VcpuGroup| {
        let known = figures(&group.vcpus).cloned().unwrap_or_default();
        GroupObservation { group: group.clone(), ..known }
    };
    planned.groups.iter().map(group).collect()
}

impl<H: Host> Balancer<H> {
    /// A balancer of this host that goes on where `restored` left off. Nothing is looked at yet.
    pub fn new(host: H, policy: &PolicyFile, rules: Rules, mode: Mode, file: SavedFile, restored: Restored) -> Self {
        let mut saved = match restored {
            Restored::Memory(saved) => *saved,
            Restored::Nothing | Restored::SetAside { .. } => file.fresh(),
        };
        saved.owned_by_us(policy.clone());
        let policy = policy.balance.clone();
        Self {
            host,
            policy,
            rules,
            mode,
            file,
            saved,
            saved_at: None,
            known: Vec::new(),
            recorder: None,
            ledger: None,
            exchanges: None,
            pretended: BTreeMap::new(),
        }
    }

    /// Records every observation and decision from now on.
    pub fn record_to(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Asks each period which VMs are being started.
    pub fn heed(&mut self, ledger: Ledger) {
        self.ledger = Some(ledger);
    }

    /// Asks each period what VMs exchange with each other.
    pub fn ask_exchanges(&mut self, exchanges: Exchanges) {
        self.exchanges = Some(exchanges);
    }

    /// The host's machine.
    pub fn machine(&self) -> &Machine {
        self.host.machine()
    }

    /// What it decides by.
    pub fn policy(&self) -> &BalancePolicy {
        &self.policy
    }

    /// What it remembers.
    pub fn saved(&self) -> &Saved {
        &self.saved
    }

    /// Looks without deciding, so that the next look has rates.
    ///
    /// # Errors
    /// Nothing at all can be read of the host.
    pub fn look(&mut self) -> Result<(), ObserveError> {
        self.host.observe().map(drop)
    }

    /// One period.
    ///
    /// # Errors
    /// Nothing at all can be read of the host; the next period may go better.
    pub fn period(&mut self) -> Result<Period, ObserveError> {
        let mut observation = self.host.observe()?;
        // Asked last: a VM whose start ended meanwhile is one like all others in the next period.
        enter(self.ledger.as_ref().map(|ledger| ledger()).unwrap_or_default(), &mut observation);
        if let Some(exchanges) = &mut self.exchanges {
            observation.exchanges = exchanges(&observation);
        }
        let mut events = self.changes(&observation);
        self.record_observation(&observation, &mut events);
        self.rules.apply(&mut observation);
        self.pretend(&mut observation);
        let decisions = if observation.nodes.len() > 1 {
            step(self.host.machine(), &self.policy, &mut self.saved.balance, &observation)
        } else {
            Vec::new()
        };
        self.put_right(&observation, &mut events);
        let acted: Vec<Event> = decisions.into_iter().map(|decision| self.act(decision, &observation)).collect();
        self.write_recording(&mut events, |recorder| recorder.decided(&acted));
        events.extend(acted);
        self.saved.forget_ended(|vm| runs(&self.host, &observation, vm));
        self.save_if_due(&observation, &mut events);
        let (nodes, vms) = (observation.nodes.len(), observation.vms.len());
        Ok(Period { at: observation.at, nodes, vms, traffic_meter: observation.traffic_meter, events })
    }

    /// VMs that came and went since the last period.
    fn changes(&mut self, observation: &Observation) -> Vec<Event> {
        let is_there = |vm: &VmKey| runs(&self.host, observation, vm);
        let mut events: Vec<Event> =
            self.known.iter().filter(|vm| !is_there(vm)).map(|vm| Event::Ended { vm: vm.clone() }).collect();
        self.known.retain(is_there);
        for seen in &observation.vms {
            if !self.known.contains(&seen.vm) {
                self.known.push(seen.vm.clone());
                events.push(Event::Appeared { vm: seen.vm.clone() });
            }
        }
        events
    }

    /// What a homenode left behind that was killed at work on a VM. One at which somebody is at
    /// work is not in the observation ([`enter`]).
    fn put_right(&mut self, observation: &Observation, events: &mut Vec<Event>) {
        if self.mode == Mode::DryRun {
            return;
        }
        for VmObservation { vm, .. } in observation.vms.iter().filter(|seen| !seen.stranger) {
            let outcome = match self.host.put_right(vm) {
                Ok(None) | Err(ActionError::Gone { .. }) => continue,
                Ok(Some(what)) => PutRight::Done(what),
                Err(error) => PutRight::Failed(error),
            };
            events.push(Event::PutRight { vm: vm.clone(), outcome });
        }
    }

    /// Shows a dry run its own plans as done, so that it plans on from them instead of planning the
    /// same again.
    fn pretend(&mut self, observation: &mut Observation) {
        let Self { host, pretended, .. } = self;
        pretended.retain(|(vm, _), _| runs(host, observation, vm));
        for seen in &mut observation.vms {
            for client in &mut seen.clients {
                match pretended.get(&(seen.vm.clone(), client.id)) {
                    Some(Pretended { real, planned }) if *real == Affinity::from(&*client) => {
                        client.cpus = planned.all();
                        client.groups = divided(planned, &client.groups);
                    }
                    _ => {}
                }
            }
        }
    }

    pub(crate) fn act(&mut self, decision: Decision, observation: &Observation) -> Event {
        let (vm, client) = (decision.action.vm(), decision.action.client());
        let seen = affinity(observation, vm, client);
        let before = seen.clone().unwrap_or_default();
        let clients = observation.vms.iter().find(|seen| seen.vm == *vm).map_or(1, |seen| seen.clients.len());
        let outcome = match self.mode {
            Mode::DryRun => self.plan(&decision, &before),
            Mode::Act => self.carry_out(&decision, seen.as_ref()),
        };
        Event::Acted { from: home::nodes_of(self.host.machine(), &before.cpus), decision, wide: clients > 1, outcome }
    }

    fn plan(&mut self, decision: &Decision, before: &Affinity) -> Outcome {
        if let Action::Bind { vm, client, cpus, groups, .. } = &decision.action {
            let entry = self.pretended.entry((vm.clone(), *client));
            let pretended = entry.or_insert_with(|| Pretended { real: before.clone(), planned: Affinity::default() });
            pretended.planned = Affinity { cpus: cpus.clone(), groups: groups.clone() };
        }
        Outcome::Planned
    }

    /// Writes down what begins, does it, and remembers what became of it.
    fn carry_out(&mut self, decision: &Decision, before: Option<&Affinity>) -> Outcome {
        let followers = match &decision.action {
            Action::Bind { vm, client, .. } => self.host.followers(vm, *client),
            Action::MoveMemory { .. } => BTreeMap::new(),
        };
        let result = match self.file.begin(decision, before, &followers) {
            Ok(()) => {
                self.saved.begin(&decision.action, before, &followers);
                self.host.carry_out(&decision.action)
            }
            Err(error) => Err(ActionError::Failed {
                vm: decision.action.vm().name.clone(),
                operation: "write down what is to be undone".to_owned(),
                reason: error.to_string(),
            }),
        };
        record(&self.policy, &mut self.saved.balance, decision, &result);
        let of_vm = self.saved.record_of(decision.action.vm());
        match result {
            Ok(done) => {
                of_vm.done(decision, &done);
                Outcome::Done(done)
            }
            Err(error) => {
                of_vm.failed(&decision.action);
                Outcome::Failed(error)
            }
        }
    }

    fn record_observation(&mut self, observation: &Observation, events: &mut Vec<Event>) {
        self.write_recording(events, |recorder| recorder.observed(observation));
    }

    /// Writes to the recording, if there is one; ends it at the first failure.
    fn write_recording(
        &mut self,
        events: &mut Vec<Event>,
        write: impl FnOnce(&mut Recorder) -> Result<(), DaemonError>,
    ) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = write(recorder)
        {
            self.recorder = None;
            events.push(Event::NotWritten { problem: format!("{error}; the recording ends here") });
        }
    }

    fn save_if_due(&mut self, observation: &Observation, events: &mut Vec<Event>) {
        let old = self.saved_at.is_none_or(|at| observation.at.0.saturating_sub(at.0) >= SAVE_EVERY_MS);
        if self.mode == Mode::Act && (old || !events.is_empty()) {
            self.saved_at = Some(observation.at);
            if let Err(error) = self.save() {
                events.push(Event::NotWritten { problem: error.to_string() });
            }
        }
    }

    /// Writes what it remembers, now.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self) -> Result<(), DaemonError> {
        self.file.save(&self.saved)
    }
}

/// Whether a VM is there still: it was seen, or is not known to have ended.
pub(crate) fn runs(host: &impl Observe, observation: &Observation, vm: &VmKey) -> bool {
    observation.vms.iter().any(|seen| seen.vm == *vm) || !host.has_ended(vm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Released;
    use crate::Start;
    use crate::testing::{ScriptedHost, balancer, bind, vm};
    use scheduler::Observe;
    use topology::{Bytes, NodeId};
    use vm::NodeUse;

    #[test]
    fn vms_come_and_go_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::DryRun, directory.path());
        let coming = |period: Period| -> Vec<Event> {
            period.events.into_iter().filter(|event| !matches!(event, Event::Acted { .. })).collect()
        };
        assert_eq!(coming(balancer.period().unwrap()), [Event::Appeared { vm: vm(1) }]);
        assert_eq!(coming(balancer.period().unwrap()), []);
        balancer.host.vms = vec![vm(2)];
        assert_eq!(coming(balancer.period().unwrap()), [Event::Ended { vm: vm(1) }, Event::Appeared { vm: vm(2) }]);
        let files = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 0, "a dry run writes nothing");
    }

    #[test]
    fn what_was_done_is_remembered_over_a_restart_and_undone() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = balancer(ScriptedHost::two_nodes(&[vm(1), vm(2)]), Mode::Act, directory.path());
        first.period().unwrap();
        let observation = first.host.observe().unwrap();
        first.act(bind(vm(1), "0", "0-1"), &observation);
        first.act(bind(vm(2), "1", "2-3"), &observation);
        first.save().unwrap();
        let mut host = first.host;
        assert_eq!(host.affinity_of(&vm(1)).to_string(), "0-1");
        // Somebody else changes the second one.
        host.bind(&vm(2), "3");
        let mut second = balancer(host, Mode::Act, directory.path());
        assert_eq!(second.saved().vms.len(), 2);
        let released = second.release().unwrap();
        assert!(matches!(&released[0], Released::Undone { to, .. } if to.to_string() == "0-3"), "{released:?}");
        assert!(matches!(&released[1], Released::Changed { now, .. } if now.to_string() == "3"), "{released:?}");
        assert_eq!(second.host.affinity_of(&vm(1)).to_string(), "0-3");
        assert_eq!(second.host.affinity_of(&vm(2)).to_string(), "3");
        assert_eq!(second.saved().vms, []);
        assert_eq!(second.release().unwrap(), []);
    }

    #[test]
    fn what_came_back_by_itself_is_not_undone() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::Act, directory.path());
        balancer.host.bind(&vm(1), "0-1");
        balancer.host.bind_vhost(&vm(1), "0-1");
        balancer.period().unwrap();
        for (home, cpus) in [("1", "2-3"), ("0", "0-1")] {
            let observation = balancer.host.observe().unwrap();
            balancer.act(bind(vm(1), home, cpus), &observation);
        }
        assert_eq!(balancer.saved().vms[0].clients[0].before.to_string(), "0-1");
        let done = balancer.host.carried_out.len();
        assert_eq!(balancer.release().unwrap(), []);
        assert_eq!((balancer.host.carried_out.len(), balancer.saved().vms.len()), (done, 0));
    }

    #[test]
    fn threads_without_a_vcpu_go_along_and_get_back_what_they_had() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::Act, directory.path());
        let set = |cpus: &str| -> topology::CpuSet { cpus.parse().unwrap() };
        // The main thread and a worker share what the vCPUs may use, an I/O thread has a CPU of its
        // own.
        let others = [(1, set("0-3")), (11, set("0-3")), (12, set("3"))];
        balancer.host.others.insert(vm(1), others.into());
        for (home, cpus) in [("1", "2-3"), ("0", "0-1")] {
            let observation = balancer.host.observe().unwrap();
            balancer.act(bind(vm(1), home, cpus), &observation);
        }
        // A worker that comes later has the CPUs of the thread that made it.
        balancer.host.others.get_mut(&vm(1)).unwrap().insert(13, set("0-1"));
        let now: Vec<String> = balancer.host.others[&vm(1)].values().map(ToString::to_string).collect();
        assert_eq!(now, ["0-1", "0-1", "3", "0-1"]);
        balancer.release().unwrap();
        let now: Vec<String> = balancer.host.others[&vm(1)].values().map(ToString::to_string).collect();
        assert_eq!(now, ["0-3", "0-3", "3", "0-3"]);
    }

    #[test]
    fn a_failure_is_counted_and_the_vm_keeps_what_it_had() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::Act, directory.path());
        balancer.host.refuses = true;
        let observation = balancer.host.observe().unwrap();
        let Event::Acted { outcome, from, .. } = balancer.act(bind(vm(1), "0", "0-1"), &observation) else { panic!() };
        assert!(matches!(outcome, Outcome::Failed(ActionError::Permission { .. })), "{outcome:?}");
        assert_eq!(from.to_string(), "0-1");
        assert_eq!((balancer.saved().vms[0].failures, balancer.saved().vms[0].clients.len()), (1, 0));
    }

    fn binds(period: &Period) -> usize {
        let is_bind = |event: &&Event| event.home().is_some();
        period.events.iter().filter(is_bind).count()
    }

    #[test]
    fn a_dry_run_plans_a_home_once_and_binds_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::DryRun, directory.path());
        assert_eq!(binds(&balancer.period().unwrap()), 1);
        for _ in 0..10 {
            assert_eq!(binds(&balancer.period().unwrap()), 0);
        }
        assert_eq!(balancer.host.carried_out, []);
        // Somebody else binds it meanwhile: what was planned is not true any more.
        balancer.host.bind(&vm(1), "2-3");
        balancer.period().unwrap();
        assert_eq!(balancer.host.affinity_of(&vm(1)).to_string(), "2-3");
    }

    #[test]
    fn a_restart_moves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = balancer(ScriptedHost::two_nodes(&[vm(1), vm(2)]), Mode::Act, directory.path());
        assert_eq!(binds(&first.period().unwrap()), 2);
        // As after kill -9: only what was saved by itself is there.
        let mut second = balancer(first.host, Mode::Act, directory.path());
        assert_eq!(second.saved().vms.len(), 2);
        for _ in 0..10 {
            assert_eq!(binds(&second.period().unwrap()), 0);
        }
    }

    #[test]
    fn a_vm_that_is_being_started_counts_and_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1), vm(2)]), Mode::Act, directory.path());
        let held = NodeUse {
            vcpus: 2,
            always_busy: 2,
            memory: Bytes::from_mib(512),
            resident: Bytes(0),
            ..NodeUse::default()
        };
        let name = vm(1).name;
        let start = Start { vm: name.clone(), holdings: BTreeMap::from([(NodeId(0), held)]) };
        let mut observation = balancer.host.observe().unwrap();
        crate::ledger::enter(vec![start.clone()], &mut observation);
        assert!(observation.vms.iter().all(|seen| seen.vm.name != name));
        let reserved = observation.reserved[&NodeId(0)];
        assert_eq!((reserved.vcpus, reserved.always_busy), (2, 2));
        balancer.heed(Box::new(move || vec![start.clone()]));
        let period = balancer.period().unwrap();
        // Two vCPUs on two cores are being started on node 0: the other VM goes to node 1, and the
        // first is not even known.
        let homes: Vec<_> = period.events.iter().filter_map(Event::home).collect();
        assert_eq!((period.vms, binds(&period), homes.len()), (1, 1, 1));
        assert_eq!(balancer.host.affinity_of(&vm(2)).to_string(), "2-3");
        assert_eq!(balancer.host.affinity_of(&vm(1)).to_string(), "0-3");
        // When it has started it is one like all others.
        balancer.ledger = None;
        assert_eq!(binds(&balancer.period().unwrap()), 1);
        assert_eq!(balancer.host.affinity_of(&vm(1)).to_string(), "0-1");
    }

    #[test]
    fn a_host_with_one_node_is_looked_at_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::one_node(&[vm(1)]), Mode::Act, directory.path());
        for _ in 0..20 {
            let period = balancer.period().unwrap();
            assert!(!period.events.iter().any(|event| matches!(event, Event::Acted { .. })));
        }
        assert_eq!(balancer.host.carried_out, []);
    }
}
