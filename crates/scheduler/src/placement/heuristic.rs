//! For machines that are too large for the exact search: greedy from several starts, then moves and
//! swaps while they help.

use super::Problem;
use super::cost::Cost;
use super::exact::Found;
use super::homes::CpuHome;
use super::state::State;
use std::cmp::Reverse;

/// Homes that may be tried in all, where nothing comes after it.
pub(super) const TRIES: usize = 400_000;
/// Placements whose memory is divided, at most: those that promise to lose least.
const DIVIDED: usize = 4;

/// A search from several starts.
pub(crate) struct Heuristic<'a> {
    pub(crate) problem: &'a Problem<'a>,
    /// Homes of each client.
    pub(crate) homes: &'a [Vec<CpuHome>],
    /// Homes that may be tried in all.
    pub(crate) tries: usize,
}

impl<'a> Heuristic<'a> {
    /// Notes the best placements that the starts lead to. `effort` multiplies the placements whose
    /// memory is divided.
    pub(crate) fn run(&self, effort: usize, found: &mut Found) {
        let mut tries = self.tries;
        let mut reached: Vec<(Cost, State<'a>)> = Vec::new();
        let starts = self.starts();
        let ways = starts.iter().flat_map(|&start| self.orders().into_iter().map(move |order| (start, order)));
        for (start, order) in ways {
            let mut state = State::new(self.problem);
            self.greedy(start, &order, &mut state, &mut tries);
            while tries > 0 && self.improve(&mut state, &mut tries) {}
            reached.push((state.estimate(), state));
            if tries == 0 {
                break;
            }
        }
        reached.sort_by_key(|(estimate, _)| *estimate);
        let told = self.problem.told.is_some();
        reached.dedup_by(|(_, one), (_, other)| match told {
            true => one.homes() == other.homes(),
            false => one.loads() == other.loads(),
        });
        reached.iter().take(DIVIDED * effort).for_each(|(_, state)| found.note(self.problem, state));
    }

    /// The nodes with CPUs, those first that have most to give.
    fn starts(&self) -> Vec<usize> {
        let nodes = &self.problem.host.nodes;
        let mut starts: Vec<usize> = (0..nodes.len()).filter(|&node| nodes[node].threads > 0).collect();
        let free = |node: usize| self.problem.host.units(node).saturating_sub(nodes[node].vcpus_held);
        starts.sort_by_key(|&node| (Reverse(free(node)), Reverse(nodes[node].available), node));
        starts
    }

    /// Largest clients first, and smallest first where they differ.
    fn orders(&self) -> Vec<Vec<usize>> {
        let demands = self.problem.demands;
        let mut largest_first: Vec<usize> = (0..demands.len()).collect();
        largest_first.sort_by_key(|&client| (Reverse(demands[client]), client));
        let equal = demands.windows(2).all(|pair| pair[0] == pair[1]);
        let smallest_first: Vec<usize> = largest_first.iter().rev().copied().collect();
        if equal { vec![largest_first] } else { vec![largest_first, smallest_first] }
    }

    /// Gives each client in turn the home that costs least, the ones near `start` first among
    /// equals; the first client gets a home on `start` if it has one.
    fn greedy(&self, start: usize, order: &[usize], state: &mut State<'a>, tries: &mut usize) {
        for (position, &client) in order.iter().enumerate() {
            let best = self.homes[client].iter().min_by_key(|home| {
                let elsewhere = position == 0 && !home.nodes.contains(&start);
                let away: u32 = home.nodes.iter().map(|&node| self.problem.host.distances[start][node]).sum();
                (elsewhere, state.estimate_with(client, home), away)
            });
            *tries = tries.saturating_sub(self.effort_of(client));
            if let Some(home) = best {
                state.give(client, home);
            }
        }
    }

    /// One round of moves and swaps; whether any helped.
    fn improve(&self, state: &mut State<'a>, tries: &mut usize) -> bool {
        let before = state.estimate();
        let clients = self.problem.demands.len();
        for client in 0..clients {
            self.best_move(client, state, tries);
        }
        for one in 0..clients {
            for other in one + 1..clients {
                self.swap_if_better(one, other, state, tries);
            }
        }
        state.estimate() < before
    }

    fn best_move(&self, client: usize, state: &mut State<'a>, tries: &mut usize) {
        let mut least = state.estimate();
        let Some(mut best) = state.take(client) else { return };
        for home in self.homes[client].iter().take(*tries) {
            let estimate = state.estimate_with(client, home);
            if estimate < least {
                (least, best) = (estimate, home);
            }
        }
        *tries = tries.saturating_sub(self.effort_of(client));
        state.give(client, best);
    }

    /// Tries that one look at all homes of a client counts.
    fn effort_of(&self, client: usize) -> usize {
        self.homes[client].iter().map(|home| home.nodes.len()).sum()
    }

    /// Swaps the nodes of two clients, each taking the home that its own demand has there.
    fn swap_if_better(&self, one: usize, other: usize, state: &mut State<'a>, tries: &mut usize) {
        if *tries == 0 || self.problem.kinds[one] == self.problem.kinds[other] {
            return;
        }
        // A swap costs as much as a look at so many homes.
        *tries = tries.saturating_sub(self.problem.host.nodes.len());
        let before = state.estimate();
        let (Some(of_one), Some(of_other)) = (state.take(one), state.take(other)) else { return };
        if of_one.nodes != of_other.nodes
            && let (Some(new_one), Some(new_other)) = (self.there(one, of_other), self.there(other, of_one))
        {
            state.give(one, new_one);
            state.give(other, new_other);
            if state.estimate() < before {
                return;
            }
            state.take(one);
            state.take(other);
        }
        state.give(one, of_one);
        state.give(other, of_other);
    }

    /// The home that `client` has on the nodes of `home`.
    fn there(&self, client: usize, home: &CpuHome) -> Option<&'a CpuHome> {
        self.homes[client].iter().find(|own| own.nodes == home.nodes)
    }
}
