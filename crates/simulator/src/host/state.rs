//! What the modelled host knows of its nodes and VMs; by index of the node in the machine.

use super::account::Account;
use super::shape::{ClientShape, Phase, VmShape};
use scheduler::VmKey;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use topology::{CoreId, CpuSet, LlcId, Machine, NodeId};

/// Memory moves in pages.
pub(crate) const PAGE: u64 = 4096;

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    pub(crate) id: NodeId,
    /// Usable hardware threads that are online; none where the node has no CPU, or has them
    /// offline.
    pub(crate) online: CpuSet,
    /// Hardware threads that it has when all are online.
    pub(crate) all: CpuSet,
    /// Cores that it has when all are online.
    pub(crate) all_cores: f64,
    /// Its places, by index.
    pub(crate) places: Range<usize>,
    /// Memory for VMs: that of the node less the kernel's part.
    pub(crate) memory: u64,
    /// Of that, what VMs have.
    pub(crate) taken: u64,
    /// False: its memory was taken away, and nobody sees the node.
    pub(crate) present: bool,
    /// CPU seconds used since the last observation, by everything.
    pub(crate) used_s: f64,
}

impl NodeState {
    pub(crate) fn free(&self) -> u64 {
        if self.present { self.memory.saturating_sub(self.taken) } else { 0 }
    }
}

/// CPUs of a node that share a last-level cache; all of the node where that is not known.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) llc: Option<LlcId>,
    pub(crate) online: CpuSet,
    pub(crate) all: CpuSet,
    pub(crate) all_cores: f64,
}

impl Place {
    /// Cores with an online thread, where threads go offline evenly.
    pub(crate) fn cores(&self) -> f64 {
        match self.all.len() {
            0 => 0.0,
            all => (self.all_cores * self.online.len() as f64 / all as f64).ceil(),
        }
    }
}

/// vCPU threads of a client that may run on the same CPUs: all of them, or a group.
#[derive(Clone, Debug)]
pub(crate) struct ThreadSet {
    /// By number in the VM.
    pub(crate) vcpus: Vec<u32>,
    /// CPUs that they may run on.
    pub(crate) cpus: CpuSet,
    /// Of each place, how many of these are online.
    pub(crate) room: Vec<u32>,
    /// How many of the threads run at each place.
    pub(crate) at: Vec<u32>,
    /// CPU seconds used since the last observation.
    pub(crate) used_s: f64,
    /// CPU seconds waited since then.
    pub(crate) waited_s: f64,
}

impl ThreadSet {
    pub(crate) fn new(vcpus: Vec<u32>, places: usize) -> Self {
        let (room, at) = (vec![0; places], vec![0; places]);
        Self { vcpus, cpus: CpuSet::new(), room, at, used_s: 0.0, waited_s: 0.0 }
    }

    /// Its threads on a node, by the node's places.
    pub(crate) fn on(&self, places: &Range<usize>) -> u32 {
        self.at[places.clone()].iter().sum()
    }

    /// Online CPUs of a node that they may run on.
    pub(crate) fn room_on(&self, places: &Range<usize>) -> u32 {
        self.room[places.clone()].iter().sum()
    }

    /// The only place of a node with several that they may run on.
    pub(crate) fn bound_to(&self, places: &Range<usize>) -> Option<usize> {
        let mut open = places.clone().filter(|&place| self.room[place] > 0);
        open.next().filter(|_| places.len() > 1 && open.next().is_none())
    }
}

/// One client.
#[derive(Clone, Debug)]
pub(crate) struct ClientState {
    pub(crate) shape: ClientShape,
    /// Its vCPU threads; several sets where they are divided into groups.
    pub(crate) sets: Vec<ThreadSet>,
    /// Resident bytes by node.
    pub(crate) memory: Vec<u64>,
    /// Of these, the bytes that will not move.
    pub(crate) held: Vec<u64>,
    /// Nodes that new memory must come from while they have any; empty: where the thread runs.
    pub(crate) memory_nodes: Vec<usize>,
    /// Index of the phase that runs.
    pub(crate) phase: usize,
    /// Cache lines since the last observation from memory of the thread's own node, and from that
    /// of others.
    pub(crate) local_lines: f64,
    pub(crate) remote_lines: f64,
    /// Whether it has been observed before.
    pub(crate) seen: bool,
    /// Seconds between scans of automatic NUMA balancing.
    pub(crate) scan_period_s: f64,
    /// CPUs that hint faults took in the last tick.
    pub(crate) fault_cpus: f64,
    /// Memory on which the last scan found it: what the kernel takes for its footprint. 0 where
    /// nothing is scanned.
    pub(crate) footprint: u64,
    /// The place that the kernel draws its threads to.
    pub(crate) preferred: Option<usize>,
}

