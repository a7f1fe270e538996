//! Groups of a VM that runs: told by what its threads may use, and brought to other caches.
//!
//! **Rule.** Its vCPUs are divided where each may use all CPUs of one last-level cache, of a node
//! that has several, and no other. vCPUs under one cache are a group; where they are more than its
//! cores and each virtual socket keeps to one cache, each socket is. Groups go, the largest
//! first, to the cache where fewest of their client are, then to where they crowd least: the sum
//! of load^2 / cores grows least. A cache with fewer hardware threads than vCPUs takes no group.
//!
//! **Example.** Caches of 4 cores, vCPUs 0-3 on CPUs 0-3 and 4-7 on CPUs 4-7: two groups. On a node
//! whose caches are loaded 0, 4, 0 and 1 CPUs they get the first and the third.

use super::of_threads;
use crate::{Action, Observation, Occupancy, VcpuGroup};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use topology::{CpuSet, HardwareThread, LlcId, Machine, NodeId};

/// The groups of a client whose vCPUs may use these CPUs; empty where they are not divided.
/// `socket`: vCPUs in a virtual socket.
pub fn vcpu_groups(machine: &Machine, cpus: &BTreeMap<u32, CpuSet>, socket: u32) -> Vec<VcpuGroup> {
    let mut of_node: BTreeMap<NodeId, Vec<&HardwareThread>> = BTreeMap::new();
    machine.usable_threads().for_each(|thread| of_node.entry(thread.node).or_default().push(thread));
    let several = of_node.into_values().map(|threads| of_threads(threads.into_iter(), false));
    let caches: Vec<_> = several.filter(|caches| caches.len() > 1).flatten().collect();
    let mut under: BTreeMap<LlcId, Vec<u32>> = BTreeMap::new();
    for (&vcpu, cpus) in cpus {
        let Some(cache) = caches.iter().find(|cache| cache.cpus == *cpus) else { return Vec::new() };
        under.entry(cache.id).or_default().push(vcpu);
    }
    let socket_of = |vcpu: u32| vcpu / socket.max(1);
    let pairs = under.iter().flat_map(|(llc, vcpus)| vcpus.iter().map(move |&vcpu| (socket_of(vcpu), *llc)));
    let pairs: BTreeSet<(u32, LlcId)> = pairs.collect();
    let sockets: BTreeSet<u32> = pairs.iter().map(|(socket, _)| *socket).collect();
    let one_cache_each = sockets.len() == pairs.len();
    let mut groups = Vec::new();
    for (llc, vcpus) in under {
        let Some(cache) = caches.iter().find(|cache| cache.id == llc) else { continue };
        let mut parts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for vcpu in &vcpus {
            let part = if one_cache_each && vcpus.len() > cache.units as usize { socket_of(*vcpu) } else { 0 };
            parts.entry(part).or_default().push(*vcpu);
        }
        groups.extend(parts.into_values().map(|vcpus| VcpuGroup { vcpus, cpus: cache.cpus.clone() }));
    }
    groups.sort_by(|one, other| one.vcpus.cmp(&other.vcpus));
    groups
}

/// A cache that groups of a client may go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Cores.
    pub(crate) cores: f64,
    /// Hardware threads.
    pub(crate) threads: f64,
    /// CPUs, or vCPUs, that are there.
    pub(crate) load: f64,
}

/// A group, before it has a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) vcpus: u32,
    /// In the unit of [`Place::load`].
    pub(crate) load: f64,
}

/// The place of each group; `None`: none has a hardware thread for each of its vCPUs.
pub(crate) fn settle(places: &[Place], groups: &[Member]) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    let larger = |one: &Member, other: &Member| other.load.total_cmp(&one.load).then(other.vcpus.cmp(&one.vcpus));
    order.sort_by(|&one, &other| larger(&groups[one], &groups[other]).then(one.cmp(&other)));
    let mut own = vec![0u32; places.len()];
    let mut loads: Vec<f64> = places.iter().map(|place| place.load).collect();
    let mut taken = vec![None; groups.len()];
    for group in order {
        let Member { vcpus, load } = groups[group];
        let more = |place: usize| load * (2.0 * loads[place] + load) / places[place].cores.max(1.0);
        let best = |one: &usize, other: &usize| -> Ordering {
            own[*one].cmp(&own[*other]).then(more(*one).total_cmp(&more(*other))).then(one.cmp(other))
        };
        let fits = (0..places.len()).filter(|&place| places[place].threads >= f64::from(vcpus));
        let Some(place) = fits.min_by(best) else { continue };
        (own[place], loads[place]) = (own[place] + 1, loads[place] + load);
        taken[group] = Some(place);
    }
    taken
}

