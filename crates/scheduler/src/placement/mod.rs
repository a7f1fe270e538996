//! Initial placement: a home for each client.
//!
//! **Problem.** Clients (vCPUs and memory that stay together) are to live on the nodes of a machine
//! where VMs run already. Cores, hardware threads and free memory are limited; memory on another
//! node is slower, the more so the farther it is.
//!
//! **Rule.** A client's vCPUs live on one node, or on the fewest whose cores hold them; its memory
//! lies there as far as it fits, the rest on the nearest nodes with room ([`memory`]). Of all
//! placements the one is taken that costs least:
//!
//! 1. vCPUs of the VM beyond the hardware threads of their node. They never run all at once, so
//!    that nothing pays for them.
//! 2. CPU time that is lost, in CPUs, as the balancer counts it: a vCPU that waits for a thread 1,
//!    one that shares a core 0.7, a vCPU with memory at twice the local distance 0.3, with the
//!    other clients of its VM that far 0.06, and as much with the network cards that far that the
//!    VM is drawn to. What other VMs do is not known: half is counted as if
//!    their vCPUs were busy, half as if they idled. Beside a balancer the VM and the others count
//!    with the part of their vCPUs that is busy as it expects, and crowded CPUs as it weighs them;
//!    a client that no node has the cores for may then have a home of one node.
//!    Where the guest knows distances already, the difference from these is charged too ([`told`]).
//!    Where vCPUs keep to last-level caches, what they lose under those of their home is charged
//!    too ([`crate::caches`]).
//!    Memory that cannot lie with its vCPUs is for good, what others do is a guess: where the
//!    placement that loses least leaves memory away from its vCPUs, the search is made once more
//!    without that guess, and its placement is taken if less is away and less is lost for certain.
//! 3. With `placement = "apart"` or `"most_virtual_nodes"`: nodes left unused, then the
//!    distance between clients (which then does not count above).
//! 4. Crowding of the CPUs, fullness of the memory.
//!
//! **Properties.** Memory that a node does not have is never promised. A VM that all nodes together
//! hold is placed. The result depends on sizes and distances; node numbers decide between equals
//! alone. While the search is exact, no assignment of homes of the same size costs less.
//!
//! **Example.** Nodes 0 and 1 have 2 cores without hyper-threading; a VM of 2 vCPUs lives on
//! node 0. A VM of two clients with 2 vCPUs each: both on node 1 puts 4 vCPUs on 2 threads (2 too
//! many). One on each node: none too many; on node 0 two vCPUs wait if the other VM is busy, 1 CPU
//! in the mean, and 4 x 0.06 are lost to distance. The second is taken.

mod cost;
mod exact;
pub(crate) mod far;
mod heuristic;
mod homes;
mod links;
mod memory;
mod state;
mod told;
mod transport;

pub(crate) use cost::{LOST_STEP, Lost, STACKED_PARTS};
pub(crate) use exact::Candidate;
pub(crate) use homes::{Demand, Home, VCPU};
pub(crate) use told::Told;

use crate::caches::{Division, Least};
use crate::host::Host;
use cost::Rates;
use exact::{Found, Search};
use heuristic::Heuristic;
use homes::CpuHome;
use state::State;
use std::cmp::Reverse;
use vm::spec::Spread;

/// Steps of the exact search (a home tried for a client) before the heuristic takes over. Cut
/// branches cost one step.
pub const EXACT_STEPS: usize = 200_000;

/// The exact search is not even begun when there are this many times more assignments than steps.
const HOPELESS: f64 = 10.0;
/// Where distances were told, a step takes so many times as long with [`QUICK_CLIENTS`] clients,
/// and longer with more of them.
const LIKE_STEP: usize = 20;
/// The heuristic, which goes first there, tries so many homes,
const LIKE_TRIES: usize = 5_000;
/// but each home of each client so many times.
const LIKE_ROUNDS: usize = 4;
const QUICK_CLIENTS: usize = 8;
/// On more nodes than this a step takes longer, and there are fewer of them.
const QUICK_NODES: usize = 8;

/// How the homes were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// No better placement exists.
    Exact,
    /// The exact search ran out of steps.
    Heuristic,
}

