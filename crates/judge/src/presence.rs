//! Which vCPUs a VM starts with, of those that it may have.
//!
//! **Problem.** Stacks start the lowest numbers. Of a VM that starts with 4 of 16 vCPUs and has two
//! virtual nodes all four are in the first: half of its memory is in a virtual node where nothing
//! runs.
//!
//! **Rule.** What runs decides where it lives, and each virtual node with memory starts with a vCPU
//! of its own. Where the stack can say which vCPUs are there (libvirt's `<vcpus>`), they are spread
//! over the virtual nodes in proportion to memory, the lowest numbers of each. Where it cannot, a
//! VM whose virtual nodes are cut anew has its vCPUs numbered so that the lowest are spread.
//!
//! **Properties.** As many are there as before; vCPU 0 is one of them.
//!
//! **Example.** 4 of 16 vCPUs, two virtual nodes of 8 vCPUs and 4 GiB: 0, 1, 8 and 9.

use crate::shaped::{ShapedNode, ShapedVm};
use crate::target::TargetNode;
use std::collections::BTreeMap;
use topology::{CpuId, CpuSet};

/// Virtual nodes with memory and vCPUs, none of which is there at the start.
pub(crate) fn idle(vm: &ShapedVm) -> impl Iterator<Item = &ShapedNode> {
    let is_idle = |node: &&ShapedNode| !node.vcpus.is_empty() && vm.present_of(node) == 0 && node.memory.0 > 0;
    vm.nodes.iter().filter(is_idle)
}

/// vCPUs that are plugged in later, where those that are there are spread over the virtual nodes;
/// `None` where each has one already, where there are too few, and where the stack cannot say which
/// are there.
pub(crate) fn spread(vm: &ShapedVm) -> Option<CpuSet> {
    vm.xml.as_ref().filter(|_| vm.running.is_none() && idle(vm).next().is_some())?;
    let nodes: Vec<&ShapedNode> = vm.nodes.iter().filter(|node| !node.vcpus.is_empty()).collect();
    let rest = (vm.present() as usize).checked_sub(nodes.len())?;
    let mut there = vec![1_usize; nodes.len()];
    for _ in 0..rest {
        // The one with most memory for each of its vCPUs, were it to get this one.
        let share = |index: usize| nodes[index].present_memory().0 / (there[index] as u64 + 1);
        let room = (0..nodes.len()).filter(|&index| there[index] < nodes[index].vcpus.len());
        let next = room.max_by_key(|&index| (share(index), std::cmp::Reverse(index)))?;
        there[next] += 1;
    }
    let later = nodes.iter().zip(there).flat_map(|(node, there)| node.vcpus.iter().skip(there));
    Some(later.collect())
}

/// The virtual nodes with other numbers of vCPUs: those that are there first, node by node, then
/// one of each node in turn.
pub(crate) fn in_order(nodes: &[TargetNode]) -> Vec<TargetNode> {
    let present = nodes.iter().flat_map(|node| node.vcpus.difference(&node.absent).iter().collect::<Vec<_>>());
    let rounds = nodes.iter().map(|node| node.absent.len()).max().unwrap_or_default();
    let absent = (0..rounds).flat_map(|round| nodes.iter().filter_map(move |node| node.absent.iter().nth(round)));
    let number: BTreeMap<CpuId, CpuId> = present.chain(absent).zip((0..).map(CpuId)).collect();
    let renumbered = |set: &CpuSet| set.iter().filter_map(|vcpu| number.get(&vcpu).copied()).collect();
    let each = |node: &TargetNode| TargetNode {
        vcpus: renumbered(&node.vcpus),
        absent: renumbered(&node.absent),
        ..node.clone()
    };
    nodes.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shaped::XmlFacts;
    use topology::Bytes;

    fn vm(nodes: &[(&str, u64)], present: u32) -> ShapedVm {
        let node = |&(vcpus, gib): &(&str, u64)| ShapedNode {
            vcpus: vcpus.parse().expect("a set"),
            memory: Bytes(gib << 30),
            ..ShapedNode::default()
        };
        let nodes: Vec<ShapedNode> = nodes.iter().map(node).collect();
        let vcpus: u32 = nodes.iter().map(|node| node.vcpus.len() as u32).sum();
        let absent = (present..vcpus).map(CpuId).collect();
        ShapedVm { vcpus, absent, nodes, vnuma: true, xml: Some(XmlFacts::default()), ..ShapedVm::default() }
    }

    #[test]
    fn those_that_are_there_are_spread_in_proportion_to_memory() {
        let later = |nodes: &[(&str, u64)], present| spread(&vm(nodes, present)).map(|later| later.to_string());
        assert_eq!(later(&[("0-7", 4), ("8-15", 4)], 4), Some("2-7,10-15".to_owned()));
        assert_eq!(later(&[("0-7", 6), ("8-15", 2)], 4), Some("3-7,9-15".to_owned()));
        assert_eq!(later(&[("0-1", 1), ("2-15", 1)], 2), Some("1,3-15".to_owned()));
        // Each has one; fewer than virtual nodes; all are there.
        assert_eq!(later(&[("0-7", 4), ("8-15", 4)], 9), None);
        assert_eq!(later(&[("0-7", 4), ("8-15", 4)], 1), None);
        assert_eq!(later(&[("0-7", 4), ("8-15", 4)], 16), None);
        let unsaid = ShapedVm { xml: None, ..vm(&[("0-7", 4), ("8-15", 4)], 4) };
        assert_eq!(spread(&unsaid), None);
    }

    #[test]
    fn the_lowest_numbers_are_there_and_the_next_come_in_turn() {
        let node = |vcpus: &str, absent: &str| TargetNode {
            vcpus: vcpus.parse().expect("a set"),
            absent: absent.parse().expect("a set"),
            ..TargetNode::default()
        };
        let nodes = in_order(&[node("0-5", "2-5"), node("6-11", "8-11")]);
        let seen: Vec<(String, String)> =
            nodes.iter().map(|node| (node.vcpus.to_string(), node.absent.to_string())).collect();
        let expected = [("0-1,4,6,8,10", "4,6,8,10"), ("2-3,5,7,9,11", "5,7,9,11")];
        assert_eq!(seen, expected.map(|(vcpus, absent)| (vcpus.to_owned(), absent.to_owned())));
    }
}
