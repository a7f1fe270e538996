//! What already runs on the machine, as far as placement needs to know.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, NodeId};

/// What the VMs that run or are being started hold of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUse {
    /// vCPUs whose home is this node.
    pub vcpus: u32,
    /// Memory that they may still touch here: promised, not necessarily resident.
    pub memory: Bytes,
    /// Of that, what is resident on the node now (and so already missing from the node's free memory).
    pub resident: Bytes,
}

/// What the VMs on a machine hold, node by node. A node without an entry holds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// By node.
    pub nodes: BTreeMap<NodeId, NodeUse>,
}

impl Occupancy {
    /// What is held of `node`.
    pub fn of(&self, node: NodeId) -> NodeUse {
        self.nodes.get(&node).copied().unwrap_or_default()
    }
}
