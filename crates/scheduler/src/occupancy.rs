//! What already runs on the machine, as far as placement needs to know.

use crate::Claims;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, Node, NodeId};
use vm::{NodeUse, Plan};

/// What the VMs on a machine hold, node by node. A node without an entry holds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// By node.
    pub nodes: BTreeMap<NodeId, NodeUse>,
    /// What of it is only claimed, by users whose word does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claims>,
}

impl Occupancy {
    /// What is held of `node`.
    pub fn of(&self, node: NodeId) -> NodeUse {
        self.nodes.get(&node).copied().unwrap_or_default()
    }
    /// Memory of a node that nobody has or was promised.
    pub fn free_memory(&self, node: &Node) -> Bytes {
        let held = self.of(node.id);
        // What is resident is already missing from `free`; only the rest of the promise still has
        // to come out of it.
        let free = match node.free {
            Some(free) => free.saturating_sub(held.memory.saturating_sub(held.resident)),
            None => node.memory.saturating_sub(held.memory),
        };
        free.min(node.memory)
    }
    /// Adds what a planned VM will hold, so that the next plan sees it before the VM runs.
    pub fn reserve(&mut self, plan: &Plan) {
        self.hold(&plan.holdings);
    }
    /// Adds what somebody holds of each node.
    pub fn hold(&mut self, holdings: &BTreeMap<NodeId, NodeUse>) {
        for (&node, taken) in holdings {
            let held = self.nodes.entry(node).or_default();
            held.vcpus = held.vcpus.saturating_add(taken.vcpus);
            held.memory = held.memory.saturating_add(taken.memory);
            held.resident = held.resident.saturating_add(taken.resident);
        }
    }
}
