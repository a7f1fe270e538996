//! What running VMs hold of a machine, node by node: the one rule, whoever tells of the VMs.

use crate::{NodeUse, Occupancy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuId, CpuSet, Machine, NodeId};

/// A VM that runs, as far as it takes something away from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// CPUs that each vCPU may use.
    pub vcpus: Vec<CpuSet>,
    /// Memory that it may come to have.
    pub memory: Bytes,
    /// Nodes that its memory is bound to, each with its weight; empty: memory comes to where the vCPUs are.
    pub memory_weights: BTreeMap<NodeId, u64>,
    /// What it has now.
    pub resident: Resident,
}

/// Resident memory of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resident {
    /// Known node by node.
    ByNode(BTreeMap<NodeId, Bytes>),
    /// Known as a whole: taken to be where the VM's memory comes to.
    Whole(Bytes),
}

impl Occupancy {
    /// The ledger that placement starts from. A vCPU counts on the node of its CPUs; one that may use several nodes counts on each in turn.
    /// Memory that is promised and not yet resident is expected where it is bound to, or else where the vCPUs are.
    pub fn of_running(vms: impl IntoIterator<Item = Holding>, machine: &Machine) -> Self {
        let node_of: BTreeMap<CpuId, NodeId> = machine.threads.iter().map(|thread| (thread.id, thread.node)).collect();
        let mut occupancy = Self::default();
        let mut turn = 0;
        for vm in vms {
            let mut vcpus_on = BTreeMap::<NodeId, u64>::new();
            for vcpu in &vm.vcpus {
                let candidates = nodes_of(vcpu, &node_of);
                if candidates.is_empty() {
                    continue;
                }
                *vcpus_on.entry(candidates[turn % candidates.len()]).or_default() += 1;
                turn += usize::from(candidates.len() > 1);
            }
            for (&node, &vcpus) in &vcpus_on {
                occupancy.nodes.entry(node).or_default().vcpus += vcpus as u32;
            }
            occupancy.hold_memory(&vm, if vm.memory_weights.is_empty() { &vcpus_on } else { &vm.memory_weights });
        }
        occupancy
    }

    fn hold_memory(&mut self, vm: &Holding, weights: &BTreeMap<NodeId, u64>) {
        let (by_node, whole) = match &vm.resident {
            Resident::ByNode(by_node) => (Some(by_node), by_node.values().copied().sum()),
            Resident::Whole(whole) => (None, *whole),
        };
        for (node, absent) in divided(vm.memory.saturating_sub(whole), weights) {
            let held = self.nodes.entry(node).or_default();
            held.memory = held.memory.saturating_add(absent);
        }
        let resident = by_node.cloned().unwrap_or_else(|| divided(whole, weights));
        for (node, bytes) in resident {
            let held: &mut NodeUse = self.nodes.entry(node).or_default();
            held.memory = held.memory.saturating_add(bytes);
            held.resident = held.resident.saturating_add(bytes);
        }
    }
}

/// An amount in parts of these weights, rounded down.
fn divided(amount: Bytes, weights: &BTreeMap<NodeId, u64>) -> BTreeMap<NodeId, Bytes> {
    let total: u128 = weights.values().map(|&weight| u128::from(weight)).sum();
    let part = |weight: u64| Bytes((u128::from(amount.0) * u128::from(weight) / total.max(1)) as u64);
    weights.iter().map(|(&node, &weight)| (node, part(weight))).collect()
}

/// Nodes of the CPUs of a set, rising.
fn nodes_of(cpus: &CpuSet, node_of: &BTreeMap<CpuId, NodeId>) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = cpus.iter().filter_map(|cpu| node_of.get(&cpu).copied()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of two CPUs: node 0 has CPUs 0-1, node 1 has CPUs 2-3.
    fn machine() -> Machine {
        topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:2 pu:1").expect("a machine")
    }

    fn holding(vcpus: &[&str], weights: &[(u32, u64)], resident: Resident) -> Holding {
        Holding {
            vcpus: vcpus.iter().map(|cpus| cpus.parse().expect("CPUs")).collect(),
            memory: Bytes(1000),
            memory_weights: weights.iter().map(|&(node, weight)| (NodeId(node), weight)).collect(),
            resident,
        }
    }

    #[test]
    fn memory_that_is_bound_counts_there_and_not_where_the_vcpus_are() {
        let vm = holding(&["0-1", "0-1"], &[(0, 1), (1, 3)], Resident::Whole(Bytes(400)));
        let used = Occupancy::of_running([vm], &machine());
        // 1000 and 400 in parts of 1 and 3.
        assert_eq!(used.of(NodeId(0)), NodeUse { vcpus: 2, memory: Bytes(250), resident: Bytes(100) });
        assert_eq!(used.of(NodeId(1)), NodeUse { vcpus: 0, memory: Bytes(750), resident: Bytes(300) });
    }

    #[test]
    fn memory_that_floats_counts_where_the_vcpus_are() {
        let vm = holding(&["2-3", "0-3", "0-3"], &[], Resident::Whole(Bytes(600)));
        let used = Occupancy::of_running([vm], &machine());
        // vCPU 0 on node 1, the others in turn on 0 and 1: a third and two thirds.
        assert_eq!(used.of(NodeId(0)), NodeUse { vcpus: 1, memory: Bytes(133 + 200), resident: Bytes(200) });
        assert_eq!(used.of(NodeId(1)), NodeUse { vcpus: 2, memory: Bytes(266 + 400), resident: Bytes(400) });
    }

    #[test]
    fn vms_that_float_take_their_turns_together() {
        let one = || holding(&["0-3"], &[], Resident::ByNode(BTreeMap::new()));
        let used = Occupancy::of_running([one(), one(), one()], &machine());
        assert_eq!((used.of(NodeId(0)).vcpus, used.of(NodeId(1)).vcpus), (2, 1));
    }
}
