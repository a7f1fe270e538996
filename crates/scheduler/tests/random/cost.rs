//! The cost of a placement, written a second time from docs/placement.md: plain, slow, in floating point.

use super::Case;
use scheduler::spec::Spread;
use scheduler::{MemoryPolicy, Plan};
use topology::NodeId;

/// A client's home: its nodes, and whether memory lies on them in equal parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Home {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) equal: bool,
}

/// What of each cost is still rounding: the planner compares vCPUs and distances in eighths, crowding in tenths.
const ROUNDING: [f64; 9] = [0.0, 0.0, 0.0, 0.13, 0.13, 0.0, 0.13, 0.11, 8.0];

pub(crate) struct Scorer<'a> {
    pub(crate) case: &'a Case,
    /// vCPUs and bytes of each client.
    pub(crate) clients: Vec<(f64, f64)>,
}

impl<'a> Scorer<'a> {
    pub(crate) fn new(case: &'a Case, plan: &Plan) -> Self {
        let size = |node: &scheduler::VirtualNode| (node.vcpus.len() as f64, node.memory.0 as f64);
        Self { case, clients: plan.topology.nodes.iter().map(size).collect() }
    }

    pub(crate) fn cores(&self, node: NodeId) -> f64 {
        self.case.machine.usable_cores(node).len() as f64
    }

    pub(crate) fn threads(&self, node: NodeId) -> f64 {
        self.case.machine.usable_cpus(node).len() as f64
    }

    pub(crate) fn units(&self, node: NodeId) -> f64 {
        if self.case.spec.policy.prefer_ht { self.threads(node) } else { self.cores(node) }
    }

    pub(crate) fn size(&self, node: NodeId) -> f64 {
        self.case.machine.node(node).expect("a node").memory.0 as f64
    }

    pub(crate) fn available(&self, node: NodeId) -> f64 {
        let held = self.case.occupancy.of(node);
        let (promised, resident) = (held.memory.0 as f64, held.resident.0 as f64);
        match self.case.machine.node(node).expect("a node").free {
            Some(free) => (free.0 as f64 - (promised - resident).max(0.0)).max(0.0),
            None => (self.size(node) - promised).max(0.0),
        }
    }

    /// Bytes of a client on each node of its home.
    pub(crate) fn bytes(&self, client: usize, home: &Home) -> Vec<f64> {
        let memory = self.clients[client].1;
        let all: f64 = home.nodes.iter().map(|&node| self.available(node)).sum();
        let part = |&node: &NodeId| {
            if home.equal { memory / home.nodes.len() as f64 } else { memory * self.available(node) / all }
        };
        home.nodes.iter().map(part).collect()
    }

    pub(crate) fn bytes_on(&self, homes: &[Home], node: NodeId) -> f64 {
        let on = |(client, home): (usize, &Home)| -> f64 {
            home.nodes
                .iter()
                .zip(self.bytes(client, home))
                .filter(|(other, _)| **other == node)
                .map(|(_, bytes)| bytes)
                .sum()
        };
        homes.iter().enumerate().map(on).sum()
    }

    fn vcpus_on(&self, homes: &[Home], node: NodeId) -> f64 {
        let on = |(client, home): (usize, &Home)| {
            let all: f64 = home.nodes.iter().map(|&node| self.units(node)).sum();
            if home.nodes.contains(&node) { self.clients[client].0 * self.units(node) / all } else { 0.0 }
        };
        homes.iter().enumerate().map(on).sum()
    }

    /// The nine costs, most important first.
    pub(crate) fn cost(&self, homes: &[Home]) -> [f64; 9] {
        let ids: Vec<NodeId> = self.case.machine.nodes.iter().map(|node| node.id).collect();
        let used = |&&node: &&NodeId| homes.iter().any(|home| home.nodes.contains(&node));
        let growth = |before: f64, more: f64, size: f64| ((before + more).powi(2) - before.powi(2)) / size.max(1.0);
        let mut cost = [0.0; 9];
        for (index, home) in homes.iter().enumerate() {
            cost[0] += home.nodes.len() as f64 - 1.0;
            cost[1] += home.nodes.iter().filter(|&&node| self.threads(node) == 0.0).count() as f64;
            cost[2] += f64::from(u8::from(!home.equal));
            cost[6] += self.inner(home);
            let others = homes.iter().enumerate().filter(|(other, _)| *other != index);
            cost[6] += others.map(|(_, other)| self.mean(home, other)).sum::<f64>();
        }
        for &node in ids.iter().filter(used) {
            let held = f64::from(self.case.occupancy.of(node).vcpus);
            let more = self.vcpus_on(homes, node);
            cost[3] += (held + more - self.threads(node)).max(0.0).min(more);
            if !self.case.spec.policy.prefer_ht {
                cost[4] += (held + more - self.cores(node)).max(0.0).min(more);
            }
            cost[5] += 1.0;
            cost[7] += growth(held, more, self.units(node));
            let mib = f64::from(1 << 20);
            let (bytes, size) = (self.bytes_on(homes, node), self.size(node));
            cost[8] += growth((size - self.available(node)) / mib, bytes / mib, size / mib);
        }
        if self.case.spec.policy.placement == Spread::Spread {
            cost[5] = ids.len() as f64 - cost[5];
        }
        cost
    }

    fn mean(&self, one: &Home, other: &Home) -> f64 {
        let pairs = one.nodes.iter().flat_map(|&a| other.nodes.iter().map(move |&b| (a, b)));
        let sum: f64 = pairs.map(|(a, b)| f64::from(self.case.machine.distance(a, b))).sum();
        sum / (one.nodes.len() * other.nodes.len()) as f64
    }

    fn inner(&self, home: &Home) -> f64 {
        let own = home.nodes.len() as f64 * 10.0;
        self.mean(home, home) - own / (home.nodes.len() as f64).powi(2)
    }

    /// Whether `cost` is worse than `least` by more than rounding.
    pub(crate) fn worse(cost: &[f64; 9], least: &[f64; 9]) -> bool {
        for (index, rounding) in ROUNDING.iter().enumerate() {
            if (cost[index] - least[index]).abs() > *rounding {
                return cost[index] > least[index];
            }
        }
        false
    }
}

/// The homes of a plan. A home of several nodes is in equal parts when it is interleaved.
pub(crate) fn homes(plan: &Plan) -> Vec<Home> {
    let home = |client: &scheduler::Client| Home {
        nodes: client.home.iter().collect(),
        equal: client.home.len() == 1 || client.memory_policy == MemoryPolicy::Interleave,
    };
    plan.placement.clients.iter().map(home).collect()
}
