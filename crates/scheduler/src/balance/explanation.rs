//! What `why` answers: for each client its home, every node that it could go to, and what speaks
//! against it.

use super::{Decision, Home};
use crate::{ClientId, VmKey};
use serde::{Deserialize, Serialize};
use topology::{Bytes, CpuSet, LlcId, NodeId};

/// A threshold that refuses a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Name of the value in the policy, or of the rule where it has no value: `node_affinity`,
    /// `memory`, `demand`, `mobility`.
    pub threshold: String,
    /// What was found.
    pub value: Option<f64>,
    /// What the threshold wants.
    pub limit: Option<f64>,
    /// Unit of both: `points`, `percent`, `periods`, `seconds`, `MiB`, `cores`.
    pub unit: String,
    /// The same as a sentence with figures.
    pub because: String,
}

/// A node that a client could go to, or where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Whether it is (part of) the client's home.
    pub is_home: bool,
    /// Load of the node now, in percent of its cores. For a client that has no home: as its first
    /// home counts it, with what idle vCPUs may do and with those that get theirs before it.
    pub load_percent: f64,
    /// Load of the node with the client, in percent of its cores; `None` where the client has a
    /// home and its demand is not known.
    pub load_with_percent: Option<f64>,
    /// Memory of the node that nobody holds or was promised.
    pub memory_available: Option<Bytes>,
    /// Memory that the client would need there.
    pub memory_needed: Bytes,
    /// Part of the client's resident memory that lies there, in percent.
    pub local_percent: Option<f64>,
    /// Mean distance from the node to the client's memory as it lies now.
    pub memory_distance: Option<f64>,
    /// Mean distance from the node to the homes of the VM's other clients.
    pub sibling_distance: Option<f64>,
    /// By how much those distances differ, either way and in the mean, from what its guest was
    /// told; `None` where that was told nothing. `remote_loss` has what is charged for it.
    #[serde(default)]
    pub told_difference: Option<f64>,
    /// CPU time that the client and its neighbours would lose with the client there, in CPUs:
    /// crowded CPUs.
    pub crowding_loss: Option<f64>,
    /// CPU time that all who draw from the node's memory lose to its controllers now, in CPUs;
    /// `None` where nobody says what they give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_loss: Option<f64>,
    /// CPU time that the client would lose there, in CPUs: memory and siblings far away, once
    /// memory has followed.
    pub remote_loss: Option<f64>,
    /// CPU time that going there costs once: copying, and remote memory until it is copied, in CPU
    /// seconds.
    pub cost: Option<f64>,
    /// CPU time won for each second after going there, in CPUs; negative: lost.
    pub gain: Option<f64>,
    /// Seconds after which the gain has won back the cost; `None`: never.
    pub payback_seconds: Option<f64>,
    /// What refuses the move; empty: nothing does.
    pub refused: Vec<Refusal>,
}

/// A last-level cache that a group of vCPUs could go to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheCandidate {
    /// The cache.
    pub llc: LlcId,
    /// The CPUs under it.
    pub cpus: CpuSet,
    /// Load of groups under it, in percent of its cores.
    pub load_percent: f64,
    /// CPU time won for each second there, in CPUs; `None` where the demand is not known.
    pub gain: Option<f64>,
    /// What refuses the move; empty: nothing does.
    pub refused: Vec<Refusal>,
}

/// vCPUs of a client that keep to one last-level cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupExplanation {
    /// By rising number.
    pub vcpus: Vec<u32>,
    /// The cache.
    pub llc: LlcId,
    /// The CPUs under it.
    pub cpus: CpuSet,
    /// Its capacity, where known.
    pub capacity: Option<Bytes>,
    /// Load of groups under it, in percent of its cores.
    pub load_percent: f64,
    /// CPUs that the group is entitled to.
    pub demand: Option<f64>,
    /// The least loaded other cache of the node.
    pub other: Option<CacheCandidate>,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientExplanation {
    /// Which.
    pub client: ClientId,
    /// Where it lives and should live.
    #[serde(flatten)]
    pub home: Home,
    /// Mean CPU time that it used and waited for, in CPUs.
    pub demand: Option<f64>,
    /// CPU time that it is entitled to, in CPUs.
    pub entitled: Option<f64>,
    /// Why all of its vCPUs count as busy; `None`: they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always_busy: Option<String>,
    /// What it is owed in the running window, in percent of its entitlement.
    pub owed_percent: Option<f64>,
    /// The pairs of virtual nodes with this one that are farther apart than the guest was told, as
    /// a sentence about the worst; `None` where none misleads it.
    #[serde(default)]
    pub misled: Option<String>,
    /// What it draws from memory, and what its home gives, as a sentence; `None` where nobody knows
    /// what it draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<String>,
    /// Whether it lives together with others of its VM, why, and what the contrary would be worth,
    /// as a sentence; `None` for a VM of one client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Resident memory away from its home.
    pub away: Option<Bytes>,
    /// Seconds since it was last moved.
    pub rested_seconds: Option<f64>,
    /// Every node, by id.
    pub candidates: Vec<Candidate>,
    /// Its vCPUs by the last-level cache that they keep to; empty where they are not divided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupExplanation>,
    /// What speaks against any move of it.
    pub refused: Vec<Refusal>,
    /// Memory that would not move, and failed actions, as sentences.
    pub troubles: Vec<String>,
}

/// Why a VM is where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Which.
    pub vm: VmKey,
    /// Its clients, by id.
    pub clients: Vec<ClientExplanation>,
    /// What the balancer would do with it now.
    pub decisions: Vec<Decision>,
}
