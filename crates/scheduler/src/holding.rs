//! What running VMs hold of a machine, node by node: the one rule, whoever tells of the VMs, for
//! placement, `top` and balancing.
//!
//! **Problem.** A VM that runs was promised vCPUs and memory, part of which it uses now. Who places
//! another VM must know both.
//!
//! **Rule.** A vCPU counts on the node of its CPUs; one that may use several nodes counts on each
//! in turn. Memory that is resident counts where it is; what is promised and not resident is
//! expected where it is bound to, or else where the vCPUs are.
//!
//! **Properties.** Each vCPU counts once. Nothing that is promised is lost but the rounding of a
//! division.
//!
//! **Example.** A client of two vCPUs on node 1 that may have 4 GiB and has 1 GiB on node 0,
//! unbound: 2 vCPUs and 3 GiB of node 1, 1 GiB of node 0.

use crate::balance::BalancePolicy;
use crate::{ClientObservation, Observation, Occupancy, VmObservation, caches, claims};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, BytesPerSecond, CpuId, CpuSet, LlcId, Machine, NodeId};
use vm::NodeUse;

/// A client that runs, as far as it takes something away from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// CPUs that each vCPU may use.
    pub vcpus: Vec<CpuSet>,
    /// Whether the vCPUs count as busy whatever they do.
    pub always_busy: bool,
    /// Memory that it may come to have.
    pub memory: Bytes,
    /// Nodes that its memory is bound to, each with its weight; empty: memory comes to where the
    /// vCPUs are.
    pub memory_weights: BTreeMap<NodeId, u64>,
    /// What it has now.
    pub resident: Resident,
}

/// Resident memory of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resident {
    /// Known node by node.
    ByNode(BTreeMap<NodeId, Bytes>),
    /// Known as a whole: taken to be where the VM's memory comes to.
    Whole(Bytes),
}

impl Occupancy {
    /// What the VMs of a host hold, those that are being started too: the ledger that placement
    /// starts from.
    pub fn of_observation(observation: &Observation, machine: &Machine) -> Self {
        let mut occupancy = Self::of_vms(&observation.vms, machine);
        occupancy.hold(&observation.reserved);
        occupancy
    }

