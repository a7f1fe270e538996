//! Where a client lives, as far as one can see, and whether it is at home there: one answer for views, judge and balancer.
//!
//! **Problem.** A home is what a balancer decided. Most VMs that somebody looks at have met none.
//!
//! **Rule.** Whose vCPUs are kept to some of the nodes lives on these. Whose vCPUs may use every node floats, and lives nowhere. On a
//! host of one node everybody lives there. It is *at home* when at most a twentieth of its resident memory is elsewhere (N%L = 95). A node
//! *fits* what it has the cores (or hardware threads) and the memory for.
//!
//! **Example.** Nodes 0 and 1 have CPUs 0-3 and 4-7. vCPUs that may use 0-3, or CPU 2 alone: node 0. 0-7, or 3-4: they float.

use crate::Observation;
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// So many parts of memory make one that matters.
const PARTS: u64 = 20;

impl Observation {
    /// The nodes that these CPUs keep a client to; `None` where it floats, or may use no CPU that is online.
    pub fn home_by_cpus(&self, cpus: &CpuSet) -> Option<NodeSet> {
        let with_cpus = || self.nodes.iter().filter(|(_, seen)| !seen.cpus.is_empty());
        let used: NodeSet =
            with_cpus().filter(|(_, seen)| !seen.cpus.intersection(cpus).is_empty()).map(|(&node, _)| node).collect();
        let all = with_cpus().count();
        Some(used).filter(|used| !used.is_empty() && (used.len() < all || all == 1))
    }
}

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

/// Whether a node has the memory, and the cores (hardware threads where those count), for so many vCPUs, were it empty.
pub fn fits(machine: &Machine, node: NodeId, vcpus: usize, memory: Bytes, by_threads: bool) -> bool {
    let units = if by_threads { machine.usable_cpus(node).len() } else { machine.usable_cores(node).len() };
    units >= vcpus && machine.node(node).is_some_and(|node| node.memory >= memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeObservation;

    fn host(nodes: &[&str]) -> Observation {
        let node = |cpus: &&str| NodeObservation {
            cpus: cpus.parse().expect("CPUs"),
            cpu_used: None,
            memory_free: None,
            huge_pages_free: BTreeMap::new(),
        };
        let nodes = nodes.iter().enumerate().map(|(id, cpus)| (NodeId(id as u32), node(cpus))).collect();
        Observation { nodes, ..Observation::default() }
    }

    #[test]
    fn who_is_kept_to_some_nodes_lives_there() {
        let home = |cpus: &str| {
            host(&["0-3", "4-7", ""]).home_by_cpus(&cpus.parse().expect("CPUs")).map(|home| home.to_string())
        };
        assert_eq!((home("0-3").as_deref(), home("2").as_deref()), (Some("0"), Some("0")));
        // Node 2 has no CPUs: who may use 0-7 may use all. CPU 9 is offline.
        assert_eq!((home("0-7"), home("3-4"), home("9")), (None, None, None));
        assert_eq!(home("5,9").as_deref(), Some("1"));
        let one = host(&["0-3"]);
        assert_eq!(one.home_by_cpus(&"0-3".parse().expect("CPUs")), "0".parse().ok());
    }

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