/// Homes for all clients, and the best placement on other nodes.
pub(crate) struct Placed {
    pub(crate) best: Candidate,
    pub(crate) runner_up: Option<Candidate>,
    pub(crate) method: Method,
    /// Whether these homes were taken for memory that would have been away with the runner-up,
    /// which would lose less if other VMs were busy half of the time.
    pub(crate) near_for_certain: bool,
    /// The same homes with the VM at its largest, where that is what they were chosen for.
    pub(crate) grown: Option<Candidate>,
}

/// What is asked of the homes of all clients together.
#[derive(Clone, Copy, Default)]
pub(crate) struct Terms<'a> {
    /// How far clients are to be spread.
    pub(crate) spread: Spread,
    /// What the guest knows already of the distances between its clients.
    pub(crate) told: Option<&'a Told>,
    /// How its vCPUs are divided among last-level caches, where they are.
    pub(crate) division: Option<&'a Division>,
}

/// Finds homes that cost least. `None` where all nodes together lack the memory.
pub(crate) fn place(host: &Host, demands: &[Demand], terms: Terms<'_>, exact_steps: usize) -> Option<Placed> {
    let needed = demands.iter().fold(0u64, |sum, demand| sum.saturating_add(demand.memory));
    let available = host.nodes.iter().fold(0u64, |sum, node| sum.saturating_add(node.available));
    if needed > available {
        return None;
    }
    let problem = Problem::new(host, demands, terms);
    let (found, method) = problem.clone().find(exact_steps);
    let best = found.best?;
    let as_found = Placed { runner_up: found.runner_up, method, best, grown: None, near_for_certain: false };
    Some(if as_found.best.away > 0 { nearer_for_certain(&problem, as_found, exact_steps) } else { as_found })
}

/// Where some of the memory would be away from its vCPUs: the placement that loses least whatever
/// other VMs do, if that is another one.
fn nearer_for_certain(problem: &Problem<'_>, as_found: Placed, exact_steps: usize) -> Placed {
    let certain = Problem { rates: problem.rates.for_certain(), ..problem.clone() };
    let (found, method) = certain.clone().find(exact_steps);
    let Some(nearer) = found.best.filter(|nearer| nearer.away < as_found.best.away) else { return as_found };
    if nearer.cost >= as_found.best.clone().of_demands(&certain).cost {
        return as_found;
    }
    let best = nearer.of_demands(problem);
    Placed { best, runner_up: Some(as_found.best), method, grown: None, near_for_certain: true }
}

/// How many nodes beyond one the homes have that cores and memory ask for, where homes of one node
/// come into question beside these: few vCPUs are expected to be busy, and a node has the memory.
fn narrow(host: &Host, demands: &[Demand], least: &[usize]) -> Option<usize> {
    let more = least.iter().copied().max().filter(|&least| least > 1 && !host.expects_all_busy())? - 1;
    let most = host.nodes.iter().filter(|node| node.threads > 0).map(|node| node.available).max().unwrap_or(0);
    demands.iter().all(|demand| demand.memory <= most).then_some(more)
}

/// The placement in the homes of a VM at its largest, with what is there of it now.
pub(crate) fn begun(host: &Host, now: &[Demand], terms: Terms<'_>, grown: Placed) -> Placed {
    let best = grown.best.clone().of_demands(&Problem::new(host, now, terms));
    Placed { best, grown: Some(grown.best), ..grown }
}

/// What is to be placed where.
#[derive(Clone)]
pub(crate) struct Problem<'a> {
    host: &'a Host,
    demands: &'a [Demand],
    told: Option<&'a Told>,
    /// Where caches say something of homes.
    division: Option<&'a Division>,
    /// There: what vCPUs lose under them at least.
    least_under: Option<Least>,
    /// Bytes of each client that lie with its vCPUs, as far as its home has room.
    near: Vec<u64>,
    /// For each client the first one that may change places with it unseen.
    kinds: Vec<usize>,
    /// How far its clients are to be spread.
    spread: Spread,
    rates: Rates,
    /// Nodes with CPUs.
    cpu_nodes: u32,
    /// Whether the VM has no more vCPUs than the machine has cores: else they share them whatever
    /// their homes.
    cpus_fit: bool,
    /// Extra distance from each node to the nearest other one that has memory to give.
    nearest: Vec<u64>,
    /// The client that loses least by remote memory: millionths of vCPUs, bytes.
    least_rate: (u64, u64),
    /// Whether every home is one node.
    one_node_each: bool,
    /// Where the guest was told distances: what each pair of clients costs at least by distance.
    least_of_pairs: Vec<Vec<u128>>,
}

