//! Last-level caches as one step looks at them: which groups of vCPUs keep to which, and how loaded
//! each is.
//!
//! **Rule.** Of a node that has several caches each is known with its cores. A group adds its part
//! of its client's load; who may use the whole node weighs the same on each cache of it, and is
//! left out. A client that gets another home takes its groups along ([`crate::caches`] says where
//! to); one that stays keeps its caches.
//!
//! **Properties.** Where no client is divided nothing is looked up. A home without caches to
//! divide takes a client as a whole, and the state keeps the groups for its next home.
//!
//! **Example.** A client with a load of 3 CPUs in two groups, of which one used twice as much as
//! the other: one cache gets 2 CPUs, the other 1.

use super::scene::Scene;
use crate::VcpuGroup;
use crate::caches::{Member, Place, settle as assign};
use smallvec::SmallVec;
use topology::{CpuId, CpuSet, HardwareThread, LlcId, Machine};

/// A last-level cache of a node that has several.
pub(super) struct CacheScene {
    /// Index of its node.
    pub(super) node: usize,
    pub(super) id: LlcId,
    pub(super) cpus: Vec<CpuId>,
    pub(super) cores: f64,
    /// Its capacity in bytes; 0 where that is not known.
    pub(super) bytes: u64,
    /// CPUs that groups here are entitled to.
    pub(super) load: f64,
    /// The same with what may be expected of groups that idle: for the choice of a first cache.
    expected: f64,
}

/// The caches of all nodes, by node and id; empty where no client is divided.
#[derive(Default)]
pub(super) struct Caches {
    pub(super) all: Vec<CacheScene>,
    of_cpu: Vec<u16>,
}

/// The cache of each group of a client, by index; [`NO_CACHE`]: none.
pub(super) type Places = SmallVec<[u16; 4]>;

pub(super) const NO_CACHE: u16 = u16::MAX;

impl CacheScene {
    pub(super) fn threads(&self) -> f64 {
        self.cpus.len() as f64
    }

    /// Load in percent of its cores, with `more` CPUs.
    pub(super) fn percent(&self, more: f64) -> f64 {
        100.0 * (self.load + more) / self.cores.max(1.0)
    }
}

impl Caches {
    fn of(&self, cpu: CpuId) -> u16 {
        self.of_cpu.get(cpu.0 as usize).copied().unwrap_or(NO_CACHE)
    }
}

/// Looks caches up, where a client is divided, and puts each group under its own.
pub(super) fn set(scene: &mut Scene<'_>, machine: &Machine) {
    if scene.clients.iter().all(|client| client.known.groups.is_empty()) {
        return;
    }
    scene.caches = find(scene, machine);
    for client in 0..scene.clients.len() {
        if !scene.clients[client].known.groups.is_empty() {
            scene.clients[client].places = as_seen(scene, client);
            add(scene, client, 1.0);
        }
    }
}

fn find(scene: &Scene<'_>, machine: &Machine) -> Caches {
    let sorted = machine.threads.is_sorted_by(|one, other| one.id < other.id);
    let thread = |cpu: CpuId| -> Option<&HardwareThread> {
        let index = machine.threads.binary_search_by_key(&cpu, |thread| thread.id).ok().filter(|_| sorted);
        index.map(|index| &machine.threads[index]).or_else(|| machine.thread(cpu))
    };
    let mut caches = Caches::default();
    for (node, place) in scene.nodes.iter().enumerate() {
        let cpus = place.seen.iter().flat_map(|seen| seen.cpus.iter());
        let known = cpus.map(|cpu| thread(cpu).and_then(|thread| Some((thread.llc?, cpu, thread.core))));
        // A CPU whose cache is not known could be under any.
        let Some(mut known) = known.collect::<Option<Vec<_>>>() else { continue };
        known.sort_unstable_by_key(|&(llc, cpu, _)| (llc, cpu));
        let parts: Vec<_> = known.chunk_by(|one, other| one.0 == other.0).collect();
        let cores = |part: &[(LlcId, CpuId, topology::CoreId)]| {
            let mut cores: SmallVec<[topology::CoreId; 32]> = part.iter().map(|&(.., core)| core).collect();
            cores.sort_unstable();
            cores.dedup();
            cores.len()
        };
        if parts.len() < 2 || parts.iter().all(|part| cores(part) < 2) {
            continue;
        }
        for part in parts {
            let id = part[0].0;
            let size = machine.llcs.iter().find(|llc| llc.id == id).and_then(|llc| llc.size);
            let cpus: Vec<CpuId> = part.iter().map(|&(_, cpu, _)| cpu).collect();
            for cpu in &cpus {
                let cpu = cpu.0 as usize;
                if caches.of_cpu.len() <= cpu {
                    caches.of_cpu.resize(cpu + 1, NO_CACHE);
                }
                caches.of_cpu[cpu] = caches.all.len() as u16;
            }
            let (cores, bytes) = (cores(part) as f64, size.map_or(0, |size| size.0));
            caches.all.push(CacheScene { node, id, cpus, cores, bytes, load: 0.0, expected: 0.0 });
        }
    }
    caches
}

/// The caches that the groups of a client keep to as they were seen.
fn as_seen(scene: &Scene<'_>, client: usize) -> Places {
    let this = &scene.clients[client];
    let place = |vcpus: &[u32]| {
        let seen = this.seen.groups.iter().find(|seen| vcpus.iter().all(|vcpu| seen.group.vcpus.contains(vcpu)));
        seen.and_then(|seen| seen.group.cpus.first()).map_or(NO_CACHE, |cpu| scene.caches.of(cpu))
    };
    this.known.groups.iter().map(|group| place(&group.vcpus)).collect()
}

