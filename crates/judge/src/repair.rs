//! What a program can do about a VM that runs, and doing it.
//!
//! **Rule.** A cpuset is its owner's choice and bounds the home. Memory moves only after the bind
//! of its client succeeded, or where none is needed; a cgroup is confined only after everything
//! else of its VM succeeded. After each VM it is looked at again: if more of its memory is remote
//! than before, and than these repairs should leave, that is said, and nothing more is done.
//!
//! **Example.** vCPUs float over nodes 0 and 1 and should live on node 1, and binding them there
//! fails: memory on node 0 stays where it is.

use crate::change::Change;
use crate::finding::{Finding, Repair};
use crate::shaped::Running;
use scheduler::{
    Action, ActionError, ClientId, ClientObservation, Done, Host, Mobility, Observation, ObserveError, OtherThreadKind,
    VmKey, home, with_groups,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// Memory away from home that nobody needs to hear of: a few pages are always somewhere.
const NEGLIGIBLE: Bytes = Bytes::MIB;
/// Rounds of repair: where memory has moved, the next look may find that its policy was left
/// behind.
const ROUNDS: usize = 3;

/// The repairs that bring about a change: threads first, then memory. Threads that another program
/// bound are bound too: somebody asks for it.
pub(crate) fn of_change(change: &Change<'_>, running: &Running) -> Vec<Repair> {
    if change.target.reshaped {
        return Vec::new();
    }
    let pins = change.pins();
    let mut repairs = Vec::new();
    for (client, node) in running.seen.clients.iter().zip(&change.target.nodes) {
        let (vm, id) = (running.seen.vm.clone(), client.id);
        if pins.vcpus.iter().any(|(vcpus, _)| !vcpus.intersection(&node.vcpus).is_empty()) {
            // What moves packets would follow to the CPUs of vCPUs that are bound alone.
            let follows = running.seen.other_threads.iter().any(|thread| thread.kind == OtherThreadKind::Vhost);
            let groups = change.groups_of_one(node);
            let (home, cpus) = match groups.is_empty() {
                true => (node.home.clone(), node.cpus.clone()),
                false => (node.home.clone(), groups.iter().flat_map(|group| group.cpus.iter()).collect()),
            };
            if groups.is_empty() || !follows {
                repairs.push(Repair::Act { action: Action::Bind { vm: vm.clone(), client: id, home, cpus, groups } });
            }
        }
        // What somebody interleaved stays.
        let stays = running.seen.mobility != Mobility::Movable || !client.spread_nodes.is_empty();
        let moves = !stays && change.moves_memory();
        for (&from, &at_most) in client.memory.iter().flatten().filter(|_| moves) {
            let to = nearest(change.machine(), from, &node.home).filter(|_| !node.home.contains(from));
            // What somebody bound elsewhere stays, as the balancer leaves it.
            let may_come = |to: &NodeId| client.chosen_nodes.as_ref().is_none_or(|chosen| chosen.contains(*to));
            let Some(to) = to.filter(|to| at_most >= NEGLIGIBLE && may_come(to)) else { continue };
            let action = Action::MoveMemory { vm: vm.clone(), client: id, from, to, at_most };
            repairs.push(Repair::Act { action });
        }
    }
    let threads: BTreeMap<u32, CpuSet> = change.other_threads(running).into_iter().collect();
    if !threads.is_empty() {
        repairs.push(Repair::BindOthers { vm: running.seen.vm.clone(), threads });
    }
    repairs
}

/// The home node that is nearest to a node.
fn nearest(machine: &Machine, node: NodeId, home: &NodeSet) -> Option<NodeId> {
    home.iter().min_by_key(|&other| (machine.distance(node, other), other))
}

/// A repair that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The finding that it was to mend.
    pub finding: Finding,
    /// It.
    pub repair: Repair,
    /// What it did; `None` where it failed, or was not done.
    pub done: Option<Done>,
    /// Why it failed.
    pub error: Option<ActionError>,
    /// Why it was not done.
    pub skipped: Option<String>,
}

/// What repairing came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mending {
    /// What was tried, in order.
    pub tried: Vec<Tried>,
    /// More memory is remote than before: what, as a sentence. Nothing was done after that.
    pub worse: Option<String>,
}

/// Repairs what a program can, VM by VM. `judge` looks at an observation that
/// [`examine`](scheduler::Observe::examine) made.
///
/// # Errors
/// The host cannot be looked at.
pub fn mend<H: Host>(host: &mut H, judge: impl Fn(&H, &Observation) -> Vec<Finding>) -> Result<Mending, ObserveError> {
    let mut mending = Mending::default();
    let mut observation = host.examine()?;
    for _ in 0..ROUNDS {
        let findings = judge(host, &observation);
        let mut tried = false;
        for (vm, repairs) in by_vm(&findings) {
            let before = remote(host.machine(), &observation, &vm);
            let foreseen = remote(host.machine(), &foreseen(&observation, &repairs), &vm);
            tried |= carry_out(host, &observation, &repairs, &mut mending.tried);
            observation = host.examine()?;
            let after = remote(host.machine(), &observation, &vm);
            if after.0 > before.max(foreseen).0.saturating_add(NEGLIGIBLE.0) {
                let name = &vm.name;
                mending.worse =
                    Some(format!("{name}: {before} of its memory were remote, {after} are now: nothing more was done"));
                return Ok(mending);
            }
        }
        if !tried {
            break;
        }
    }
    Ok(mending)
}

