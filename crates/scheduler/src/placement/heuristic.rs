//! For machines that are too large for the exact search: greedy from several starts, then moves and swaps while they help.

use super::exact::Found;
use super::homes::{Demand, Home};
use super::state::State;
use crate::host::Host;
use std::cmp::Reverse;

/// Homes that may be tried in all.
const TRIES: usize = 40_000;
/// Starting nodes at most.
const STARTS: usize = 16;

/// A search from several starts.
pub(crate) struct Heuristic<'a> {
    pub(crate) host: &'a Host,
    pub(crate) demands: &'a [Demand],
    /// Homes of each client.
    pub(crate) homes: &'a [Vec<Home>],
}

impl<'a> Heuristic<'a> {
    /// Notes the placement that each start leads to, if it has room for everything.
    pub(crate) fn run(&self, empty: &State<'a>, found: &mut Found) {
        let starts = (0..self.host.nodes.len()).filter(|&node| self.host.nodes[node].threads > 0);
        let mut tries = TRIES;
        let mut largest_first: Vec<usize> = (0..self.demands.len()).collect();
        largest_first.sort_by_key(|&client| (Reverse(self.demands[client]), client));
        let smallest_first: Vec<usize> = largest_first.iter().rev().copied().collect();
        let orders = [largest_first, smallest_first];
        for (start, order) in starts.take(STARTS).flat_map(|start| orders.iter().map(move |order| (start, order))) {
            if tries == 0 {
                return;
            }
            let mut state = empty.clone();
            if !self.greedy(start, order, &mut state, &mut tries) {
                return;
            }
            while tries > 0 && self.improve(&mut state, &mut tries) {}
            if state.score().short == 0 {
                found.note(&state);
            }
        }
    }

    /// Gives each client in turn the home that costs least, the ones near `start` first among equals; the first
    /// client gets a home on `start` if it has one. False if a client has no home at all.
    fn greedy(&self, start: usize, order: &[usize], state: &mut State<'a>, tries: &mut usize) -> bool {
        for (position, &client) in order.iter().enumerate() {
            let best = self.homes[client].iter().min_by_key(|home| {
                *tries = tries.saturating_sub(1);
                let elsewhere = position == 0 && !home.nodes.contains(&start);
                let away: u32 = home.nodes.iter().map(|&node| self.host.distances[start][node]).sum();
                state.give(client, home);
                let score = state.score();
                state.take(client);
                (elsewhere, score, away)
            });
            let Some(home) = best else { return false };
            state.give(client, home);
        }
        true
    }

    /// One round of moves and swaps; whether any helped.
    fn improve(&self, state: &mut State<'a>, tries: &mut usize) -> bool {
        let before = state.score();
        for client in 0..self.demands.len() {
            self.best_move(client, state, tries);
        }
        for one in 0..self.demands.len() {
            for other in one + 1..self.demands.len() {
                self.swap_if_better(one, other, state, tries);
            }
        }
        state.score() < before
    }

    fn best_move(&self, client: usize, state: &mut State<'a>, tries: &mut usize) {
        let mut least = state.score();
        let Some(mut best) = state.take(client) else { return };
        for home in self.homes[client].iter().take(*tries) {
            *tries -= 1;
            state.give(client, home);
            if state.score() < least {
                (least, best) = (state.score(), home);
            }
            state.take(client);
        }
        state.give(client, best);
    }

    /// Swaps the nodes of two clients, each taking the home that its own demand has there.
    fn swap_if_better(&self, one: usize, other: usize, state: &mut State<'a>, tries: &mut usize) {
        if *tries == 0 || self.demands[one] == self.demands[other] {
            return;
        }
        *tries -= 1;
        let before = state.score();
        let (Some(of_one), Some(of_other)) = (state.take(one), state.take(other)) else { return };
        if let (Some(new_one), Some(new_other)) = (self.there(one, of_other), self.there(other, of_one)) {
            state.give(one, new_one);
            state.give(other, new_other);
            if state.score() < before {
                return;
            }
            state.take(one);
            state.take(other);
        }
        state.give(one, of_one);
        state.give(other, of_other);
    }

    /// The home that `client` has on the nodes of `home`.
    fn there(&self, client: usize, home: &Home) -> Option<&'a Home> {
        self.homes[client].iter().find(|own| own.nodes == home.nodes)
    }
}
