//! The nodes that may be a client's home, by their CPUs. Where its memory lies is decided later
//! ([`super::memory`]).

use crate::balance::BalancePolicy;
use crate::host::Host;
use crate::sizing::Share;
use vm::Shape;

/// What a client asks of its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Demand {
    pub(crate) vcpus: u32,
    /// Bytes.
    pub(crate) memory: u64,
    /// Nodes that its home has at least.
    pub(crate) least_home: usize,
    /// Bytes a second that it draws when it works; 0 where nobody says.
    pub(crate) traffic: u64,
}

impl Demand {
    /// What a virtual node of this size asks for: of what the VM's owner stated, its part by vCPUs.
    pub(crate) fn of(share: &Share, least_home: usize, shape: &Shape) -> Self {
        let each = BalancePolicy::default().waiting_cpu_draws();
        let stated = shape.policy.bandwidth.of(shape.vcpus.into(), each).unwrap_or(0.0);
        let traffic = (stated * f64::from(share.vcpus) / f64::from(shape.vcpus.max(1))).round() as u64;
        Self { vcpus: share.vcpus, memory: share.memory, least_home, traffic }
    }
}

/// Nodes whose CPUs a client uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuHome {
    /// Indices of nodes, rising.
    pub(crate) nodes: Vec<usize>,
    /// Millionths of vCPUs on each: the client's vCPUs in proportion to the nodes' cores. A client
    /// without vCPUs has [`NO_VCPU`] of one.
    pub(crate) micro: Vec<u64>,
    /// The part of the client on each, of [`WHOLE`].
    pub(crate) part: Vec<u64>,
}

/// A home with everything that the client takes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// Indices of nodes, rising.
    pub(crate) nodes: Vec<usize>,
    /// Millionths of vCPUs on each; 0 where only memory lies.
    pub(crate) micro: Vec<u64>,
    /// Bytes on each.
    pub(crate) bytes: Vec<u64>,
    /// Whether the bytes lie in equal parts (interleaved), not as the nodes have room.
    pub(crate) equal: bool,
}

impl Home {
    /// All of its memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Indices of the nodes where its vCPUs live, or will once it has any.
    pub(crate) fn with_cpus(&self) -> Vec<usize> {
        self.nodes.iter().zip(&self.micro).filter(|(_, micro)| **micro > 0).map(|(&node, _)| node).collect()
    }

    /// Whether it has a vCPU.
    pub(crate) fn has_vcpus(&self) -> bool {
        self.micro.iter().sum::<u64>() > NO_VCPU
    }

    /// Whether all of it is one node.
    pub(crate) fn is_one_node(&self) -> bool {
        self.nodes.len() == 1
    }
}

/// Millionths of a vCPU that stand for none: so little that only its memory counts, which then
/// lies near the CPUs that its vCPUs to come will have.
pub(super) const NO_VCPU: u64 = VCPU / 1000;

/// A vCPU, in the parts that homes divide it into. What is rounded must stay far below the steps in
/// which costs are compared ([`LOST_STEP`](super::LOST_STEP)): else of two homes that cost the same
/// one seems to cost more.
pub(crate) const VCPU: u64 = 1_000_000;

/// A number that every number up to 16 divides, so that the parts of most homes are whole.
pub(crate) const WHOLE: u64 = 720_720;

/// Sets of nodes of one size are all listed up to this many; beyond, only each node's nearest
/// neighbours.
const LISTED_SETS: usize = 2_000;

/// The fewest nodes whose cores hold the client's vCPUs: its home has as many. 1 for most. Memory
/// does not count: what a node lacks lies on others, and less of it is remote than if the vCPUs
/// floated over these too.
pub(crate) fn least_size(host: &Host, demand: &Demand, cpus_must_fit: bool) -> usize {
    let mut units: Vec<u32> = cpu_nodes(host).into_iter().map(|node| host.units(node)).collect();
    units.sort_unstable_by(|a, b| b.cmp(a));
    let all = units.len();
    let holds = |size: &usize| units[..*size].iter().sum::<u32>() >= demand.vcpus;
    let least = if cpus_must_fit { (1..=all).find(holds).unwrap_or(all) } else { 1 };
    least.max(demand.least_home).min(all)
}

/// Homes of exactly `size` nodes. The flag says whether every set of nodes is listed.
pub(crate) fn cpu_homes(host: &Host, demand: &Demand, size: usize) -> (Vec<CpuHome>, bool) {
    let cpu_nodes = cpu_nodes(host);
    let complete = combinations(cpu_nodes.len(), size) <= LISTED_SETS;
    let sets = if complete { all_sets(&cpu_nodes, size) } else { grown_sets(host, &cpu_nodes, size) };
    (sets.into_iter().map(|set| cpu_home(host, demand, set)).collect(), complete)
}

fn cpu_nodes(host: &Host) -> Vec<usize> {
    (0..host.nodes.len()).filter(|&node| host.nodes[node].threads > 0).collect()
}

/// A home of these nodes.
pub(super) fn cpu_home(host: &Host, demand: &Demand, nodes: Vec<usize>) -> CpuHome {
    let units: Vec<u64> = nodes.iter().map(|&node| host.units(node).into()).collect();
    let micro = in_parts((u64::from(demand.vcpus) * VCPU).max(NO_VCPU), &units);
    let part = in_parts(WHOLE, &units);
    CpuHome { nodes, micro, part }
}

/// `amount` in proportion to `weights`, each part rounded down by itself, so that it does not
/// depend on the order of the nodes.
fn in_parts(amount: u64, weights: &[u64]) -> Vec<u64> {
    let total: u64 = weights.iter().sum::<u64>().max(1);
    weights.iter().map(|&weight| (u128::from(amount) * u128::from(weight) / u128::from(total)) as u64).collect()
}

/// Number of sets of `size` out of `total`, stopping at a large number.
fn combinations(total: usize, size: usize) -> usize {
    (0..size).fold(1usize, |count, i| count.saturating_mul(total - i) / (i + 1))
}

fn all_sets(of: &[usize], size: usize) -> Vec<Vec<usize>> {
    fn extend(of: &[usize], next: usize, size: usize, set: &mut Vec<usize>, sets: &mut Vec<Vec<usize>>) {
        if set.len() == size {
            sets.push(set.clone());
            return;
        }
        for index in next..=of.len() - (size - set.len()) {
            set.push(of[index]);
            extend(of, index + 1, size, set, sets);
            set.pop();
        }
    }
    let mut sets = Vec::new();
    extend(of, 0, size, &mut Vec::new(), &mut sets);
    sets
}

/// For each node, the set of it and its `size - 1` nearest neighbours, those with more memory first
/// among equals.
fn grown_sets(host: &Host, of: &[usize], size: usize) -> Vec<Vec<usize>> {
    let grow = |&seed: &usize| {
        let mut others = of.to_vec();
        others.sort_by_key(|&other| {
            let away = host.distances[seed][other] + host.distances[other][seed];
            (other != seed, away, std::cmp::Reverse(host.nodes[other].available), other)
        });
        let mut set = others[..size].to_vec();
        set.sort_unstable();
        set
    };
    let mut sets: Vec<Vec<usize>> = of.iter().map(grow).collect();
    sets.sort();
    sets.dedup();
    sets
}
