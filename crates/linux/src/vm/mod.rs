//! A QEMU process as the balancer sees it: who it is, its vCPU threads, its clients, and where in its address space each client's memory is.
//!
//! All of it comes from `/proc` and from QEMU's command line, so that it works for VMs that somebody else started and whose monitor
//! somebody else holds.

mod examine;
mod huge_pages;
mod regions;
mod threads;

pub use regions::{Region, RegionEvidence, RegionKind};
pub use threads::{ThreadKind, VcpuEvidence, VcpuThread, VmThreads};

use ::vm::Origin;
use scheduler::{ClientId, VmKey};
use serde::Serialize;
use topology::Bytes;

/// A VM that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningVm {
    /// Name, process, start.
    pub key: VmKey,
    /// What `-uuid` says, if anything.
    pub uuid: Option<String>,
    /// Who started it.
    pub origin: Origin,
    /// Its threads.
    pub threads: VmThreads,
    /// Its clients, by id. Never empty.
    pub clients: Vec<VmClient>,
    /// Devices of the host that are passed through (`-device vfio-pci,host=...`), as QEMU was told.
    pub passed_through: Vec<String>,
    /// The object that keeps its memory from the host (`sev-guest`, `tdx-guest`), which pins it.
    pub confidential: Option<String>,
    /// All of its memory is locked (`-overcommit mem-lock=on`, `-realtime mlock=on`).
    pub locked: bool,
}

/// vCPUs and memory that always move together: a virtual node, or the whole VM without vNUMA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// Where its memory is in QEMU's address space; empty where that could not be told (no permission, or several look alike).
    pub regions: Vec<Region>,
}
