//! Where a VM really is, read back from the kernel: never what was asked for.

use crate::Accelerator;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{CpuSet, NodeId, NodeSet};

/// Where a running VM's vCPUs and memory are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residence {
    /// The VM.
    pub vm: String,
    /// QEMU's process.
    pub pid: u32,
    /// As QEMU says it.
    pub qemu_version: String,
    /// What runs its instructions.
    pub accelerator: Accelerator,
    /// By index.
    pub vcpus: Vec<VcpuResidence>,
    /// By virtual node.
    pub memory: Vec<MemoryResidence>,
    /// Whether everything is known to be at home.
    pub at_home: bool,
}

/// Where one vCPU may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuResidence {
    /// From 0.
    pub index: u32,
    /// The host's thread that runs it; one thread may run them all (TCG).
    pub thread_id: u32,
    /// Its virtual node.
    pub virtual_node: u32,
    /// CPUs that the thread may use.
    pub affinity: CpuSet,
    /// Whether all of them are its client's.
    pub at_home: bool,
}

/// Where the memory of one virtual node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryResidence {
    /// The virtual node.
    pub virtual_node: u32,
    /// Its client's home.
    pub home: NodeSet,
    /// Resident pages on each machine node. A page that the guest never touched is on none.
    pub pages_by_node: BTreeMap<NodeId, u64>,
    /// Size of those pages.
    pub page_bytes: u64,
    /// The policy that the kernel applies, for example `bind:0`.
    pub policy: Option<String>,
    /// Whether no page is away from home. False where it is not known.
    pub at_home: bool,
    /// Why it is not known where the memory is.
    pub unknown: Option<String>,
}

impl Residence {
    /// Resident bytes of all virtual nodes; `None` where it is not known of one.
    pub fn taken(&self) -> Option<topology::Bytes> {
        let known = |memory: &MemoryResidence| memory.unknown.is_none();
        let bytes = |memory| Self::bytes_by_node(memory).into_values().sum::<topology::Bytes>();
        self.memory.iter().map(|memory| known(memory).then(|| bytes(memory))).sum::<Option<_>>()
    }

    /// Resident bytes of a virtual node on each machine node.
    pub fn bytes_by_node(memory: &MemoryResidence) -> BTreeMap<NodeId, topology::Bytes> {
        memory.pages_by_node.iter().map(|(&node, pages)| (node, topology::Bytes(pages * memory.page_bytes))).collect()
    }
}
