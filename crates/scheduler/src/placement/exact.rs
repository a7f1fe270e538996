//! Exact search: every assignment of homes, with branches cut that cannot win.

use super::cost::{Cost, Lost, fullness};
use super::homes::{CpuHome, Home, cpu_home};
use super::state::State;
use super::{Problem, links, memory};
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
    pub(crate) cost: Cost,
    /// The same without what is charged for caches: beside it other virtual nodes can be compared,
    /// which may be divided where these are not.
    beside_caches: Cost,
    pub(crate) lost: Lost,
    /// By client.
    pub(crate) homes: Vec<Home>,
    /// Indices of all nodes used.
    pub(crate) nodes: BTreeSet<usize>,
    /// Bytes a second that the VM draws from each node's memory.
    pub(crate) traffic: Vec<u64>,
    /// Bytes of clients on nodes where none of their vCPUs run, because there was no room at home.
    pub(crate) away: u64,
}

impl Candidate {
    /// Whether less is lost than by other virtual nodes, whatever stays free. Where memory is away
    /// with one of both alone, what other VMs may do does not count.
    pub(crate) fn loses_less_than(&self, other: &Self) -> bool {
        if (self.away > 0) == (other.away > 0) {
            return self.beside_caches.loses_less_than(&other.beside_caches);
        }
        self.cost.stacked <= other.cost.stacked && self.lost.for_certain() < other.lost.for_certain()
    }

    /// Whether each client has a hardware thread for each vCPU, and all of its memory at home.
    pub(crate) fn has_room(&self) -> bool {
        self.cost.stacked == 0 && self.lost.memory == 0
    }

    /// The same homes for clients that ask for other sizes.
    pub(super) fn of_demands(self, problem: &Problem<'_>) -> Self {
        let homes: Vec<CpuHome> = self
            .homes
            .iter()
            .zip(problem.demands)
            .map(|(home, demand)| cpu_home(problem.host, demand, home.with_cpus()))
            .collect();
        let mut state = State::new(problem);
        homes.iter().enumerate().for_each(|(client, home)| state.give(client, home));
        Self::of(problem, &state).unwrap_or(self)
    }

    /// The placement with its memory divided; `None` while a client has no home.
    fn of(problem: &Problem<'_>, state: &State<'_>) -> Option<Self> {
        let cpu_homes: Vec<&CpuHome> = state.homes().iter().copied().collect::<Option<_>>()?;
        let (homes, lost_to_memory) = memory::divide(problem, &cpu_homes);
        let lost = state.lost();
        let bandwidth = lost.bandwidth + links::lost(problem, &cpu_homes, &homes);
        let lost = Lost { memory: lost_to_memory, bandwidth, ..lost };
        let caches = problem.division.map_or(0, |division| {
            let lives: Vec<Vec<usize>> = cpu_homes.iter().map(|home| home.nodes.clone()).collect();
            division.under(problem.host, &lives).lost
        });
        let cost = state.cost_of(&Lost { caches, ..lost });
        let beside_caches = state.cost_of(&Lost { caches: 0, ..lost });
        let lost = Lost { caches, ..lost };
        let mut bytes = vec![0u64; problem.host.nodes.len()];
        for home in &homes {
            home.nodes.iter().zip(&home.bytes).for_each(|(&node, &more)| bytes[node] += more);
        }
        let fullness = problem.host.nodes.iter().zip(bytes).map(|(node, bytes)| fullness(node, bytes)).sum();
        let nodes = homes.iter().flat_map(|home| home.nodes.iter().copied()).collect();
        let traffic = state.loads().2.to_vec();
        let away = homes.iter().map(|home| memory::away(problem.host, home)).sum();
        Some(Self { cost: Cost { fullness, ..cost }, beside_caches, lost, homes, nodes, traffic, away })
    }
}

impl Found {
    /// Whether nothing that costs at least so much is of interest; with `best_only` not as a
    /// runner-up either.
    fn excludes(&self, bound: &Cost, best_only: bool) -> bool {
        let least = if best_only { &self.best } else { &self.runner_up };
        least.as_ref().is_some_and(|least| *bound >= least.cost)
    }

    /// Takes note of a whole placement.
    pub(crate) fn note(&mut self, problem: &Problem<'_>, state: &State<'_>) {
        if let Some(candidate) = Candidate::of(problem, state) {
            self.add(candidate);
        }
    }

    /// The better of what both found.
    pub(crate) fn join(&mut self, other: Self) {
        [other.best, other.runner_up].into_iter().flatten().for_each(|candidate| self.add(candidate));
    }

    fn add(&mut self, candidate: Candidate) {
        match &self.best {
            None => self.best = Some(candidate),
            Some(best) if candidate.cost < best.cost => {
                let other_nodes = best.nodes != candidate.nodes;
                let beaten = self.best.replace(candidate);
                if other_nodes {
                    self.runner_up = beaten;
                }
            }
            Some(best) if best.nodes != candidate.nodes && !self.excludes(&candidate.cost, false) => {
                self.runner_up = Some(candidate);
            }
            Some(_) => {}
        }
    }
}

/// A search over all assignments of the listed homes.
pub(crate) struct Search<'a> {
    pub(crate) problem: &'a Problem<'a>,
    /// Clients in the order in which they are placed; those of one kind stand together.
    pub(crate) order: &'a [usize],
    /// Homes of each client, by node numbers.
    pub(crate) homes: &'a [Vec<CpuHome>],
    /// Steps that may still be taken.
    pub(crate) steps: usize,
}

impl<'a> Search<'a> {
    /// Looks at all placements. False if the steps ran out.
    pub(crate) fn run(&mut self, state: &mut State<'a>, found: &mut Found) -> bool {
        self.place(0, 0, state, found)
    }

    fn place(&mut self, position: usize, first: usize, state: &mut State<'a>, found: &mut Found) -> bool {
        let Some(&client) = self.order.get(position) else {
            // To divide memory takes as long as a look at some homes.
            self.steps = self.steps.saturating_sub(self.order.len() + self.problem.host.nodes.len());
            found.note(self.problem, state);
            return true;
        };
        let homes: &'a [CpuHome] = &self.homes[client];
        let visits = self.visits(client, first, state);
        for (nth, _) in homes.iter().enumerate().skip(first) {
            let index = visits.get(nth - first).copied().unwrap_or(nth);
            let home = &homes[index];
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            state.give(client, home);
            let best_only = self.problem.told.is_some();
            let finished = found.excludes(&state.bound(), best_only) || {
                let next_first = if self.equals_next(position) { index } else { 0 };
                self.place(position + 1, next_first, state, found)
            };
            state.take(client);
            if !finished {
                return false;
            }
        }
        true
    }

    /// The order in which the homes from `first` on are tried, where that is not their own: the
    /// more like what was told, the sooner, so that a good map is known early.
    fn visits(&self, client: usize, first: usize, state: &State<'a>) -> Vec<usize> {
        if self.problem.told.is_none() {
            return Vec::new();
        }
        let homes = &self.homes[client];
        let mut visits: Vec<(Cost, usize)> =
            (first..homes.len()).map(|index| (state.estimate_with(client, &homes[index]), index)).collect();
        visits.sort_unstable();
        visits.into_iter().map(|(_, index)| index).collect()
    }

    /// Whether the next client may change places with this one unseen: then only homes from this
    /// one on need a look.
    fn equals_next(&self, position: usize) -> bool {
        let kinds = &self.problem.kinds;
        self.order.get(position + 1).is_some_and(|&next| kinds[next] == kinds[self.order[position]])
    }
}
