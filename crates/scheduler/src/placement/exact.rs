//! Exact search: every assignment of homes, with branches cut that cannot win.

use super::homes::{Demand, Home};
use super::score::Score;
use super::state::State;
use std::collections::BTreeSet;

/// The best placement found, and the best one on another set of nodes.
#[derive(Clone, Default)]
pub(crate) struct Found {
    pub(crate) best: Option<Candidate>,
    pub(crate) runner_up: Option<Candidate>,
}

/// A whole placement.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) score: Score,
    /// By client.
    pub(crate) homes: Vec<Home>,
    /// Indices of all nodes used.
    pub(crate) nodes: BTreeSet<usize>,
}

impl Found {
    /// Takes note of a whole placement.
    pub(crate) fn note(&mut self, state: &State<'_>) {
        let score = state.score();
        if self.runner_up.as_ref().is_some_and(|runner_up| score >= runner_up.score) {
            return;
        }
        let homes: Vec<Home> = state.homes().iter().flatten().map(|&home| home.clone()).collect();
        let nodes: BTreeSet<usize> = homes.iter().flat_map(|home| home.nodes.iter().copied()).collect();
        let candidate = Candidate { score, homes, nodes };
        match &self.best {
            None => self.best = Some(candidate),
            Some(best) if candidate.score < best.score => {
                let other_nodes = best.nodes != candidate.nodes;
                let beaten = self.best.replace(candidate);
                if other_nodes {
                    self.runner_up = beaten;
                }
            }
            Some(best) if best.nodes != candidate.nodes => self.runner_up = Some(candidate),
            Some(_) => {}
        }
    }
}

/// A search over all assignments of one total number of nodes beyond one for each client.
pub(crate) struct Search<'a> {
    pub(crate) demands: &'a [Demand],
    /// Clients in the order in which they are placed; equal ones stand together.
    pub(crate) order: &'a [usize],
    /// Homes of each client, smaller ones first, then by node numbers.
    pub(crate) homes: &'a [Vec<Home>],
    /// Steps that may still be taken.
    pub(crate) steps: usize,
}

impl<'a> Search<'a> {
    /// Looks at all placements with exactly `beyond` nodes beyond one for each client. False if the steps ran out.
    pub(crate) fn run(&mut self, state: &mut State<'a>, beyond: usize, found: &mut Found) -> bool {
        self.place(0, 0, beyond, state, found)
    }

    fn place(
        &mut self,
        position: usize,
        first: usize,
        beyond: usize,
        state: &mut State<'a>,
        found: &mut Found,
    ) -> bool {
        let Some(&client) = self.order.get(position) else {
            if beyond == 0 {
                found.note(state);
            }
            return true;
        };
        let homes: &'a [Home] = &self.homes[client];
        for (index, home) in homes.iter().enumerate().skip(first) {
            if home.nodes.len() - 1 > beyond {
                continue;
            }
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            if !state.has_room(home) {
                continue;
            }
            state.give(client, home);
            let hopeless = found.runner_up.as_ref().is_some_and(|runner_up| state.bound() > runner_up.score);
            let finished = hopeless || {
                let next_first = if self.equals_next(position) { index } else { 0 };
                self.place(position + 1, next_first, beyond - (home.nodes.len() - 1), state, found)
            };
            state.take(client);
            if !finished {
                return false;
            }
        }
        true
    }

    /// Whether the next client asks for the same as this one: then only rising homes need a look.
    fn equals_next(&self, position: usize) -> bool {
        self.order.get(position + 1).is_some_and(|&next| self.demands[next] == self.demands[self.order[position]])
    }
}
