//! A placement under construction whose score is kept up to date as homes are given and taken away.

use super::homes::{Demand, Home, WHOLE};
use super::score::{NodeLoad, Score};
use crate::host::Host;
use crate::spec::Spread;

/// Clients with homes so far.
#[derive(Clone)]
pub(crate) struct State<'a> {
    host: &'a Host,
    loads: Vec<NodeLoad>,
    homes: Vec<Option<&'a Home>>,
    sum: Score,
    /// Distance of all that is placed to each node, there and back, in units of 1 / [`WHOLE`].
    potential: Vec<u64>,
    /// Distance so far, in units of 1 / [`WHOLE`]^2.
    distance: u64,
    spread: bool,
}

impl<'a> State<'a> {
    /// Nothing placed yet.
    pub(crate) fn new(host: &'a Host, demands: &[Demand], spread: Spread) -> Self {
        let load = |index: usize| {
            let node = &host.nodes[index];
            NodeLoad {
                cores: node.cores.into(),
                threads: node.threads.into(),
                units: host.units(index).into(),
                count_cores: !host.prefer_ht,
                memory: node.memory,
                available: node.available,
                held_milli: u64::from(node.vcpus_held) * 1000,
                milli: 0,
                bytes: 0,
                homes: 0,
            }
        };
        let loads = (0..host.nodes.len()).map(load).collect();
        let spread = spread == Spread::Spread;
        let (homes, potential) = (vec![None; demands.len()], vec![0; host.nodes.len()]);
        Self { host, loads, homes, sum: Score::default(), potential, distance: 0, spread }
    }

    /// The home of each client.
    pub(crate) fn homes(&self) -> &[Option<&'a Home>] {
        &self.homes
    }

    /// The score of what is placed so far.
    pub(crate) fn score(&self) -> Score {
        let all = self.loads.len() as u32;
        let rounded = self.rounded();
        Score { nodes: if self.spread { all - rounded.nodes } else { rounded.nodes }, ..rounded }
    }

    /// A score that no completion of this placement can beat.
    pub(crate) fn bound(&self) -> Score {
        if !self.spread {
            return self.rounded();
        }
        // Later clients may still use more nodes: nothing is known from `nodes` on.
        Score { nodes: 0, distance: 0, crowding: 0, fullness: 0, ..self.rounded() }
    }

    fn rounded(&self) -> Score {
        Score { distance: self.distance / (WHOLE * WHOLE / 1000), ..self.sum }.rounded()
    }

    /// Whether the home has room for its client now.
    pub(crate) fn has_room(&self, home: &Home) -> bool {
        home.nodes
            .iter()
            .zip(&home.bytes)
            .all(|(&node, bytes)| self.loads[node].bytes + bytes <= self.loads[node].available)
    }

    /// Gives `client` a home; it must have none.
    pub(crate) fn give(&mut self, client: usize, home: &'a Home) {
        self.add_own(home, true);
        self.distance += home.inner_distance + self.distance_to_placed(home);
        self.add_potential(home, true);
        self.homes[client] = Some(home);
        self.load(home, true);
    }

    /// Takes the home of `client` away.
    pub(crate) fn take(&mut self, client: usize) -> Option<&'a Home> {
        let home = self.homes[client].take()?;
        self.load(home, false);
        self.add_potential(home, false);
        self.distance -= home.inner_distance + self.distance_to_placed(home);
        self.add_own(home, false);
        Some(home)
    }

    /// Mean distances, there and back, between `home` and the home of every client that has one.
    fn distance_to_placed(&self, home: &Home) -> u64 {
        home.nodes.iter().map(|&node| home.weight * self.potential[node]).sum()
    }

    fn add_potential(&mut self, home: &Home, add: bool) {
        for (node, potential) in self.potential.iter_mut().enumerate() {
            let both = |other: usize| u64::from(self.host.distances[node][other] + self.host.distances[other][node]);
            let away = home.weight * home.nodes.iter().map(|&other| both(other)).sum::<u64>();
            *potential = if add { *potential + away } else { *potential - away };
        }
    }

    fn add_own(&mut self, home: &Home, add: bool) {
        let signed = |sum: u32, amount: u32| if add { sum + amount } else { sum - amount };
        self.sum.straddled = signed(self.sum.straddled, home.nodes.len() as u32 - 1);
        self.sum.memory_only = signed(self.sum.memory_only, home.memory_only);
        self.sum.unequal = signed(self.sum.unequal, u32::from(!home.equal));
    }

    fn load(&mut self, home: &Home, add: bool) {
        for (position, &node) in home.nodes.iter().enumerate() {
            let load = &mut self.loads[node];
            let before = load.terms();
            let (milli, bytes) = (home.milli[position], home.bytes[position]);
            if add {
                (load.milli, load.bytes, load.homes) = (load.milli + milli, load.bytes + bytes, load.homes + 1);
            } else {
                (load.milli, load.bytes, load.homes) = (load.milli - milli, load.bytes - bytes, load.homes - 1);
            }
            let after = load.terms();
            let sum = &mut self.sum;
            sum.short = sum.short + after.short - before.short;
            sum.beyond_threads = sum.beyond_threads + after.beyond_threads - before.beyond_threads;
            sum.beyond_cores = sum.beyond_cores + after.beyond_cores - before.beyond_cores;
            sum.nodes = sum.nodes + after.nodes - before.nodes;
            sum.crowding = sum.crowding + after.crowding - before.crowding;
            sum.fullness = sum.fullness + after.fullness - before.fullness;
        }
    }
}
