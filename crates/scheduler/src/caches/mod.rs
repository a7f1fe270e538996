//! Last-level caches inside a home: which vCPUs share one, and which one.
//!
//! **Problem.** Where caches are smaller than nodes (Rome, Milan, Genoa), a guest that is told of
//! caches arranges its threads by them. That is true only if the vCPUs of each stay under one cache
//! of the machine. And a program that lives of cache or bandwidth runs best with a cache to itself.
//!
//! **Rule.** vCPUs that the guest is told share a cache (a virtual socket, or a die of one) are a
//! *group*, which is bound to the CPUs of one cache of the home. `policy.cache` says whether, and
//! how many caches: `own` takes one for each group as far as there are, `pack` the fewest that hold
//! them, `auto`, the default, any: for sockets that the policy states, and for a VM of several
//! clients ([`Division`]). Of all choices with that number of caches the one is taken that loses
//! least ([`assign`]). vCPUs that may use the whole node weigh the same on each of its caches, and
//! so do not count. Cores count, hardware threads with `prefer_ht`.
//!
//! **Homes and caches are chosen together.** What groups lose under the caches of a home is charged
//! to that home ([`under`]), beside all else that a placement costs ([`crate::placement`]). Where a
//! home divides nothing, its vCPUs are charged as under one cache with all of its cores.
//!
//! **Properties.** Each vCPU of a client, those that may come too, is in exactly one group, or the
//! client has no groups. A group's CPUs are those of one cache, within the client's. Where the
//! groups fit into caches that are empty, no cache gets more vCPUs than cores.
//!
//! **Unknown caches.** A virtual machine may show no caches, or one for each CPU. Caches of one
//! core each, and homes of which a CPU names no cache, are not divided.
//!
//! **Example.** A node of four caches of 4 cores; another VM has 4 vCPUs under cache 0. Two groups
//! of 4: cache 0 would lose 0.2 x (8^2 - 4^2) / 4 + 4 = 6.4 CPUs, each other cache 0.2 x 4^2 / 4 =
//! 0.8: they get caches 1 and 2. If a node has only caches 0 and 1, and another node two that are
//! idle, the home is the other node, unless it loses more than 5.6 CPUs otherwise.

mod assign;
mod deal;
mod divide;
mod division;
mod explain;
mod least;
mod running;
mod under;

pub(crate) use divide::{Caches, dies, per_socket};
pub(crate) use division::Division;
pub(crate) use least::Least;
pub(crate) use running::{Member, Place, settle};
pub use running::{vcpu_groups, with_groups};

use crate::Occupancy;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CoreId, CpuId, CpuSet, HardwareThread, LlcId, Machine};

/// A cache, as far as it belongs to a home.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    pub(crate) id: LlcId,
    pub(crate) cpus: CpuSet,
    /// Cores, or hardware threads with `prefer_ht`.
    pub(crate) units: u32,
    /// vCPUs of others that are bound to it; 0 where nobody looked.
    pub(crate) load: u32,
}

/// The caches of these threads, by id. Empty where they are not known, or none is shared.
fn of_threads<'a>(threads: impl Iterator<Item = &'a HardwareThread>, prefer_ht: bool) -> Vec<Cache> {
    let mut found: BTreeMap<LlcId, (CpuSet, BTreeSet<CoreId>)> = BTreeMap::new();
    for thread in threads {
        let Some(llc) = thread.llc else { return Vec::new() };
        let (cpus, cores) = found.entry(llc).or_default();
        cpus.insert(thread.id);
        cores.insert(thread.core);
    }
    if found.values().all(|(_, cores)| cores.len() < 2) {
        return Vec::new();
    }
    let cache = |(id, (cpus, cores)): (LlcId, (CpuSet, BTreeSet<CoreId>))| {
        let units = if prefer_ht { cpus.len() } else { cores.len() } as u32;
        Cache { id, cpus, units, load: 0 }
    };
    found.into_iter().map(cache).collect()
}

/// The caches of a node with these threads, and what others have bound to each: the largest first,
/// which is taken of those that crowd alike. Empty where they are not known, or none is shared.
pub(crate) fn of_node<'a>(
    machine: &Machine,
    occupancy: &Occupancy,
    threads: impl Iterator<Item = &'a HardwareThread>,
    prefer_ht: bool,
) -> Vec<Cache> {
    let mut caches = of_threads(threads, prefer_ht);
    for cache in &mut caches {
        cache.load = occupancy.caches.get(&cache.id).copied().unwrap_or(0);
    }
    caches.sort_by_cached_key(|cache| (Reverse(bytes_of(machine, cache.id)), cache.id));
    caches
}

fn bytes_of(machine: &Machine, llc: LlcId) -> Option<Bytes> {
    machine.llcs.iter().find(|other| other.id == llc)?.size
}

/// The cache of each CPU of those nodes that have several: who is bound to one of these is bound to
/// less than a node.
pub(crate) fn smaller_than_nodes(machine: &Machine) -> BTreeMap<CpuId, LlcId> {
    let mut of_node: BTreeMap<_, Vec<&HardwareThread>> = BTreeMap::new();
    machine.usable_threads().for_each(|thread| of_node.entry(thread.node).or_default().push(thread));
    let several =
        of_node.into_values().map(|threads| of_threads(threads.into_iter(), false)).filter(|all| all.len() > 1);
    several.flatten().flat_map(|cache| cache.cpus.iter().map(|cpu| (cpu, cache.id)).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests;
