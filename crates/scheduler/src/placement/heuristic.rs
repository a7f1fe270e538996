//! For machines that are too large for the exact search: greedy from several starts, then moves and swaps while they help.

use super::exact::Found;
use super::homes::{Demand, Home};
use super::score::Score;
use super::state::State;
use crate::host::Host;

/// Placements that may be tried in all.
const TRIES: usize = 150_000;
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
        let starts: Vec<usize> = (0..self.host.nodes.len()).filter(|&node| self.host.nodes[node].threads > 0).collect();
        let starts = &starts[..starts.len().min(STARTS)];
        let mut tries = TRIES;
        for &start in starts {
            let mut state = empty.clone();
            if !self.greedy(start, &mut state, &mut tries) {
                return;
            }
            while self.improve(&mut state, &mut tries) {}
            if state.score().short == 0 {
                found.note(&state);
            }
        }
    }

    /// Gives each client, largest first, the home that costs least, those near `start` first among equals.
    fn greedy(&self, start: usize, state: &mut State<'a>, tries: &mut usize) -> bool {
        let mut order: Vec<usize> = (0..self.demands.len()).collect();
        order.sort_by_key(|&client| (std::cmp::Reverse(self.demands[client]), client));
        for (position, client) in order.into_iter().enumerate() {
            let homes: &'a [Home] = &self.homes[client];
            let away = |home: &Home| -> u32 { home.nodes.iter().map(|&node| self.host.distances[start][node]).sum() };
            let near = |home: &&Home| position > 0 || home.nodes.contains(&start);
            let costs = |home: &&'a Home| (self.try_home(state, client, home), away(home));
            let mut best: Option<((Score, u32), &'a Home)> = None;
            let mut state_tries = 0;
            for home in homes.iter().filter(near).chain(homes.iter().filter(|_| position == 0)) {
                state_tries += 1;
                let cost = costs(&home);
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, home));
                }
                if position == 0 && home.nodes.contains(&start) && cost.0.short == 0 {
                    break;
                }
            }
            let Some((_, home)) = best else { return false };
            *tries = tries.saturating_sub(state_tries);
            state.give(client, home);
        }
        true
    }

    fn try_home(&self, state: &State<'a>, client: usize, home: &'a Home) -> Score {
        let mut state = state.clone();
        state.give(client, home);
        state.score()
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
        state.score() < before && *tries > 0
    }

    fn best_move(&self, client: usize, state: &mut State<'a>, tries: &mut usize) {
        let mut least = state.score();
        let Some(mut best) = state.take(client) else { return };
        for home in &self.homes[client] {
            if *tries == 0 {
                break;
            }
            *tries -= 1;
            state.give(client, home);
            if state.score() < least {
                (least, best) = (state.score(), home);
            }
            state.take(client);
        }
        state.give(client, best);
    }

    /// Swaps the node sets of two clients, each taking the home that its own demand has there.
    fn swap_if_better(&self, one: usize, other: usize, state: &mut State<'a>, tries: &mut usize) {
        if *tries == 0 || self.demands[one] == self.demands[other] {
            return;
        }
        *tries -= 1;
        let before = state.score();
        let (Some(of_one), Some(of_other)) = (state.take(one), state.take(other)) else { return };
        let same = |client: usize, home: &Home| -> Option<&'a Home> {
            let homes: &'a [Home] = &self.homes[client];
            homes.iter().find(|own| own.nodes == home.nodes)
        };
        if let (Some(new_one), Some(new_other)) = (same(one, of_other), same(other, of_one)) {
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
}
