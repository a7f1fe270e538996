//! The homes that a client may have.

use crate::host::Host;

/// What a client asks of its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Demand {
    pub(crate) vcpus: u32,
    /// Bytes.
    pub(crate) memory: u64,
    /// Nodes that its home has at least.
    pub(crate) least_home: usize,
}

/// A set of nodes as a client's home, and what the client takes of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// Indices of nodes, rising.
    pub(crate) nodes: Vec<usize>,
    /// Thousandths of vCPUs on each.
    pub(crate) milli: Vec<u64>,
    /// Bytes on each.
    pub(crate) bytes: Vec<u64>,
    /// Whether the bytes lie in equal parts (interleaved), not as the nodes have room.
    pub(crate) equal: bool,
    pub(crate) memory_only: u32,
    /// The part of the client that is on each of its nodes: [`WHOLE`] divided by their number.
    pub(crate) weight: u64,
    /// The mean distance between its own nodes, in units of 1 / [`WHOLE`]^2.
    pub(crate) inner_distance: u64,
}

/// A number that every number up to 10 divides, so that the parts of most homes are whole.
pub(crate) const WHOLE: u64 = 2520;

/// Sets of nodes of one size are all listed up to this many; beyond, only each node's nearest neighbours.
const LISTED_SETS: usize = 5_000;

/// Homes of `size` nodes for `demand`: first in equal parts, then (for memory that has no room in equal parts) as there is
/// room. The flag says whether every set of nodes was considered.
pub(crate) fn homes(host: &Host, demand: &Demand, size: usize, cpus_must_fit: bool) -> (Vec<Home>, bool) {
    let total = host.nodes.len();
    if size < demand.least_home || size > total {
        return (Vec::new(), true);
    }
    let complete = combinations(total, size) <= LISTED_SETS;
    let sets = if complete { all_sets(total, size) } else { grown_sets(host, size) };
    let fits = |set: &Vec<usize>| {
        let units: u32 = set.iter().map(|&index| host.units(index)).sum();
        units > 0 && (!cpus_must_fit || units >= demand.vcpus)
    };
    let sets: Vec<Vec<usize>> = sets.into_iter().filter(fits).collect();
    let mut homes: Vec<Home> = sets.iter().filter_map(|set| home(host, demand, set, true)).collect();
    if size > 1 {
        homes.extend(sets.iter().filter_map(|set| home(host, demand, set, false)));
    }
    (homes, complete)
}

/// The home on this set; `None` where its nodes lack the room.
pub(crate) fn home(host: &Host, demand: &Demand, set: &[usize], equal: bool) -> Option<Home> {
    let available = |index: usize| host.nodes[index].available;
    let bytes = if equal {
        crate::divide::evenly(demand.memory, set.len())
    } else {
        as_there_is_room(demand.memory, &set.iter().map(|&index| available(index)).collect::<Vec<_>>())?
    };
    if set.iter().zip(&bytes).any(|(&index, &bytes)| bytes > available(index)) {
        return None;
    }
    let units: Vec<u64> = set.iter().map(|&index| u64::from(host.units(index))).collect();
    let milli = in_parts(u64::from(demand.vcpus) * 1000, &units)?;
    let memory_only = set.iter().filter(|&&index| host.nodes[index].threads == 0).count() as u32;
    let weight = WHOLE / set.len() as u64;
    let pairs = set.iter().flat_map(|&a| set.iter().map(move |&b| (a, b))).filter(|(a, b)| a != b);
    let inner_distance = pairs.map(|(a, b)| u64::from(host.distances[a][b])).sum::<u64>() * weight * weight;
    Some(Home { nodes: set.to_vec(), milli, bytes, equal, memory_only, weight, inner_distance })
}

/// `memory` in proportion to what each node has to give.
fn as_there_is_room(memory: u64, available: &[u64]) -> Option<Vec<u64>> {
    (available.iter().sum::<u64>() >= memory).then(|| in_parts(memory, available)).flatten()
}

/// `amount` in proportion to `weights`, each part rounded so that the sum stays whole; `None` without any weight.
fn in_parts(amount: u64, weights: &[u64]) -> Option<Vec<u64>> {
    let total: u64 = weights.iter().sum();
    let up_to = |sum: u64| u128::from(amount) * u128::from(sum) / u128::from(total);
    let mut sum = 0;
    let part = |weight: &u64| {
        let before = up_to(sum);
        sum += weight;
        (up_to(sum) - before) as u64
    };
    (total > 0).then(|| weights.iter().map(part).collect())
}

/// Number of sets of `size` out of `total`, stopping at a large number.
fn combinations(total: usize, size: usize) -> usize {
    (0..size).fold(1usize, |count, i| count.saturating_mul(total - i) / (i + 1))
}

fn all_sets(total: usize, size: usize) -> Vec<Vec<usize>> {
    fn extend(total: usize, size: usize, set: &mut Vec<usize>, sets: &mut Vec<Vec<usize>>) {
        if set.len() == size {
            sets.push(set.clone());
            return;
        }
        let next = set.last().map_or(0, |last| last + 1);
        for index in next..=total - (size - set.len()) {
            set.push(index);
            extend(total, size, set, sets);
            set.pop();
        }
    }
    let mut sets = Vec::new();
    extend(total, size, &mut Vec::new(), &mut sets);
    sets
}

/// For each node, the set of it and its `size - 1` nearest neighbours, those with more memory first among equals.
fn grown_sets(host: &Host, size: usize) -> Vec<Vec<usize>> {
    let grow = |seed: usize| {
        let mut others: Vec<usize> = (0..host.nodes.len()).collect();
        others.sort_by_key(|&other| {
            let away = host.distances[seed][other] + host.distances[other][seed];
            (other != seed, away, std::cmp::Reverse(host.nodes[other].available), other)
        });
        let mut set = others[..size].to_vec();
        set.sort_unstable();
        set
    };
    let mut sets: Vec<Vec<usize>> = (0..host.nodes.len()).map(grow).collect();
    sets.sort();
    sets.dedup();
    sets
}
