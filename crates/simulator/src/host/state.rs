//! What the modelled host knows of its nodes and VMs; by index of the node in the machine.

use super::account::Account;
use super::shape::{ClientShape, Phase, VmShape};
use scheduler::VmKey;
use std::collections::BTreeMap;
use topology::{CpuSet, Machine, NodeId};

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

    /// Cores with an online thread, where threads go offline evenly.
    pub(crate) fn cores(&self) -> f64 {
        match self.all.len() {
            0 => 0.0,
            all => (self.all_cores * self.online.len() as f64 / all as f64).ceil(),
        }
    }
}

/// One client.
#[derive(Clone, Debug)]
pub(crate) struct ClientState {
    pub(crate) shape: ClientShape,
    /// CPUs that its threads may run on.
    pub(crate) cpus: CpuSet,
    /// Of each node, how many of these are online.
    pub(crate) room: Vec<u32>,
    /// Of its vCPU threads, how many run on each node.
    pub(crate) threads: Vec<u32>,
    /// Resident bytes by node.
    pub(crate) memory: Vec<u64>,
    /// Of these, the bytes that will not move.
    pub(crate) held: Vec<u64>,
    /// Nodes that new memory must come from while they have any; empty: where the thread runs.
    pub(crate) memory_nodes: Vec<usize>,
    /// Index of the phase that runs.
    pub(crate) phase: usize,
    /// CPU seconds used since the last observation.
    pub(crate) used_s: f64,
    /// CPU seconds waited since then.
    pub(crate) waited_s: f64,
    /// Cache lines from memory of the thread's own node since then, and from that of others.
    pub(crate) local_lines: f64,
    pub(crate) remote_lines: f64,
    /// Whether it has been observed before.
    pub(crate) seen: bool,
    /// Seconds between scans of automatic NUMA balancing.
    pub(crate) scan_period_s: f64,
    /// CPUs that hint faults took in the last tick.
    pub(crate) fault_cpus: f64,
}

impl ClientState {
    fn new(shape: &ClientShape, nodes: usize) -> Self {
        Self {
            shape: shape.clone(),
            cpus: CpuSet::new(),
            room: vec![0; nodes],
            threads: vec![0; nodes],
            memory: vec![0; nodes],
            held: vec![0; nodes],
            memory_nodes: Vec::new(),
            phase: 0,
            used_s: 0.0,
            waited_s: 0.0,
            local_lines: 0.0,
            remote_lines: 0.0,
            seen: false,
            scan_period_s: 1.0,
            fault_cpus: 0.0,
        }
    }

    pub(crate) fn now(&self) -> Phase {
        self.shape.phases[self.phase]
    }

    /// CPUs that its threads on one node would use.
    pub(crate) fn demand(&self, node: usize) -> f64 {
        f64::from(self.threads[node]) * self.load_of_thread()
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
    pub(crate) fn new(shape: &VmShape, started_ms: u64, nodes: usize) -> Self {
        let clients = shape.clients.iter().map(|client| ClientState::new(client, nodes)).collect();
        Self { shape: shape.clone(), started_ms, clients, account: Account::new(&shape.name) }
    }

    /// CPUs that all of its threads would use.
    pub(crate) fn demand(&self) -> f64 {
        self.clients.iter().map(|client| client.load_of_thread() * f64::from(client.shape.vcpus)).sum()
    }
}

/// VMs by key: the order in which they are looked at.
pub(crate) type Vms = BTreeMap<VmKey, VmState>;

/// The nodes of a machine, all online and empty.
pub(crate) fn nodes(machine: &Machine, kernel_part: u64) -> Vec<NodeState> {
    let node = |node: &topology::Node| {
        let all = machine.usable_cpus(node.id);
        let kernel = node.memory.0 / kernel_part.max(1);
        NodeState {
            id: node.id,
            online: all.clone(),
            all,
            all_cores: machine.usable_cores(node.id).len() as f64,
            memory: (node.memory.0 - kernel) / PAGE * PAGE,
            taken: 0,
            present: true,
            used_s: 0.0,
        }
    };
    machine.nodes.iter().map(node).collect()
}
