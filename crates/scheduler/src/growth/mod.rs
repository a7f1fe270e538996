//! Growing and shrinking a VM that runs: which virtual nodes get vCPUs and memory, and which give
//! some back.
//!
//! **Problem.** A guest's programs are spread over its nodes by what these have. A node that gets
//! all that is added becomes the one where everybody runs and everything is allocated, and its home
//! is crowded while others idle.
//!
//! **Rule.** What is added goes to the thinnest virtual nodes, what is taken comes from the
//! thickest, each measured by what the node may have at most; or only to and from the nodes that
//! the user names. vCPUs one by one; memory in whole blocks. What was there at power-on stays.
//! A guest without a driver for virtio-mem gets memory as DIMMs: each is added whole, a multiple of
//! [`DIMM_BLOCK`], and stays while the VM runs.
//!
//! **Properties.** The total is what was wanted. No node has more than it may have, or less than at
//! its power-on. The nodes are as evenly full as steps of one vCPU, or of one block, allow: the sum
//! of size x (level - mean level)^2 is the least.
//!
//! **Example.** Two nodes that may have 8 vCPUs each, with 3 and 1 of them. 8 wanted: node 1 gets 3
//! and node 0 gets 1. Then 6 wanted: each gives 1 back. A node of 1 GiB at power-on has 2 GiB now,
//! half of them a DIMM: 2 GiB is the least that it can have.

mod error;
mod held;
mod moves;
mod room;

pub use error::GrowthError;
pub use held::more_held;
pub use moves::{Move, MoveError, Moving};
pub use room::{Growing, Lack, NoRoom, is_there, room};

use crate::divide::{Vessel, fill};
use std::collections::{BTreeMap, BTreeSet};
use topology::Bytes;
use vm::{NodeSize, VirtualNode, VirtualTopology};

/// A DIMM is a multiple of this: Linux adds memory in such sections.
pub const DIMM_BLOCK: Bytes = Bytes::from_mib(128);

/// What a VM that runs is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// vCPUs in all; `None`: as many as it has.
    pub vcpus: Option<u32>,
    /// Memory in all; `None`: as much as it has.
    pub memory: Option<Bytes>,
    /// The virtual nodes that may change; `None`: all.
    pub nodes: Option<Vec<u32>>,
    /// Memory is added and taken in multiples of this; added to a guest that has DIMMs, in
    /// multiples of [`DIMM_BLOCK`] at least.
    pub block: Bytes,
    /// Memory in DIMMs, by virtual node: it stays.
    pub dimms: BTreeMap<u32, Bytes>,
}

/// What has to be done for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// vCPUs to plug, in order.
    pub plug: Vec<u32>,
    /// vCPUs to unplug, in order.
    pub unplug: Vec<u32>,
    /// The new memory of each virtual node that changes.
    pub memory: BTreeMap<u32, Bytes>,
}

impl Growth {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// Which virtual nodes get what is added, or give what is taken. `now`: what each has, by id; a
/// node that is not in it has what it had at power-on.
///
/// # Errors
/// More or less is wanted than the VM, or its named nodes, can have; memory is not a multiple of
/// the block away from what it has; a named node does not exist.
pub fn grow(topology: &VirtualTopology, now: &[NodeSize], want: &Wanted) -> Result<Growth, GrowthError> {
    let nodes: Vec<Node<'_>> = topology.nodes.iter().map(|node| Node::new(node, now, want)).collect();
    check_names(topology, want)?;
    let mut growth = Growth::default();
    if let Some(vcpus) = want.vcpus {
        (growth.plug, growth.unplug) = change_vcpus(&nodes, vcpus, want.nodes.is_some())?;
    }
    if let Some(memory) = want.memory {
        growth.memory = change_memory(&nodes, memory, want)?;
    }
    Ok(growth)
}

/// A virtual node as it is now.
struct Node<'a> {
    node: &'a VirtualNode,
    vcpus: BTreeSet<u32>,
    memory: Bytes,
    /// What of its memory cannot be taken while the VM runs.
    stays: Bytes,
    /// Whether it may change.
    named: bool,
}

impl<'a> Node<'a> {
    fn new(node: &'a VirtualNode, now: &[NodeSize], want: &Wanted) -> Self {
        let named = want.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node.id));
        let stays = node.memory.saturating_add(want.dimms.get(&node.id).copied().unwrap_or_default());
        match now.iter().find(|size| size.virtual_node == node.id) {
            Some(size) => Self { node, vcpus: size.vcpus.clone(), memory: size.memory, stays, named },
            None => Self { node, vcpus: node.present().collect(), memory: node.memory, stays, named },
        }
    }

    /// vCPUs that may be plugged, in order.
    fn absent(&self) -> Vec<u32> {
        let may = |vcpu: &&u32| self.named && !self.vcpus.contains(vcpu);
        self.node.vcpus.iter().filter(may).copied().collect()
    }

    /// vCPUs that may be unplugged, in order: those that were plugged.
    fn plugged(&self) -> Vec<u32> {
        let may = |vcpu: &&u32| self.named && self.vcpus.contains(vcpu);
        self.node.absent.iter().rev().filter(may).copied().collect()
    }

    fn most_memory(&self) -> Bytes {
        self.node.memory.saturating_add(self.node.growth)
    }

    /// Blocks of memory that may be added.
    fn blocks_more(&self, block: u64) -> u64 {
        if self.named { self.most_memory().saturating_sub(self.memory).0 / block } else { 0 }
    }

    /// Blocks of memory that may be taken.
    fn blocks_less(&self, block: u64) -> u64 {
        if self.named { self.memory.saturating_sub(self.stays).0 / block } else { 0 }
    }
}

