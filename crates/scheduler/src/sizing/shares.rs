//! The number of virtual nodes and the share of each.

use crate::divide::{common_divisor, evenly, in_proportion};
use crate::host::Host;
use topology::Bytes;
use vm::Shape;
use vm::spec::Spread;

/// vCPUs and memory of a virtual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share {
    pub(crate) vcpus: u32,
    /// Bytes.
    pub(crate) memory: u64,
}

/// The shares and what decided their number.
pub(super) struct Parts {
    pub(super) shares: Vec<Share>,
    pub(super) why: Why,
}

/// What decided the number of virtual nodes.
pub(super) enum Why {
    Fixed,
    /// The fewest that hold the VM; how many it takes by cores alone and by memory alone.
    Fewest {
        by_cores: Option<usize>,
        by_memory: Option<usize>,
    },
    /// More than the fewest that hold the VM, because these get the same number of vCPUs each.
    Even {
        fewest: usize,
    },
    /// The fewest that hold the VM, with an even number of vCPUs in each.
    Pairs,
    MostVirtualNodes {
        nodes: usize,
    },
    Cap {
        most: u32,
    },
    /// The machine is too small.
    Overflow {
        cpu_nodes: usize,
    },
}

/// What a machine node offers to one virtual node.
#[derive(Clone, Copy, Debug)]
struct Room {
    units: u64,
    memory: u64,
}

/// Subsets of more nodes than this are not enumerated when looking for an uneven fit; the largest
/// nodes are taken.
const ENUMERATED_NODES: usize = 12;

/// Shares by rule: even where the nodes allow it, else in proportion to them, largest first.
pub(super) fn by_rule(host: &Host, shape: &Shape) -> Parts {
    let rooms = rooms(host, shape.policy.max_vcpus_per_node);
    let most = most_parts(&rooms, shape);
    let fit = |count: &usize| even_fit(&rooms, shape, *count).or_else(|| uneven_fit(&rooms, shape, *count));
    if shape.policy.placement == Spread::MostVirtualNodes
        && let Some(shares) = (1..=most).rev().find_map(|count| fit(&count))
    {
        return Parts { shares, why: Why::MostVirtualNodes { nodes: rooms.len() } };
    }
    match (1..=most).find_map(|count| fit(&count)) {
        Some(shares) => {
            let as_fewest = || Parts { why: fewest(&rooms, shape), shares: shares.clone() };
            even(&rooms, shape, &shares, most).unwrap_or_else(as_fewest)
        }
        None => overflow(host, shape),
    }
}

/// What divides better than the fewest nodes that hold the VM, where their vCPUs have no common
/// divisor: every virtual socket would be one vCPU. The same number of vCPUs on each of a few nodes
/// more, less than twice as many; else an even number on each of as few.
///
/// Example: 32 vCPUs and 512 GiB on nodes of 24 cores and 96 GiB are 6, 6, 5, 5, 5, 5 on six nodes;
/// on eight each has 4, and 64 GiB.
fn even(rooms: &[Room], shape: &Shape, fewest: &[Share], most: usize) -> Option<Parts> {
    let divisor = common_divisor(fewest.iter().map(|share| share.vcpus));
    if divisor > 1 || fewest.iter().all(|share| share.vcpus == 1) {
        return None;
    }
    let count = fewest.len();
    let evenly_on = |count: usize| {
        let is_even = (shape.vcpus as usize).is_multiple_of(count);
        if is_even { even_fit(rooms, shape, count) } else { None }
    };
    if let Some(shares) = (count + 1..most.saturating_add(1).min(2 * count)).find_map(evenly_on) {
        return Some(Parts { shares, why: Why::Even { fewest: count } });
    }
    let pairs = u64::from(shape.vcpus / 2);
    if !shape.vcpus.is_multiple_of(2) || pairs < count as u64 {
        return None;
    }
    let vcpus: Vec<u64> = evenly(pairs, count).into_iter().map(|pairs| 2 * pairs).collect();
    let shares = with_memory(shape, &vcpus, &vec![u64::MAX; count]).filter(|shares| rooms_hold(rooms, shares));
    let shares = shares.or_else(|| {
        // Memory that the largest share would have more of than a node lies with the others.
        let memory: Vec<u64> = rooms.iter().take(count).map(|room| room.memory).collect();
        with_memory(shape, &vcpus, &memory).filter(|shares| rooms_hold(rooms, shares))
    });
    shares.map(|shares| Parts { shares, why: Why::Pairs })
}

