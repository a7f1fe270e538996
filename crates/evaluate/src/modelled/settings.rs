//! What an experiment file says about the model alone.

use serde::{Deserialize, Serialize};
use topology::rates::Sourced;

/// The native operating system of the published figures: `[native_os]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NativeOs {
    /// Probability that a new thread takes a uniformly random idle hardware thread instead of the
    /// least loaded node and an idle core.
    pub random_thread_share: Option<Sourced<f64>>,
}

/// What a configuration says about the model: `[configuration.modelled]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Modelled {
    /// Only the model runs it; a measured evaluation leaves it out and says so.
    pub only: bool,
    /// Where memory lies, whatever the policy says.
    pub memory: Option<ModelledMemory>,
    /// Overrides the machine file's: what each doubling of the threads that stream through a
    /// controller costs of its bandwidth.
    pub row_conflict_droop: Option<Sourced<f64>>,
    /// Whether threads may use both hardware threads of a core, where that is not what the
    /// configuration's own `smt` says.
    pub smt: Option<bool>,
}

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelledMemory {
    /// Where the thread runs.
    Local,
    /// Page by page over all nodes that the configuration uses.
    Interleaved,
    /// On the other nodes.
    Remote,
    /// Each page on a random node; threads walk through their pages one after the other, and rates
    /// follow each page.
    RandomPages,
}
