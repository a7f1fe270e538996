//! What happened in a period, for whoever tells of it.

use scheduler::balance::Decision;
use scheduler::{Action, ActionError, Done, Moment, TrafficMeter, VmKey};
use serde::{Deserialize, Serialize};
use topology::NodeSet;

/// What became of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It would be carried out.
    Planned,
    /// It was.
    Done(Done),
    /// It could not be.
    Failed(ActionError),
}

/// What came of putting something right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "what", rename_all = "snake_case")]
pub enum PutRight {
    /// It is right now: what it was.
    Done(String),
    /// It is not.
    Failed(ActionError),
}

/// Something that a user may want to know.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A VM is seen for the first time.
    Appeared {
        /// Which.
        vm: VmKey,
    },
    /// A VM that was there is not any more.
    Ended {
        /// Which.
        vm: VmKey,
    },
    /// A decision.
    Acted {
        /// What and why.
        #[serde(flatten)]
        decision: Decision,
        /// Nodes that the client's threads might run on before.
        from: NodeSet,
        /// Whether the VM has more clients than this one.
        wide: bool,
        /// What became of it.
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// What a homenode that was killed had left behind was put right, or could not be.
    PutRight {
        /// Of which VM.
        vm: VmKey,
        /// What it was, as a sentence.
        #[serde(flatten)]
        outcome: PutRight,
    },
    /// A file could not be written; balancing goes on without it.
    NotWritten {
        /// Which and why.
        problem: String,
    },
}

/// What happened in one period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Period {
    /// When the host was looked at.
    pub at: Moment,
    /// NUMA nodes that the host had then. With one there is nothing to decide.
    pub nodes: usize,
    /// VMs that it had then.
    pub vms: usize,
    /// What counts memory traffic there; `None` where nobody says.
    pub traffic_meter: Option<TrafficMeter>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

impl Event {
    /// The VM and the home that a decision gives it.
    pub fn home(&self) -> Option<(&VmKey, &NodeSet)> {
        match self {
            Self::Acted { decision: Decision { action: Action::Bind { vm, home, .. }, .. }, .. } => Some((vm, home)),
            _ => None,
        }
    }
}
