//! A host in a few lines: VMs of constant demand, CPU time divided by shares node by node, memory
//! that moves when told to.
use scheduler::balance::{BalancePolicy, BalanceState, Decision, Explanation, record, step, why};
use scheduler::{
    Action, ActionError, ClientId, ClientObservation, Done, Exchange, GroupObservation, GuestMachine, Mobility, Moment,
    NodeObservation, Observation, Traffic, VcpuGroup, VmKey, VmObservation,
};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CoreId, CpuSet, Distances, LlcId, Machine, NodeId, NodeSet, read};
use vm::Stated;

#[derive(Clone, Debug)]
pub(crate) struct ToyClient {
    pub(crate) vcpus: u32,
    /// CPUs that it always wants.
    pub(crate) wants: f64,
    pub(crate) cpus: CpuSet,
    pub(crate) memory: BTreeMap<NodeId, Bytes>,
    pub(crate) size: Bytes,
    pub(crate) huge_page_size: Option<Bytes>,
    pub(crate) traffic: Option<Traffic>,
    /// vCPUs that keep to a cache, and the CPUs that they always want.
    pub(crate) groups: Vec<(VcpuGroup, f64)>,
    /// Nodes that somebody bound its memory to.
    pub(crate) chosen: Option<NodeSet>,
    /// Nodes over which somebody interleaved it.
    pub(crate) spread: NodeSet,
    /// Why nobody can say where its memory is.
    pub(crate) unknown: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct ToyVm {
    pub(crate) key: VmKey,
    pub(crate) clients: Vec<ToyClient>,
    pub(crate) mobility: Mobility,
    pub(crate) shares: u32,
    pub(crate) node_affinity: Option<NodeSet>,
    /// What its spec says.
    pub(crate) stated: Stated,
    /// Nodes of its devices.
    pub(crate) devices: NodeSet,
    /// Distances that the guest was told.
    pub(crate) told: Option<Vec<Vec<u32>>>,
}

/// What such a guest was told of its machine.
fn guest(told: &[Vec<u32>]) -> GuestMachine {
    let row = |row: &Vec<u32>| (0..).zip(row.iter().copied()).collect();
    GuestMachine { distances: (0..).zip(told.iter().map(row)).collect(), ..GuestMachine::default() }
}

#[derive(Clone, Debug)]
pub(crate) struct Toy {
    pub(crate) machine: Machine,
    pub(crate) policy: BalancePolicy,
    pub(crate) state: BalanceState,
    pub(crate) at: u64,
    pub(crate) vms: Vec<ToyVm>,
    pub(crate) offline: CpuSet,
    pub(crate) pressure: Option<f64>,
    pub(crate) figures: bool,
    /// Bytes a second that VMs exchange, by name.
    pub(crate) exchanges: Vec<(&'static str, &'static str, f64)>,
    /// What each step did, with its time.
    pub(crate) log: Vec<(u64, Decision)>,
}

impl Toy {
    pub(crate) fn new(machine: &str) -> Self {
        Self {
            machine: read::from_synthetic(machine).expect("a machine"),
            policy: BalancePolicy::default(),
            state: BalanceState::default(),
            at: 1_000_000,
            vms: Vec::new(),
            offline: CpuSet::new(),
            pressure: Some(0.0),
            figures: true,
            exchanges: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn cpus(&self, node: u32) -> CpuSet {
        self.machine.usable_cpus(NodeId(node)).difference(&self.offline)
    }

    pub(crate) fn all_cpus(&self) -> CpuSet {
        self.machine.usable_threads().map(|thread| thread.id).collect::<CpuSet>().difference(&self.offline)
    }

    /// A VM with one client: vCPUs, demand, the node that it is bound to (`None`: it floats),
    /// memory in MiB by node.
    pub(crate) fn vm(
        &mut self,
        name: &str,
        vcpus: u32,
        wants: f64,
        bound: Option<u32>,
        memory: &[(u32, u64)],
    ) -> &mut ToyVm {
        let cpus = bound.map_or_else(|| self.all_cpus(), |node| self.cpus(node));
        let memory: BTreeMap<NodeId, Bytes> =
            memory.iter().map(|&(node, mib)| (NodeId(node), Bytes::from_mib(mib))).collect();
        let size = memory.values().copied().sum();
        let client = ToyClient {
            vcpus,
            wants,
            cpus,
            memory,
            size,
            huge_page_size: None,
            traffic: None,
            groups: Vec::new(),
            chosen: None,
            spread: NodeSet::new(),
            unknown: None,
        };
        let key = VmKey { name: name.to_owned(), pid: 100 + self.vms.len() as u32, started: 1 };
        let mobility = Mobility::Movable;
        let devices = NodeSet::new();
        let vm = ToyVm {
            key,
            clients: vec![client],
            mobility,
            shares: 1024,
            node_affinity: None,
            stated: Stated::default(),
            devices,
            told: None,
        };
        self.vms.push(vm);
        self.vms.last_mut().expect("just added")
    }

    /// A VM of one client whose vCPUs keep to caches: the CPUs of each group, how many vCPUs it
    /// has, and what it wants. Its memory is on the node of the first.
    pub(crate) fn divided(&mut self, name: &str, groups: &[(&str, u32, f64)], mib: u64) -> &mut ToyVm {
        let sets: Vec<CpuSet> = groups.iter().map(|(cpus, ..)| cpus.parse().expect("CPUs")).collect();
        let node = self.machine.thread(sets[0].first().expect("a CPU")).expect("a CPU of the machine").node;
        let vcpus = groups.iter().map(|(_, vcpus, _)| vcpus).sum();
        let wants = groups.iter().map(|(.., wants)| wants).sum();
        let vm = self.vm(name, vcpus, wants, Some(node.0), &[(node.0, mib)]);
        let client = &mut vm.clients[0];
        client.cpus = sets.iter().fold(CpuSet::new(), |all, set| all.union(set));
        let mut first = 0;
        for (cpus, &(_, vcpus, wants)) in sets.into_iter().zip(groups) {
            client.groups.push((VcpuGroup { vcpus: (first..first + vcpus).collect(), cpus }, wants));
            first += vcpus;
        }
        vm
    }

    /// CPUs that groups want under each cache of a node, in percent of its cores.
    pub(crate) fn cache_loads(&self, node: u32) -> Vec<f64> {
        let mut caches: BTreeMap<LlcId, (BTreeSet<CoreId>, f64)> = BTreeMap::new();
        for thread in self.machine.usable_threads().filter(|thread| thread.node == NodeId(node)) {
            caches.entry(thread.llc.expect("a cache")).or_default().0.insert(thread.core);
        }
        for (group, wants) in self.vms.iter().flat_map(|vm| &vm.clients).flat_map(|client| &client.groups) {
            let thread = self.machine.thread(group.cpus.first().expect("a CPU")).expect("a CPU of the machine");
            if thread.node == NodeId(node) {
                caches.get_mut(&thread.llc.expect("a cache")).expect("of the node").1 += wants;
            }
        }
        caches.into_values().map(|(cores, wants)| 100.0 * wants / cores.len() as f64).collect()
    }

    pub(crate) fn nodes_of(&self, cpus: &CpuSet) -> Vec<(NodeId, usize)> {
        let mut counts: Vec<(NodeId, usize)> = Vec::new();
        for cpu in cpus.iter().filter(|cpu| !self.offline.contains(*cpu)) {
            let node = self.machine.threads[cpu.0 as usize].node;
            match counts.last_mut() {
                Some((last, count)) if *last == node => *count += 1,
                _ => counts.push((node, 1)),
            }
        }
        counts
    }

    /// CPUs that each client gets: on each node by shares, what one does not want goes to the
    /// others.
    pub(crate) fn used(&self) -> Vec<Vec<f64>> {
        let homes: Vec<Vec<Vec<(NodeId, usize)>>> =
            self.vms.iter().map(|vm| vm.clients.iter().map(|client| self.nodes_of(&client.cpus)).collect()).collect();
        let mut used: Vec<Vec<f64>> = self.vms.iter().map(|vm| vec![0.0; vm.clients.len()]).collect();
        for node in self.machine.node_ids().iter() {
            let mut here = Vec::new();
            for (v, vm) in self.vms.iter().enumerate() {
                let all: f64 = vm.clients.iter().map(|client| f64::from(client.vcpus)).sum();
                for (c, client) in vm.clients.iter().enumerate() {
                    let nodes = &homes[v][c];
                    let total: usize = nodes.iter().map(|(_, count)| count).sum();
                    let Some((_, count)) = nodes.iter().find(|(id, _)| *id == node) else { continue };
                    let part = *count as f64 / total as f64;
                    let weight = f64::from(vm.shares) * f64::from(client.vcpus) / all * part;
                    here.push((client.wants * part / weight, client.wants * part, weight, v, c));
                }
            }
            here.sort_by(|one, other| one.0.total_cmp(&other.0));
            let mut left = self.cpus(node.0).len() as f64;
            let mut weights: f64 = here.iter().map(|entry| entry.2).sum();
            for (_, wants, weight, v, c) in here {
                let gets = wants.min(left * weight / weights);
                used[v][c] += gets;
                (left, weights) = (left - gets, weights - weight);
            }
        }
        used
    }

    pub(crate) fn free(&self, node: NodeId) -> Bytes {
        let held = self.vms.iter().flat_map(|vm| &vm.clients).filter_map(|client| client.memory.get(&node)).copied();
        self.machine.node(node).expect("a node").memory.saturating_sub(held.sum())
    }

    pub(crate) fn observe(&self) -> Observation {
        let used = self.used();
        let seen = |(v, vm): (usize, &ToyVm)| VmObservation {
            vm: vm.key.clone(),
            clients: vm
                .clients
                .iter()
                .enumerate()
                .map(|(c, client)| ClientObservation {
                    id: ClientId(c as u32),
                    virtual_node: (vm.clients.len() > 1).then_some(c as u32),
                    vcpus: client.vcpus,
                    cpus: client.cpus.clone(),
                    cpu_used: self.figures.then_some(used[v][c]),
                    cpu_waited: self.figures.then_some(client.wants - used[v][c]),
                    memory: client.unknown.is_none().then(|| client.memory.clone()),
                    memory_unknown_because: client.unknown.clone(),
                    chosen_nodes: client.chosen.clone(),
                    spread_nodes: client.spread.clone(),
                    memory_size: client.size,
                    huge_page_size: client.huge_page_size,
                    traffic: client.traffic,
                    groups: client.groups.iter().map(|group| self.group(group, used[v][c] / client.wants)).collect(),
                    ..ClientObservation::default()
                })
                .collect(),
            mobility: vm.mobility.clone(),
            shares: vm.shares,
            node_affinity: vm.node_affinity.clone(),
            device_nodes: vm.devices.clone(),
            guest: vm.told.as_deref().map(guest),
            ..VmObservation::of_clients(vm.key.clone(), Vec::new())
        };
        let vm = |(v, vm): (usize, &ToyVm)| {
            let mut seen = seen((v, vm));
            seen.takes_over(&vm.stated);
            seen
        };
        let node = |id: NodeId| {
            let huge = BTreeMap::from([(2 << 20, Bytes(0))]);
            let seen = NodeObservation {
                cpus: self.cpus(id.0),
                cpu_used: None,
                memory_free: Some(self.free(id)),
                huge_pages_free: huge,
            };
            (id, seen)
        };
        Observation {
            at: Moment(self.at),
            nodes: self.machine.node_ids().iter().map(node).collect(),
            vms: self.vms.iter().enumerate().map(vm).collect(),
            memory_pressure: self.pressure,
            exchanges: self.exchanges.iter().map(|&(one, other, bytes)| self.exchange(one, other, bytes)).collect(),
            ..Observation::default()
        }
    }

    fn exchange(&self, one: &str, other: &str, bytes_per_second: f64) -> Exchange {
        let key = |name: &str| self.vms.iter().find(|vm| vm.key.name == name).expect("a VM").key.clone();
        Exchange { one: key(one), other: key(other), bytes_per_second }
    }

    /// A group that gets this part of what it wants.
    fn group(&self, (group, wants): &(VcpuGroup, f64), part: f64) -> GroupObservation {
        let part = if part.is_finite() { part } else { 1.0 };
        GroupObservation {
            group: group.clone(),
            cpu_used: self.figures.then_some(wants * part),
            cpu_waited: self.figures.then_some(wants * (1.0 - part)),
        }
    }

    /// Distances between the nodes.
    pub(crate) fn distances<const N: usize>(&mut self, rows: &[[u32; N]; N]) {
        self.distance_rows(rows.iter().map(|row| row.to_vec()).collect());
    }

    pub(crate) fn distance_rows(&mut self, rows: Vec<Vec<u32>>) {
        let nodes = self.machine.node_ids().iter().collect();
        self.machine.distances = Distances::new(nodes, rows).expect("square");
    }

    /// The balancer starts with nothing remembered.
    pub(crate) fn forget(&mut self) {
        self.state = BalanceState::default();
    }

    pub(crate) fn why(&self, name: &str) -> Explanation {
        let key = &self.vms.iter().find(|vm| vm.key.name == name).expect("a VM").key;
        why(&self.machine, &self.policy, &self.state, &self.observe(), key).expect("the VM is there")
    }

    /// One step on an observation of the test's own.
    pub(crate) fn step_on(&mut self, observation: &Observation) -> Vec<Decision> {
        step(&self.machine, &self.policy, &mut self.state, observation)
    }

    /// One step without carrying anything out.
    pub(crate) fn decide(&mut self) -> Vec<Decision> {
        let observation = self.observe();
        step(&self.machine, &self.policy, &mut self.state, &observation)
    }

    /// One period: look, decide, act.
    pub(crate) fn period(&mut self) -> Vec<Decision> {
        let decisions = self.decide();
        for decision in &decisions {
            let outcome = self.carry_out(&decision.action);
            record(&self.policy, &mut self.state, decision, &outcome);
            self.log.push((self.at, decision.clone()));
        }
        self.at += self.policy.period_ms;
        decisions
    }

    pub(crate) fn periods(&mut self, count: usize) -> Vec<Decision> {
        (0..count).flat_map(|_| self.period()).collect()
    }

    pub(crate) fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        let room = match action {
            Action::MoveMemory { to, .. } => self.free(*to),
            Action::Bind { .. } => Bytes(0),
        };
        let index = action.client().0 as usize;
        let gone = || ActionError::Gone { vm: action.vm().name.clone() };
        let vm = self.vms.iter_mut().find(|vm| vm.key == *action.vm()).ok_or_else(gone)?;
        let client = &mut vm.clients[index];
        match action {
            Action::Bind { cpus, groups, .. } => {
                client.cpus = match &groups[..] {
                    [] => cpus.clone(),
                    groups => groups.iter().fold(CpuSet::new(), |all, group| all.union(&group.cpus)),
                };
                let wants = |group: &VcpuGroup| {
                    let known = client.groups.iter().find(|(known, _)| known.vcpus == group.vcpus);
                    known.map_or(0.0, |(_, wants)| *wants)
                };
                client.groups = groups.iter().map(|group| (group.clone(), wants(group))).collect();
                Ok(Done::default())
            }
            Action::MoveMemory { from, to, at_most, .. } => {
                let here = client.memory.get(from).copied().unwrap_or_default();
                let moved = here.min(*at_most).min(room);
                client.memory.insert(*from, here.saturating_sub(moved));
                let there = client.memory.entry(*to).or_default();
                *there = there.saturating_add(moved);
                let left = here.min(*at_most).saturating_sub(moved);
                let because = (left.0 > 0).then(|| "the node is full".to_owned());
                Ok(Done { moved, left, because })
            }
        }
    }

    /// Load of each node in CPUs that clients want there.
    pub(crate) fn wanted(&self, node: u32) -> f64 {
        let part = |client: &ToyClient| {
            let nodes = self.nodes_of(&client.cpus);
            let all: usize = nodes.iter().map(|(_, count)| count).sum();
            let here = nodes.iter().find(|(id, _)| id.0 == node).map_or(0, |(_, count)| *count);
            client.wants * here as f64 / all.max(1) as f64
        };
        self.vms.iter().flat_map(|vm| &vm.clients).map(part).sum()
    }
}

/// `VM name -> nodes` of a bind.
pub(crate) fn bind(decision: &Decision) -> Option<(String, String)> {
    match &decision.action {
        Action::Bind { vm, home, .. } => Some((vm.name.clone(), home.to_string())),
        Action::MoveMemory { .. } => None,
    }
}

/// Binds of these decisions: `VM name -> nodes`.
pub(crate) fn binds(decisions: &[Decision]) -> Vec<(String, String)> {
    decisions.iter().filter_map(bind).collect()
}
