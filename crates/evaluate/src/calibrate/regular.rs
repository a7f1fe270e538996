//! A host as a machine file can say it: so many of each, everywhere the same. What differs is
//! refused, or said to be lost.

use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, HardwareThread, LlcId, Machine, NodeId};

/// What of a host is not everywhere the same, so that no machine file can say it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Irregularity {
    /// A node without CPUs or memory.
    #[error("node {0} has no usable CPU or no memory")]
    Node(NodeId),
    /// A node over several sockets.
    #[error("a node has CPUs of several sockets")]
    Sockets,
    /// Numbers that differ.
    #[error("{owners} differ in how many {members} they have: {counts:?}")]
    Differ {
        /// Of what.
        owners: &'static str,
        /// Number of what.
        members: &'static str,
        /// The numbers.
        counts: BTreeSet<u32>,
    },
    /// Last-level caches that do not have the same number of cores.
    #[error("{cores} cores of a node share {caches} last-level caches")]
    Caches {
        /// Cores of a node.
        cores: u32,
        /// Its caches.
        caches: u32,
    },
}

/// The fields of a machine file.
#[derive(Clone, Debug, PartialEq)]
pub struct Regular {
    /// Name of the host.
    pub name: String,
    /// CPU model, where known.
    pub cpu_model: Option<String>,
    /// Sockets.
    pub sockets: u32,
    /// NUMA nodes in a socket.
    pub nodes_per_socket: u32,
    /// Last-level caches in a node.
    pub llcs_per_node: u32,
    /// Cores that share one.
    pub cores_per_llc: u32,
    /// Hardware threads of a core.
    pub threads_per_core: u32,
    /// `cores-first` or `threads-first`.
    pub cpu_numbering: &'static str,
    /// Memory of each node, of the smallest.
    pub memory_per_node: Bytes,
    /// Size of a last-level cache, where known.
    pub llc_size: Option<Bytes>,
    /// Its level.
    pub llc_level: u8,
    /// The host's nodes, in the order in which the file numbers them from 0.
    pub nodes: Vec<NodeId>,
    /// SLIT, in that order.
    pub distances: Vec<Vec<u32>>,
    /// What the file cannot say of the host, as sentences.
    pub lost: Vec<String>,
}

impl Regular {
    /// Of a machine; the error says what is irregular.
    ///
    /// # Errors
    /// Nodes differ in their CPUs, caches or sockets, or one has no CPU or no memory.
    pub fn of(machine: &Machine) -> Result<Self, Irregularity> {
        let mut lost = Vec::new();
        let unusable = machine.threads.len() - machine.usable_threads().count();
        if unusable > 0 {
            lost.push(format!("{unusable} hardware threads are offline or not allowed here: they are left out."));
        }
        let nodes: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
        for node in &machine.nodes {
            if machine.usable_cpus(node.id).is_empty() || node.memory == Bytes(0) {
                return Err(Irregularity::Node(node.id));
            }
        }
        let threads_per_core = same(machine.usable_threads().map(|thread| thread.core), "cores", "hardware threads")?;
        let cores = counted(&nodes, |node| machine.usable_cores(node).len() as u32, "cores")?;
        let sockets = machine.sockets().len() as u32;
        if nodes.iter().any(|&node| machine.sockets_of(node).len() != 1) {
            return Err(Irregularity::Sockets);
        }
        let nodes_per_socket =
            same(nodes.iter().flat_map(|&node| machine.sockets_of(node).first()), "sockets", "nodes")?;
        let llcs_per_node = caches(machine, &nodes, &mut lost)?;
        if !cores.is_multiple_of(llcs_per_node) {
            return Err(Irregularity::Caches { cores, caches: llcs_per_node });
        }
        let sizes: BTreeSet<Option<Bytes>> = machine.llcs.iter().map(|llc| llc.size).collect();
        let memory = machine.nodes.iter().map(|node| node.memory).min().unwrap_or_default();
        if machine.nodes.iter().any(|node| node.memory.0 > memory.0 + memory.0 / 50) {
            lost.push(format!("Nodes differ in memory: the file gives each that of the smallest, {memory}."));
        }
        if nodes.iter().enumerate().any(|(index, node)| node.0 as usize != index) {
            lost.push("Nodes are not numbered 0, 1, 2, ...: the file numbers them so, in their order.".to_owned());
        }
        let distances = nodes.iter().map(|&from| nodes.iter().map(|&to| machine.distance(from, to)).collect());
        Ok(Self {
            name: machine.name.clone(),
            cpu_model: machine.cpu_model.clone(),
            sockets,
            nodes_per_socket,
            llcs_per_node,
            cores_per_llc: cores / llcs_per_node,
            threads_per_core,
            cpu_numbering: numbering(machine, threads_per_core, &mut lost),
            memory_per_node: Bytes::from_mib(memory.mib()),
            llc_size: sizes.first().copied().flatten().filter(|_| sizes.len() == 1),
            llc_level: machine.llcs.first().map_or(3, |llc| llc.level),
            distances: distances.collect(),
            nodes,
            lost,
        })
    }

    /// Where one of the host's nodes stands in the file.
    pub fn index(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|&known| known == node)
    }
}

/// How often each of `of` comes, if that is the same for all.
fn same<T: Ord>(of: impl Iterator<Item = T>, owners: &'static str, members: &'static str) -> Result<u32, Irregularity> {
    let mut counts = BTreeMap::<T, u32>::new();
    of.for_each(|one| *counts.entry(one).or_default() += 1);
    let distinct: BTreeSet<u32> = counts.into_values().collect();
    match (distinct.len(), distinct.first()) {
        (1, Some(&count)) => Ok(count),
        _ => Err(Irregularity::Differ { owners, members, counts: distinct }),
    }
}

