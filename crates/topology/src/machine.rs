//! The machine as every other part of homenode sees it.

use crate::{Bandwidths, Bytes, CoreId, CpuId, CpuSet, Id, IdSet, LlcId, NodeId, NodeSet, SocketId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One hardware thread (what Linux calls a CPU).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareThread {
    /// Linux's CPU number.
    pub id: CpuId,
    /// Its core.
    pub core: CoreId,
    /// Its last-level cache; `None` where the machine does not say (an offline CPU has no cache
    /// directory).
    pub llc: Option<LlcId>,
    /// Its NUMA node.
    pub node: NodeId,
    /// Its socket.
    pub socket: SocketId,
    /// Whether Linux has it online.
    pub online: bool,
    /// Whether the process that looked may run on it (cgroup cpuset and affinity). True where the
    /// source does not say.
    pub allowed: bool,
    /// Relative capacity of its core, 1024 = the largest core of the machine; `None` where all
    /// cores are alike.
    pub capacity: Option<u32>,
}

/// Size of huge pages that kernels for x86-64 give to who names none, unless `default_hugepagesz=`
/// on their command line says otherwise.
pub const USUAL_HUGE_PAGE: Bytes = Bytes::from_mib(2);

/// A pool of huge pages of one size on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// Size of one page.
    pub page_size: Bytes,
    /// Pages in the pool.
    pub total: u64,
    /// Pages not in use.
    pub free: u64,
}

/// What the memory of a node is, beside its amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// RAM, as much as [`Node::memory`] says.
    #[default]
    Ram,
    /// The source does not say how much there is: [`Node::memory`] is zero and means nothing.
    Unknown,
    /// Of a GPU whose driver shows it as a node (NVIDIA on POWER9 and Grace). No VM may live there:
    /// [`Node::memory`] is zero.
    Gpu {
        /// The GPU's memory.
        size: Bytes,
    },
}

/// One NUMA node. It may lack CPUs (memory expander) or memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Linux's node number.
    pub id: NodeId,
    /// RAM of the node; zero for a node without RAM, and where [`Node::memory_kind`] is not
    /// [`MemoryKind::Ram`].
    pub memory: Bytes,
    /// What kind of memory it is.
    #[serde(default)]
    pub memory_kind: MemoryKind,
    /// Memory that could be given to a new process now (free, and page cache that can be dropped),
    /// where known.
    pub free: Option<Bytes>,
    /// Pools of huge pages, by size; none where nobody says what pools there are.
    pub huge_pages: Vec<HugePages>,
    /// Whether the process that looked may take memory of it (cgroup cpuset). True where the source
    /// does not say.
    pub allowed: bool,
}

/// A last-level cache, shared by the hardware threads that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Llc {
    /// Its number, unique in the machine.
    pub id: LlcId,
    /// 3 on most machines.
    pub level: u8,
    /// Capacity, where known.
    pub size: Option<Bytes>,
}

/// Relative memory distances between nodes, as in ACPI's SLIT: 10 is local.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distances {
    nodes: Vec<NodeId>,
    rows: Vec<Vec<u32>>,
}

impl Distances {
    /// ACPI's value for local memory.
    pub const LOCAL: u32 = 10;
    /// Linux's value where firmware gives none (`REMOTE_DISTANCE`).
    pub const REMOTE: u32 = 20;

    /// `rows[i][j]` is the distance from `nodes[i]` to `nodes[j]`. `None` unless `rows` is square
    /// and matches `nodes`.
    pub fn new(nodes: Vec<NodeId>, rows: Vec<Vec<u32>>) -> Option<Self> {
        let square = rows.len() == nodes.len() && rows.iter().all(|row| row.len() == nodes.len());
        square.then_some(Self { nodes, rows })
    }

    /// As [`Distances::new`], from firmware or a tool, which may be wrong: `None` also where a
    /// value is under [`Distances::LOCAL`], which ACPI reserves, or where another node is nearer
    /// than the own one.
    pub fn plausible(nodes: Vec<NodeId>, rows: Vec<Vec<u32>>) -> Option<Self> {
        let own_is_nearest =
            |(own, row): (usize, &Vec<u32>)| row.iter().all(|&distance| distance >= row[own].max(Self::LOCAL));
        Self::new(nodes, rows).filter(|table| table.rows.iter().enumerate().all(own_is_nearest))
    }

    /// Local on the diagonal and [`Distances::REMOTE`] elsewhere: what Linux assumes without a
    /// SLIT.
    pub fn flat(nodes: Vec<NodeId>) -> Self {
        let row =
            |from: usize| (0..nodes.len()).map(|to| if from == to { Self::LOCAL } else { Self::REMOTE }).collect();
        let rows = (0..nodes.len()).map(row).collect();
        Self { nodes, rows }
    }

    /// The distance from `from` to `to`; `None` for a node that the table lacks.
    pub fn get(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let index = |node| self.nodes.iter().position(|&other| other == node);
        Some(self.rows[index(from)?][index(to)?])
    }

    /// The nodes in the order of the rows.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The rows: `rows()[i][j]` is the distance from `nodes()[i]` to `nodes()[j]`.
    pub fn rows(&self) -> &[Vec<u32>] {
        &self.rows
    }
}

