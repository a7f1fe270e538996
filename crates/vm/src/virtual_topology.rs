//! What the guest sees of NUMA.

use serde::{Deserialize, Serialize};
use topology::Bytes;

/// One node of the virtual topology, as the guest sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualNode {
    /// The guest's node number, from 0.
    pub id: u32,
    /// Indices of all vCPUs that it has or may get, rising; each vCPU of the VM is in exactly one
    /// node.
    pub vcpus: Vec<u32>,
    /// Those of them that are not there at power-on and may be plugged later, rising.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<u32>,
    /// Memory of the node at power-on, in whole MiB.
    pub memory: Bytes,
    /// Memory that may be plugged later.
    #[serde(default, skip_serializing_if = "is_none")]
    pub growth: Bytes,
}

fn is_none(bytes: &Bytes) -> bool {
    bytes.0 == 0
}

impl VirtualNode {
    /// Indices of the vCPUs that are there at power-on, rising.
    pub fn present(&self) -> impl Iterator<Item = u32> + '_ {
        self.vcpus.iter().copied().filter(|vcpu| !self.absent.contains(vcpu))
    }
}

/// What the guest sees; fixed from the first power-on, for life.
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
