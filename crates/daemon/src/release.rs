//! Undoing: every affinity that a balancer set is what it was before, unless somebody else changed
//! it since.
//!
//! **Problem.** Who takes a balancer away wants the host as it was. But the balancer may have been
//! killed within a bind, and an administrator may have bound a VM anew since.
//!
//! **Rule.** What is to be undone is known from the state and its journal (`saved`): CPUs before,
//! CPUs set, CPUs being set. Threads that have one of these are given what they had before. A
//! client with a thread that has anything else is somebody's choice. A thread that went along with
//! the client (QEMU's main thread, `vhost-*`) is judged by itself, and gets back what it had
//! itself; one that came since, what the main thread had.
//!
//! A look at the host may leave out a VM that runs, where there was no time for it or it could not
//! be read. So looks go on until every VM of the record was seen or is known to have ended.
//!
//! **Properties.** Killed at any moment, all is undone. Undoing twice changes nothing. What failed
//! stays known, so that the next release tries again. Memory stays where it is: it has no "before"
//! that would be better.
//!
//! **Example.** `web` had CPUs 0-7, and the balancer was killed while it bound it to 0-3: threads
//! on 0-3 and on 0-7 get 0-7 again. Had somebody put one of them on CPU 5 since, the client would
//! be left alone, and the release would say so.

use crate::balancer::runs;
use crate::record::{ClientRecord, seen};
use crate::standing::{Standing, online, same, sets_of, sets_of_vm, standing};
use crate::{Balancer, DaemonError};
use scheduler::balance::BalanceState;
use scheduler::{Action, ActionError, ClientId, ClientObservation, Host, Observation, ObserveError, VmKey};
use serde::Serialize;
use std::thread;
use std::time::Duration;
use topology::{CpuSet, NodeSet};

/// Looks one after the other that show nothing new, after which a VM is not waited for: a process
/// is taken up again within 16 (`linux::host::scan`).
const LOOKS_IN_VAIN: u32 = 32;
/// Between two of them.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// What became of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "released", rename_all = "snake_case")]
pub enum Released {
    /// It may run where it could before.
    Undone {
        /// Which VM.
        vm: VmKey,
        /// Which client.
        client: ClientId,
        /// CPUs.
        to: CpuSet,
        /// What is to be said of it: the program that manages the VM does not know, for example.
        because: Option<String>,
    },
    /// Somebody else has changed it since: it is left alone.
    Changed {
        /// Which VM.
        vm: VmKey,
        /// Which client.
        client: ClientId,
        /// What the balancer had set.
        set: CpuSet,
        /// What it is now.
        now: CpuSet,
    },
    /// It could not be undone.
    Failed {
        /// Which VM.
        vm: VmKey,
        /// Which client.
        client: ClientId,
        /// Why.
        error: ActionError,
    },
}

impl<H: Host> Balancer<H> {
    /// Undoes every affinity that this balancer, or the one whose memory it has, set; forgets what
    /// was undone. Memory stays where it is.
    ///
    /// # Errors
    /// Nothing at all can be read of the host, or the memory cannot be written.
    pub fn release(&mut self) -> Result<Vec<Released>, DaemonError> {
        let observation = self.look_until_all_are_seen()?;
        self.saved.forget_ended(|vm| runs(&self.host, &observation, vm));
        let mut all = Vec::new();
        let mut records = std::mem::take(&mut self.saved.vms);
        for record in &mut records {
            let vm = record.vm.clone();
            let together = sets_of_vm(record, &observation);
            record.clients.retain(|client| {
                let released = self.release_client(&vm, client, &together, &observation);
                let keep = match &released {
                    Some(Released::Failed { error: ActionError::Gone { .. }, .. }) => !self.host.has_ended(&vm),
                    released => matches!(released, Some(Released::Failed { .. })),
                };
                all.extend(released);
                keep
            });
        }
        records.retain(|record| !record.clients.is_empty());
        self.saved.vms = records;
        self.saved.balance = BalanceState::default();
        self.save()?;
        Ok(all)
    }

    /// One look may leave out VMs, for want of time for example: looks until each VM and client
    /// that has something to be undone was seen, or has ended, and takes what was seen together.
    fn look_until_all_are_seen(&mut self) -> Result<Observation, ObserveError> {
        let mut all = self.host.observe()?;
        let (mut unseen, mut in_vain) = (self.unseen(&all), 1);
        while unseen > 0 && in_vain < LOOKS_IN_VAIN {
            thread::sleep(BETWEEN_LOOKS);
            for seen in self.host.observe()?.vms {
                match all.vms.iter_mut().find(|known| known.vm == seen.vm) {
                    Some(known) => *known = seen,
                    None => all.vms.push(seen),
                }
            }
            let left = self.unseen(&all);
            in_vain = if left < unseen { 1 } else { in_vain + 1 };
            unseen = left;
        }
        Ok(all)
    }

