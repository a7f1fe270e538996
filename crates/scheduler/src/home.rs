//! Where a client of an [`Observation`] lives, as far as one can see: one answer for views, judge and balancer.
//!
//! **Problem.** A home is what a balancer decided. Most VMs that somebody looks at have met none.
//!
//! **Rule.** Whose vCPUs are kept to some of the nodes lives on these. Whose vCPUs may use every node floats, and lives nowhere. On a
//! host of one node everybody lives there.
//!
//! **Example.** Nodes 0 and 1 have CPUs 0-3 and 4-7. vCPUs that may use 0-3, or CPU 2 alone: node 0. 0-7, or 3-4: they float.

use crate::{ClientObservation, Observation};
use topology::{Bytes, CpuSet, NodeSet};

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

impl ClientObservation {
    /// All of its resident memory.
    pub fn resident(&self) -> Option<Bytes> {
        Some(self.memory.as_ref()?.values().copied().sum())
    }

    /// Its resident memory on these nodes.
    pub fn resident_on(&self, nodes: &NodeSet) -> Option<Bytes> {
        let there = |(node, bytes): (&topology::NodeId, &Bytes)| nodes.contains(*node).then_some(*bytes);
        Some(self.memory.as_ref()?.iter().filter_map(there).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeObservation;
    use std::collections::BTreeMap;
    use topology::NodeId;

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
}
