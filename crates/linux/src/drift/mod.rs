//! Drift: where a VM's home, its pages, their policy, its cpuset and the affinity of its threads disagree, and what would mend it.

mod compare;
mod facts;
#[cfg(test)]
mod tests;

pub use compare::compare;
pub(crate) use facts::policy_nodes;
pub use facts::{ClientFacts, HostFacts, VmFacts};

use scheduler::{Action, ClientId, VmKey};
use serde::Serialize;
use std::collections::BTreeMap;

use topology::{Bytes, NodeId, NodeSet};

/// The home of each client, as somebody decided it: the balancer, or an administrator.
pub type Homes = BTreeMap<(VmKey, ClientId), NodeSet>;

/// How much a disagreement matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is wrong now; something may go wrong later, or explains what is seen.
    Note,
    /// Memory or threads will leave home when something happens: a page is touched, a cpuset is written.
    Warning,
    /// Memory or threads are away from home now.
    Problem,
}

/// What disagrees with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Disagreement {
    /// Resident pages are on a node that is no home.
    PagesAway {
        /// Which.
        on: NodeId,
        /// How much.
        away: Bytes,
        /// Of how much that is resident.
        resident: Bytes,
    },
    /// The policy of its memory names other nodes than the home: pages that are touched from now on go there. It goes stale when memory
    /// is moved, and only QEMU itself can change it.
    PolicyElsewhere {
        /// The kernel's words: `bind:0`.
        policy: String,
    },
    /// Its memory has no policy: it is touched wherever a thread happens to run, and the kernel may move it.
    NoPolicy,
    /// The cpuset of its cgroup allows only a part of the home.
    CpusetNarrower {
        /// Nodes whose memory it may take, or whose CPUs it may use.
        allowed: NodeSet,
    },
    /// A cpuset confines it to more nodes than its home, while its policy binds memory: writing that cpuset again re-targets the policy
    /// by position.
    CpusetWider {
        /// Nodes that it allows.
        allowed: NodeSet,
    },
    /// Its vCPU threads may run on other nodes than the home.
    AffinityAway {
        /// Nodes of the CPUs that they may use.
        allowed: NodeSet,
    },
    /// The kernel's automatic NUMA balancing moves its memory by its own rules.
    AutoNumaFights,
    /// Memory in a shared file (memfd) that was not filled at start: a cpuset never rebinds its policy, so that pages touched later go
    /// to the old nodes.
    MemfdFaultsElsewhere {
        /// The kernel's words for its policy.
        policy: String,
        /// Not touched yet.
        absent: Bytes,
    },
    /// Its huge pages have no free ones on the home node to move to.
    HugePagesMissing {
        /// Where they are missing.
        node: NodeId,
        /// Size of a page.
        page_size: Bytes,
        /// Needed there.
        needed: Bytes,
        /// Free there.
        free: Bytes,
    },
    /// Its memory is pinned or locked and cannot follow.
    Pinned,
    /// It could not be examined.
    Unreadable,
}

/// What would mend a disagreement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cure", rename_all = "snake_case")]
pub enum Cure {
    /// An action of the balancer's kind.
    Act {
        /// It.
        action: Action,
    },
    /// Write the `cpuset.mems` of the VM's own cgroup: confines it to these nodes and lets the kernel rebind its policy by position,
    /// which was computed beforehand to come out right.
    Confine {
        /// The VM.
        vm: VmKey,
        /// The nodes.
        nodes: NodeSet,
    },
    /// Something that only a person can decide or do.
    ByHand {
        /// What, as a sentence.
        advice: String,
    },
}

/// One disagreement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The VM; `None` for the host as a whole.
    pub vm: Option<VmKey>,
    /// The client; `None` for the whole VM.
    pub client: Option<ClientId>,
    /// What disagrees.
    #[serde(flatten)]
    pub disagreement: Disagreement,
    /// What was read, in the kernel's words and with its files where they help.
    pub evidence: String,
    /// How much it matters.
    pub severity: Severity,
    /// What would mend it.
    pub cure: Option<Cure>,
}