    /// Clients that have something to be undone, and were not seen.
    fn unseen(&self, observation: &Observation) -> usize {
        let recorded = self.saved.vms.iter().filter(|record| runs(&self.host, observation, &record.vm));
        let clients = recorded.flat_map(|record| record.clients.iter().map(|client| (&record.vm, client.client)));
        clients.filter(|&(vm, client)| legible(observation, vm, client).is_none()).count()
    }

    fn release_client(
        &mut self,
        vm: &VmKey,
        record: &ClientRecord,
        together: &[CpuSet],
        observation: &Observation,
    ) -> Option<Released> {
        let (vm, client) = (vm.clone(), record.client);
        let Some(seen) = legible(observation, &vm, client) else {
            let reason = format!("it runs, and was not seen by the last {LOOKS_IN_VAIN} looks at this host");
            let error = ActionError::Failed { vm: vm.name.clone(), operation: "look at it".to_owned(), reason };
            return Some(Released::Failed { vm, client, error });
        };
        let of_vcpus = match standing(record, seen, observation) {
            Standing::AsBefore => None,
            Standing::Foreign => {
                Some(Released::Changed { vm: vm.clone(), client, set: record.set.clone(), now: seen.cpus.clone() })
            }
            Standing::Ours => Some(self.release_vcpus(&vm, record)),
        };
        match self.release_followers(&vm, record, together, observation) {
            Ok(0) => of_vcpus,
            Ok(_) => of_vcpus.or(Some(Released::Undone { vm, client, to: record.before.clone(), because: None })),
            Err(error) => Some(Released::Failed { vm, client, error }),
        }
    }

    fn release_vcpus(&mut self, vm: &VmKey, record: &ClientRecord) -> Released {
        let (vm, client, to) = (vm.clone(), record.client, record.before.clone());
        // It had this affinity before, whatever its memory may do.
        let action = Action::Bind {
            vm: vm.clone(),
            client,
            home: NodeSet::new(),
            cpus: to.clone(),
            groups: record.before_groups.clone(),
        };
        match self.host.carry_out(&action) {
            Ok(done) => Released::Undone { vm, client, to, because: done.because },
            Err(error) => Released::Failed { vm, client, error },
        }
    }

    /// Gives the threads that went along with a client what each might use before, unless somebody
    /// else has changed it since; how many.
    fn release_followers(
        &mut self,
        vm: &VmKey,
        record: &ClientRecord,
        together: &[CpuSet],
        observation: &Observation,
    ) -> Result<usize, ActionError> {
        if record.followers.is_empty() {
            return Ok(0);
        }
        let now = self.host.followers(vm, record.client);
        let online = online(observation);
        let usual = record.followers.get(&vm.pid);
        let mut given_back = 0;
        for (&thread, cpus) in &now {
            let Some(before) = record.followers.get(&thread).or(usual) else { continue };
            let mut ours = sets_of(record, before).into_iter().chain(together.iter().cloned());
            if !same(cpus, before, &online) && ours.any(|set| same(cpus, &set, &online)) {
                self.host.give_back(vm, record.client, thread, before)?;
                given_back += 1;
            }
        }
        Ok(given_back)
    }
}

