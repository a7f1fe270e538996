//! A VM on a machine, with what every rule asks for computed once.

use crate::finding::Cost;
use crate::pinned::{Keeps, Pinned};
use crate::shaped::{Binding, Part, Running, ShapedNode, ShapedVm, Spot};
use crate::target::{NoTarget, Target};
use scheduler::{Observation, Occupancy, home};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CoreId, CpuId, CpuSet, Distances, IdSet, LlcId, Machine, NodeId, NodeSet, Schedulable};

/// A VM on a machine.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) machine: &'a Machine,
    /// The machine as the VM uses it: one whose vCPUs are bound one by one may be on isolated CPUs.
    pub(crate) own: Cow<'a, Machine>,
    pub(crate) vm: &'a ShapedVm,
    /// Every CPU of the machine that something can be bound to.
    pub(crate) all: CpuSet,
    /// The same, by what the kernel does with them.
    pub(crate) cpus: Schedulable,
    /// Nodes with usable CPUs.
    pub(crate) cpu_nodes: NodeSet,
    /// Its virtual nodes, in their order.
    pub(crate) views: Vec<NodeView<'a>>,
    /// What would be right; or why that cannot be said.
    pub(crate) target: Result<Target, NoTarget>,
    /// Pins that stay pins; `None`: vCPUs are not bound one by one.
    pub(crate) pinned: Option<Pinned>,
    /// What others hold of the machine.
    pub(crate) others: Occupancy,
    /// The host of a VM that runs.
    pub(crate) host: Option<&'a Observation>,
}

/// A virtual node on the machine.
#[derive(Clone, Debug)]
pub(crate) struct NodeView<'a> {
    pub(crate) node: &'a ShapedNode,
    /// Usable CPUs that its vCPUs may run on.
    pub(crate) cpus: CpuSet,
    /// Nodes of those.
    pub(crate) runs_on: NodeSet,
    /// Whether each of its vCPUs is bound to some CPUs.
    pub(crate) bound: bool,
    /// Nodes that its memory lies on, where some is resident and known; else those that it is bound
    /// to.
    memory: Option<NodeSet>,
    /// Whether somebody interleaved its memory over several nodes.
    spread: bool,
}

impl<'a> NodeView<'a> {
    pub(crate) fn all(machine: &Machine, vm: &'a ShapedVm) -> Vec<Self> {
        let all = machine.schedulable();
        let view = |node: &'a ShapedNode| {
            // What runs decides: vCPUs that are plugged in later count where none is there.
            let there = node.vcpus.difference(&vm.absent);
            let vcpus = if there.is_empty() { &node.vcpus } else { &there };
            // Thousands of vCPUs have the same few sets.
            let pin = |vcpu: CpuId| vm.pins.get(&vcpu.0).unwrap_or(&all.balanced);
            let each: BTreeSet<&CpuSet> = vcpus.iter().map(pin).collect();
            let cpus = each.into_iter().flat_map(|set| all.used(set).iter().collect::<Vec<_>>()).collect();
            // What may use the whole machine is not bound, whatever is written.
            let narrow = |vcpu: CpuId| vm.pins.get(&vcpu.0).is_some_and(|pin| !all.floats(pin));
            let bound = !vcpus.is_empty() && vcpus.iter().all(narrow);
            let resident = node.resident.as_ref().map(home::nodes_of_memory).filter(|nodes| !nodes.is_empty());
            let memory = resident.or_else(|| node.binding.as_ref().map(|binding| binding.nodes.clone()));
            // Of a VM that runs its host says whose choice it was.
            let interleaved = |binding: &Binding| binding.mode == "interleave" && binding.nodes.len() > 1;
            let spread = (vm.running.is_none() || node.spread) && node.binding.as_ref().is_some_and(interleaved);
            NodeView { node, runs_on: home::nodes_of(machine, &cpus), cpus, bound, memory, spread }
        };
        vm.nodes.iter().map(view).collect()
    }

    /// Nodes that its memory lies on, or will.
    pub(crate) fn memory_nodes(&self) -> Option<&NodeSet> {
        self.memory.as_ref()
    }

    /// The nodes over which somebody interleaved its memory; `None` where nobody did.
    pub(crate) fn spread_over(&self) -> Option<&NodeSet> {
        self.bound_nodes().filter(|_| self.spread)
    }

    /// Nodes that its memory is bound to.
    pub(crate) fn bound_nodes(&self) -> Option<&NodeSet> {
        self.node.binding.as_ref().map(|binding| &binding.nodes)
    }

    /// `virtual node 1`, or `the VM`.
    pub(crate) fn called(&self, vm: &ShapedVm) -> String {
        if vm.vnuma { format!("virtual node {}", self.node.id) } else { "the VM".to_owned() }
    }
}

