//! What a user loses by a placement, written a second time from docs/placement.md: plain, slow, in
//! floating point.

use super::Case;
use topology::NodeId;
use vm::Plan;
use vm::spec::{BandwidthNeed, Spread};

/// The nodes whose CPUs a client uses.
pub(crate) type CpuHome = Vec<NodeId>;

/// What a placement costs, the first most important: vCPUs beyond hardware threads; CPUs lost;
/// nodes left unused and CPUs lost by distance between clients, both only where clients are to live
/// apart; where they are to live together the last is what full memory controllers lose. What is
/// charged for distances that were not told counts as lost by distance.
pub(crate) type Cost = [f64; 4];

/// What of each cost is still rounding: the planner compares vCPUs in eighths, CPUs in hundredths.
const ROUNDING: Cost = [0.13, 0.012, 0.0, 0.012];

pub(crate) struct Scorer<'a> {
    pub(crate) case: &'a Case,
    /// vCPUs and MiB of each client.
    pub(crate) clients: Vec<(f64, f64)>,
    /// What the guest was told between its clients, where the topology was given.
    pub(crate) told: Option<Vec<Vec<u32>>>,
    /// Whether other VMs may be busy: half is counted as if they were.
    others_may_be_busy: bool,
}

impl<'a> Scorer<'a> {
    /// For the machine, without clients.
    pub(crate) fn alone(case: &'a Case) -> Self {
        Self { case, clients: Vec::new(), told: None, others_may_be_busy: true }
    }

    pub(crate) fn new(case: &'a Case, plan: &Plan) -> Self {
        let size = |node: &vm::VirtualNode| (node.vcpus.len() as f64, node.memory.0 as f64 / MIB);
        Self { clients: plan.topology.nodes.iter().map(size).collect(), ..Self::alone(case) }
    }

    /// Without what is lost only if other VMs are busy.
    pub(crate) fn for_certain(&self) -> Self {
        Self { clients: self.clients.clone(), told: self.told.clone(), others_may_be_busy: false, ..*self }
    }

    /// Whether some node lacks the memory of those who live there.
    pub(crate) fn is_away(&self, homes: &[CpuHome]) -> bool {
        self.ids().into_iter().any(|node| self.wanted(homes, node) > (self.available(node) / MIB).floor())
    }

    /// For the plan of a topology that was given.
    pub(crate) fn given(case: &'a Case, plan: &Plan) -> Self {
        Self { told: Some(plan.topology.distances.clone()), ..Self::new(case, plan) }
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

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.case.machine.nodes.iter().map(|node| node.id).collect()
    }

    /// Bytes that a node has to give.
    pub(crate) fn available(&self, node: NodeId) -> f64 {
        let held = self.case.occupancy.of(node);
        let (promised, resident) = (held.memory.0 as f64, held.resident.0 as f64);
        let node = self.case.machine.node(node).expect("a node");
        match node.free {
            Some(free) => (free.0 as f64 - (promised - resident).max(0.0)).max(0.0),
            None => (node.memory.0 as f64 - promised).max(0.0),
        }
    }

    fn extra(&self, from: NodeId, to: NodeId) -> f64 {
        let distance = |to: NodeId| f64::from(self.case.machine.distance(from, to));
        (distance(to) / distance(from) - 1.0).max(0.0)
    }

    /// The part of a client on each node of its home.
    fn parts(&self, home: &CpuHome) -> Vec<f64> {
        let all: f64 = home.iter().map(|&node| self.units(node)).sum();
        home.iter().map(|&node| self.units(node) / all).collect()
    }

    fn vcpus_on(&self, homes: &[CpuHome], node: NodeId) -> f64 {
        let on = |(home, client): (&CpuHome, &(f64, f64))| -> f64 {
            home.iter()
                .zip(self.parts(home))
                .filter(|(other, _)| **other == node)
                .map(|(_, part)| part * client.0)
                .sum()
        };
        homes.iter().zip(&self.clients).map(on).sum()
    }

    /// CPUs that vCPUs lose on a node: waiting for a thread 1, sharing a core 0.7; half as if
    /// others were busy, half as if they idled.
    fn lost_to_cpus(&self, homes: &[CpuHome], node: NodeId) -> f64 {
        let more = self.vcpus_on(homes, node);
        let lost = |held: f64| {
            let waiting = (held + more - self.threads(node)).clamp(0.0, more);
            let beyond = (held + more - self.cores(node)).clamp(0.0, more);
            if self.case.spec.policy.prefer_ht { waiting } else { waiting + 0.7 * (beyond - waiting) }
        };
        let others = if self.others_may_be_busy { f64::from(self.case.occupancy.of(node).vcpus) } else { 0.0 };
        (lost(others) + lost(0.0)) / 2.0
    }

