//! Homes that would make a VM worse off than it is.
//!
//! **Problem.** Where no home has room, the best of them was still named as the cure: a VM that
//! floats and starts was bound to memory that others hold, or its vCPUs to fewer hardware threads
//! than they have now.
//!
//! **Rule.** Homes are named as a cure only where they hold the VM's memory beside that of others,
//! and where each vCPU has a hardware thread, or its pins give it less of one now.
//!
//! **Example.** 13 vCPUs that may run on all 16 hardware threads of two nodes are not bound to the
//! 8 of one; 13 that are pinned to one are.

use crate::shaped::ShapedVm;
use crate::target::TargetNode;
use scheduler::Occupancy;
use std::collections::BTreeSet;
use topology::{Bytes, CpuId, CpuSet, Machine, NodeId, NodeSet};

/// Why homes would be worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cramped {
    /// They do not hold its memory.
    #[error("no home of the machine has room for its memory beside the others")]
    Memory,
    /// They have too few hardware threads.
    #[error("no home of the machine has a hardware thread for each of its vCPUs")]
    Threads,
    /// Virtual nodes that are not whole MiB, cut anew, would be more memory or less.
    #[error(
        "its virtual nodes are not whole MiB, and QEMU rounds each up: cut anew they are not the memory that it has now"
    )]
    UnevenMemory,
}

/// Why the homes of virtual nodes would be worse for a VM than what it has.
pub(crate) fn cramped(
    machine: &Machine,
    occupancy: &Occupancy,
    vm: &ShapedVm,
    nodes: &[TargetNode],
) -> Option<Cramped> {
    let homes: Vec<&NodeSet> = nodes.iter().map(|node| &node.home).collect();
    let memory: Vec<Bytes> = nodes.iter().map(|node| node.memory.saturating_add(vm.plugged_of(node.id))).collect();
    if !is_held(&homes, &memory, |node| free(machine, occupancy, node)) {
        return Some(Cramped::Memory);
    }
    let all = machine.schedulable();
    let is_there = |vcpu: &CpuId| !vm.absent.contains(*vcpu);
    let pins = vm.pins.iter().filter(|(vcpu, _)| is_there(&CpuId(**vcpu)));
    let now: Vec<CpuSet> = pins.map(|(_, pin)| all.used(pin)).collect();
    let each = |node: &TargetNode| vec![node.cpus.clone(); node.vcpus.difference(&node.absent).len()];
    let then: Vec<CpuSet> = nodes.iter().flat_map(each).collect();
    let (now, then) = (vcpus_by_thread(&now), vcpus_by_thread(&then));
    (then > 1.0 && then > now).then_some(Cramped::Threads)
}

/// Memory of a node that others do not hold.
pub(crate) fn free(machine: &Machine, occupancy: &Occupancy, node: NodeId) -> Bytes {
    let memory = machine.node(node).map_or(Bytes(0), |node| node.memory);
    memory.saturating_sub(occupancy.of(node).memory)
}

/// Whether each set of nodes has the memory of all that is to lie within it.
pub(crate) fn is_held(homes: &[&NodeSet], memory: &[Bytes], free: impl Fn(NodeId) -> Bytes) -> bool {
    let sets: BTreeSet<&NodeSet> = homes.iter().copied().collect();
    sets.into_iter().all(|set| {
        let inside = homes.iter().zip(memory).filter(|(home, _)| home.is_subset(set));
        inside.map(|(_, &memory)| memory).sum::<Bytes>() <= set.iter().map(&free).sum()
    })
}

/// Most vCPUs for each hardware thread of a set of CPUs that they cannot leave.
fn vcpus_by_thread(pins: &[CpuSet]) -> f64 {
    let sets: BTreeSet<&CpuSet> = pins.iter().collect();
    let shared = sets.into_iter().map(|set| {
        let inside = pins.iter().filter(|pin| pin.is_subset(set)).count();
        inside as f64 / set.len() as f64
    });
    shared.fold(0.0, f64::max)
}