    /// What these VMs hold.
    pub fn of_vms<'a>(vms: impl IntoIterator<Item = &'a VmObservation>, machine: &Machine) -> Self {
        let (strangers, known): (Vec<&VmObservation>, Vec<_>) = vms.into_iter().partition(|vm| vm.stranger);
        let mut occupancy = Self::of_running(holdings(&known, machine), machine);
        let clients = known.iter().flat_map(|vm| &vm.clients);
        let narrow = clients.filter(|client| client.cpus.len() <= client.vcpus as usize);
        occupancy.bound_cpus = narrow.fold(CpuSet::new(), |bound, client| bound.union(&client.cpus));
        occupancy.hold_strangers(&strangers, machine);
        known.iter().for_each(|vm| occupancy.hold_traffic(vm));
        occupancy
    }

    /// Adds what a VM draws from memory, as stated or else measured, where its memory lies.
    fn hold_traffic(&mut self, vm: &VmObservation) {
        let each = BalancePolicy::default().waiting_cpu_draws();
        let all: f64 = vm.clients.iter().map(|client| f64::from(client.vcpus)).sum::<f64>().max(1.0);
        let stated = vm.bandwidth.of(all, each);
        for client in &vm.clients {
            let measured = || client.all_traffic().filter(|sum| sum.is_finite());
            let drawn = stated.map(|sum| sum * f64::from(client.vcpus) / all).or_else(measured);
            let resident: u64 = client.memory.iter().flatten().map(|(_, bytes)| bytes.0).sum();
            let Some(drawn) = drawn.filter(|drawn| *drawn > 0.0 && resident > 0) else { continue };
            for (&node, bytes) in client.memory.iter().flatten() {
                let held = self.nodes.entry(node).or_default();
                let part = drawn * bytes.0 as f64 / resident as f64;
                held.traffic = held.traffic.saturating_add(BytesPerSecond(part as u64));
            }
        }
    }

    /// Adds the memory that a balancer is going to bring home: a client whose vCPUs may use one
    /// node only has no other home, and what it has elsewhere will be taken there.
    pub fn expect_home(&mut self, observation: &Observation, machine: &Machine) {
        for (vm, client) in observation.vms.iter().flat_map(|vm| vm.clients.iter().map(move |client| (vm, client))) {
            let mut nodes = client.cpus.iter().filter_map(|cpu| machine.thread(cpu)).map(|thread| thread.node);
            let Some(home) = nodes.next() else { continue };
            if nodes.any(|node| node != home) {
                continue;
            }
            let away: Bytes =
                client.memory.iter().flatten().filter(|(node, _)| **node != home).map(|(_, bytes)| *bytes).sum();
            if vm.stranger {
                self.claim(vm.owner_uid, home, away);
            } else {
                let held = self.nodes.entry(home).or_default();
                held.memory = held.memory.saturating_add(away);
            }
        }
    }

    /// As [`of_observation`](Self::of_observation), from what each client holds.
    pub fn of_running(vms: impl IntoIterator<Item = Holding>, machine: &Machine) -> Self {
        let node_of: BTreeMap<CpuId, NodeId> = machine.threads.iter().map(|thread| (thread.id, thread.node)).collect();
        let llc_of = caches::smaller_than_nodes(machine);
        let mut occupancy = Self::default();
        let mut turn = 0;
        for vm in vms {
            let mut vcpus_on = BTreeMap::<NodeId, u64>::new();
            for vcpu in &vm.vcpus {
                if let Some(llc) = one_cache(vcpu, &llc_of) {
                    *occupancy.caches.entry(llc).or_default() += 1;
                }
                let candidates = nodes_of(vcpu, &node_of);
                if candidates.is_empty() {
                    continue;
                }
                *vcpus_on.entry(candidates[turn % candidates.len()]).or_default() += 1;
                turn += usize::from(candidates.len() > 1);
            }
            for (&node, &vcpus) in &vcpus_on {
                let held = occupancy.nodes.entry(node).or_default();
                held.vcpus += vcpus as u32;
                held.always_busy += if vm.always_busy { vcpus as u32 } else { 0 };
            }
            occupancy.hold_memory(&vm, if vm.memory_weights.is_empty() { &vcpus_on } else { &vm.memory_weights });
        }
        occupancy
    }

    fn hold_memory(&mut self, vm: &Holding, weights: &BTreeMap<NodeId, u64>) {
        let (by_node, whole) = match &vm.resident {
            Resident::ByNode(by_node) => (Some(by_node), by_node.values().copied().sum()),
            Resident::Whole(whole) => (None, *whole),
        };
        for (node, absent) in divided(vm.memory.saturating_sub(whole), weights) {
            let held = self.nodes.entry(node).or_default();
            held.memory = held.memory.saturating_add(absent);
        }
        let resident = by_node.cloned().unwrap_or_else(|| divided(whole, weights));
        for (node, bytes) in resident {
            let held: &mut NodeUse = self.nodes.entry(node).or_default();
            held.memory = held.memory.saturating_add(bytes);
            held.resident = held.resident.saturating_add(bytes);
        }
    }
}

impl Holding {
    /// What a client of a VM holds, as far as the VM's word counts. Memory of which nobody says how
    /// much is resident is all taken to be, so that it is not missing twice from what is free.
    pub fn of(vm: &VmObservation, client: &ClientObservation, machine: &Machine) -> Self {
        let count = claims::vcpus(vm, client, machine.threads.len()) as usize;
        let vcpus = if client.vcpu_cpus.len() == client.vcpus as usize {
            client.vcpu_cpus.values().take(count).cloned().collect()
        } else if client.groups.is_empty() {
            vec![client.cpus.clone(); count]
        } else {
            let groups = client.groups.iter().map(|seen| &seen.group);
            let each = groups.flat_map(|group| std::iter::repeat_n(group.cpus.clone(), group.vcpus.len()));
            each.take(count).collect()
        };
        let memory = claims::memory(vm, client, machine);
        let resident = match &client.memory {
            Some(by_node) => Resident::ByNode(by_node.clone()),
            None => Resident::Whole(client.resident.unwrap_or(memory).min(memory)),
        };
        Self { vcpus, always_busy: vm.counts_full(), memory, memory_weights: weights(client), resident }
    }
}