    fn lost_to_siblings(&self, homes: &[CpuHome]) -> f64 {
        let mut sum = 0.0;
        for (one, home) in homes.iter().enumerate() {
            for (_, other) in homes.iter().enumerate().filter(|(other, _)| *other != one) {
                for (&from, of_one) in home.iter().zip(self.parts(home)) {
                    for (&to, of_other) in other.iter().zip(self.parts(other)) {
                        sum += self.clients[one].0 * of_one * of_other * self.extra(from, to);
                    }
                }
            }
        }
        0.3 * 0.2 * sum / (homes.len() as f64 - 1.0).max(1.0)
    }

    /// CPUs that wait for memory: what is drawn beyond what nodes give, a CPU for each 4 x 64 bytes
    /// in 90 ns; the growth of it by this VM, whose clients draw from their homes in equal parts.
    fn lost_to_bandwidth(&self, homes: &[CpuHome]) -> f64 {
        let cpu = 4.0 * 64.0 / 90e-9;
        let shape = &self.case.spec.shape;
        let all = match shape.policy.bandwidth {
            BandwidthNeed::Auto | BandwidthNeed::Low => 0.0,
            BandwidthNeed::High => f64::from(shape.vcpus) * cpu,
            BandwidthNeed::Stated(all) => all.0 as f64,
        };
        let lost = |node: NodeId| {
            let Some(given) = self.case.machine.bandwidth.of_memory(node) else { return 0.0 };
            let part = |(home, client): (&CpuHome, &(f64, f64))| {
                let own = all * client.0 / f64::from(shape.vcpus);
                if home.contains(&node) { own / home.len() as f64 } else { 0.0 }
            };
            let own: f64 = homes.iter().zip(&self.clients).map(part).sum();
            let held = self.case.occupancy.of(node).traffic.0 as f64;
            let beyond = |drawn: f64| (drawn - given.0 as f64).max(0.0);
            (beyond(held + own) - beyond(held)) / cpu
        };
        self.ids().into_iter().map(lost).sum()
    }

    /// What is charged for distances that were not told: 0.06 CPUs for each vCPU and each local
    /// distance that its client's home is nearer to, or farther from, another's than told.
    pub(crate) fn charged(&self, homes: &[CpuHome]) -> f64 {
        let Some(told) = &self.told else { return 0.0 };
        let mut sum = 0.0;
        for (one, home) in homes.iter().enumerate() {
            for (other, there) in homes.iter().enumerate().filter(|(_, there)| *there != home) {
                let mut real = 0.0;
                for (&from, of_one) in home.iter().zip(self.parts(home)) {
                    for (&to, of_other) in there.iter().zip(self.parts(there)) {
                        real += of_one * of_other * self.extra(from, to);
                    }
                }
                sum += self.clients[one].0 * (real - (f64::from(told[one][other]) / 10.0 - 1.0)).abs();
            }
        }
        0.3 * 0.2 * sum / (homes.len() as f64 - 1.0).max(1.0)
    }

    /// The least that is lost to remote memory.
    pub(crate) fn lost_to_memory(&self, homes: &[CpuHome]) -> f64 {
        let ids = self.ids();
        let own: Vec<f64> = ids.iter().map(|node| self.wanted(homes, *node)).collect();
        let room: Vec<f64> = ids.iter().map(|&node| (self.available(node) / MIB).floor()).collect();
        let rate = |client: usize, node: NodeId| {
            let parts = homes[client].iter().zip(self.parts(&homes[client]));
            parts.map(|(&from, part)| part * self.extra(from, node)).sum::<f64>() * self.clients[client].0 * 0.3
        };
        if own.iter().zip(&room).all(|(own, room)| own <= room) {
            let inner = |client: usize| {
                let home = &homes[client];
                home.iter().map(|&node| rate(client, node)).sum::<f64>() / home.len() as f64
            };
            return (0..homes.len()).map(inner).sum();
        }
        let size = |node: NodeId| self.case.machine.node(node).expect("a node").memory.0 as f64 / MIB;
        let kept = |index: usize| {
            let kept = ((self.available(ids[index]) / MIB) - size(ids[index]) / 32.0).max(0.0).floor();
            if own[index] <= room[index] { kept.max(own[index]) } else { kept }
        };
        let kept: Vec<f64> = (0..ids.len()).map(kept).collect();
        let needed: f64 = self.clients.iter().map(|client| client.1).sum();
        let room = if kept.iter().sum::<f64>() >= needed { kept } else { room };
        let cost: Vec<Vec<f64>> = (0..homes.len())
            .map(|client| ids.iter().map(|&node| rate(client, node) / self.clients[client].1).collect())
            .collect();
        let supply: Vec<f64> = self.clients.iter().map(|client| client.1).collect();
        least_transport(&supply, room, &cost)
    }

    fn wanted(&self, homes: &[CpuHome], node: NodeId) -> f64 {
        let on = |(home, client): (&CpuHome, &(f64, f64))| {
            if home.contains(&node) { client.1 / home.len() as f64 } else { 0.0 }
        };
        homes.iter().zip(&self.clients).map(on).sum()
    }

