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
//! clients. Of all choices with that number of caches the one is taken where bound vCPUs are fewest
//! a core: the sum over the caches of (bound vCPUs)^2 / cores is least ([`assign`]). vCPUs that may
//! use the whole node weigh the same on each of its caches, and so do not count. Cores count,
//! hardware threads with `prefer_ht`.
//!
//! **Properties.** Each vCPU of a client, those that may come too, is in exactly one group, or the
//! client has no groups. A group's CPUs are those of one cache, within the client's. Where the
//! groups fit into caches that are empty, no cache gets more vCPUs than cores.
//!
//! **Unknown caches.** A virtual machine may show no caches, or one for each CPU. Caches of one
//! core each, and homes of which a CPU names no cache, are not divided.
//!
//! **Example.** A node of four caches of 4 cores; another VM has 4 vCPUs under cache 0. Two groups
//! of 4: cache 0 would then have 8^2 - 4^2 = 48 more (quarters), each other one 4^2 = 16; they get
//! caches 1 and 2.

mod assign;
mod divide;
mod running;

pub(crate) use divide::{Caches, dies, per_socket};
pub(crate) use running::{Member, Place, settle};
pub use running::{vcpu_groups, with_groups};

use crate::{Occupancy, divide as parts};
use assign::{Room, assign};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use topology::words::count;
use topology::{Bytes, CoreId, CpuId, CpuSet, HardwareThread, LlcId, Machine};
use vm::spec::CachePolicy;
use vm::{CacheGroup, Client, Plan, Reason, Shape};

/// A cache, as far as it belongs to a home.
#[derive(Clone, Debug)]
struct Cache {
    id: LlcId,
    cpus: CpuSet,
    /// Cores, or hardware threads with `prefer_ht`.
    units: u32,
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
        Cache { id, cpus, units }
    };
    found.into_iter().map(cache).collect()
}

