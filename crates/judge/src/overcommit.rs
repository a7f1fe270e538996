//! Several definitions that want more memory together than there is.
//!
//! **Problem.** Judged one by one, each of 40 VMs says of itself that there is no room for it, in
//! words of its own; that there are too many stands nowhere.
//!
//! **Rule.** The memory that VMs start with, against what others leave of the machine; and for each
//! set of nodes, the memory that is bound within it, against what others leave of these nodes. A
//! set is named where it lacks more than the sets within it do, so that one node that is full is
//! said once. One VM alone that wants too much is a finding of its own.
//!
//! **Example.** 40 VMs of 21.3 GiB, all bound to node 7 of 377 GiB: 852 GiB of 377.

use crate::shaped::{Binding, ShapedVm};
use scheduler::Occupancy;
use serde::Serialize;
use std::collections::BTreeSet;
use topology::{Bytes, Machine, NodeSet};

/// Some VMs that want more memory together than there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overcommit {
    /// The nodes that they are bound to; all of the machine where that is too small for all.
    pub nodes: NodeSet,
    /// Whether that is the machine.
    pub machine: bool,
    /// The VMs, as indices.
    #[serde(skip)]
    pub vms: Vec<usize>,
    /// What these want together.
    pub wanted: Bytes,
    /// What the nodes have.
    pub memory: Bytes,
    /// What others hold of that.
    pub held: Bytes,
}

impl Overcommit {
    /// What is missing.
    pub fn lacking(&self) -> Bytes {
        self.wanted.saturating_sub(self.memory.saturating_sub(self.held))
    }
}

/// Where some definitions want more memory together than `running` leaves of the machine: what
/// lacks most first.
pub fn overcommitted(machine: &Machine, running: &Occupancy, vms: &[ShapedVm]) -> Vec<Overcommit> {
    let all: NodeSet = machine.node_ids();
    let bound = |binding: &Binding| (binding.mode != "preferred").then(|| binding.nodes.intersection(&all));
    let sets = vms.iter().flat_map(|vm| &vm.nodes).filter_map(|node| node.binding.as_ref().and_then(bound));
    let mut sets: Vec<NodeSet> = sets.filter(|nodes| !nodes.is_empty()).collect::<BTreeSet<_>>().into_iter().collect();
    sets.sort_by_key(NodeSet::len);
    let within = |nodes: &NodeSet| {
        let of = |vm: &ShapedVm| -> Bytes {
            let inside = vm.nodes.iter().filter(|node| {
                node.binding.as_ref().and_then(bound).is_some_and(|set| !set.is_empty() && set.is_subset(nodes))
            });
            inside.map(crate::ShapedNode::present_memory).sum()
        };
        vms.iter().map(of).collect::<Vec<Bytes>>()
    };
    let mut found: Vec<Overcommit> = Vec::new();
    for nodes in sets.iter().filter(|nodes| **nodes != all) {
        let one = Overcommit::of(machine, running, nodes, false, &within(nodes));
        let inner = |other: &&Overcommit| other.nodes.is_subset(nodes);
        let known: Bytes = found.iter().filter(inner).map(Overcommit::lacking).sum();
        found.extend(one.filter(|one| one.lacking() > known));
    }
    let each: Vec<Bytes> = vms.iter().map(ShapedVm::present_memory).collect();
    let whole = Overcommit::of(machine, running, &all, true, &each);
    let known: Bytes = found.iter().map(Overcommit::lacking).sum();
    found.extend(whole.filter(|whole| whole.lacking() > known));
    found.sort_by_key(|one| std::cmp::Reverse(one.lacking()));
    found
}

impl Overcommit {
    fn of(machine: &Machine, running: &Occupancy, nodes: &NodeSet, all: bool, wanted: &[Bytes]) -> Option<Self> {
        let vms: Vec<usize> = (0..wanted.len()).filter(|&vm| wanted[vm] > Bytes(0)).collect();
        let of = |nodes: &NodeSet| nodes.iter().filter_map(|node| machine.node(node)).map(|node| node.memory).sum();
        let held = nodes.iter().map(|node| running.of(node).memory).sum();
        let sum = wanted.iter().copied().sum();
        let one = Self { nodes: nodes.clone(), machine: all, wanted: sum, memory: of(nodes), held, vms };
        // A node whose memory nobody knows is no node without memory.
        (one.vms.len() > 1 && one.memory > Bytes(0) && one.lacking() > Bytes(0)).then_some(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShapedNode;
    use std::collections::BTreeMap;
    use topology::NodeId;
    use vm::NodeUse;

    fn vm(gib: u64, nodes: Option<&str>) -> ShapedVm {
        let binding =
            nodes.map(|nodes| Binding { mode: "strict".to_owned(), nodes: nodes.parse().expect("a set of nodes") });
        let memory = Bytes(gib << 30);
        let node = ShapedNode { memory, binding, ..ShapedNode::default() };
        ShapedVm { memory, nodes: vec![node], ..ShapedVm::default() }
    }

    /// Two nodes of 24 GiB.
    fn found(vms: &[ShapedVm], held_gib: u64) -> Vec<String> {
        let machine = topology::read::from_synthetic("numa:2(memory=24GiB) core:4 pu:1").expect("a machine");
        let used = NodeUse { memory: Bytes(held_gib << 30), ..NodeUse::default() };
        let running = Occupancy { nodes: BTreeMap::from([(NodeId(0), used)]), ..Occupancy::default() };
        let words = |one: Overcommit| {
            let Overcommit { nodes, machine, vms, wanted, memory, held } = &one;
            format!("{nodes} {machine} {vms:?} {wanted} of {memory}, {held} held, {} lacking", one.lacking())
        };
        overcommitted(&machine, &running, vms).into_iter().map(words).collect()
    }

    #[test]
    fn what_is_too_much_together_is_said_once_and_where() {
        assert_eq!(found(&[vm(12, Some("0")), vm(12, Some("0"))], 0), Vec::<String>::new());
        let three = [vm(12, Some("0")), vm(12, Some("0")), vm(12, Some("0"))];
        assert_eq!(found(&three, 0), ["0 false [0, 1, 2] 36 GiB of 24 GiB, 0 B held, 12 GiB lacking"]);
        assert_eq!(found(&three[..2], 4), ["0 false [0, 1] 24 GiB of 24 GiB, 4 GiB held, 4 GiB lacking"]);
        // 36 GiB on node 0 and 20 that float: the machine lacks 8, and node 0 alone lacks 12
        // already.
        let with = [three.to_vec(), vec![vm(20, None)]].concat();
        assert_eq!(found(&with, 0).len(), 1);
        let floating = [vm(30, None), vm(30, None)];
        assert_eq!(found(&floating, 0), ["0-1 true [0, 1] 60 GiB of 48 GiB, 0 B held, 12 GiB lacking"]);
        // One that wants too much alone has a finding of its own.
        assert_eq!(found(&[vm(60, Some("0"))], 0), Vec::<String>::new());
    }
}
