//! Where threads run, as Linux would have it: on CPUs that they may use, spread by load over nodes
//! and over the caches of a node, now and then elsewhere.

use super::SimulatedHost;
use super::state::{ClientState, NodeState, Place, ThreadSet, Vms};
use crate::traces::Random;

/// Moves between the caches of a node in a tick, for each of them.
const MOVES_A_CACHE: usize = 4;

/// The nodes and places that threads are spread over.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) nodes: &'a [NodeState],
    pub(crate) places: &'a [Place],
}

/// CPUs wanted on each node and at each place.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    pub(crate) node: Vec<f64>,
    pub(crate) place: Vec<f64>,
}

impl Loads {
    pub(crate) fn add(&mut self, ground: Ground<'_>, place: usize, load: f64) {
        self.place[place] += load;
        self.node[ground.places[place].node] += load;
    }
}

impl Ground<'_> {
    /// Of each place, how many of the set's CPUs are online. Where none is, Linux lets the threads
    /// run anywhere.
    pub(crate) fn refresh_room(self, set: &mut ThreadSet) {
        let count = |set: &ThreadSet| -> Vec<u32> {
            self.places.iter().map(|place| place.online.intersection(&set.cpus).len() as u32).collect()
        };
        let mut room = count(set);
        if room.iter().all(|&cpus| cpus == 0) {
            set.cpus = self.places.iter().flat_map(|place| place.online.iter()).collect();
            room = count(set);
        }
        set.room = room;
    }

    /// Takes threads off places that they may not use, and gives each that has none the best one.
    /// `one`: load of a thread.
    pub(crate) fn settle(self, set: &mut ThreadSet, one: f64, loads: &mut Loads) {
        for place in 0..self.places.len() {
            while set.room[place] == 0 && set.at[place] > 0 {
                set.at[place] -= 1;
                loads.add(self, place, -one);
                self.start(set, one, loads);
            }
        }
        let placed: u32 = set.at.iter().sum();
        for _ in placed..set.vcpus.len() as u32 {
            self.start(set, one, loads);
        }
    }

    /// One more thread, on the node with the fewest of the set's threads for its room, then the
    /// least load.
    fn start(self, set: &mut ThreadSet, one: f64, loads: &mut Loads) {
        let crowding = |node: usize| {
            let (state, own) = (&self.nodes[node], set.on(&self.nodes[node].places));
            (loads.node[node] + 1e-3 * f64::from(own)) / (state.online.len() as f64).max(1e-9)
        };
        let own = |node: usize| {
            let places = &self.nodes[node].places;
            f64::from(set.on(places) / set.room_on(places).max(1))
        };
        let allowed = (0..self.nodes.len()).filter(|&node| set.room_on(&self.nodes[node].places) > 0);
        let best = allowed.min_by(|&a, &b| own(a).total_cmp(&own(b)).then(crowding(a).total_cmp(&crowding(b))));
        if let Some(node) = best {
            self.put(set, node, one, loads);
        }
    }

    /// One more thread of a set on a node: under the cache with the least load for its CPUs.
    pub(crate) fn put(self, set: &mut ThreadSet, node: usize, one: f64, loads: &mut Loads) {
        let crowding = |place: usize| {
            (loads.place[place] + 1e-3 * f64::from(set.at[place])) / self.places[place].online.len().max(1) as f64
        };
        let open = self.nodes[node].places.clone().filter(|&place| set.room[place] > 0);
        if let Some(place) = open.min_by(|&a, &b| crowding(a).total_cmp(&crowding(b))) {
            set.at[place] += 1;
            loads.add(self, place, one);
        }
    }

    /// One thread of a set less on a node: from the cache with the most load for its CPUs.
    pub(crate) fn take(self, set: &mut ThreadSet, node: usize, one: f64, loads: &mut Loads) {
        let crowding = |place: usize| loads.place[place] / self.places[place].online.len().max(1) as f64;
        let there = self.nodes[node].places.clone().filter(|&place| set.at[place] > 0);
        if let Some(place) = there.max_by(|&a, &b| crowding(a).total_cmp(&crowding(b))) {
            set.at[place] -= 1;
            loads.add(self, place, -one);
        }
    }

    /// CPUs wanted on each node and at each place.
    pub(crate) fn loads(self, vms: &Vms) -> Loads {
        let mut loads = Loads { node: vec![0.0; self.nodes.len()], place: vec![0.0; self.places.len()] };
        for client in vms.values().flat_map(|vm| &vm.clients) {
            let one = client.load_of_thread();
            for set in &client.sets {
                for (place, &threads) in set.at.iter().enumerate().filter(|(_, threads)| **threads > 0) {
                    loads.add(self, place, f64::from(threads) * one);
                }
            }
        }
        loads
    }

    fn level(self, loads: &Loads, node: usize) -> f64 {
        loads.node[node] / self.nodes[node].online.len() as f64
    }

    fn place_level(self, loads: &Loads, place: usize) -> f64 {
        loads.place[place] / self.places[place].online.len() as f64
    }
}

impl SimulatedHost {
    /// The load balancer between nodes and between their caches, and threads that wake up
    /// elsewhere, over `seconds`.
    pub(crate) fn float_threads(&mut self, seconds: f64) {
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        let mut loads = ground.loads(&self.vms);
        let moves = (self.rules.moves_per_second * seconds).ceil() as u32;
        for _ in 0..moves {
            if !self.balance_once(&mut loads) {
                break;
            }
        }
        let probability = 1.0 - (-self.rules.drift_per_second * seconds).exp();
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        for client in self.vms.values_mut().flat_map(|vm| &mut vm.clients) {
            let one = client.load_of_thread();
            for set in &mut client.sets {
                let nodes = self.nodes.iter().filter(|node| set.room_on(&node.places) > 0).count();
                if nodes > 1 && one > 0.0 {
                    drift(ground, set, one, probability, &mut loads, &mut self.random);
                }
            }
        }
        self.spread_over_caches(&mut loads);
    }