/// What each client of these VMs holds.
pub(crate) fn holdings<'a>(vms: &'a [&VmObservation], machine: &'a Machine) -> impl Iterator<Item = Holding> + 'a {
    vms.iter().flat_map(|vm| vm.clients.iter().map(|client| Holding::of(vm, client, machine)))
}

/// Where a client's memory is bound to: bytes by node; empty where nothing is bound.
fn weights(client: &ClientObservation) -> BTreeMap<NodeId, u64> {
    let mut weights = BTreeMap::<NodeId, u64>::new();
    for policy in client.policies.iter().flatten() {
        let Some(nodes) = policy.nodes.as_ref().filter(|nodes| !nodes.is_empty()) else { continue };
        let size = policy.resident.values().copied().sum::<Bytes>().saturating_add(policy.absent);
        for node in nodes.iter() {
            let weight = weights.entry(node).or_default();
            *weight = weight.saturating_add(size.0 / nodes.len() as u64);
        }
    }
    if weights.is_empty() {
        weights.extend(client.kept_nodes().iter().flat_map(|nodes| nodes.iter()).map(|node| (node, 1)));
    }
    weights
}

/// An amount in parts of these weights, rounded down.
fn divided(amount: Bytes, weights: &BTreeMap<NodeId, u64>) -> BTreeMap<NodeId, Bytes> {
    let total: u128 = weights.values().map(|&weight| u128::from(weight)).sum();
    let part = |weight: u64| Bytes((u128::from(amount.0) * u128::from(weight) / total.max(1)) as u64);
    weights.iter().map(|(&node, &weight)| (node, part(weight))).collect()
}

/// The cache of all CPUs of a set, where it is one.
fn one_cache(cpus: &CpuSet, llc_of: &BTreeMap<CpuId, LlcId>) -> Option<LlcId> {
    let mut caches = cpus.iter().map(|cpu| llc_of.get(&cpu).copied());
    let first = caches.next()??;
    caches.all(|llc| llc == Some(first)).then_some(first)
}

