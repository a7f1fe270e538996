//! A QEMU process as the balancer sees it: who it is, its vCPU threads, its clients, and where in
//! its address space each client's memory is.
//!
//! All of it comes from `/proc` and from QEMU's command line, so that it works for VMs that
//! somebody else started and whose monitor somebody else holds.

mod config_files;
mod examine;
pub(crate) mod helpers;
mod huge_pages;
pub(crate) mod kvm;
pub mod main_thread;
pub(crate) mod owner;
mod plugged;
mod regions;
mod threads;
pub mod vhost;

pub(crate) use examine::{FirstWords, arguments, started_ticks};
pub use plugged::PluggedMemory;
pub(crate) use regions::Hints;
pub use regions::{Given, Region, RegionEvidence, RegionKind, UnknownMemory};
pub use threads::{ThreadKind, VcpuEvidence, VcpuThread, VmThreads};

use ::vm::{Manager, Origin, Stated};
use scheduler::{ClientId, GuestMachine, VmKey};
use serde::Serialize;
use std::path::PathBuf;
use topology::{Bytes, NodeSet};

/// A VM that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunningVm {
    /// Name, process, start.
    pub key: VmKey,
    /// What `-uuid` says, if anything.
    pub uuid: Option<String>,
    /// Who started it.
    pub origin: Origin,
    /// The least trusted of the users that it acts for: of a setuid program who started it.
    pub owner_uid: Option<u32>,
    /// Neither its executable nor its descriptors may be seen: nothing but its own words say that
    /// it is QEMU.
    pub unverified: bool,
    /// All that it has mapped (`VmSize`), whatever it says of its guest's memory.
    pub mapped: Option<Bytes>,
    /// What its guest is told of its machine.
    pub guest: GuestMachine,
    /// Its threads.
    pub threads: VmThreads,
    /// Its clients, by id. Never empty.
    pub clients: Vec<VmClient>,
    /// The client that the kernel moves packets for (vhost): the only one, or the one whose node
    /// all such NICs are on.
    pub vhost_client: Option<ClientId>,
    /// Memory that was plugged in later, to a virtual node that only its monitor knows: no client
    /// has it.
    pub unplaced: Vec<Region>,
    /// All mappings that a block could be in that was plugged in later.
    #[serde(skip)]
    pub left_over: Vec<Region>,
    /// Its guest may come to have more memory than it started with.
    pub may_get_memory: bool,
    /// Its guest may come to have more vCPUs than it started with.
    pub may_get_vcpus: bool,
    /// Devices of the host that are passed through (`-device vfio-pci,host=...`), as QEMU was told.
    pub passed_through: Vec<String>,
    /// The object that keeps its memory from the host (`sev-guest`, `tdx-guest`), which pins it.
    pub confidential: Option<String>,
    /// The monitor that may be asked where nobody is at it: of a VM that no manager has, which
    /// expects its monitor for itself.
    #[serde(skip)]
    pub monitor: Option<PathBuf>,
    /// What its spec states to whoever balances it.
    pub stated: Stated,
    /// Why its vCPUs, virtual nodes and memory are unknown, as a sentence, where they are.
    pub unread: Option<String>,
    /// All of its memory is locked (`-overcommit mem-lock=on`, `-realtime mlock=on`).
    pub locked: bool,
}

impl RunningVm {
    /// Whether it has a monitor that may be asked where nobody is at it. homenode's own VMs have
    /// one that their command lines do not name; it is asked only of what the VM got later.
    pub fn may_be_asked(&self) -> bool {
        self.monitor.is_some() || (self.origin.manager == Manager::Homenode && self.may_get_memory)
    }
}

/// vCPUs and memory that always move together: a virtual node, or the whole VM without vNUMA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VmClient {
    /// From 0 in the VM, in the order of the virtual nodes.
    pub id: ClientId,
    /// The virtual node; `None` for a VM without vNUMA.
    pub virtual_node: Option<u32>,
    /// Indexes of its vCPUs, rising.
    pub vcpus: Vec<u32>,
    /// The kernel's ids of their threads, as far as they are known.
    pub thread_ids: Vec<u32>,
    /// Memory that it has beside [`plugged`](Self::plugged): it may not have touched all of it.
    pub fixed_memory: Bytes,
    /// Nodes that somebody other than homenode bound its memory to.
    pub chosen_nodes: Option<NodeSet>,
    /// Nodes over which somebody spread its memory: homenode by their bandwidth, others by
    /// `policy=interleave`.
    pub spread_over: NodeSet,
    /// Those of them that QEMU was told by `policy=interleave`.
    pub interleaved_over: NodeSet,
    /// Where its memory is in QEMU's address space; why not, as a sentence, where that cannot be
    /// told.
    pub regions: Vec<Region>,
    /// Why [`regions`](Self::regions) is empty.
    pub memory_unknown_because: Option<String>,
}
