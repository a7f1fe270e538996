//! The node of each CPU: from the node's list or mask of CPUs, else its entries `nodeN/cpuM`, else
//! the CPU's entry `cpuM/nodeN`.

use super::cpus::Cpus;
use super::error::ReadError;
use super::sysfs::{CPUS, NODES};
use super::tree::Tree;
use crate::{CpuId, CpuSet, NodeId};
use std::collections::BTreeMap;

/// The node of each CPU that has one, and whether any CPU has none: then Linux lists a part of the
/// machine only.
pub(super) fn of_cpus(
    tree: &Tree,
    cpus: &Cpus,
    nodes: &[NodeId],
    notes: &mut Vec<String>,
) -> Result<(BTreeMap<CpuId, NodeId>, bool), ReadError> {
    let mut homes = BTreeMap::new();
    let mut twice = CpuSet::new();
    for &node in nodes {
        for cpu in listed(tree, node)?.iter() {
            if *homes.entry(cpu).or_insert(node) != node {
                twice.insert(cpu);
            }
        }
    }
    if !twice.is_empty() {
        notes.push(format!(
            "Linux lists CPUs {twice} on more than one node (firmware is wrong): the first node has them."
        ));
    }
    let nobody_listed = homes.is_empty();
    let mut nowhere = CpuSet::new();
    for cpu in cpus.present.iter().filter(|cpu| !homes.contains_key(cpu)).collect::<Vec<_>>() {
        // A node lists its online CPUs only; the link from an offline CPU to its node stays.
        let linked = tree.numbered(&format!("{CPUS}/cpu{cpu}"), "node").first().map(|&node| NodeId(node));
        let only = match nodes {
            [only] if nobody_listed || !cpus.online.contains(cpu) => Some(*only),
            _ => None,
        };
        match linked.or(only).filter(|node| nodes.contains(node)) {
            Some(node) => {
                homes.insert(cpu, node);
            }
            None => {
                nowhere.insert(cpu);
            }
        }
    }
    if !nowhere.is_empty() {
        notes.push(format!("CPUs {nowhere} are on no node that Linux lists: they are not used."));
    }
    Ok((homes, !nowhere.is_empty()))
}

fn listed(tree: &Tree, node: NodeId) -> Result<CpuSet, ReadError> {
    let directory = format!("{NODES}/node{node}");
    match tree.list_or_mask(&[format!("{directory}/cpulist")], &format!("{directory}/cpumap"))? {
        Some(listed) => Ok(listed),
        None => Ok(tree.numbered(&directory, "cpu").into_iter().map(CpuId).collect()),
    }
}
