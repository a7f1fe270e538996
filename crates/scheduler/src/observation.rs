//! What a host says about itself at one moment: all that the balancer knows. A figure that nobody could read is `None`, never zero.

use crate::NodeUse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, NodeId, NodeSet};

/// A moment on the host's own clock, in milliseconds since an epoch that the host chose; it never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(pub u64);

/// A VM on a host. The process makes two VMs of the same name, one after the other, two VMs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VmKey {
    /// The guest's name, or `pid N` where it has none.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// When the process started, in the kernel's clock ticks since boot: tells a process from a later one with the same id.
    pub started: u64,
}

/// A client: vCPUs and memory that always move together. A virtual node of a VM with vNUMA, else the whole VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u32);

/// One client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientObservation {
    /// From 0 in the VM.
    pub id: ClientId,
    /// Number of its vCPUs.
    pub vcpus: u32,
    /// CPUs that its vCPU threads may run on now: the union over the threads.
    pub cpus: CpuSet,
    /// CPU time that its vCPUs used since the last observation, in CPUs (2.5 = two and a half CPUs busy). `None` at first sight.
    pub cpu_used: Option<f64>,
    /// Time that its vCPUs were runnable and waited for a CPU, in CPUs: ESXi's ready time.
    pub cpu_waited: Option<f64>,
    /// Resident memory by node.
    pub memory: Option<BTreeMap<NodeId, Bytes>>,
    /// Memory that it may have in all: resident, or still to be touched.
    pub memory_size: Bytes,
    /// Page size of its memory where that is huge pages of a pool (hugetlbfs), which move only to free pages of the same
    /// size; `None`: ordinary pages, transparent huge ones included.
    #[serde(default)]
    pub huge_page_size: Option<Bytes>,
    /// Memory traffic since the last observation to its own home and to other nodes, in bytes a second, where hardware counts it.
    pub traffic: Option<Traffic>,
}

/// Measured memory traffic, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// To the memory of the node that the thread ran on.
    pub local: f64,
    /// To the memory of other nodes.
    pub remote: f64,
}

/// Whether the balancer may move a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Mobility {
    /// Threads and memory.
    Movable,
    /// Its threads only: its memory cannot follow.
    MemoryFixed {
        /// Why: `VFIO pins all of its memory`.
        because: String,
    },
    /// Neither.
    Fixed {
        /// Why: `its administrator opted out`, `its affinity was set by another program`, `CAP_SYS_NICE is missing`.
        because: String,
    },
}

/// One VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmObservation {
    /// Which.
    pub vm: VmKey,
    /// Its clients, by id. Never empty.
    pub clients: Vec<ClientObservation>,
    /// Whether it may be moved.
    pub mobility: Mobility,
    /// Its weight where CPUs are short; 1024 is usual.
    pub shares: u32,
    /// Nodes that it may live on; `None`: all.
    pub node_affinity: Option<NodeSet>,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeObservation {
    /// Hardware threads that are online and allowed now.
    pub cpus: CpuSet,
    /// CPU time used on them since the last observation, by everything, in CPUs.
    pub cpu_used: Option<f64>,
    /// Memory that can be taken now.
    pub memory_free: Option<Bytes>,
    /// Free memory in huge pages, by page size in bytes.
    pub huge_pages_free: BTreeMap<u64, Bytes>,
}

/// A host at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When.
    pub at: Moment,
    /// Every node that is there now.
    pub nodes: BTreeMap<NodeId, NodeObservation>,
    /// Every VM, by key.
    pub vms: Vec<VmObservation>,
    /// Share of the last 10 s in which some task waited for memory, 0 to 1 (PSI).
    pub memory_pressure: Option<f64>,
    /// What VMs that are being started will hold and do not yet: the ledger of reservations.
    pub reserved: BTreeMap<NodeId, NodeUse>,
}
