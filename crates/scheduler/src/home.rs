//! Measures of a home: one answer for views, judge and balancer. Who lives where, and should, is
//! [`balance::homes`](crate::balance::homes).
//!
//! **Rule.** A client is *at home* when at most a twentieth of its resident memory is elsewhere
//! (N%L = 95). A node *fits* what it has the cores (or hardware threads) and the memory for.
//!
//! **Example.** 95 MiB at home and 5 MiB on another node: at home. 94 and 6: not.

use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// So many parts of memory make one that matters.
const PARTS: u64 = 20;

/// Nodes of CPUs. CPUs that the machine does not have are on none.
pub fn nodes_of(machine: &Machine, cpus: &CpuSet) -> NodeSet {
    machine.threads.iter().filter(|thread| cpus.contains(thread.id)).map(|thread| thread.node).collect()
}

/// Nodes with usable CPUs.
pub fn nodes_with_cpus(machine: &Machine) -> NodeSet {
    machine.usable_threads().map(|thread| thread.node).collect()
}

/// How many of these CPUs are on a node.
pub fn cpus_on(machine: &Machine, cpus: &CpuSet, node: NodeId) -> usize {
    machine.threads.iter().filter(|thread| thread.node == node && cpus.contains(thread.id)).count()
}

/// Nodes that hold more than a twentieth of the memory. Empty where nothing is resident.
pub fn nodes_of_memory(resident: &BTreeMap<NodeId, Bytes>) -> NodeSet {
    let total: Bytes = resident.values().copied().sum();
    resident.iter().filter(|(_, bytes)| bytes.0 > total.0 / PARTS).map(|(&node, _)| node).collect()
}

/// Memory on other nodes than these.
pub fn away(resident: &BTreeMap<NodeId, Bytes>, home: &NodeSet) -> Bytes {
    resident.iter().filter(|(node, _)| !home.contains(**node)).map(|(_, &bytes)| bytes).sum()
}

/// Whether memory is at home: all of it but a twentieth. What is not there yet is at home.
pub fn is_at_home(resident: &BTreeMap<NodeId, Bytes>, home: &NodeSet) -> bool {
    let total: Bytes = resident.values().copied().sum();
    away(resident, home).0 <= total.0 / PARTS
}

/// Whether a node has the memory, and the cores (hardware threads where those count), for so many
/// vCPUs, were it empty.
pub fn fits(machine: &Machine, node: NodeId, vcpus: usize, memory: Bytes, by_threads: bool) -> bool {
    let units = if by_threads { machine.usable_cpus(node).len() } else { machine.usable_cores(node).len() };
    units >= vcpus && machine.node(node).is_some_and(|node| node.memory >= memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_may_be_elsewhere() {
        let on = |here: u64, there: u64| BTreeMap::from([(NodeId(1), Bytes(here)), (NodeId(0), Bytes(there))]);
        let home: NodeSet = [NodeId(1)].into_iter().collect();
        assert!(is_at_home(&on(95, 5), &home) && !is_at_home(&on(94, 6), &home) && is_at_home(&on(0, 0), &home));
        assert_eq!(nodes_of_memory(&on(95, 5)).to_string(), "1");
        assert_eq!(nodes_of_memory(&on(94, 6)).to_string(), "0-1");
        assert_eq!(away(&on(94, 6), &home), Bytes(6));
    }

    #[test]
    fn a_node_fits_by_cores_and_by_memory() {
        let fits = |vcpus, gib: u64| {
            fits(
                &topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:2 pu:1").expect("a machine"),
                NodeId(0),
                vcpus,
                Bytes(gib << 30),
                false,
            )
        };
        assert!(fits(2, 4) && !fits(3, 1) && !fits(1, 5));
    }
}
