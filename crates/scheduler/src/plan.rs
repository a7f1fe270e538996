//! The answer: a virtual topology, where each client lives, and why.

use crate::NodeUse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, NodeId, NodeSet};

/// One node of the virtual topology, as the guest sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualNode {
    /// The guest's node number, from 0.
    pub id: u32,
    /// vCPU indices, rising; each vCPU of the VM is in exactly one node.
    pub vcpus: Vec<u32>,
    /// Memory of the node, in whole MiB.
    pub memory: Bytes,
}

/// What the guest sees; fixed from power-on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualTopology {
    /// Whether the guest is told of its nodes. False: one uniform node, and `nodes` holds exactly
    /// that one.
    pub exposed: bool,
    /// The nodes, by id.
    pub nodes: Vec<VirtualNode>,
    /// Virtual sockets. No node's vCPUs share a socket with another node's.
    pub sockets: u32,
    /// Cores in a virtual socket.
    pub cores_per_socket: u32,
    /// Hardware threads in a virtual core.
    pub threads_per_core: u32,
    /// `distances[i][j]`: SLIT value from node i to node j.
    pub distances: Vec<Vec<u32>>,
}

/// How a client's memory is bound to its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPolicy {
    /// On the home nodes and nowhere else (`MPOL_BIND`).
    Bind,
    /// Page by page over the home nodes (`MPOL_INTERLEAVE`).
    Interleave,
    /// Where the kernel likes (no policy).
    Default,
}

/// The unit of placement: the vCPUs and the memory that always move together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// From 0.
    pub id: u32,
    /// The virtual nodes that this client carries, by id. Never empty; each virtual node is in
    /// exactly one client.
    pub virtual_nodes: Vec<u32>,
    /// Machine nodes that are its home: one, or several where one does not hold it. Its memory lies
    /// on these.
    pub home: NodeSet,
    /// Hardware threads that its vCPUs may use: all usable ones of the nodes where it lives. Other
    /// nodes of its home have memory of it only: they have no CPUs, or what its own node lacks lies
    /// there.
    pub cpus: CpuSet,
    /// How its memory is bound.
    pub memory_policy: MemoryPolicy,
}

/// Each client on its home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// By id.
    pub clients: Vec<Client>,
}

/// One choice and why it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What was chosen, for example `virtual nodes: 2`.
    pub choice: String,
    /// Why, as a sentence.
    pub because: String,
}

/// Everything that `homenode plan` prints and `homenode run` carries out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The VM's name.
    pub vm: String,
    /// What the guest sees.
    pub topology: VirtualTopology,
    /// Where it lives.
    pub placement: Placement,
    /// What the VM takes of each machine node.
    #[serde(default)]
    pub holdings: BTreeMap<NodeId, NodeUse>,
    /// CPU time that it loses by where it lives if all its vCPUs are busy, in thousandths of CPUs:
    /// vCPUs that wait or share a core, remote memory, distance between its clients.
    #[serde(default)]
    pub lost_milli_cpus: u64,
    /// Why, in the order of the decisions.
    pub reasons: Vec<Reason>,
    /// What the user should know: overcommitted CPUs, memory that only just fits, a socket count
    /// that had to change.
    pub warnings: Vec<String>,
}

impl Plan {
    /// CPUs of all homes: where QEMU's own threads run, and one thread that runs all vCPUs.
    pub fn cpus(&self) -> CpuSet {
        self.placement.clients.iter().fold(CpuSet::new(), |all, client| all.union(&client.cpus))
    }

    /// Nodes of all homes.
    pub fn homes(&self) -> NodeSet {
        self.placement.clients.iter().fold(NodeSet::new(), |all, client| all.union(&client.home))
    }

    /// The client that carries a virtual node.
    pub fn client_of(&self, virtual_node: u32) -> Option<&Client> {
        self.placement.clients.iter().find(|client| client.virtual_nodes.contains(&virtual_node))
    }
}