    pub(crate) fn cost(&self, homes: &[CpuHome]) -> Cost {
        let ids = self.ids();
        let stacked = ids.iter().map(|&node| (self.vcpus_on(homes, node) - self.threads(node)).max(0.0)).sum();
        let cpus: f64 = ids.iter().map(|&node| self.lost_to_cpus(homes, node)).sum();
        let (memory, siblings) = (self.lost_to_memory(homes), self.lost_to_siblings(homes) + self.charged(homes));
        let bandwidth = self.lost_to_bandwidth(homes);
        if self.case.spec.policy.placement == Spread::Together {
            return [stacked, cpus + memory + siblings, 0.0, bandwidth];
        }
        let cpus = cpus + bandwidth;
        if self.case.spec.policy.placement != Spread::Auto {
            let unused = |node: &&NodeId| self.threads(**node) > 0.0 && !homes.iter().any(|home| home.contains(node));
            return [stacked, cpus + memory, ids.iter().filter(unused).count() as f64, siblings];
        }
        [stacked, cpus + memory + siblings, 0.0, 0.0]
    }

    /// Whether `cost` is worse than `least` by more than rounding.
    pub(crate) fn worse(cost: &Cost, least: &Cost) -> bool {
        for (index, rounding) in ROUNDING.iter().enumerate() {
            if (cost[index] - least[index]).abs() > *rounding {
                return cost[index] > least[index];
            }
        }
        false
    }
}

const MIB: f64 = 1_048_576.0;

/// The least cost of a transport: cycles of negative cost are cancelled until there is none
/// (Bellman-Ford).
fn least_transport(supply: &[f64], room: Vec<f64>, cost: &[Vec<f64>]) -> f64 {
    let (sources, ends) = (supply.len(), room.len());
    let mut sent = vec![vec![0.0f64; ends]; sources];
    let mut left = room;
    for source in 0..sources {
        let mut waiting = supply[source];
        for end in 0..ends {
            let amount = waiting.min(left[end]);
            (sent[source][end], waiting, left[end]) = (amount, waiting - amount, left[end] - amount);
        }
    }
    // Sources, ends, and one place for all room that is left.
    let spare = sources + ends;
    loop {
        let mut ways = Vec::new();
        for end in 0..ends {
            for source in 0..sources {
                ways.push((source, sources + end, cost[source][end], f64::INFINITY));
                if sent[source][end] > 0.0 {
                    ways.push((sources + end, source, -cost[source][end], sent[source][end]));
                }
            }
            if left[end] > 0.0 {
                ways.push((sources + end, spare, 0.0, left[end]));
            }
            ways.push((spare, sources + end, 0.0, f64::INFINITY));
        }
        // What an end already took can be given back through the spare place.
        ways.retain(|way| way.0 != spare || sent.iter().map(|row| row[way.1 - sources]).sum::<f64>() > 0.0);
        let Some(cycle) = negative_cycle(spare + 1, &ways) else { break };
        let amount = cycle
            .iter()
            .map(|&way| match (ways[way].0, ways[way].1) {
                (from, to) if from == spare => sent.iter().map(|row| row[to - sources]).sum(),
                _ => ways[way].3,
            })
            .fold(f64::INFINITY, f64::min);
        for way in cycle {
            let (from, to, ..) = ways[way];
            match () {
                () if from == spare => left[to - sources] += amount,
                () if to == spare => left[from - sources] -= amount,
                () if from < sources => sent[from][to - sources] += amount,
                () => sent[to][from - sources] -= amount,
            }
        }
    }
    sent.iter().zip(cost).flat_map(|(row, cost)| row.iter().zip(cost)).map(|(sent, cost)| sent * cost).sum()
}

/// Indices of the ways of a cycle whose costs sum to less than nothing.
fn negative_cycle(places: usize, ways: &[(usize, usize, f64, f64)]) -> Option<Vec<usize>> {
    let mut distance = vec![0.0f64; places];
    let mut before = vec![usize::MAX; places];
    let mut last = None;
    for _ in 0..places {
        last = None;
        for (index, &(from, to, cost, _)) in ways.iter().enumerate() {
            if distance[from] + cost < distance[to] - 1e-12 {
                (distance[to], before[to], last) = (distance[from] + cost, index, Some(to));
            }
        }
    }
    let mut at = last?;
    for _ in 0..places {
        at = ways[before[at]].0;
    }
    let (start, mut cycle) = (at, Vec::new());
    loop {
        cycle.push(before[at]);
        at = ways[before[at]].0;
        if at == start {
            return Some(cycle);
        }
    }
}

/// The nodes where each client of a plan lives.
pub(crate) fn homes(case: &Case, plan: &Plan) -> Vec<CpuHome> {
    let home = |client: &vm::Client| {
        let lives = |node: &NodeId| !case.machine.usable_cpus(*node).intersection(&client.cpus).is_empty();
        client.home.iter().filter(lives).collect()
    };
    plan.placement.clients.iter().map(home).collect()
}
