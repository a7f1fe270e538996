//! The lines of a recording.

use crate::{Outcome, PolicyFile};
use scheduler::balance::{BalanceState, Decision};
use scheduler::{Observation, VmKey};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use topology::Machine;

/// The format of the file.
pub(super) const VERSION: u32 = 1;

// Not internally tagged: serde cannot read maps with numbers as keys, such as memory by node,
// inside of such.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry<'a> {
    /// The first line.
    Start(Box<Start<'a>>),
    /// The UUID of a VM, from a homenode whose observations did not hold it.
    Identified {
        /// The VM.
        vm: Cow<'a, VmKey>,
        /// Its UUID.
        uuid: Cow<'a, str>,
    },
    /// What was seen, before the administrator's rules.
    Observed {
        /// All of it.
        observation: Cow<'a, Observation>,
    },
    /// What was decided on it, and what became of that.
    Decided {
        /// In order.
        decisions: Vec<Decided<'a>>,
    },
}

/// What is true of the whole recording.
#[derive(Serialize, Deserialize)]
pub(super) struct Start<'a> {
    pub(super) version: u32,
    pub(super) machine: Cow<'a, Machine>,
    pub(super) policy: Cow<'a, PolicyFile>,
    /// What the balancer remembered when the recording began.
    pub(super) state: Cow<'a, BalanceState>,
}

/// A decision and what became of it.
#[derive(Serialize, Deserialize)]
pub(super) struct Decided<'a> {
    pub(super) decision: Cow<'a, Decision>,
    #[serde(flatten)]
    pub(super) outcome: Cow<'a, Outcome>,
}
