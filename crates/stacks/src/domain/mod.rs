//! libvirt's domain XML: what it says of NUMA, and edits that leave every other byte as it was.

mod batch;
mod document;
mod edit;
mod error;
mod order;
mod planned;
mod plugged;
mod read;
mod rehome;
mod splice;
mod values;

pub use document::LONGEST_TEXT;
pub(crate) use document::{all, at};
pub use edit::{Edit, Step, apply};
pub use error::DomainError;
pub(crate) use error::Problem;
pub use planned::planned;
pub use read::parse;
pub(crate) use read::{amount_in, list};
pub(crate) use rehome::with_devices_at_home;
pub use rehome::{memory_mode, rehomed};

use judge::HugePages;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuSet, NodeSet};
use vm::Stated;
use vm::qemu::GuestCpus;

/// A domain as its XML says; `None` and empty: the XML does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Domain {
    /// `<name>`.
    pub name: String,
    /// `<uuid>`.
    pub uuid: Option<String>,
    /// `<domain type=...>`: `kvm`, `qemu`, `test`.
    pub kind: String,
    /// `<memory>`.
    pub memory: Bytes,
    /// `<maxMemory>`: what it may have with all that can be plugged in.
    pub most_memory: Option<Bytes>,
    /// `<devices><memory>`, in order.
    pub memory_modules: Vec<MemoryModule>,
    /// `<vcpu>`: the most that it may have.
    pub vcpus: u32,
    /// Those of them that it does not start with: beyond `<vcpu current=...>`, or what `<vcpus>`
    /// does not enable.
    pub absent: CpuSet,
    /// `<vcpu placement='auto'>`: libvirt asks numad.
    pub vcpu_placement_auto: bool,
    /// `<vcpu cpuset=...>`: for vCPUs without a pin, and for the emulator.
    pub vcpu_cpuset: Option<CpuSet>,
    /// `<vcpupin>`, by vCPU.
    pub vcpu_pins: BTreeMap<u32, CpuSet>,
    /// vCPUs of `<vcpusched scheduler='fifo'>` and `'rr'`.
    pub real_time: CpuSet,
    /// `<emulatorpin>`.
    pub emulator_pin: Option<CpuSet>,
    /// Numbers of its iothreads: `<iothreadids>` and `<iothreads>`.
    pub iothreads: BTreeSet<u32>,
    /// `<iothreadpin>`, by iothread.
    pub iothread_pins: BTreeMap<u32, CpuSet>,
    /// `<numatune><memory>`.
    pub memory_tune: Option<MemoryTune>,
    /// `<numatune><memnode>`, by cell.
    pub memory_nodes: BTreeMap<u32, MemoryTune>,
    /// `<cpu mode=...>`.
    pub cpu_mode: Option<String>,
    /// `<cpu><topology>` and `<cpu><cache>`. Without `<topology>` libvirt gives each vCPU a socket.
    pub guest: GuestCpus,
    /// `<cpu><numa>`, by id.
    pub cells: Vec<Cell>,
    /// `<memoryBacking><hugepages>`.
    pub huge_pages: Vec<HugePages>,
    /// `<memoryBacking><locked/>`.
    pub locked: bool,
    /// PCI devices of the host that are passed through: their addresses, `0000:3b:00.0`.
    pub host_devices: Vec<String>,
    /// What its spec states to whoever balances it: the `<alias>` of its serial port.
    pub stated: Stated,
}

/// `<memory model='dimm'>` or `<memory model='virtio-mem'>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryModule {
    /// The cell that it is plugged into.
    pub node: Option<u32>,
    /// The most that it can give.
    pub size: Bytes,
    /// What it gives: of a virtio-mem device what is requested.
    pub given: Bytes,
    /// Nodes of the machine that it is bound to by itself (`<source><nodemask>`).
    pub nodeset: Option<NodeSet>,
}

/// `<memory mode=... nodeset=... placement=...>` or `<memnode ...>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryTune {
    /// `strict` (what libvirt takes without a word), `preferred`, `interleave`, `restrictive`.
    pub mode: String,
    /// Nodes of the machine.
    pub nodeset: Option<NodeSet>,
    /// `placement='auto'`: libvirt asks numad.
    pub auto: bool,
}

/// `<cell>`: a virtual node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The virtual node.
    pub id: u32,
    /// Its vCPUs.
    pub vcpus: CpuSet,
    /// Its memory.
    pub memory: Bytes,
    /// `<distances>`, by other node.
    pub distances: BTreeMap<u32, u32>,
}