type Wanted<'a> = Vec<(&'a Repair, &'a Finding)>;

/// What is to be done for each VM, each repair once: threads first, then memory, then its cgroup.
fn by_vm(findings: &[Finding]) -> BTreeMap<VmKey, Wanted<'_>> {
    let mut all = BTreeMap::<VmKey, Wanted<'_>>::new();
    for finding in findings.iter().filter(|finding| finding.needs_doing()) {
        for repair in &finding.cure.repairs {
            let wanted = all.entry(repair.vm().clone()).or_default();
            if !wanted.iter().any(|(other, _)| *other == repair) {
                wanted.push((repair, finding));
            }
        }
    }
    for wanted in all.values_mut() {
        // A client is bound once: what a manager is to be told is then told too.
        let mut bound = BTreeSet::new();
        wanted.retain(|(repair, _)| repair.binds().is_none_or(|client| bound.insert(client)));
        wanted.sort_by_key(|(repair, _)| repair.turn());
    }
    all
}

/// Whether anything was tried.
fn carry_out<H: Host>(host: &mut H, seen: &Observation, wanted: &Wanted<'_>, tried: &mut Vec<Tried>) -> bool {
    let mut unbound = BTreeSet::new();
    let (mut failed, mut any) = (false, false);
    for &(repair, finding) in wanted {
        if tried.iter().any(|earlier| earlier.repair == *repair && earlier.done.is_none()) {
            failed = true;
            unbound.extend(repair.binds());
            continue;
        }
        let mut one =
            Tried { finding: finding.clone(), repair: repair.clone(), done: None, error: None, skipped: None };
        one.skipped = match repair {
            Repair::Act { action: Action::MoveMemory { client, .. } } if unbound.contains(client) => {
                Some("its vCPUs could not be bound there: the memory stays with them".to_owned())
            }
            Repair::Confine { .. } if failed => Some("what comes before it failed".to_owned()),
            _ => None,
        };
        if one.skipped.is_none() {
            let result = match repair {
                Repair::Act { action } => {
                    let action = with_groups(host.machine(), seen, action);
                    host.carry_out(&action)
                }
                Repair::BindOthers { vm, threads } => host.bind_others(vm, threads),
                Repair::Confine { vm, nodes } => host.confine(vm, nodes),
            };
            match result {
                Ok(done) => one.done = Some(done),
                Err(error) => {
                    failed = true;
                    unbound.extend(repair.binds());
                    one.error = Some(error);
                }
            }
            any = true;
        }
        tried.push(one);
    }
    any
}

impl Repair {
    /// The VM that it changes.
    pub fn vm(&self) -> &VmKey {
        match self {
            Self::Act { action } => action.vm(),
            Self::BindOthers { vm, .. } | Self::Confine { vm, .. } => vm,
        }
    }

    fn binds(&self) -> Option<ClientId> {
        match self {
            Self::Act { action: Action::Bind { client, .. } } => Some(*client),
            _ => None,
        }
    }

    fn turn(&self) -> u32 {
        match self {
            Self::Act { action: Action::Bind { .. } } => 0,
            Self::BindOthers { .. } => 1,
            Self::Act { .. } => 2,
            Self::Confine { .. } => 3,
        }
    }
}

/// The host as it is when all repairs do what they say: a home is also chosen by what else runs on
/// it, and memory that cannot move may be remote from the best one.
fn foreseen(observation: &Observation, wanted: &Wanted<'_>) -> Observation {
    let mut after = observation.clone();
    for (repair, _) in wanted {
        let Repair::Act { action } = repair else { continue };
        let clients = after.vms.iter_mut().filter(|seen| seen.vm == *action.vm()).flat_map(|seen| &mut seen.clients);
        for client in clients.filter(|client| client.id == action.client()) {
            match action {
                Action::Bind { cpus, .. } => client.cpus = cpus.clone(),
                Action::MoveMemory { from, to, at_most, .. } => {
                    let Some(memory) = &mut client.memory else { continue };
                    let there = memory.get(from).copied().unwrap_or_default().min(*at_most);
                    memory.entry(*from).and_modify(|bytes| *bytes = bytes.saturating_sub(there));
                    let sum = memory.entry(*to).or_default();
                    *sum = sum.saturating_add(there);
                }
            }
        }
    }
    after
}

/// Memory of a VM that is remote in the mean over the CPUs that its vCPUs may use.
fn remote(machine: &Machine, observation: &Observation, vm: &VmKey) -> Bytes {
    let seen = observation.vms.iter().find(|seen| seen.vm == *vm);
    let of = |client: &ClientObservation| -> u64 {
        let on = |node: NodeId| home::cpus_on(machine, &client.cpus, node) as f64 / client.cpus.len().max(1) as f64;
        client.memory.iter().flatten().map(|(&node, bytes)| (bytes.0 as f64 * (1.0 - on(node))) as u64).sum()
    };
    Bytes(seen.map_or(0, |seen| seen.clients.iter().map(of).sum()))
}