/// What part of its client's load a group is.
pub(super) fn part(scene: &Scene<'_>, client: usize, group: usize) -> f64 {
    let groups = &scene.clients[client].known.groups;
    let demands: Option<f64> = groups.iter().map(|group| group.demand).sum();
    match (demands.filter(|sum| *sum > 0.0), groups[group].demand) {
        (Some(sum), Some(demand)) => demand / sum,
        _ => {
            let all: usize = groups.iter().map(|group| group.vcpus.len()).sum();
            groups[group].vcpus.len() as f64 / all.max(1) as f64
        }
    }
}

/// CPUs that a group is entitled to.
pub(super) fn load(scene: &Scene<'_>, client: usize, group: usize) -> f64 {
    scene.clients[client].load * part(scene, client, group)
}

/// Adds (`sign` 1) or takes away (-1) the groups of a client where they are.
fn add(scene: &mut Scene<'_>, client: usize, sign: f64) {
    for group in 0..scene.clients[client].places.len() {
        let place = usize::from(scene.clients[client].places[group]);
        let part = part(scene, client, group);
        let this = &scene.clients[client];
        let (load, expected) = (this.load * part, this.expected * part);
        if let Some(cache) = scene.caches.all.get_mut(place) {
            cache.load = (cache.load + sign * load).max(0.0);
            cache.expected = (cache.expected + sign * expected).max(0.0);
        }
    }
}

/// The client leaves its caches.
pub(super) fn leave(scene: &mut Scene<'_>, client: usize) {
    if !scene.clients[client].known.groups.is_empty() {
        add(scene, client, -1.0);
    }
}

/// The client, whose home is set, gets caches of it: those that it has, where they are its home's.
pub(super) fn settle(scene: &mut Scene<'_>, client: usize) {
    if scene.clients[client].known.groups.is_empty() {
        return;
    }
    let home = &scene.clients[client].home;
    let at_home = |place: &u16| scene.caches.all.get(usize::from(*place)).is_some_and(|it| home.contains(&it.node));
    let stays = |places: &Places| !places.is_empty() && places.iter().all(at_home);
    let now = scene.clients[client].places.clone();
    let places = [now, as_seen(scene, client)].into_iter().find(stays).unwrap_or_else(|| choose(scene, client));
    scene.clients[client].places = places;
    add(scene, client, 1.0);
}

/// Caches for the groups of a client that comes to its home.
fn choose(scene: &Scene<'_>, client: usize) -> Places {
    let this = &scene.clients[client];
    let caches = || (0..scene.caches.all.len()).filter(|&cache| this.home.contains(&scene.caches.all[cache].node));
    let place = |cache: usize| {
        let cache = &scene.caches.all[cache];
        Place { cores: cache.cores, threads: cache.threads(), load: cache.expected }
    };
    let groups = 0..this.known.groups.len();
    let member = |group: usize| Member {
        vcpus: this.known.groups[group].vcpus.len() as u32,
        load: this.expected * part(scene, client, group),
    };
    let taken = assign(&caches().map(place).collect::<Vec<_>>(), &groups.map(member).collect::<Vec<_>>());
    let of_home: Vec<usize> = caches().collect();
    taken.into_iter().map(|taken| taken.map_or(NO_CACHE, |index| of_home[index] as u16)).collect()
}

/// Brings a group under another cache.
pub(super) fn move_group(scene: &mut Scene<'_>, client: usize, group: usize, to: usize) {
    add(scene, client, -1.0);
    scene.clients[client].places[group] = to as u16;
    add(scene, client, 1.0);
}

/// The groups of a client and the CPUs that each keeps to; empty where none keeps to a cache.
pub(super) fn groups(scene: &Scene<'_>, client: usize) -> Vec<VcpuGroup> {
    let this = &scene.clients[client];
    if this.places.iter().all(|&place| place == NO_CACHE) {
        return Vec::new();
    }
    let cpus = |place: u16| -> CpuSet {
        let cache = scene.caches.all.get(usize::from(place));
        cache.map_or_else(|| scene.cpus(&this.home), |cache| cache.cpus.iter().copied().collect())
    };
    let group =
        |(known, &place): (&super::GroupMemory, &u16)| VcpuGroup { vcpus: known.vcpus.clone(), cpus: cpus(place) };
    this.known.groups.iter().zip(&this.places).map(group).collect()
}

/// vCPUs of the largest group that has a hardware thread for each under its cache now, if no cache
/// of a node has as many.
pub(super) fn too_small(scene: &Scene<'_>, client: usize, node: usize) -> Option<usize> {
    let this = &scene.clients[client];
    let largest = scene.caches.all.iter().filter(|cache| cache.node == node).map(CacheScene::threads);
    let largest = largest.max_by(f64::total_cmp)?;
    let fits_now = |place: &u16, vcpus: f64| {
        scene.caches.all.get(usize::from(*place)).is_some_and(|cache| cache.threads() >= vcpus)
    };
    let groups = this.known.groups.iter().zip(&this.places);
    let sizes = groups.filter(|(group, place)| fits_now(place, group.vcpus.len() as f64));
    sizes.map(|(group, _)| group.vcpus.len()).max().filter(|&vcpus| vcpus as f64 > largest)
}