/// Cores (or hardware threads) under each last-level cache of these threads; fewer than two where
/// there is nothing to divide.
pub(crate) fn sizes<'a>(threads: impl Iterator<Item = &'a HardwareThread>, prefer_ht: bool) -> Vec<u32> {
    of_threads(threads, prefer_ht).iter().map(|cache| cache.units).collect()
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

/// Binds groups of vCPUs to caches, as the policy says.
pub(crate) fn bind(machine: &Machine, occupancy: &Occupancy, shape: &Shape, mut plan: Plan) -> Plan {
    let policy = shape.policy.cache;
    let told = shape.policy.cores_per_socket.is_some() || plan.placement.clients.len() > 1;
    if policy == CachePolicy::Ignore || (policy == CachePolicy::Auto && !told) {
        return plan;
    }
    let mut load = occupancy.caches.clone();
    let (mut taken, mut untold) = (BTreeSet::new(), false);
    let (mut undivided, mut too_wide) = (Vec::new(), None);
    for client in &mut plan.placement.clients {
        let threads = machine.usable_threads().filter(|thread| client.cpus.contains(thread.id));
        let mut caches = of_threads(threads, shape.policy.prefer_ht);
        // Of those that crowd alike the largest comes first.
        caches.sort_by_key(|cache| (Reverse(bytes_of(machine, cache.id)), cache.id));
        if caches.len() < 2 {
            undivided.push(client.id);
            continue;
        }
        let Some((groups, told)) = groups(&plan.topology, shape, client, &caches) else {
            too_wide = too_wide.max(caches.iter().map(|cache| cache.units).max());
            continue;
        };
        untold |= !told;
        let places = places(policy, &caches, &groups, &load);
        for (vcpus, place) in groups.into_iter().zip(places) {
            let cache = &caches[place];
            *load.entry(cache.id).or_default() += vcpus.len() as u32;
            taken.insert(cache.id);
            client.groups.push(CacheGroup { vcpus, llc: cache.id, cpus: cache.cpus.clone() });
        }
    }
    explain(shape, &mut plan, taken.len(), untold, &undivided);
    if let (Some(asked), Some(most)) = (shape.policy.cores_per_socket, too_wide) {
        plan.warnings.push(format!(
            "policy.cores_per_socket = {asked}: the guest takes the vCPUs of a virtual socket to share a last-level \
             cache; none of its home has more than {}, so that its vCPUs may run under several",
            count(most as usize, if shape.policy.prefer_ht { "hardware thread" } else { "core" })
        ));
    }
    plan
}

fn bytes_of(machine: &Machine, llc: LlcId) -> Option<Bytes> {
    machine.llcs.iter().find(|other| other.id == llc)?.size
}

/// The groups of a client, and whether its guest is told of a cache for each. `None`: it has none.
fn groups(
    topology: &vm::VirtualTopology,
    shape: &Shape,
    client: &Client,
    caches: &[Cache],
) -> Option<(Vec<Vec<u32>>, bool)> {
    let shared = topology.vcpus_per_cache();
    let nodes = topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
    let vcpus: Vec<u32> = nodes.flat_map(|node| node.vcpus.iter().copied()).collect();
    let most = caches.iter().map(|cache| cache.units).max()?;
    let auto = shape.policy.cache == CachePolicy::Auto;
    let tells = auto || shape.policy.cores_per_socket.is_some() || (shared as usize) < vcpus.len();
    if tells && shared <= most {
        let mut told: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        vcpus.iter().for_each(|&vcpu| told.entry(vcpu / shared).or_default().push(vcpu));
        return Some((told.into_values().collect(), true));
    }
    if auto {
        return None;
    }
    let all = Caches::new(caches.iter().map(|cache| cache.units).collect());
    let count = divide::groups(shape.policy.cache, vcpus.len() as u32, &all);
    let sizes = parts::evenly(vcpus.len() as u64, count as usize);
    let told = sizes.iter().all(|&size| size == u64::from(shared));
    let mut rest = vcpus.into_iter();
    Some((sizes.iter().map(|&size| rest.by_ref().take(size as usize).collect()).collect(), told))
}

/// The cache of each group, by index.
fn places(policy: CachePolicy, caches: &[Cache], groups: &[Vec<u32>], load: &BTreeMap<LlcId, u32>) -> Vec<usize> {
    let size = groups.iter().map(Vec::len).max().unwrap_or(0).max(1) as u32;
    let count = groups.len() as u32;
    let rooms = |most: &dyn Fn(&Cache) -> u32| -> Vec<Room> {
        let load = |cache: &Cache| load.get(&cache.id).copied().unwrap_or(0);
        caches.iter().map(|cache| Room { units: cache.units, load: load(cache), most: most(cache) }).collect()
    };
    let holds = |rooms: &Vec<Room>| rooms.iter().map(|room| u64::from(room.most)).sum::<u64>() >= u64::from(count);
    let each = count.div_ceil(caches.len() as u32);
    let own = (policy == CachePolicy::Own).then(|| rooms(&|cache| each.min(cache.units / size))).filter(holds);
    let rooms =
        own.or_else(|| Some(rooms(&|cache| cache.units / size)).filter(holds)).unwrap_or_else(|| rooms(&|_| count));
    let taken = assign(&rooms, size, count, policy == CachePolicy::Pack);
    taken.iter().enumerate().flat_map(|(place, &number)| std::iter::repeat_n(place, number as usize)).collect()
}

fn explain(shape: &Shape, plan: &mut Plan, taken: usize, untold: bool, undivided: &[u32]) {
    let policy = shape.policy.cache;
    let groups: Vec<&CacheGroup> = plan.placement.clients.iter().flat_map(|client| &client.groups).collect();
    let sizes: BTreeSet<usize> = groups.iter().map(|group| group.vcpus.len()).collect();
    if let (Some(least), Some(most)) = (sizes.first(), sizes.last()) {
        let size = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let which = match policy {
            CachePolicy::Pack => "policy.cache = \"pack\": as few last-level caches as hold the vCPUs",
            CachePolicy::Own => "policy.cache = \"own\": a last-level cache for each as far as there are",
            _ if shape.policy.cores_per_socket.is_none() => {
                "each virtual node fits under one cache, as its guest is told, and the kernel takes all for one process"
            }
            _ => "policy.cores_per_socket tells the guest of caches, and each of its sockets keeps to one",
        };
        let choice = format!("cache groups: {} of {size} vCPUs, on {}", groups.len(), count(taken, "cache"));
        let because = format!("{which}; of those choices the one with the fewest bound vCPUs a core");
        plan.reasons.push(Reason { choice, because });
    }
    if policy == CachePolicy::Auto {
        return;
    }
    if policy == CachePolicy::Own && taken < groups.len() {
        plan.warnings.push(format!(
            "policy.cache = \"own\": its {} groups of vCPUs have {} between them, so that some share one",
            groups.len(),
            count(taken, "last-level cache")
        ));
    }
    if untold {
        plan.warnings.push(format!(
            "policy.cache = \"{}\": its guest is not told of these groups: virtual sockets of {} vCPUs do not \
             match them, so it takes vCPUs under several caches to share one",
            policy.word(),
            plan.topology.cores_per_socket
        ));
    }
    if !undivided.is_empty() {
        let clients: Vec<String> = undivided.iter().map(u32::to_string).collect();
        plan.warnings.push(format!(
            "policy.cache = \"{}\" divides nothing where a home has one last-level cache, or caches that are not \
             known: clients {}",
            policy.word(),
            clients.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests;