fn check_names(topology: &VirtualTopology, want: &Wanted) -> Result<(), GrowthError> {
    let valid: Vec<u32> = topology.nodes.iter().map(|node| node.id).collect();
    match want.nodes.iter().flatten().find(|node| !valid.contains(node)) {
        Some(&node) => Err(GrowthError::NoNode { node, valid }),
        None => Ok(()),
    }
}

/// The vCPUs to plug and those to unplug.
fn change_vcpus(nodes: &[Node<'_>], wanted: u32, named: bool) -> Result<(Vec<u32>, Vec<u32>), GrowthError> {
    let count = |of: &dyn Fn(&Node<'_>) -> usize| nodes.iter().map(of).sum::<usize>() as u32;
    let now = count(&|node| node.vcpus.len());
    let (most, least) = (now + count(&|node| node.absent().len()), now - count(&|node| node.plugged().len()));
    if wanted > most {
        return Err(GrowthError::TooManyVcpus { wanted, most, named });
    }
    if wanted < least {
        return Err(GrowthError::TooFewVcpus { wanted, least, named });
    }
    let sizes: Vec<u64> = nodes.iter().map(|node| node.node.vcpus.len() as u64).collect();
    let has: Vec<u64> = nodes.iter().map(|node| node.vcpus.len() as u64).collect();
    if wanted >= now {
        let absent: Vec<Vec<u32>> = nodes.iter().map(Node::absent).collect();
        return Ok((in_turn(&has, &sizes, absent, wanted - now), Vec::new()));
    }
    // What is taken fills the part of a node that is empty; the last of equals gives first, so that
    // what was added is taken in the opposite order.
    let empty: Vec<u64> = sizes.iter().zip(&has).map(|(size, has)| size - has).rev().collect();
    let sizes: Vec<u64> = sizes.into_iter().rev().collect();
    let plugged: Vec<Vec<u32>> = nodes.iter().rev().map(Node::plugged).collect();
    Ok((Vec::new(), in_turn(&empty, &sizes, plugged, now - wanted)))
}

/// The first `count` of the listed vCPUs, from the thinnest node at each step.
fn in_turn(has: &[u64], sizes: &[u64], listed: Vec<Vec<u32>>, count: u32) -> Vec<u32> {
    let mut lists: Vec<_> = listed.into_iter().map(Vec::into_iter).collect();
    let mut has = has.to_vec();
    let mut next = || {
        let vessel = |index: usize| {
            let room = lists[index].len() as u64;
            Vessel { has: has[index], size: sizes[index], room }
        };
        let vessels: Vec<Vessel> = (0..lists.len()).map(vessel).collect();
        let index = fill(&vessels, 1, 1)?.iter().position(|taken| *taken > 0)?;
        has[index] += 1;
        lists[index].next()
    };
    (0..count).map_while(|_| next()).collect()
}

/// The new memory of each node that changes.
fn change_memory(nodes: &[Node<'_>], wanted: Bytes, want: &Wanted) -> Result<BTreeMap<u32, Bytes>, GrowthError> {
    let (now, named) = (nodes.iter().map(|node| node.memory).sum::<Bytes>(), want.nodes.is_some());
    let as_dimms = wanted > now && want.dimms.values().any(|dimms| dimms.0 > 0);
    let block = if as_dimms { want.block.max(DIMM_BLOCK) } else { want.block }.0.max(1);
    let blocks = |of: &dyn Fn(&Node<'_>) -> u64| Bytes(nodes.iter().map(of).sum::<u64>().saturating_mul(block));
    let most = now.saturating_add(blocks(&|node| node.blocks_more(block)));
    let least = now.saturating_sub(blocks(&|node| node.blocks_less(block)));
    if wanted > most {
        return Err(GrowthError::TooMuchMemory { wanted, most, block: Bytes(block), named });
    }
    if wanted < least {
        let dimms = want.dimms.values().copied().sum();
        return Err(GrowthError::TooLittleMemory { wanted, least, named, dimms });
    }
    let rest = (wanted.0 - least.0) % block;
    if rest > 0 {
        let below = Bytes(wanted.0 - rest);
        return Err(GrowthError::NotWholeBlocks { wanted, block: Bytes(block), below, above: Bytes(below.0 + block) });
    }
    let more = wanted >= now;
    let vessel = |node: &Node<'_>| {
        let (size, empty) = (node.most_memory().0, node.most_memory().saturating_sub(node.memory).0);
        match more {
            true => Vessel { has: node.memory.0, size, room: node.blocks_more(block) },
            false => Vessel { has: empty, size, room: node.blocks_less(block) },
        }
    };
    let mut vessels: Vec<Vessel> = nodes.iter().map(vessel).collect();
    if !more {
        vessels.reverse();
    }
    let mut taken = fill(&vessels, block, wanted.0.abs_diff(now.0) / block).unwrap_or_default();
    if !more {
        taken.reverse();
    }
    let change = |(node, blocks): (&Node<'_>, u64)| {
        let bytes = blocks * block;
        let memory = if more { node.memory.0 + bytes } else { node.memory.0 - bytes };
        (blocks > 0).then_some((node.node.id, Bytes(memory)))
    };
    Ok(nodes.iter().zip(taken).filter_map(change).collect())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
