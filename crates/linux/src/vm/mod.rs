//! A QEMU process as the balancer sees it: who it is, its vCPU threads, its clients, and where in
//! its address space each client's memory is.
//!
//! All of it comes from `/proc` and from QEMU's command line, so that it works for VMs that
//! somebody else started and whose monitor somebody else holds.

mod examine;
mod huge_pages;
pub(crate) mod kvm;
pub(crate) mod owner;
mod regions;
mod threads;
pub(crate) mod vhost;

pub(crate) use examine::{FirstWords, arguments, started_ticks};
pub use regions::{Region, RegionEvidence, RegionKind, UnknownMemory};
pub use threads::{ThreadKind, VcpuEvidence, VcpuThread, VmThreads};

use ::vm::Origin;
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
    /// Devices of the host that are passed through (`-device vfio-pci,host=...`), as QEMU was told.
    pub passed_through: Vec<String>,
    /// The object that keeps its memory from the host (`sev-guest`, `tdx-guest`), which pins it.
    pub confidential: Option<String>,
    /// The monitor that may be asked where nobody is at it: of a VM that no manager has, which
    /// expects its monitor for itself.
    #[serde(skip)]
    pub monitor: Option<PathBuf>,
    /// All of its memory is locked (`-overcommit mem-lock=on`, `-realtime mlock=on`).
    pub locked: bool,
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
    /// Memory that it may have.
    pub memory_size: Bytes,
    /// Nodes that somebody other than homenode bound its memory to.
    pub chosen_nodes: Option<NodeSet>,
    /// Where its memory is in QEMU's address space; why not, as a sentence, where that cannot be
    /// told.
    pub regions: Vec<Region>,
    /// Why [`regions`](Self::regions) is empty.
    pub memory_unknown_because: Option<String>,
}
