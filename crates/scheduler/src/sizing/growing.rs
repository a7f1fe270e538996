//! What is there at power-on of a VM that may grow.
//!
//! **Rule.** Each virtual node starts with the same part of what it may have, and with a vCPU as
//! far as there are enough. What may come is whole blocks of 128 MiB in each node where that leaves
//! the nodes even: a Linux guest uses whole blocks of that size only. Else blocks of 2 MiB. Huge
//! pages stay whole.
//!
//! **Example.** Two nodes of 8 vCPUs and 16 GiB at most, 6 vCPUs and 8 GiB at power-on: 3 vCPUs and
//! 4 GiB each.

use super::Share;
use crate::divide::{Vessel, fill};
use topology::Bytes;
use vm::spec::LEAST_MEMORY_BLOCK;
use vm::{Reason, Shape};

/// Linux onlines memory in blocks of this size (x86-64, below 64 GiB).
const GUEST_BLOCK: u64 = 128 * Bytes::MIB.0;
/// A node starts with at most this part more or less than what is even, for the sake of
/// [`GUEST_BLOCK`].
const UNEVEN_PART: u64 = 8;

/// What each node starts with, of what it may have.
pub(super) fn at_start(shape: &Shape, most: &[Share]) -> Vec<Share> {
    if !shape.may_grow() {
        return most.to_vec();
    }
    if let Some(fixed) = &shape.policy.virtual_nodes
        && fixed.len() == most.len()
    {
        return fixed.iter().map(|node| Share { vcpus: node.vcpus, memory: node.memory.0 }).collect();
    }
    let (vcpus, memory) = (vcpus(shape, most), memory(shape, most));
    vcpus.into_iter().zip(memory).map(|(vcpus, memory)| Share { vcpus, memory }).collect()
}

fn vcpus(shape: &Shape, most: &[Share]) -> Vec<u32> {
    let least = u64::from(shape.vcpus as usize >= most.len());
    let vessel = |share: &Share| {
        let size = u64::from(share.vcpus);
        Vessel { has: least, size, room: size - least }
    };
    let vessels: Vec<Vessel> = most.iter().map(vessel).collect();
    let rest = u64::from(shape.vcpus) - least * most.len() as u64;
    let more = fill(&vessels, 1, rest).unwrap_or_else(|| vec![0; most.len()]);
    more.into_iter().map(|more| (least + more) as u32).collect()
}

fn memory(shape: &Shape, most: &[Share]) -> Vec<u64> {
    let growth = shape.most_memory().0 - shape.memory.0;
    let all = u128::from(shape.most_memory().0.max(1));
    let is_even = |started: &Vec<u64>| {
        started.iter().zip(most).all(|(&started, share)| {
            let even = (u128::from(share.memory) * u128::from(shape.memory.0) / all) as u64;
            started.abs_diff(even) <= even / UNEVEN_PART
        })
    };
    let page = shape.backing.huge_pages.unwrap_or(Bytes::MIB).0;
    let in_blocks = divided(most, growth, GUEST_BLOCK.max(page), page).filter(is_even);
    in_blocks
        .or_else(|| divided(most, growth, LEAST_MEMORY_BLOCK.0.max(page), page))
        .or_else(|| divided(most, growth, page, 0))
        .unwrap_or_else(|| most.iter().map(|share| share.memory).collect())
}

/// What each node starts with if what may come is whole blocks and at least `least` bytes are
/// there.
fn divided(most: &[Share], growth: u64, block: u64, least: u64) -> Option<Vec<u64>> {
    if !growth.is_multiple_of(block) {
        return None;
    }
    let vessel = |share: &Share| {
        let room = share.memory.saturating_sub(least) / block;
        Vessel { has: 0, size: share.memory, room }
    };
    let blocks = fill(&most.iter().map(vessel).collect::<Vec<_>>(), block, growth / block)?;
    Some(most.iter().zip(blocks).map(|(share, blocks)| share.memory - blocks * block).collect())
}

/// What is there at power-on, in words.
pub(super) fn reason(shape: &Shape, at_start: &[Share]) -> Reason {
    let list: Vec<String> = at_start.iter().map(|share| format!("{} + {}", share.vcpus, Bytes(share.memory))).collect();
    let spread = match shape.policy.virtual_nodes {
        Some(_) => "policy.virtual_nodes says which",
        None => "each virtual node gets the same part",
    };
    Reason {
        choice: format!("at power-on: {}", list.join(", ")),
        because: format!(
            "the VM starts with {} of {} vCPUs and {} of {}; {spread}",
            shape.vcpus,
            shape.most_vcpus(),
            shape.memory,
            shape.most_memory()
        ),
    }
}