/// Nodes of the CPUs of a set, rising.
fn nodes_of(cpus: &CpuSet, node_of: &BTreeMap<CpuId, NodeId>) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = cpus.iter().filter_map(|cpu| node_of.get(&cpu).copied()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of two CPUs: node 0 has CPUs 0-1, node 1 has CPUs 2-3.
    fn machine() -> Machine {
        topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:2 pu:1").expect("a machine")
    }

    fn holding(vcpus: &[&str], weights: &[(u32, u64)], resident: Resident) -> Holding {
        Holding {
            vcpus: vcpus.iter().map(|cpus| cpus.parse().expect("CPUs")).collect(),
            always_busy: false,
            memory: Bytes(1000),
            memory_weights: weights.iter().map(|&(node, weight)| (NodeId(node), weight)).collect(),
            resident,
        }
    }

    #[test]
    fn memory_that_is_bound_counts_there_and_not_where_the_vcpus_are() {
        let vm = holding(&["0-1", "0-1"], &[(0, 1), (1, 3)], Resident::Whole(Bytes(400)));
        let used = Occupancy::of_running([vm], &machine());
        // 1000 and 400 in parts of 1 and 3.
        assert_eq!(
            used.of(NodeId(0)),
            NodeUse { vcpus: 2, memory: Bytes(250), resident: Bytes(100), ..NodeUse::default() }
        );
        assert_eq!(
            used.of(NodeId(1)),
            NodeUse { vcpus: 0, memory: Bytes(750), resident: Bytes(300), ..NodeUse::default() }
        );
    }

    #[test]
    fn memory_that_floats_counts_where_the_vcpus_are() {
        let vm = holding(&["2-3", "0-3", "0-3"], &[], Resident::Whole(Bytes(600)));
        let used = Occupancy::of_running([vm], &machine());
        // vCPU 0 on node 1, the others in turn on 0 and 1: a third and two thirds.
        assert_eq!(
            used.of(NodeId(0)),
            NodeUse { vcpus: 1, memory: Bytes(133 + 200), resident: Bytes(200), ..NodeUse::default() }
        );
        assert_eq!(
            used.of(NodeId(1)),
            NodeUse { vcpus: 2, memory: Bytes(266 + 400), resident: Bytes(400), ..NodeUse::default() }
        );
    }

    fn client(cpus: &[&str], memory_mib: u64, resident_mib: &[(u32, u64)]) -> ClientObservation {
        let vcpu_cpus: BTreeMap<u32, CpuSet> =
            (0..).zip(cpus).map(|(vcpu, cpus)| (vcpu, cpus.parse().expect("CPUs"))).collect();
        ClientObservation {
            vcpus: cpus.len() as u32,
            cpus: vcpu_cpus.values().fold(CpuSet::new(), |all, cpus| all.union(cpus)),
            vcpu_cpus,
            memory_size: Bytes::from_mib(memory_mib),
            memory: Some(resident_mib.iter().map(|&(node, mib)| (NodeId(node), Bytes::from_mib(mib))).collect()),
            ..ClientObservation::default()
        }
    }

    fn observation(clients: Vec<ClientObservation>) -> Observation {
        let vm = crate::VmObservation::of_clients(crate::VmKey::default(), clients);
        Observation { vms: vec![vm], ..Observation::default() }
    }

    #[test]
    fn a_client_that_floats_counts_on_every_node() {
        let all = observation(vec![client(&["0-3", "0-3", "0-3", "0-3"], 1000, &[(0, 200)])]);
        let used = Occupancy::of_observation(&all, &machine());
        // 4 vCPUs in turn on 2 nodes: 2 each. 1000 - 200 = 800 MiB are promised, half of it (400)
        // on each node.
        let mib = Bytes::from_mib;
        assert_eq!(
            used.of(NodeId(0)),
            NodeUse { vcpus: 2, memory: mib(600), resident: mib(200), ..NodeUse::default() }
        );
        assert_eq!(used.of(NodeId(1)), NodeUse { vcpus: 2, memory: mib(400), resident: mib(0), ..NodeUse::default() });
    }

    #[test]
    fn memory_that_a_balancer_brings_home_is_expected_there_client_by_client() {
        // The first client lives on node 1 and has 300 of its 1024 MiB on node 0; the second
        // floats.
        let clients = vec![client(&["2-3", "2-3"], 1024, &[(0, 300), (1, 724)]), client(&["0-3"], 100, &[(0, 100)])];
        let all = observation(clients);
        let mut used = Occupancy::of_observation(&all, &machine());
        let before = used.clone();
        used.expect_home(&all, &machine());
        assert_eq!(used.of(NodeId(0)), before.of(NodeId(0)));
        assert_eq!(used.of(NodeId(1)).memory, before.of(NodeId(1)).memory.saturating_add(Bytes::from_mib(300)));
        assert_eq!(used.of(NodeId(1)).resident, before.of(NodeId(1)).resident);
    }

    #[test]
    fn starts_count_and_unknown_memory_is_not_missing_twice() {
        let unknown = ClientObservation { memory: None, ..client(&["0-1"], 64, &[]) };
        let starting = NodeUse { vcpus: 3, memory: Bytes::from_mib(5), resident: Bytes(0), ..NodeUse::default() };
        let reserved = BTreeMap::from([(NodeId(1), starting)]);
        let all = Observation { reserved, ..observation(vec![unknown]) };
        let used = Occupancy::of_observation(&all, &machine());
        let whole = Bytes::from_mib(64);
        assert_eq!(used.of(NodeId(0)), NodeUse { vcpus: 1, memory: whole, resident: whole, ..NodeUse::default() });
        assert_eq!(used.of(NodeId(1)), starting);
    }

    #[test]
    fn vms_that_float_take_their_turns_together() {
        let one = || holding(&["0-3"], &[], Resident::ByNode(BTreeMap::new()));
        let used = Occupancy::of_running([one(), one(), one()], &machine());
        assert_eq!((used.of(NodeId(0)).vcpus, used.of(NodeId(1)).vcpus), (2, 1));
    }
}