/// The action, where it binds a client that is divided: its groups go along, under caches of the
/// home, beside the groups of all others.
pub fn with_groups(machine: &Machine, observation: &Observation, action: &Action) -> Action {
    let mut action = action.clone();
    let Action::Bind { vm, client, home, cpus, groups } = &mut action else { return action };
    let seen = observation.vms.iter().find(|seen| seen.vm == *vm);
    let seen = seen.and_then(|seen| seen.clients.iter().find(|seen| seen.id == *client));
    let caches = of_threads(machine.usable_threads().filter(|thread| cpus.contains(thread.id)), false);
    let Some(seen) = seen.filter(|seen| !seen.groups.is_empty() && caches.len() > 1) else { return action };
    if home.is_empty() || !groups.is_empty() {
        return action;
    }
    let mut others = observation.clone();
    for other in others.vms.iter_mut().filter(|other| other.vm == *vm) {
        other.clients.retain(|other| other.id != seen.id);
    }
    let held = Occupancy::of_observation(&others, machine).caches;
    let place = |cache: &super::Cache| Place {
        cores: f64::from(cache.units),
        threads: cache.cpus.len() as f64,
        load: f64::from(held.get(&cache.id).copied().unwrap_or(0)),
    };
    let member = |group: &VcpuGroup| Member { vcpus: group.vcpus.len() as u32, load: group.vcpus.len() as f64 };
    let all = seen.vcpu_groups();
    let places: Vec<Place> = caches.iter().map(place).collect();
    let taken = settle(&places, &all.iter().map(member).collect::<Vec<_>>());
    let placed = all.into_iter().zip(taken).map(|(group, taken)| VcpuGroup {
        cpus: taken.map_or_else(|| cpus.clone(), |cache| caches[cache].cpus.clone()),
        ..group
    });
    *groups = placed.collect();
    action
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(machine: &str, cpus: &[(u32, &str)], socket: u32) -> Vec<(Vec<u32>, String)> {
        let machine = topology::read::from_synthetic(machine).unwrap();
        let cpus = cpus.iter().map(|&(vcpu, cpus)| (vcpu, cpus.parse().unwrap())).collect();
        let text = |group: VcpuGroup| (group.vcpus, group.cpus.to_string());
        vcpu_groups(&machine, &cpus, socket).into_iter().map(text).collect()
    }

    const TWO: &str = "numa:2(memory=4GiB) l3:2(size=8MiB) core:2 pu:1";

    #[test]
    fn a_client_is_divided_where_each_vcpu_keeps_to_one_cache() {
        let two = [(vec![0, 1], "0-1".to_owned()), (vec![2, 3], "2-3".to_owned())];
        assert_eq!(groups(TWO, &[(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")], 2), two);
        // The whole node, a part of a cache, and CPUs of two caches are no group.
        assert_eq!(groups(TWO, &[(0, "0-3")], 1), []);
        assert_eq!(groups(TWO, &[(0, "0-1"), (1, "2")], 1), []);
        assert_eq!(groups(TWO, &[(0, "1-2")], 1), []);
        // A cache for each node, or for each core, divides nothing.
        assert_eq!(groups("numa:2(memory=4GiB) l3:1 core:2 pu:1", &[(0, "0-1")], 1), []);
        assert_eq!(groups("numa:2(memory=4GiB) l3:2 core:1 pu:2", &[(0, "0-1")], 1), []);
    }

    #[test]
    fn sockets_are_groups_only_where_a_cache_is_too_small_for_all_under_it() {
        let four = [(0, "0-1"), (1, "0-1"), (2, "0-1"), (3, "0-1")];
        let two = [(vec![0, 1], "0-1".to_owned()), (vec![2, 3], "0-1".to_owned())];
        assert_eq!(groups(TWO, &four, 2), two);
        assert_eq!(groups(TWO, &four[..2], 1), [(vec![0, 1], "0-1".to_owned())]);
        // Sockets that lie across caches say nothing.
        let across = [(0, "0-1"), (1, "0-1"), (2, "0-1"), (3, "2-3")];
        assert_eq!(groups(TWO, &across, 2), [(vec![0, 1, 2], "0-1".to_owned()), (vec![3], "2-3".to_owned())]);
    }

    #[test]
    fn groups_go_apart_and_to_where_they_crowd_least() {
        let place = |load| Place { cores: 4.0, threads: 8.0, load };
        let member = |vcpus, load| Member { vcpus, load };
        let places = [place(0.0), place(4.0), place(0.0), place(1.0)];
        assert_eq!(settle(&places, &[member(4, 2.0), member(4, 2.0)]), [Some(0), Some(2)]);
        // The larger chooses first; who comes third takes the cache with a load of 1.
        let three = settle(&places, &[member(4, 1.0), member(4, 3.0), member(4, 1.0)]);
        assert_eq!(three, [Some(2), Some(0), Some(3)]);
        assert_eq!(settle(&places, &[member(9, 1.0)]), [None]);
    }
}