    /// One thread from the busiest node to the idlest one; false where that would mend nothing.
    fn balance_once(&mut self, loads: &mut Loads) -> bool {
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        let used = (0..self.nodes.len()).filter(|&node| !self.nodes[node].online.is_empty());
        let level = |node: &usize| ground.level(loads, *node);
        let Some(busiest) = used.clone().max_by(|a, b| level(a).total_cmp(&level(b))) else { return false };
        let Some(idlest) = used.min_by(|a, b| level(a).total_cmp(&level(b))) else { return false };
        let (most, least) = (level(&busiest), level(&idlest));
        if most <= self.rules.imbalance * least {
            return false;
        }
        let auto_numa = self.rules.auto_numa.is_some();
        let (from, to) = (&self.nodes[busiest], &self.nodes[idlest]);
        let (cpus_from, cpus_to) = (from.online.len() as f64, to.online.len() as f64);
        let (load_from, load_to) = (loads.node[busiest], loads.node[idlest]);
        let mends = |client: &ClientState| {
            let one = client.load_of_thread();
            let after = (load_from - one) / cpus_from - (load_to + one) / cpus_to;
            one > 0.0 && after.abs() < most - least
                // Linux will not take a task off the node where its memory is, unless CPUs there
                // are short.
                && !(auto_numa && client.memory[busiest] > client.memory[idlest] && most <= 1.0)
                // Nor off the cache that it was drawn to, while that has room.
                && !(client.preferred.is_some_and(|place| from.places.contains(&place)) && most <= 1.0)
        };
        let mut candidates: Vec<(&mut ThreadSet, f64)> = Vec::new();
        for client in self.vms.values_mut().flat_map(|vm| &mut vm.clients).filter(|client| mends(client)) {
            let one = client.load_of_thread();
            let able = client.sets.iter_mut().filter(|set| set.on(&from.places) > 0 && set.room_on(&to.places) > 0);
            candidates.extend(able.map(|set| (set, one)));
        }
        let chosen = self.random.below(candidates.len());
        let Some((set, one)) = candidates.get_mut(chosen) else { return false };
        ground.take(set, busiest, *one, loads);
        ground.put(set, idlest, *one, loads);
        true
    }

    /// Threads that may use a whole node, from its busiest cache to its idlest.
    fn spread_over_caches(&mut self, loads: &mut Loads) {
        for node in 0..self.nodes.len() {
            for _ in 0..MOVES_A_CACHE * (self.nodes[node].places.len() - 1) {
                if !self.spread_once(node, loads) {
                    break;
                }
            }
        }
    }

    fn spread_once(&mut self, node: usize, loads: &mut Loads) -> bool {
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        let used = self.nodes[node].places.clone().filter(|&place| !self.places[place].online.is_empty());
        let level = |place: &usize| ground.place_level(loads, *place);
        let Some(busiest) = used.clone().max_by(|a, b| level(a).total_cmp(&level(b))) else { return false };
        let Some(idlest) = used.min_by(|a, b| level(a).total_cmp(&level(b))) else { return false };
        let gap = level(&busiest) - level(&idlest);
        if level(&busiest) <= self.rules.cache_imbalance * level(&idlest) {
            return false;
        }
        let after = |one: f64| {
            let from = (loads.place[busiest] - one) / self.places[busiest].online.len() as f64;
            let to = (loads.place[idlest] + one) / self.places[idlest].online.len() as f64;
            (from - to).abs()
        };
        let keeps = |client: &ClientState| client.preferred == Some(busiest) && level(&busiest) <= 1.0;
        let mut best: Option<(f64, &mut ThreadSet, f64)> = None;
        for client in self.vms.values_mut().flat_map(|vm| &mut vm.clients).filter(|client| !keeps(client)) {
            let one = client.load_of_thread();
            let rest = after(one);
            if one <= 0.0 || rest >= gap - 1e-9 || best.as_ref().is_some_and(|(least, ..)| *least <= rest) {
                continue;
            }
            if let Some(set) = client.sets.iter_mut().find(|set| set.at[busiest] > 0 && set.room[idlest] > 0) {
                best = Some((rest, set, one));
            }
        }
        let Some((_, set, one)) = best else { return false };
        set.at[busiest] -= 1;
        set.at[idlest] += 1;
        loads.add(ground, busiest, -one);
        loads.add(ground, idlest, one);
        true
    }
}

fn drift(ground: Ground<'_>, set: &mut ThreadSet, one: f64, probability: f64, loads: &mut Loads, random: &mut Random) {
    let nodes = ground.nodes;
    for from in 0..nodes.len() {
        for _ in 0..set.on(&nodes[from].places) {
            if !random.chance(probability) {
                continue;
            }
            let idle = |node: usize| {
                let is_open = set.room_on(&nodes[node].places) > 0;
                if is_open { (nodes[node].online.len() as f64 - loads.node[node]).max(0.0) } else { 0.0 }
            };
            let mut point = random.unit() * (0..nodes.len()).map(idle).sum::<f64>();
            let to = (0..nodes.len()).find(|&node| {
                point -= idle(node);
                point < 0.0
            });
            if let Some(to) = to {
                ground.take(set, from, one, loads);
                ground.put(set, to, one, loads);
            }
        }
    }
}