/// Most parts of one a node: each holds at least one vCPU and one MiB, or one huge page.
fn most_parts(rooms: &[Room], shape: &Shape) -> usize {
    let pages = shape.memory.0 / shape.backing.huge_pages.unwrap_or(Bytes::MIB).0;
    rooms.len().min(shape.vcpus as usize).min(usize::try_from(pages).unwrap_or(usize::MAX))
}

/// Nodes with CPUs, largest first: the order depends on sizes alone, so that node numbers cannot
/// matter. A socket without memory is no room of its own, unless no node has both; its CPUs may
/// still extend a home.
fn rooms(host: &Host, cap: Option<u32>) -> Vec<Room> {
    let cap = u64::from(cap.unwrap_or(u32::MAX));
    let room = |index: usize| Room { units: u64::from(host.units(index)).min(cap), memory: host.nodes[index].memory };
    let mut rooms: Vec<Room> = (0..host.nodes.len()).map(room).filter(|room| room.units > 0).collect();
    if rooms.iter().any(|room| room.memory > 0) {
        rooms.retain(|room| room.memory > 0);
    }
    rooms.sort_by_key(|room| std::cmp::Reverse((room.units, room.memory)));
    rooms
}

/// Whether distinct rooms hold the shares, which come largest first.
pub(super) fn hold(host: &Host, shape: &Shape, shares: &[Share]) -> bool {
    rooms_hold(&rooms(host, shape.policy.max_vcpus_per_node), shares)
}

fn rooms_hold(rooms: &[Room], shares: &[Share]) -> bool {
    let holds = |room: &&Room, share: &Share| room.units >= u64::from(share.vcpus) && room.memory >= share.memory;
    // The shares are nested, so that counting the rooms for each is Hall's condition.
    shares.iter().enumerate().all(|(larger, share)| rooms.iter().filter(|room| holds(room, share)).count() > larger)
}

fn even_fit(rooms: &[Room], shape: &Shape, count: usize) -> Option<Vec<Share>> {
    let shares = with_memory(shape, &evenly(u64::from(shape.vcpus), count), &vec![u64::MAX; count])?;
    rooms_hold(rooms, &shares).then_some(shares)
}

fn uneven_fit(rooms: &[Room], shape: &Shape, count: usize) -> Option<Vec<Share>> {
    let mut shares = subsets(rooms.len(), count).into_iter().find_map(|subset| {
        let units: Vec<u64> = subset.iter().map(|&index| rooms[index].units).collect();
        let memory: Vec<u64> = subset.iter().map(|&index| rooms[index].memory).collect();
        let vcpus = in_proportion(u64::from(shape.vcpus), &units, &units)?;
        with_memory(shape, &vcpus, &memory)
    })?;
    shares.sort_by(|a, b| b.cmp(a));
    Some(shares)
}

/// Gives the shares of vCPUs their memory in proportion, within the limits.
pub(super) fn with_memory(shape: &Shape, vcpus: &[u64], limits: &[u64]) -> Option<Vec<Share>> {
    let granule = granule(shape, vcpus.len());
    let limits: Vec<u64> = limits.iter().map(|limit| limit / granule).collect();
    let memory = in_proportion(shape.memory.0 / granule, vcpus, &limits)?;
    // A node without memory of its own (a socket without DIMMs) holds no part.
    if memory.contains(&0) {
        return None;
    }
    Some(
        vcpus
            .iter()
            .zip(memory)
            .map(|(&vcpus, memory)| Share { vcpus: vcpus as u32, memory: memory * granule })
            .collect(),
    )
}

