//! Initial placement: a home for each client.

mod exact;
mod heuristic;
mod homes;
mod score;
mod state;

pub(crate) use exact::{Candidate, Found};
pub(crate) use homes::{Demand, Home};

use crate::host::Host;
use crate::spec::Spread;
use exact::Search;
use heuristic::Heuristic;
use state::State;
use std::cmp::Reverse;

/// Steps of the exact search (a home tried for a client) before the heuristic takes over. Cut branches cost one step.
pub const EXACT_STEPS: usize = 200_000;

/// The exact search is not even begun when there are this many times more assignments than steps.
const HOPELESS: f64 = 10.0;

/// How the homes were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// No better placement exists.
    Exact,
    /// The exact search ran out of steps.
    Heuristic,
    /// The VM only fits when every client may use every node.
    Everywhere,
}

/// Homes for all clients, and the best placement on other nodes.
pub(crate) struct Placed {
    pub(crate) best: Candidate,
    pub(crate) runner_up: Option<Candidate>,
    pub(crate) method: Method,
}

/// Finds homes with the smallest score. `None` where all nodes together lack the memory.
pub(crate) fn place(host: &Host, demands: &[Demand], spread: Spread, exact_steps: usize) -> Option<Placed> {
    let needed = demands.iter().fold(0u64, |sum, demand| sum.saturating_add(demand.memory));
    let available = host.nodes.iter().fold(0u64, |sum, node| sum.saturating_add(node.available));
    if needed > available {
        return None;
    }
    // A VM with more vCPUs than the host has cores shares them whatever its homes: larger homes would win nothing.
    let vcpus: u32 = demands.iter().map(|demand| demand.vcpus).sum();
    let cpus_must_fit = vcpus <= host.all_units();
    let mut problem = Problem { host, demands, spread, cpus_must_fit, homes: vec![Vec::new(); demands.len()], size: 0 };
    let (found, method) = problem.search(exact_steps);
    match found.best {
        Some(best) => Some(Placed { best, runner_up: found.runner_up, method }),
        None => Some(problem.everywhere()),
    }
}

struct Problem<'a> {
    host: &'a Host,
    demands: &'a [Demand],
    spread: Spread,
    cpus_must_fit: bool,
    /// Homes of each client, up to `size` nodes.
    homes: Vec<Vec<Home>>,
    size: usize,
}

impl Problem<'_> {
    /// Searches with more and more nodes beyond one for each client: a placement that needs fewer always wins.
    fn search(&mut self, exact_steps: usize) -> (Found, Method) {
        let mut steps = exact_steps;
        let mut complete = true;
        let mut order: Vec<usize> = (0..self.demands.len()).collect();
        order.sort_by_key(|&client| (Reverse(self.demands[client]), client));
        let nodes = self.host.nodes.len();
        for beyond in 0..=(nodes - 1) * self.demands.len() {
            complete &= self.grow((beyond + 1).min(nodes));
            let Some(least) = self.least_beyond() else { continue };
            if beyond < least {
                continue;
            }
            if self.assignments(&order) > HOPELESS * exact_steps as f64 {
                return (self.with_heuristic(Found::default()), Method::Heuristic);
            }
            let mut found = Found::default();
            let mut state = State::new(self.host, self.demands, self.spread);
            let mut search = Search { demands: self.demands, order: &order, homes: &self.homes, steps };
            let finished = search.run(&mut state, beyond, &mut found);
            steps = search.steps;
            if !finished {
                return (self.with_heuristic(found), Method::Heuristic);
            }
            if found.best.is_some() {
                return (found, if complete { Method::Exact } else { Method::Heuristic });
            }
        }
        (Found::default(), Method::Everywhere)
    }

    /// Lists homes up to `size` nodes; whether all of them are listed.
    fn grow(&mut self, size: usize) -> bool {
        let mut complete = true;
        while self.size < size {
            self.size += 1;
            for (client, demand) in self.demands.iter().enumerate() {
                let same = self.demands[..client].iter().position(|other| other == demand);
                if let Some(same) = same {
                    self.homes[client] = self.homes[same].clone();
                    continue;
                }
                let (homes, all) = homes::homes(self.host, demand, self.size, self.cpus_must_fit);
                self.homes[client].extend(homes);
                complete &= all;
            }
        }
        complete
    }

    /// Number of assignments of the listed homes; clients that ask for the same are interchangeable.
    fn assignments(&self, order: &[usize]) -> f64 {
        let groups = order.chunk_by(|&one, &other| self.demands[one] == self.demands[other]);
        // g equal clients on n homes: (n + g - 1 over g).
        let ways = |group: &[usize]| -> f64 {
            let homes = self.homes[group[0]].len() as f64;
            (0..group.len()).map(|i| (homes + i as f64) / (i + 1) as f64).product()
        };
        groups.map(ways).product()
    }

    /// Nodes beyond one for each client that any placement has; `None` while a client has no home.
    fn least_beyond(&self) -> Option<usize> {
        self.homes.iter().map(|homes| homes.iter().map(|home| home.nodes.len() - 1).min()).sum()
    }

    /// What the exact search found until it was stopped, or what the heuristic finds if that is better. Where small homes
    /// lead to a placement, those one node larger are tried too: one large home may save several of middle size.
    fn with_heuristic(&mut self, mut found: Found) -> Found {
        let nodes = self.host.nodes.len();
        let mut last = false;
        loop {
            let empty = State::new(self.host, self.demands, self.spread);
            Heuristic { host: self.host, demands: self.demands, homes: &self.homes }.run(&empty, &mut found);
            let straddles = found.best.as_ref().is_some_and(|best| best.score.straddled > 0);
            if self.size == nodes || last || (found.best.is_some() && !straddles) {
                return found;
            }
            last = found.best.is_some();
            self.grow(self.size + 1);
        }
    }

    /// Every client on every node: the kernel fills them as there is room.
    fn everywhere(&self) -> Placed {
        let all: Vec<usize> = (0..self.host.nodes.len()).collect();
        let mut state = State::new(self.host, self.demands, self.spread);
        let fits = |demand: &Demand| homes::home(self.host, demand, &all, false);
        let homes: Vec<Home> = self.demands.iter().filter_map(fits).collect();
        for (client, home) in homes.iter().enumerate() {
            state.give(client, home);
        }
        let score = state.score();
        let best = Candidate { score, homes: homes.clone(), nodes: all.into_iter().collect() };
        Placed { best, runner_up: None, method: Method::Everywhere }
    }
}
