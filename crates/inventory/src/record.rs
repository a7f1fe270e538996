//! What is kept of a VM.

use serde::{Deserialize, Serialize};
use topology::NodeSet;
use vm::history::Life;
use vm::{Added, NodeSize, Placement, Plan, VirtualTopology, VmSpec};

/// A VM that homenode keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What its owner wrote.
    pub spec: VmSpec,
    /// What the guest sees; `None` before its first power-on.
    pub topology: Option<VirtualTopology>,
    /// Where it lives; `None` before its first power-on.
    pub placement: Option<Kept>,
    /// Its state, and how it came there.
    pub life: Life,
}

impl Record {
    /// Homes of its clients, by client; none before its first power-on.
    pub fn homes(&self) -> Vec<NodeSet> {
        let clients = self.placement.iter().flat_map(|kept| &kept.placement.clients);
        clients.map(|client| client.home.clone()).collect()
    }

    /// What each virtual node has now, or, while the VM does not run, will have at its next
    /// power-on; none before its first.
    pub fn sizes(&self) -> Vec<NodeSize> {
        let Some(topology) = &self.topology else { return Vec::new() };
        self.placement.as_ref().map_or_else(Added::default, |kept| kept.added.clone()).sizes(topology)
    }

    /// Its virtual topology on its homes, without the reasons; `None` before its first power-on.
    pub fn plan(&self) -> Option<Plan> {
        let (topology, kept) = (self.topology.clone()?, self.placement.as_ref()?);
        Some(Plan::of(&self.spec, topology, kept.placement.clone()))
    }
}

/// Where a VM lives, as it was last decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The host that it is about, by name.
    pub host: String,
    /// Each client on its home.
    pub placement: Placement,
    /// What was plugged in since power-on.
    #[serde(default)]
    pub added: Added,
}