impl ClientState {
    fn new(shape: &ClientShape, first_vcpu: u32, nodes: usize, places: usize) -> Self {
        let vcpus = (first_vcpu..first_vcpu + shape.vcpus).collect();
        Self {
            shape: shape.clone(),
            sets: vec![ThreadSet::new(vcpus, places)],
            memory: vec![0; nodes],
            held: vec![0; nodes],
            memory_nodes: Vec::new(),
            phase: 0,
            local_lines: 0.0,
            remote_lines: 0.0,
            seen: false,
            scan_period_s: 1.0,
            fault_cpus: 0.0,
            footprint: 0,
            preferred: None,
        }
    }

    pub(crate) fn now(&self) -> Phase {
        self.shape.phases[self.phase]
    }

    /// Its threads on a node, by the node's places.
    pub(crate) fn threads_on(&self, places: &Range<usize>) -> u32 {
        self.sets.iter().map(|set| set.on(places)).sum()
    }

    /// CPUs that its threads may run on.
    pub(crate) fn cpus(&self) -> CpuSet {
        self.sets.iter().fold(CpuSet::new(), |all, set| all.union(&set.cpus))
    }

    /// CPUs that one of its threads would use.
    pub(crate) fn load_of_thread(&self) -> f64 {
        (self.now().busy / f64::from(self.shape.vcpus)).clamp(0.0, 1.0)
    }

    pub(crate) fn resident(&self) -> u64 {
        self.memory.iter().sum()
    }
}

/// One VM.
#[derive(Clone, Debug)]
pub(crate) struct VmState {
    pub(crate) shape: VmShape,
    pub(crate) started_ms: u64,
    pub(crate) clients: Vec<ClientState>,
    pub(crate) account: Account,
}

impl VmState {
    pub(crate) fn new(shape: &VmShape, started_ms: u64, nodes: usize, places: usize) -> Self {
        let mut first = 0;
        let client = |client: &ClientShape| {
            let state = ClientState::new(client, first, nodes, places);
            first += client.vcpus;
            state
        };
        let clients = shape.clients.iter().map(client).collect();
        Self { shape: shape.clone(), started_ms, clients, account: Account::new(&shape.name) }
    }

    /// CPUs that all of its threads would use.
    pub(crate) fn demand(&self) -> f64 {
        self.clients.iter().map(|client| client.load_of_thread() * f64::from(client.shape.vcpus)).sum()
    }
}

/// VMs by key: the order in which they are looked at.
pub(crate) type Vms = BTreeMap<VmKey, VmState>;

/// The places of a machine, by node and cache, all online.
pub(crate) fn places(machine: &Machine) -> Vec<Place> {
    let mut places = Vec::new();
    for (node, state) in machine.nodes.iter().enumerate() {
        let threads = || machine.usable_threads().filter(|thread| thread.node == state.id);
        let is_known = threads().all(|thread| thread.llc.is_some());
        let mut of_llc: BTreeMap<Option<LlcId>, (CpuSet, BTreeSet<CoreId>)> = BTreeMap::new();
        for thread in threads() {
            let (cpus, cores) = of_llc.entry(thread.llc.filter(|_| is_known)).or_default();
            cpus.insert(thread.id);
            cores.insert(thread.core);
        }
        if of_llc.is_empty() {
            of_llc.insert(None, Default::default());
        }
        let place = |(llc, (cpus, cores)): (Option<LlcId>, (CpuSet, BTreeSet<CoreId>))| {
            let online: CpuSet = cpus.clone();
            Place { node, llc, online, all: cpus, all_cores: cores.len() as f64 }
        };
        places.extend(of_llc.into_iter().map(place));
    }
    places
}

/// The nodes of a machine, all online and empty.
pub(crate) fn nodes(machine: &Machine, places: &[Place], kernel_part: u64) -> Vec<NodeState> {
    let node = |(index, node): (usize, &topology::Node)| {
        let all = machine.usable_cpus(node.id);
        let kernel = node.memory.0 / kernel_part.max(1);
        let first = places.iter().take_while(|place| place.node < index).count();
        NodeState {
            id: node.id,
            online: all.clone(),
            all,
            all_cores: machine.usable_cores(node.id).len() as f64,
            places: first..first + places.iter().filter(|place| place.node == index).count(),
            memory: (node.memory.0 - kernel) / PAGE * PAGE,
            taken: 0,
            present: true,
            used_s: 0.0,
        }
    };
    machine.nodes.iter().enumerate().map(node).collect()
}
