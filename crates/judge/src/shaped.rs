//! A VM as somebody else shaped it.

use crate::guest_system::GuestSystem;
use scheduler::balance::Home;
use scheduler::{VmObservation, home};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use topology::{Bytes, CpuId, CpuSet, NodeId, NodeSet, Schedulable};
use vm::qemu::{GuestCaches, GuestCpus};

/// A VM as somebody else shaped it: from a definition, or as it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShapedVm {
    /// Its name.
    pub name: String,
    /// vCPUs that it may have; of a VM that runs, those that it has.
    pub vcpus: u32,
    /// Those of `nodes` that are plugged in later, if ever: they take no CPU time, and belong to
    /// the guest's topology. Of a VM that runs `nodes` has only what is there.
    pub absent: CpuSet,
    /// Its memory, without that of devices that are plugged in.
    pub memory: Bytes,
    /// What it may have once all is plugged in; 0: no more than it has.
    pub most_memory: Bytes,
    /// What its guest is told of its CPUs.
    pub guest: GuestCpus,
    /// Whether the guest is told of virtual nodes.
    pub vnuma: bool,
    /// Its virtual nodes, by id; without vNUMA the one that all of it is. Never empty for a VM that
    /// was read.
    pub nodes: Vec<ShapedNode>,
    /// Memory devices of a definition that are bound by themselves.
    pub bound_devices: Vec<BoundDevice>,
    /// CPUs of each vCPU; one without an entry may use every CPU.
    pub pins: BTreeMap<u32, CpuSet>,
    /// vCPUs with a real-time class (`SCHED_FIFO`, `SCHED_RR`).
    pub real_time: CpuSet,
    /// CPUs of the emulator's threads; `None`: every CPU.
    pub emulator: Option<CpuSet>,
    /// CPUs of each iothread; `None`: every CPU.
    pub iothreads: BTreeMap<u32, Option<CpuSet>>,
    /// What is left to numad.
    pub auto: Auto,
    /// Memory policy of the VM as a whole, where it is written beside that of its nodes.
    pub memory_tune: Option<Binding>,
    /// Huge pages that its memory is made of.
    pub huge_pages: Vec<HugePages>,
    /// Where each part of this is written.
    pub spots: Spots,
    /// What cures must know of the XML.
    pub xml: Option<XmlFacts>,
    /// Threads of the kernel that move its packets (`vhost-*`): the virtual node that each works
    /// for, as an index, where that is known; and where it may run.
    pub vhost: Vec<(Option<usize>, Option<CpuSet>)>,
    /// Processes that work for it beside QEMU (virtiofsd, swtpm), and where each may run.
    pub helpers: Vec<(String, Option<CpuSet>)>,
    /// Nodes on which it may live (a cpuset, a node affinity); `None`: all.
    pub allowed: Option<NodeSet>,
    /// The system that its guest runs, where its definition says.
    pub guest_system: GuestSystem,
    /// What its guest is told of its CPUs is not known.
    pub guest_unknown: bool,
    /// What is known only of a VM that runs; `None` for a definition.
    pub running: Option<Running>,
}

/// What is known only of a VM that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// All that the host shows of it.
    pub seen: VmObservation,
    /// Where the program that manages it believes that its vCPUs may run; `None`: nobody manages
    /// it, or it does not answer.
    pub believed: Option<BTreeMap<u32, CpuSet>>,
}

/// What is left to numad (`placement='auto'`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Auto {
    /// `<vcpu placement='auto'>`.
    pub vcpus: bool,
    /// `<memory placement='auto'>`.
    pub memory: bool,
}