fn counted(nodes: &[NodeId], count: impl Fn(NodeId) -> u32, members: &'static str) -> Result<u32, Irregularity> {
    let counts: BTreeSet<u32> = nodes.iter().map(|&node| count(node)).collect();
    match (counts.len(), counts.first()) {
        (1, Some(&count)) => Ok(count),
        _ => Err(Irregularity::Differ { owners: "nodes", members, counts }),
    }
}

/// Last-level caches of a node.
fn caches(machine: &Machine, nodes: &[NodeId], lost: &mut Vec<String>) -> Result<u32, Irregularity> {
    if machine.usable_threads().any(|thread| thread.llc.is_none()) {
        lost.push("The last-level caches are not known: the file gives each node one.".to_owned());
        return Ok(1);
    }
    let of_node = |node: NodeId| -> BTreeSet<LlcId> {
        machine.usable_threads().filter(|thread| thread.node == node).filter_map(|thread| thread.llc).collect()
    };
    let all: usize = nodes.iter().map(|&node| of_node(node).len()).sum();
    let distinct: BTreeSet<LlcId> = nodes.iter().flat_map(|&node| of_node(node)).collect();
    if all > distinct.len() {
        lost.push("Nodes share a last-level cache: the file gives each a cache of its own of that size.".to_owned());
    }
    let cores = machine.usable_threads().filter_map(|thread| Some((thread.llc?, thread.core)));
    let cores: BTreeSet<_> = cores.collect();
    same(cores.into_iter().map(|(llc, _)| llc), "last-level caches", "cores")?;
    counted(nodes, |node| of_node(node).len() as u32, "last-level caches")
}

/// How Linux numbers the hardware threads; where neither way, that is lost.
fn numbering(machine: &Machine, threads_per_core: u32, lost: &mut Vec<String>) -> &'static str {
    let mut threads: Vec<&HardwareThread> = machine.usable_threads().collect();
    threads.sort_by_key(|thread| (thread.node, thread.llc, thread.core, thread.id));
    let cores = threads.len() as u32 / threads_per_core.max(1);
    let matches = |expected: &dyn Fn(u32, u32) -> u32| {
        threads.iter().enumerate().all(|(index, thread)| {
            let (core, sibling) = (index as u32 / threads_per_core, index as u32 % threads_per_core);
            thread.id.0 == expected(core, sibling)
        })
    };
    if matches(&|core, sibling| sibling * cores + core) {
        return "cores-first";
    }
    if matches(&|core, sibling| core * threads_per_core + sibling) {
        return "threads-first";
    }
    lost.push("CPUs are numbered in a way of their own: the file numbers them cores first.".to_owned());
    "cores-first"
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::read;

    fn regular(synthetic: &str) -> Result<Regular, Irregularity> {
        Regular::of(&read::from_synthetic(synthetic).expect(synthetic))
    }

    #[test]
    fn every_shipped_machine_comes_back_field_by_field() {
        for name in read::shipped_names() {
            let machine = read::shipped(name).expect(name).expect(name);
            let found = Regular::of(&machine).expect(name);
            assert_eq!(found.lost, Vec::<String>::new(), "{name}");
            assert_eq!((found.sockets * found.nodes_per_socket) as usize, machine.nodes.len(), "{name}");
            let threads_per_node = found.llcs_per_node * found.cores_per_llc * found.threads_per_core;
            assert_eq!(threads_per_node as usize * machine.nodes.len(), machine.threads.len(), "{name}");
            assert_eq!(found.llc_size, machine.llcs[0].size, "{name}");
        }
    }

    #[test]
    fn numbering_is_told_apart() {
        let cores_first = regular("pack:2 [numa(memory=4GB)] l3:1 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
        assert_eq!(cores_first.expect("regular").cpu_numbering, "cores-first");
        let threads_first = regular("pack:2 [numa(memory=4GB)] l3:1 core:2 pu:2");
        assert_eq!(threads_first.expect("regular").cpu_numbering, "threads-first");
        let neither = regular("pack:1 [numa(memory=4GB)] l3:1 core:2 pu:2(indexes=3,0,1,2)").expect("regular");
        assert!(neither.lost[0].contains("numbered in a way"), "{:?}", neither.lost);
    }

    #[test]
    fn what_is_irregular_is_refused_with_the_reason() {
        let machine = read::from_synthetic("pack:2 [numa(memory=4GB)] l3:1 core:4 pu:2").expect("a machine");
        let mut fewer = machine.clone();
        fewer.threads.retain(|thread| thread.id.0 != 15);
        assert!(
            Regular::of(&fewer)
                .expect_err("a lone thread")
                .to_string()
                .contains("cores differ in how many hardware threads")
        );
        fewer.threads.retain(|thread| thread.id.0 != 14);
        assert!(
            Regular::of(&fewer)
                .expect_err("a core less")
                .to_string()
                .contains("nodes differ in how many cores they have: {3, 4}")
        );
        let mut empty = machine.clone();
        empty.nodes[1].memory = Bytes(0);
        assert!(
            Regular::of(&empty).expect_err("no memory").to_string().contains("node 1 has no usable CPU or no memory")
        );
        let mut uneven = machine;
        uneven.nodes[1].memory = Bytes(8 << 30);
        assert!(Regular::of(&uneven).expect("regular").lost[0].contains("that of the smallest"));
    }
}