fn threads_of<'a>(machine: &'a Machine, cpus: &'a CpuSet) -> impl Iterator<Item = &'a topology::HardwareThread> {
    machine.threads.iter().filter(|thread| cpus.contains(thread.id))
}

/// `node 1`, `nodes 0-1`.
pub(crate) fn named(nodes: &NodeSet) -> String {
    topology::words::named("node", nodes)
}

impl Scene<'_> {
    /// What is known only of a VM that runs.
    pub(crate) fn running(&self) -> Option<&Running> {
        self.vm.running.as_ref()
    }

    /// Nodes of CPUs.
    pub(crate) fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        home::nodes_of(self.machine, cpus)
    }

    /// Cores of CPUs.
    pub(crate) fn cores_of(&self, cpus: &CpuSet) -> IdSet<CoreId> {
        threads_of(self.machine, cpus).map(|thread| thread.core).collect()
    }

    /// Whether a CPU is on one of these nodes.
    pub(crate) fn is_on(&self, cpu: CpuId, nodes: &NodeSet) -> bool {
        self.machine.thread(cpu).is_some_and(|thread| nodes.contains(thread.node))
    }

    /// CPUs whose cores have none of `taken`.
    pub(crate) fn off_cores(&self, cpus: &CpuSet, taken: &CpuSet) -> CpuSet {
        let cores = self.cores_of(taken);
        threads_of(self.machine, cpus).filter(|thread| !cores.contains(thread.core)).map(|thread| thread.id).collect()
    }

    /// Last-level caches of CPUs.
    pub(crate) fn caches_of(&self, cpus: &CpuSet) -> IdSet<LlcId> {
        threads_of(self.machine, cpus).filter_map(|thread| thread.llc).collect()
    }

    /// Hardware threads under the largest last-level cache.
    pub(crate) fn cache_threads(&self) -> usize {
        crate::shape::cache_threads(self.machine, self.vm)
    }

    /// Memory of nodes together.
    pub(crate) fn memory_of(&self, nodes: &NodeSet) -> Bytes {
        nodes.iter().filter_map(|node| self.machine.node(node)).map(|node| node.memory).sum()
    }

    /// CPUs that all vCPUs of the VM may use together.
    pub(crate) fn all_vcpus_cpus(&self) -> CpuSet {
        self.views.iter().fold(CpuSet::new(), |sum, view| sum.union(&view.cpus))
    }

    /// Whether each vCPU of the VM is bound to some CPUs.
    pub(crate) fn is_bound(&self) -> bool {
        self.views.iter().filter(|view| !view.node.vcpus.is_empty()).all(|view| view.bound)
    }

    /// What an access to memory costs, in the mean over virtual nodes by their memory: vCPUs are
    /// taken to run anywhere that they may, memory to lie in equal parts where it is bound to, or
    /// else where the vCPUs run.
    pub(crate) fn locality<'v>(&self, views: impl IntoIterator<Item = &'v NodeView<'v>>) -> Option<Cost> {
        let (mut weights, mut remote, mut latency) = (0.0, 0.0, 0.0);
        for view in views {
            let (runs_on, memory) = (self.shares(&view.cpus), self.memory_shares(view));
            let weight = view.node.memory.0 as f64;
            weights += weight;
            for &(from, running) in &runs_on {
                for &(to, lying) in &memory {
                    let share = weight * running * lying;
                    remote += if from == to { 0.0 } else { share };
                    latency += share * f64::from(self.machine.distance(from, to)) / f64::from(Distances::LOCAL);
                }
            }
        }
        (weights > 0.0 && latency > 0.0)
            .then(|| Cost::MemoryLatency { remote_share: remote / weights, factor: latency / weights })
    }

    /// What an access to memory takes against what the guest was told, in the mean over vCPUs and
    /// the memory of all virtual nodes, where they run and lie now (as in
    /// [`locality`](Self::locality)). `told` has a row for each virtual node. Each access is
    /// compared, not the mean of a pair: of memory in equal parts on two nodes half may be as near
    /// as told.
    pub(crate) fn against_told(&self, told: &[Vec<u32>]) -> Option<Cost> {
        let (mut accesses, mut longer, mut expected, mut real) = (0.0, 0.0, 0.0, 0.0);
        let memory: Vec<_> = self.views.iter().map(|view| (view.node.memory, self.memory_shares(view))).collect();
        for (view, told) in self.views.iter().zip(told) {
            let runs_on = self.shares(&view.cpus);
            for ((bytes, lies_on), &told) in memory.iter().zip(told) {
                let weight = view.node.vcpus.len() as f64 * bytes.0 as f64;
                let ways = runs_on.iter().flat_map(|from| lies_on.iter().map(move |to| (*from, *to)));
                for ((from, running), (to, lying)) in ways {
                    let (share, distance) = (weight * running * lying, self.machine.distance(from, to));
                    accesses += share;
                    longer += if distance > told { share } else { 0.0 };
                    expected += share * f64::from(told);
                    real += share * f64::from(distance);
                }
            }
        }
        (expected > 0.0).then(|| Cost::AgainstTold { longer_share: longer / accesses, factor: real / expected })
    }

    /// Share of a virtual node's memory on each node.
    fn memory_shares(&self, view: &NodeView<'_>) -> Vec<(NodeId, f64)> {
        let equally = |nodes: &NodeSet| nodes.iter().map(|node| (node, 1.0 / nodes.len() as f64)).collect();
        let unbound = || {
            let there = self.nodes_with_memory();
            let mut shares = self.shares(&view.cpus);
            shares.retain(|(node, _)| there.contains(*node));
            let all: f64 = shares.iter().map(|(_, share)| share).sum();
            shares.iter_mut().for_each(|(_, share)| *share /= all);
            if shares.is_empty() { equally(&there) } else { shares }
        };
        view.memory_nodes().map_or_else(unbound, equally)
    }

    /// Nodes that have memory, of a machine that says so.
    pub(crate) fn nodes_with_memory(&self) -> NodeSet {
        self.machine.nodes.iter().filter(|node| node.memory > Bytes(0)).map(|node| node.id).collect()
    }

    /// Share of CPUs on each node.
    fn shares(&self, cpus: &CpuSet) -> Vec<(NodeId, f64)> {
        let of = |node: NodeId| threads_of(self.machine, cpus).filter(|thread| thread.node == node).count();
        self.nodes_of(cpus).iter().map(|node| (node, of(node) as f64 / cpus.len().max(1) as f64)).collect()
    }

    /// Where parts are written; each place once.
    pub(crate) fn spots(&self, parts: impl IntoIterator<Item = Part>) -> Vec<Spot> {
        let mut spots: Vec<Spot> = parts.into_iter().filter_map(|part| self.vm.spots.of(part)).collect();
        spots.sort_by_key(|spot| (spot.line, spot.at.clone()));
        spots.dedup();
        spots
    }

    /// Where the pins of a virtual node's vCPUs are written.
    pub(crate) fn pin_spots(&self, view: &NodeView<'_>) -> Vec<Spot> {
        self.spots(view.node.vcpus.iter().map(|vcpu| Part::VcpuPin(vcpu.0)))
    }

    /// Where the binding of a virtual node's memory is written.
    pub(crate) fn memory_spots(&self, view: &NodeView<'_>) -> Vec<Spot> {
        let part = if view.node.own_binding { Part::MemoryNode(view.node.id) } else { Part::MemoryTune };
        self.spots([part])
    }

    /// Whether the guest's hardware threads are what they seem: those of a virtual core run on
    /// siblings of one core, and on nothing else.
    pub(crate) fn threads_are_true(&self) -> bool {
        let threads = self.vm.guest.threads.max(1);
        let vcpus: Vec<u32> = (0..self.vm.vcpus).collect();
        threads > 1
            && vcpus.chunks(threads as usize).all(|core| {
                let cpus = core.iter().fold(CpuSet::new(), |sum, &vcpu| sum.union(&self.vm.cpus_of(vcpu, &self.cpus)));
                self.cores_of(&cpus).len() == 1 && cpus.len() == core.len()
            })
    }

    /// The right CPUs of vCPUs that stay bound one by one, where they are others than now.
    pub(crate) fn repinned(&self) -> Option<&BTreeMap<u32, CpuId>> {
        let right = self.pinned.as_ref()?.right.as_ref()?;
        let differs = |(&vcpu, &cpu): (&u32, &CpuId)| !self.vm.cpus_of(vcpu, &self.cpus).iter().eq([cpu]);
        right.iter().any(differs).then_some(right)
    }

    /// Whether its vCPUs must never be let free: they are isolated, or of a real-time class.
    pub(crate) fn never_floats(&self) -> bool {
        self.pinned.as_ref().is_some_and(|pinned| pinned.keeps > Keeps::OneToOne)
    }

    /// Virtual node of a vCPU, as an index.
    pub(crate) fn node_of_vcpu(&self, vcpu: CpuId) -> Option<usize> {
        self.views.iter().position(|view| view.node.vcpus.contains(vcpu))
    }
}