/// A virtual node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapedNode {
    /// Its number in the guest.
    pub id: u32,
    /// Its vCPUs.
    pub vcpus: CpuSet,
    /// Its memory; of a definition without that of memory devices.
    pub memory: Bytes,
    /// Of a definition: memory that its devices give when it starts.
    pub plugged: Bytes,
    /// Memory that these devices may give beyond that.
    pub growth: Bytes,
    /// Where its memory goes; `None`: wherever it is touched first.
    pub binding: Option<Binding>,
    /// Whether [`ShapedNode::binding`] is its own, not that of the whole VM.
    pub own_binding: bool,
    /// Of a VM that runs: somebody other than homenode interleaved its memory.
    pub spread: bool,
    /// Distances to other virtual nodes, as they are written.
    pub distances: BTreeMap<u32, u32>,
    /// Where its resident memory lies; `None` where nobody knows, and for a definition.
    pub resident: Option<BTreeMap<NodeId, Bytes>>,
    /// Where it lives and should live; `None` for a definition.
    pub home: Option<Home>,
}

/// A memory device that is bound by itself, whatever its virtual node is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundDevice {
    /// The virtual node that it is plugged into.
    pub virtual_node: u32,
    /// Memory that it gives when the VM starts.
    pub given: Bytes,
    /// Nodes of the machine that it is bound to.
    pub nodes: NodeSet,
    /// Where that is written.
    pub spot: Option<Spot>,
}

/// Where memory goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// `strict`, `preferred`, `interleave`, `restrictive`.
    pub mode: String,
    /// Nodes of the machine.
    pub nodes: NodeSet,
}

/// What cures must know of the XML beside what a domain says of NUMA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XmlFacts {
    /// Attributes of the first cell that further ones need too: `memAccess`, `discard`.
    pub cell_extras: Vec<(String, String)>,
    /// A `<cell>` has no `id`: it gets its number before an edit names it.
    pub cells_without_id: bool,
    /// `<vcpu cpuset>` is written.
    pub vcpu_cpuset: Option<CpuSet>,
    /// vCPUs with a `<vcpupin>`.
    pub pinned: CpuSet,
    /// Cells with a `<memnode>`.
    pub memory_nodes: Vec<u32>,
    /// Mode of `<numatune><memory>`, where that is written: also where numad is to choose the
    /// nodes.
    pub memory_tune_mode: Option<String>,
    /// Something else names virtual nodes (memory devices, PCI bridges, pages of cells): their
    /// number must stay.
    pub nodes_named_by: Option<String>,
}

/// Huge pages that memory is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Size of a page; `None`: the host's default.
    pub size: Option<Bytes>,
    /// Virtual nodes that it is for; `None`: all others.
    pub cells: Option<NodeSet>,
}

/// A part of a VM's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the part of its name; a number tells it from others of its kind")]
pub enum Part {
    Memory,
    MostMemory,
    Vcpus,
    VcpuPin(u32),
    Emulator,
    Iothread(u32),
    MemoryTune,
    MemoryNode(u32),
    Topology,
    Cache,
    Cell(u32),
    Distances(u32),
    HugePages,
}

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Spot {
    /// Path of the element below `<domain>`, or QEMU's option, or a thread.
    pub at: String,
    /// Line of the XML; `None` where it is not written at all, or where there are no lines.
    pub line: Option<u32>,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} (line {line})", self.at),
            None => f.write_str(&self.at),
        }
    }
}

/// Where each part is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spots(pub BTreeMap<Part, Spot>);

impl Spots {
    /// Where a part is written; `None` if it is not.
    pub fn of(&self, part: Part) -> Option<Spot> {
        self.0.get(&part).cloned()
    }
}

impl ShapedNode {
    /// What it has when it starts, or now: what it holds of its home.
    pub fn present_memory(&self) -> Bytes {
        self.memory.saturating_add(self.plugged)
    }

    /// What it may have with all that its devices may give.
    pub fn most_memory(&self) -> Bytes {
        self.present_memory().saturating_add(self.growth)
    }

    /// Memory that was not touched yet; all of it where nobody knows.
    pub fn absent(&self) -> Bytes {
        let resident: Bytes = self.resident.iter().flatten().map(|(_, &bytes)| bytes).sum();
        self.memory.saturating_sub(resident)
    }

