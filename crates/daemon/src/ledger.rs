//! VMs that homenode is starting: planned, and not yet where they will be. They count, and are
//! nobody's to move.

use scheduler::{Observation, VmObservation};
use std::collections::BTreeMap;
use topology::{Bytes, NodeId};
use vm::NodeUse;

/// A VM that is being started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its name.
    pub vm: String,
    /// What it will hold of each node.
    pub holdings: BTreeMap<NodeId, NodeUse>,
}

/// Says which VMs are being started now.
pub type Ledger = Box<dyn Fn() -> Vec<Start>>;

/// Puts what VMs that are being started will hold beside what the observation has reserved, and
/// leaves out what was seen of them: their threads are bound and their memory is taken by whoever
/// starts them.
pub(crate) fn enter(starts: Vec<Start>, observation: &mut Observation) {
    for start in starts {
        // Any user can give a process this name.
        let is_it = |seen: &VmObservation| seen.vm.name == start.vm && !seen.stranger;
        let seen = observation.vms.iter().position(is_it);
        let clients = seen.map(|index| observation.vms.remove(index).clients).unwrap_or_default();
        for (node, held) in start.holdings {
            let there = clients.iter().filter_map(|client| client.memory.as_ref()?.get(&node)).copied();
            let resident = there.sum::<Bytes>().min(held.memory);
            let reserved = observation.reserved.entry(node).or_default();
            reserved.vcpus += held.vcpus;
            reserved.always_busy += held.always_busy;
            reserved.memory = reserved.memory.saturating_add(held.memory);
            reserved.resident = reserved.resident.saturating_add(resident);
        }
    }
}