/// A whole machine. Vectors are ordered by id and hold each id once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// What to call it: host name, file name, or the synthetic string.
    pub name: String,
    /// CPU model, where known.
    pub cpu_model: Option<String>,
    /// Every NUMA node, sparse ids and CPU-less or memory-less ones included. Never empty.
    pub nodes: Vec<Node>,
    /// Every last-level cache.
    pub llcs: Vec<Llc>,
    /// Every hardware thread that the machine lists, offline ones included.
    pub threads: Vec<HardwareThread>,
    /// Distances between all `nodes`.
    pub distances: Distances,
    /// Network cards, and what stands above cards (bridges, bonds): the nodes that the cards are
    /// on. Only of machines with several nodes, and only where the source says so.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cards: BTreeMap<String, NodeSet>,
    /// What memory and links carry in a second, as far as it is known.
    #[serde(default, skip_serializing_if = "Bandwidths::is_unknown")]
    pub bandwidth: Bandwidths,
    /// CPUs that the kernel's load balancer leaves out (`isolcpus=`, isolated partitions of
    /// cpusets): a thread runs there only where it is bound to such CPUs alone, and then stays on
    /// the one that it is put on. Empty where the source does not say.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub isolated: CpuSet,
    /// CPUs whose tick stops while they run one thread (`nohz_full=`). The kernel schedules them as
    /// it does others.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub nohz_full: CpuSet,
    /// Size of the huge pages that who names no size gets: the kernel's default (`Hugepagesize` of
    /// `/proc/meminfo`); `None` where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_huge_page: Option<Bytes>,
    /// What a reader had to assume or found contradictory, as sentences for people.
    pub notes: Vec<String>,
}

impl Node {
    /// The pool of huge pages of this size; `None` where nobody says what pools the node has. A
    /// node that has pools of other sizes only has an empty one.
    pub fn pool(&self, page_size: Bytes) -> Option<HugePages> {
        let none = HugePages { page_size, total: 0, free: 0 };
        let pool = self.huge_pages.iter().find(|pool| pool.page_size == page_size).copied();
        (!self.huge_pages.is_empty()).then(|| pool.unwrap_or(none))
    }
}

impl Machine {
    /// The node with this id.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The thread with this id.
    pub fn thread(&self, id: CpuId) -> Option<&HardwareThread> {
        self.threads.iter().find(|thread| thread.id == id)
    }

    /// Whether the source says how much memory any of the nodes has. Nothing can be placed on a
    /// machine where it does not.
    pub fn memory_is_known(&self) -> bool {
        self.nodes.iter().any(|node| node.memory_kind == MemoryKind::Ram)
    }

    /// Whether a node has memory and no hardware thread, online or not: a memory expander (CXL), or
    /// fast memory beside a socket (HBM). No VM can live there.
    pub fn is_memory_only(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.memory > Bytes(0)) && self.threads.iter().all(|thread| thread.node != id)
    }

    /// All nodes with memory and no hardware thread.
    pub fn memory_only(&self) -> NodeSet {
        self.nodes.iter().map(|node| node.id).filter(|&id| self.is_memory_only(id)).collect()
    }

    /// Ids of all nodes.
    pub fn node_ids(&self) -> NodeSet {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// Threads that are online, that this process may use, and among which the kernel balances
    /// load: the ones that work can be placed on. Isolated ones ([`Machine::isolated`]) are not
    /// among them: see [`Machine::bindable_threads`].
    pub fn usable_threads(&self) -> impl Iterator<Item = &HardwareThread> {
        self.bindable_threads().filter(|thread| !self.isolated.contains(thread.id))
    }

    /// The same, with only the first usable thread of each core: as with SMT off.
    #[must_use]
    pub fn without_smt(&self) -> Self {
        let mut machine = self.clone();
        let mut cores = std::collections::BTreeSet::new();
        let isolated = machine.isolated.clone();
        let usable = |thread: &&mut HardwareThread| thread.online && thread.allowed && !isolated.contains(thread.id);
        for thread in machine.threads.iter_mut().filter(usable) {
            thread.allowed = cores.insert(thread.core.number());
        }
        machine
    }

    /// Usable threads of a node.
    pub fn usable_cpus(&self, node: NodeId) -> CpuSet {
        self.usable_threads().filter(|thread| thread.node == node).map(|thread| thread.id).collect()
    }

    /// Cores of a node that have at least one usable thread.
    pub fn usable_cores(&self, node: NodeId) -> IdSet<CoreId> {
        self.usable_threads().filter(|thread| thread.node == node).map(|thread| thread.core).collect()
    }

    /// Ids of all sockets.
    pub fn sockets(&self) -> IdSet<SocketId> {
        self.threads.iter().map(|thread| thread.socket).collect()
    }

    /// Sockets whose threads belong to a node.
    pub fn sockets_of(&self, node: NodeId) -> IdSet<SocketId> {
        self.threads.iter().filter(|thread| thread.node == node).map(|thread| thread.socket).collect()
    }

    /// Hardware threads that share a core on this machine at most (1 without SMT), counting usable
    /// ones.
    pub fn threads_per_core(&self) -> usize {
        let mut per_core = std::collections::BTreeMap::<u32, usize>::new();
        for thread in self.usable_threads() {
            *per_core.entry(thread.core.number()).or_default() += 1;
        }
        per_core.into_values().max().unwrap_or(1)
    }

    /// Distance between two nodes, [`Distances::REMOTE`] where the table does not say.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        let assumed = if from == to { Distances::LOCAL } else { Distances::REMOTE };
        self.distances.get(from, to).unwrap_or(assumed)
    }
}