    /// The home that a balancer decided on.
    pub(crate) fn decided(&self) -> Option<&NodeSet> {
        self.home.as_ref().filter(|home| home.decided)?.lives.as_ref()
    }

    /// Whether next to all of its memory is resident, and on these nodes.
    pub(crate) fn lies_on(&self, nodes: &NodeSet) -> bool {
        let resident = self.resident.as_ref();
        resident.is_some_and(|resident| home::is_at_home(resident, nodes)) && self.absent().0 <= self.memory.0 / 20
    }
}

impl ShapedVm {
    /// CPUs that a vCPU uses on a machine with these.
    pub fn cpus_of(&self, vcpu: u32, cpus: &Schedulable) -> CpuSet {
        self.pins.get(&vcpu).map_or_else(|| cpus.balanced.clone(), |set| cpus.used(set))
    }

    /// vCPUs that the guest takes to share a last-level cache, in its order.
    pub fn cache_groups(&self, host_cache_threads: usize) -> Vec<CpuSet> {
        let die = (self.guest.cores * self.guest.threads).max(1);
        let socket = die * self.guest.dies.max(1);
        let size = match self.guest.caches {
            GuestCaches::OnePerDie => die,
            GuestCaches::Passthrough => (host_cache_threads as u32).clamp(1, socket),
            GuestCaches::Disabled => self.guest.threads.max(1),
        };
        let (all, mut groups) = (self.numbers(), Vec::new());
        let beyond = all.iter().next_back().map_or(0, |last| last.0 + 1);
        for first in (0..beyond).step_by(socket as usize) {
            let end = (first + socket).min(beyond);
            for start in (first..end).step_by(size as usize) {
                let group = (start..(start + size).min(end)).map(CpuId);
                groups.push(group.filter(|&vcpu| all.contains(vcpu)).collect::<CpuSet>());
            }
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// The numbers of its vCPUs. Of a VM that may grow and runs they have gaps: each virtual node
    /// has places for more.
    pub fn numbers(&self) -> CpuSet {
        match self.running {
            Some(_) => self.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.vcpus)),
            None => (0..self.vcpus).map(CpuId).collect(),
        }
    }

    /// Memory that it starts with, or has.
    pub fn present_memory(&self) -> Bytes {
        self.nodes.iter().map(|node| node.plugged).sum::<Bytes>().saturating_add(self.memory)
    }

    /// Memory that it may have.
    pub fn most_memory(&self) -> Bytes {
        let growth: Bytes = self.nodes.iter().map(|node| node.growth).sum();
        self.most_memory.max(self.present_memory().saturating_add(growth))
    }

    /// Memory that it may get and no device has yet, for each virtual node in equal parts.
    pub(crate) fn growth_of_each(&self) -> Bytes {
        let of_devices: Bytes = self.nodes.iter().map(|node| node.growth).sum();
        let rest = self.most_memory().saturating_sub(self.present_memory()).saturating_sub(of_devices);
        Bytes(rest.0 / self.nodes.len().max(1) as u64)
    }

    /// Whether it may become larger than it starts.
    pub fn may_grow(&self) -> bool {
        !self.absent.is_empty() || self.most_memory() > self.present_memory()
    }

    /// vCPUs that it starts with, or has.
    pub fn present(&self) -> u32 {
        self.vcpus - self.absent.len() as u32
    }

    /// Memory that devices give to a virtual node when it starts.
    pub(crate) fn plugged_of(&self, virtual_node: u32) -> Bytes {
        self.nodes.iter().find(|node| node.id == virtual_node).map_or(Bytes(0), |node| node.plugged)
    }

    /// As many of a virtual node's.
    pub(crate) fn present_of(&self, node: &ShapedNode) -> usize {
        node.vcpus.iter().filter(|&vcpu| !self.absent.contains(vcpu)).count()
    }
}
