//! The cache of each group of a VM, once its clients have homes, and what that loses.
//!
//! **Rule.** Clients of one home are looked at together: their groups, the largest first, get the
//! caches where least is lost ([`assign`]); groups of two sizes are swapped while that wins; then
//! each client takes its own of these, under as many different ones as it can.
//!
//! **Properties.** Groups of one size lose no less by any other choice that the policy allows.
//!
//! **Example.** Two clients with two groups of 4 on a node of four idle caches of 4 cores: each
//! group has a cache, 4 x 0.2 x 4^2 / 4 = 3.2 CPUs are charged.

use super::assign::{Room, assign, lost_micro};
use super::deal::{Pool, Taken, deal, swap};
use super::division::Division;
use super::explain::explain;
use crate::host::{Host, HostNode};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use topology::LlcId;
use vm::{CacheGroup, Plan, Shape};

/// A cache: index of its node, and among the node's caches.
pub(super) type Place = (usize, usize);

/// The caches of a VM's groups.
pub(crate) struct Under {
    /// By client: vCPUs and cache of each group; empty where it is not divided.
    pub(super) groups: Vec<Vec<(u32, Place)>>,
    /// Whether a guest is not told of its groups.
    pub(super) untold: bool,
    /// Clients whose home has nothing to divide.
    pub(super) undivided: Vec<usize>,
    /// Cores of the largest cache of a home where none holds a virtual socket.
    pub(super) too_wide: Option<u32>,
    /// What they lose, in millionths of CPUs, where caches count at all ([`super::Least::of`]).
    pub(crate) lost: u64,
}

/// The caches of a home; empty where one of its nodes has none that are known, or shares one with
/// another.
fn places(host: &Host, home: &[usize]) -> Vec<Place> {
    let of = |&node: &usize| (0..host.nodes[node].caches.len()).map(move |cache| (node, cache));
    let places: Vec<Place> = home.iter().flat_map(of).collect();
    let ids: BTreeSet<LlcId> = places.iter().map(|&(node, cache)| host.nodes[node].caches[cache].id).collect();
    let known = home.iter().all(|&node| !host.nodes[node].caches.is_empty());
    if known && ids.len() == places.len() { places } else { Vec::new() }
}

impl Division {
    /// The caches of all groups, for clients with these homes: indices of nodes.
    pub(crate) fn under(&self, host: &Host, homes: &[Vec<usize>]) -> Under {
        let (mut untold, mut undivided, mut too_wide) = (false, Vec::new(), None);
        let mut pools: BTreeMap<&[usize], Vec<(usize, Vec<u32>)>> = BTreeMap::new();
        let mut whole: BTreeMap<&[usize], u32> = BTreeMap::new();
        for (client, home) in homes.iter().enumerate() {
            let places = places(host, home);
            let units: Vec<u32> = places.iter().map(|&(node, cache)| host.nodes[node].caches[cache].units).collect();
            if places.len() < 2 {
                undivided.push(client);
            } else if let Some(groups) = self.groups(client, units.clone()) {
                untold |= !groups.told;
                pools.entry(home).or_default().push((client, groups.sizes));
                continue;
            } else {
                too_wide = too_wide.max(units.into_iter().max());
            }
            *whole.entry(home).or_default() += self.clients[client].len() as u32;
        }
        let of_node = |node: &HostNode| node.caches.iter().map(Room::of).collect();
        let mut rooms: Vec<Vec<Room>> = host.nodes.iter().map(of_node).collect();
        let mut groups = vec![Vec::new(); homes.len()];
        for (home, pool) in pools {
            self.settle(&mut rooms, &places(host, home), &pool, &mut groups);
        }
        let lost = lost_of(host, &rooms, &whole);
        Under { groups, untold, undivided, too_wide, lost }
    }

    /// Puts the groups of each client into its plan, with the reasons. `homes`: those of the plan's
    /// clients, in their order.
    pub(crate) fn bind(&self, host: &Host, homes: &[Vec<usize>], shape: &Shape, plan: &mut Plan) {
        let under = self.under(host, homes);
        for ((client, groups), vcpus) in plan.placement.clients.iter_mut().zip(&under.groups).zip(&self.clients) {
            let mut rest = vcpus.iter().copied();
            let group = |&(size, (node, cache)): &(u32, Place)| {
                let cache = &host.nodes[node].caches[cache];
                let vcpus = rest.by_ref().take(size as usize).collect();
                CacheGroup { vcpus, llc: cache.id, cpus: cache.cpus.clone() }
            };
            client.groups = groups.iter().map(group).collect();
        }
        explain(shape, plan, &under);
    }

    /// Gives the groups of all clients of a home their caches.
    fn settle(&self, rooms: &mut [Vec<Room>], places: &[Place], pool: &Pool, groups: &mut [Vec<(u32, Place)>]) {
        let mut here: Vec<Room> = places.iter().map(|&(node, cache)| rooms[node][cache]).collect();
        let sizes: BTreeSet<Reverse<u32>> = pool.iter().flat_map(|(_, sizes)| sizes).copied().map(Reverse).collect();
        let mut taken: Vec<Taken> = Vec::new();
        for Reverse(size) in sizes {
            let count = pool.iter().flat_map(|(_, sizes)| sizes).filter(|own| **own == size).count();
            let numbers = assign(&here, size, count as u32, self.policy);
            here.iter_mut().zip(&numbers).for_each(|(room, number)| room.own += size * number);
            taken.push(Taken { size, numbers });
        }
        swap(&mut here, &mut taken);
        for (&(node, cache), room) in places.iter().zip(here) {
            rooms[node][cache] = room;
        }
        deal(places, pool, taken, groups);
    }

    /// Whether a client is divided on any node. Where none is, caches say nothing of homes.
    pub(super) fn counts(&self, host: &Host) -> bool {
        let divides = |node: usize| {
            let units: Vec<u32> = host.nodes[node].caches.iter().map(|cache| cache.units).collect();
            (0..self.clients.len()).any(|client| self.groups(client, units.clone()).is_some())
        };
        (0..host.nodes.len()).any(divides)
    }
}

/// What is lost under the caches, and by vCPUs that are not divided: these are charged as under one
/// cache that has all cores of their home.
fn lost_of(host: &Host, rooms: &[Vec<Room>], whole: &BTreeMap<&[usize], u32>) -> u64 {
    let of_whole = |(home, vcpus): (&&[usize], &u32)| {
        let units = home.iter().map(|&node| host.units(node)).sum();
        let load = home.iter().flat_map(|&node| &rooms[node]).map(|room| room.load + room.own).sum();
        lost_micro(&Room { units, load, own: *vcpus })
    };
    rooms.iter().flatten().map(lost_micro).sum::<u64>() + whole.iter().map(of_whole).sum::<u64>()
}