/// Node boundaries on whole huge pages where memory is made of them, or allows it; else on whole
/// MiB.
fn granule(shape: &Shape, parts: usize) -> u64 {
    let (memory, huge) = (shape.memory, 2 * Bytes::MIB.0);
    if let Some(page) = shape.backing.huge_pages {
        return page.0;
    }
    if memory.0.is_multiple_of(huge) && memory.0 / huge >= parts as u64 { huge } else { Bytes::MIB.0 }
}

/// Subsets of `count` of `total` rooms, those with the largest first.
fn subsets(total: usize, count: usize) -> Vec<Vec<usize>> {
    if total > ENUMERATED_NODES {
        return vec![(0..count).collect()];
    }
    let masks = (0u32..1 << total).filter(|mask| mask.count_ones() as usize == count);
    let mut sets: Vec<Vec<usize>> = masks.map(|mask| (0..total).filter(|bit| mask >> bit & 1 == 1).collect()).collect();
    sets.sort();
    sets
}

fn fewest(rooms: &[Room], shape: &Shape) -> Why {
    let fewest_of = |needed: u64, of: fn(&Room) -> u64| {
        let mut sizes: Vec<u64> = rooms.iter().map(of).collect();
        sizes.sort_by(|a, b| b.cmp(a));
        let mut sum = 0u64;
        sizes.iter().position(|size| {
            sum = sum.saturating_add(*size);
            sum >= needed
        })
    };
    let by_cores = fewest_of(u64::from(shape.vcpus), |room| room.units).map(|index| index + 1);
    let by_memory = fewest_of(shape.memory.0, |room| room.memory).map(|index| index + 1);
    Why::Fewest { by_cores, by_memory }
}

/// Shares of a VM that has no one-part-a-node fit: because of `max_vcpus_per_node`, or because the
/// machine is too small.
fn overflow(host: &Host, shape: &Shape) -> Parts {
    let cap = shape.policy.max_vcpus_per_node;
    let capped = cap.map_or(1, |cap| shape.vcpus.div_ceil(cap)) as usize;
    let rooms = rooms(host, None);
    let limit = most_parts(&rooms, shape);
    let free_fit = (1..=limit)
        .find(|&count| even_fit(&rooms, shape, count).or_else(|| uneven_fit(&rooms, shape, count)).is_some());
    if let (Some(most), Some(fewest)) = (cap, free_fit) {
        let vcpus = evenly(u64::from(shape.vcpus), capped.max(fewest));
        return Parts { shares: without_limits(shape, &vcpus), why: Why::Cap { most } };
    }
    let vcpus = if capped <= limit && limit == rooms.len() {
        let units: Vec<u64> = rooms.iter().map(|room| room.units).collect();
        let most = vec![u64::from(cap.unwrap_or(u32::MAX)); limit];
        in_proportion(u64::from(shape.vcpus), &units, &most)
    } else {
        None
    };
    let vcpus = vcpus.unwrap_or_else(|| evenly(u64::from(shape.vcpus), capped.max(limit)));
    let memory: Vec<u64> = rooms.iter().map(|room| room.memory).collect();
    let held = if vcpus.len() == rooms.len() { with_memory(shape, &vcpus, &memory) } else { None };
    let shares = held.unwrap_or_else(|| without_limits(shape, &vcpus));
    Parts { shares, why: Why::Overflow { cpu_nodes: rooms.len() } }
}

fn without_limits(shape: &Shape, vcpus: &[u64]) -> Vec<Share> {
    with_memory(shape, vcpus, &vec![u64::MAX; vcpus.len()]).unwrap_or_default()
}