impl<'a> Problem<'a> {
    fn new(host: &'a Host, demands: &'a [Demand], terms: Terms<'a>) -> Self {
        let Terms { spread, told, division } = terms;
        let least_under = division.and_then(|division| Least::of(host, division));
        let nodes = 0..host.nodes.len();
        let nearest = |from: usize| {
            let others = nodes.clone().filter(|&to| to != from && host.nodes[to].available > 0);
            others.map(|to| host.extra[from][to]).min().unwrap_or(0)
        };
        let rates = demands
            .iter()
            .map(|demand| ((u64::from(demand.vcpus) * homes::VCPU).max(homes::NO_VCPU), demand.memory.max(1)));
        let least_rate =
            rates.min_by(|a, b| (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1))));
        let vcpus: u32 = demands.iter().map(|demand| demand.vcpus).sum();
        Self {
            host,
            demands,
            told,
            division: division.filter(|_| least_under.is_some()),
            least_under,
            near: demands.iter().map(|demand| far::near(host, demand.memory)).collect(),
            kinds: told::kinds(demands, told, division),
            spread,
            rates: Rates::of(host.busy_percent),
            cpu_nodes: host.nodes.iter().filter(|node| node.threads > 0).count() as u32,
            cpus_fit: vcpus <= host.all_units(),
            nearest: nodes.clone().map(nearest).collect(),
            least_rate: least_rate.unwrap_or((0, 1)),
            one_node_each: true,
            least_of_pairs: Vec::new(),
        }
    }

    /// The best placement with homes of any size that comes into question.
    fn find(mut self, exact_steps: usize) -> (Found, Method) {
        let (host, demands) = (self.host, self.demands);
        let least: Vec<usize> = demands.iter().map(|demand| homes::least_size(host, demand, self.cpus_fit)).collect();
        let (mut found, mut method) = match narrow(host, demands, &least) {
            // Not all vCPUs are expected to be busy: one node may do, and be better.
            Some(more) => self.search(&vec![1; demands.len()], more, exact_steps),
            None => self.search(&least, 0, exact_steps),
        };
        let threads: u64 = host.nodes.iter().map(|node| u64::from(node.threads)).sum();
        let vcpus: u64 = demands.iter().map(|demand| u64::from(demand.vcpus)).sum();
        // Clients that pile up more than they must are too large for their homes: larger homes may
        // help.
        let least_stacked = vcpus.saturating_sub(threads) * STACKED_PARTS;
        for more in [1, self.cpu_nodes as usize - 1] {
            let piled_up = found.best.as_ref().is_some_and(|best| best.cost.stacked > least_stacked);
            if piled_up && more > 0 {
                let (larger, by) = self.search(&least, more, exact_steps);
                found.join(larger);
                method = if by == Method::Exact { method } else { by };
            }
        }
        (found, method)
    }

    /// The best placement with homes of `least` nodes and up to `more` beyond.
    fn search(&mut self, least: &[usize], more: usize, exact_steps: usize) -> (Found, Method) {
        let largest = self.cpu_nodes as usize;
        let (mut homes, mut complete) = (Vec::<Vec<CpuHome>>::new(), true);
        for (client, demand) in self.demands.iter().enumerate() {
            let same = self.demands[..client].iter().position(|other| other == demand);
            let listed = same.map(|same| homes[same].clone()).unwrap_or_else(|| {
                let sizes = [least[client], (least[client] + more).min(largest)];
                let of_size = sizes.iter().take(if sizes[0] == sizes[1] { 1 } else { 2 });
                let lists: Vec<(Vec<CpuHome>, bool)> =
                    of_size.map(|&size| homes::cpu_homes(self.host, demand, size)).collect();
                complete &= lists.iter().all(|(_, all)| *all);
                lists.into_iter().flat_map(|(list, _)| list).collect()
            });
            homes.push(listed);
        }
        self.one_node_each = homes.iter().flatten().all(|home| home.nodes.len() == 1);
        match self.told {
            Some(told) => {
                self.least_of_pairs = told::least_of_pairs(self.host, self.demands, &homes, told);
                self.search_like(&homes, complete, exact_steps)
            }
            None => self.search_listed(&homes, complete, exact_steps),
        }
    }

    fn search_listed(&self, homes: &[Vec<CpuHome>], complete: bool, exact_steps: usize) -> (Found, Method) {
        let order = self.order();
        let steps = exact_steps * QUICK_NODES / self.host.nodes.len().max(QUICK_NODES);
        let mut found = Found::default();
        if self.assignments(&order, homes) <= HOPELESS * steps as f64 {
            let mut search = Search { problem: self, order: &order, homes, steps };
            if search.run(&mut State::new(self), &mut found) {
                return (found, if complete { Method::Exact } else { Method::Heuristic });
            }
        }
        let effort = exact_steps.div_ceil(EXACT_STEPS).max(1);
        Heuristic { problem: self, homes, tries: heuristic::TRIES * effort }.run(effort, &mut found);
        (found, Method::Heuristic)
    }

    /// [`Problem::search_listed`] where the guest was told distances: few clients are
    /// interchangeable, but most branches are cut once a good map is known.
    fn search_like(&self, homes: &[Vec<CpuHome>], complete: bool, exact_steps: usize) -> (Found, Method) {
        let mut found = Found::default();
        let effort = exact_steps.div_ceil(EXACT_STEPS).max(1);
        let slower = |amount: usize| amount * QUICK_CLIENTS / self.demands.len().max(QUICK_CLIENTS);
        let rounds = LIKE_ROUNDS * homes.iter().map(Vec::len).sum::<usize>();
        let tries = slower(LIKE_TRIES).max(rounds) * effort;
        Heuristic { problem: self, homes, tries }.run(effort, &mut found);
        let steps = slower(exact_steps / LIKE_STEP) * QUICK_NODES / self.host.nodes.len().max(QUICK_NODES);
        let order = self.order();
        let mut search = Search { problem: self, order: &order, homes, steps };
        let finished = search.run(&mut State::new(self), &mut found);
        (found, if finished && complete { Method::Exact } else { Method::Heuristic })
    }

    /// Clients in the order of the exact search: largest first, those of one kind together.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.demands.len()).collect();
        order.sort_by_key(|&client| (Reverse(self.demands[client]), self.kinds[client], client));
        order
    }

    /// Number of assignments of the listed homes; clients of one kind are interchangeable.
    fn assignments(&self, order: &[usize], homes: &[Vec<CpuHome>]) -> f64 {
        let groups = order.chunk_by(|&one, &other| self.kinds[one] == self.kinds[other]);
        // g equal clients on n homes: (n + g - 1 over g).
        let ways = |group: &[usize]| -> f64 {
            let homes = homes[group[0]].len() as f64;
            (0..group.len()).map(|i| (homes + i as f64) / (i + 1) as f64).product()
        };
        groups.map(ways).product()
    }

    /// Parts of groups that a client brings to a home that is one node.
    fn parts(&self, client: usize, home: &CpuHome) -> u32 {
        let least = self.least_under.as_ref().filter(|_| home.nodes.len() == 1);
        least.map_or(0, |least| least.parts(client, home.nodes[0]))
    }

    /// vCPUs of a home, in millionths, times the extra distance to `node`, in thousandths.
    fn extra_to(&self, home: &CpuHome, node: usize) -> u64 {
        home.nodes.iter().zip(&home.micro).map(|(&own, micro)| micro * self.host.extra[own][node]).sum()
    }

    /// vCPUs of a home times the mean extra distance to its own nodes.
    fn inner(&self, home: &CpuHome) -> u64 {
        if home.nodes.len() == 1 {
            return 0;
        }
        home.nodes.iter().map(|&node| self.extra_to(home, node)).sum::<u64>() / home.nodes.len() as u64
    }

    /// vCPUs times extra distance that bytes times extra distance cost at least.
    fn short_micro(&self, short: u128) -> u64 {
        if short == 0 { 0 } else { (short as f64 * self.least_rate.0 as f64 / self.least_rate.1 as f64) as u64 }
    }
}