/// What is seen of a client whose threads could be read.
fn legible<'a>(observation: &'a Observation, vm: &VmKey, client: ClientId) -> Option<&'a ClientObservation> {
    seen(observation, vm, client).filter(|seen| !seen.cpus.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Killed, ScriptedHost, balancer, bind, vm};
    use crate::{Event, Mode, Watched};
    use scheduler::{Observe, VcpuGroup};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use topology::Bytes;

    /// Periods and single decisions of a balancer that is killed after so many steps of its host;
    /// `None`: it came to its end before.
    fn killed_after(steps: u32, directory: &std::path::Path) -> Option<ScriptedHost> {
        let mut host = ScriptedHost::two_nodes(&[vm(1), vm(2), vm(3)]);
        host.bind(&vm(3), "0-1");
        host.steps_left = Some(steps);
        let mut balancer = balancer(host, Mode::Act, directory);
        let work = catch_unwind(AssertUnwindSafe(|| {
            balancer.period().unwrap();
            for (number, home, cpus) in [(1, "1", "2-3"), (2, "0", "0-1"), (3, "1", "2-3"), (1, "0", "0-1")] {
                let observation = balancer.host.observe().unwrap();
                balancer.act(bind(vm(number), home, cpus), &observation);
                if number == 2 {
                    balancer.save().unwrap();
                }
            }
            let mut away = bind(vm(2), "0", "0-1");
            away.action = Action::MoveMemory {
                vm: vm(2),
                client: ClientId(0),
                from: topology::NodeId(1),
                to: topology::NodeId(0),
                at_most: Bytes::MIB,
            };
            let observation = balancer.host.observe().unwrap();
            balancer.act(away, &observation);
        }));
        let killed = work.is_err_and(|why| why.is::<Killed>());
        balancer.host.steps_left = None;
        killed.then_some(balancer.host)
    }

    #[test]
    fn killed_at_any_step_all_is_undone() {
        // Two adoptions and four binds of four steps each, and one move of memory: 2 x 4 + 4 x 4 +
        // 1.
        let mut kills = 0;
        for steps in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let Some(host) = killed_after(steps, directory.path()) else { break };
            kills += 1;
            let mut second = balancer(host, Mode::Act, directory.path());
            second.release().unwrap();
            assert_all_is_as_before(&mut second.host, &format!("killed after {steps} steps"));
            assert_eq!(second.release().unwrap(), [], "killed after {steps} steps");
        }
        assert_eq!(kills, 25);
    }

    fn assert_all_is_as_before(host: &mut ScriptedHost, when: &str) {
        for (number, cpus) in [(1, "0-3"), (2, "0-3"), (3, "0-1")] {
            let seen = host.observe().unwrap();
            let client = &seen.vms.iter().find(|seen| seen.vm == vm(number)).unwrap().clients[0];
            let whole = client.vcpu_cpus.values().all(|of_thread| of_thread.to_string() == cpus);
            assert!(whole, "{when}: VM {number} has {:?}", client.vcpu_cpus);
            // Its vhost thread had other CPUs than its vCPUs.
            assert_eq!(host.vhost_of(&vm(number)).to_string(), "1-2", "{when}: the vhost thread of VM {number}");
        }
    }

    #[test]
    fn groups_get_back_what_each_had_after_a_kill_at_any_step() {
        let mut kills = 0;
        for steps in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let mut host = ScriptedHost::two_nodes(&[vm(1)]);
            (0..2).for_each(|vcpu| host.bind_thread(&vm(1), vcpu, &vcpu.to_string()));
            host.steps_left = Some(steps);
            let mut first = balancer(host, Mode::Act, directory.path());
            let work = catch_unwind(AssertUnwindSafe(|| {
                let observation = first.host.observe().unwrap();
                let mut decision = bind(vm(1), "1", "2-3");
                let own = |vcpu: u32| VcpuGroup { vcpus: vec![vcpu], cpus: (vcpu + 2).to_string().parse().unwrap() };
                if let Action::Bind { groups, .. } = &mut decision.action {
                    *groups = vec![own(0), own(1)];
                }
                first.act(decision, &observation);
            }));
            let killed = work.is_err_and(|why| why.is::<Killed>());
            first.host.steps_left = None;
            let mut second = balancer(first.host, Mode::Act, directory.path());
            second.release().unwrap();
            let seen = second.host.observe().unwrap();
            let has = &seen.vms[0].clients[0].vcpu_cpus;
            let as_before = has.iter().all(|(vcpu, cpus)| cpus.to_string() == vcpu.to_string());
            assert!(as_before, "killed after {steps} steps: {has:?}");
            assert_eq!(second.release().unwrap(), [], "killed after {steps} steps");
            kills += u32::from(killed);
            if !killed {
                break;
            }
        }
        // It begins, binds two threads and its vhost thread.
        assert_eq!(kills, 4);
    }

    #[test]
    fn a_release_that_is_killed_at_any_step_is_ended_by_the_next() {
        let mut kills = 0;
        for steps in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let mut host = killed_after(24, directory.path()).unwrap();
            host.steps_left = Some(steps);
            let mut second = balancer(host, Mode::Act, directory.path());
            let ended = catch_unwind(AssertUnwindSafe(|| second.release().unwrap())).is_ok();
            second.host.steps_left = None;
            let mut third = balancer(second.host, Mode::Act, directory.path());
            third.release().unwrap();
            assert_all_is_as_before(&mut third.host, &format!("release killed after {steps} steps"));
            if ended {
                break;
            }
            kills += 1;
        }
        // Three clients of three steps each, and their vhost threads.
        assert_eq!(kills, 12);
    }

    #[test]
    fn a_vm_that_a_look_left_out_is_released_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = balancer(ScriptedHost::two_nodes(&[vm(1), vm(2)]), Mode::Act, directory.path());
        first.period().unwrap();
        // A period in which there was no time for one of them, told and saved.
        first.host.left_out.insert(vm(1), 1);
        let told = first.period().unwrap().events;
        assert!(!told.contains(&Event::Ended { vm: vm(1) }), "{told:?}");
        first.save().unwrap();
        let mut host = first.host;
        host.left_out.extend([(vm(1), 3), (vm(2), 1)]);
        let mut second = balancer(host, Mode::Act, directory.path());
        let released = second.release().unwrap();
        assert!(matches!(&released[..], [Released::Undone { .. }, Released::Undone { .. }]), "{released:?}");
        assert_eq!([1, 2].map(|number| second.host.affinity_of(&vm(number)).to_string()), ["0-3", "0-3"]);
        assert_eq!(second.saved().vms, []);
    }

    #[test]
    fn a_vm_that_cannot_be_seen_stays_known_until_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1), vm(2)]), Mode::Act, directory.path());
        balancer.period().unwrap();
        balancer.host.left_out.insert(vm(1), u32::MAX);
        let released = balancer.release().unwrap();
        let [Released::Failed { error, .. }, Released::Undone { .. }] = &released[..] else { panic!("{released:?}") };
        assert!(error.to_string().starts_with("vm1: look at it: it runs, and was not seen"), "{error}");
        let known: Vec<VmKey> = balancer.saved().vms.iter().map(|record| record.vm.clone()).collect();
        assert_eq!(known, [vm(1)]);
        balancer.host.vms.clear();
        assert_eq!((balancer.release().unwrap(), balancer.saved().vms.len()), (Vec::new(), 0));
    }

    #[test]
    fn a_vhost_thread_that_somebody_else_has_bound_since_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::Act, directory.path());
        balancer.period().unwrap();
        assert_eq!(balancer.host.vhost_of(&vm(1)).to_string(), "0-1");
        balancer.host.bind_vhost(&vm(1), "3");
        assert!(matches!(&balancer.release().unwrap()[..], [Released::Undone { .. }]));
        assert_eq!(balancer.host.vhost_of(&vm(1)).to_string(), "3");
    }

    #[test]
    fn who_looks_during_a_period_sees_the_decision_in_progress() {
        let directory = tempfile::tempdir().unwrap();
        // Killed within the second adoption: the same moment as a look then.
        killed_after(4, directory.path()).unwrap();
        let file = crate::SavedFile::new(directory.path().join("balance.json"), "boot".into());
        let watched = Watched::look(&file).unwrap();
        let doing = watched.doing.unwrap();
        assert_eq!((doing.decision.action.vm(), doing.since.is_some()), (&vm(2), true));
        assert_eq!(watched.saved.vms.len(), 2);
        // Between periods there is none.
        balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::Act, directory.path()).period().unwrap();
        assert_eq!(Watched::look(&file).unwrap().doing, None);
    }

    #[test]
    fn what_cannot_be_written_down_is_not_bound() {
        let directory = tempfile::tempdir().unwrap();
        let gone = directory.path().join("gone");
        std::fs::create_dir(&gone).unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::Act, &gone);
        std::fs::remove_dir(&gone).unwrap();
        let period = balancer.period().unwrap();
        let told = format!("{:?}", period.events);
        assert!(told.contains("write down what is to be undone"), "{told}");
        assert_eq!((balancer.host.carried_out.len(), balancer.host.affinity_of(&vm(1)).to_string()), (0, "0-3".into()));
    }

    #[test]
    fn what_a_cpuset_left_of_a_home_is_undone() {
        let directory = tempfile::tempdir().unwrap();
        let mut host = ScriptedHost::two_nodes(&[vm(1)]);
        host.bind(&vm(1), "1-3");
        let mut balancer = balancer(host, Mode::Act, directory.path());
        let observation = balancer.host.observe().unwrap();
        balancer.act(bind(vm(1), "0", "0-1"), &observation);
        // CPU 0 is not in its cpuset: the kernel left it out.
        balancer.host.bind(&vm(1), "1");
        let released = balancer.release().unwrap();
        assert!(matches!(&released[..], [Released::Undone { .. }]), "{released:?}");
        assert_eq!(balancer.host.affinity_of(&vm(1)).to_string(), "1-3");
    }

    #[test]
    fn what_somebody_set_for_one_vcpu_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::Act, directory.path());
        balancer.period().unwrap();
        balancer.host.bind_thread(&vm(1), 1, "3");
        let released = balancer.release().unwrap();
        assert!(matches!(&released[..], [Released::Changed { .. }]), "{released:?}");
    }
}
