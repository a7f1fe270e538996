//! What already runs on the machine, as far as placement needs to know.

use crate::Claims;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, LlcId, Node, NodeId};
use vm::spec::Backing;
use vm::{NodeUse, Plan};

/// What the VMs on a machine hold, node by node. A node without an entry holds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// By node.
    pub nodes: BTreeMap<NodeId, NodeUse>,
    /// What of it is only claimed, by users whose word does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claims>,
    /// Memory of the nodes' pools of huge pages that is promised and not taken yet, by page size in
    /// bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<u64, BTreeMap<NodeId, Bytes>>,
    /// Hardware threads of clients that have no more of them than vCPUs: no vCPU of another VM is
    /// bound to one of these alone.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub bound_cpus: CpuSet,
    /// vCPUs that may use one last-level cache only, of a node that has several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub caches: BTreeMap<LlcId, u32>,
    /// Whether a balancer runs here, which sees what VMs do and moves them: a VM whose memory is
    /// taken when it is touched is then placed by what is expected of it, not as if all of its
    /// vCPUs were busy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub balanced: bool,
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
    /// Memory of a node in free huge pages of this size that nobody was promised. Where nobody says
    /// what pools the node has: what of its free memory would make whole pages.
    pub fn free_huge_pages(&self, node: &Node, page: Bytes) -> Bytes {
        let Some(free) = node.pool(page).map(|pool| pool.free) else {
            return Bytes(self.free_memory(node).0 / page.0.max(1) * page.0);
        };
        let promised = self.pools.get(&page.0).and_then(|by_node| by_node.get(&node.id)).copied().unwrap_or_default();
        Bytes(free.saturating_mul(page.0)).saturating_sub(promised)
    }
    /// Memory of a node that a VM with this backing could have.
    pub fn free_for(&self, node: &Node, backing: &Backing) -> Bytes {
        backing.huge_pages.map_or_else(|| self.free_memory(node), |page| self.free_huge_pages(node, page))
    }
    /// Adds what a planned VM will hold, so that the next plan sees it before the VM runs.
    pub fn reserve(&mut self, plan: &Plan) {
        self.hold(&plan.holdings);
        self.bound_cpus = self.bound_cpus.union(&plan.bound_cpus());
        self.hold_caches(&plan.vcpus_by_cache());
        if let Some(page) = plan.backing.huge_pages {
            self.promise_pages(page, plan.holdings.iter().map(|(&node, held)| (node, held.memory)));
        }
    }
    /// Adds what somebody will take of each node's pool of huge pages.
    pub fn promise_pages(&mut self, page: Bytes, by_node: impl IntoIterator<Item = (NodeId, Bytes)>) {
        for (node, bytes) in by_node {
            let promised = self.pools.entry(page.0).or_default().entry(node).or_default();
            *promised = promised.saturating_add(bytes);
        }
    }
    /// Adds vCPUs that are bound to caches.
    pub fn hold_caches(&mut self, vcpus: &BTreeMap<LlcId, u32>) {
        for (&llc, &vcpus) in vcpus {
            let held = self.caches.entry(llc).or_default();
            *held = held.saturating_add(vcpus);
        }
    }
    /// Adds what somebody holds of each node.
    pub fn hold(&mut self, holdings: &BTreeMap<NodeId, NodeUse>) {
        for (&node, taken) in holdings {
            let held = self.nodes.entry(node).or_default();
            held.vcpus = held.vcpus.saturating_add(taken.vcpus);
            held.always_busy = held.always_busy.saturating_add(taken.always_busy);
            held.memory = held.memory.saturating_add(taken.memory);
            held.resident = held.resident.saturating_add(taken.resident);
            held.traffic = held.traffic.saturating_add(taken.traffic);
        }
    }
}
