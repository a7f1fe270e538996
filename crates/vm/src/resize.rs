//! What is to change of a VM while it runs, and what came of it.

use crate::backend::Patience;
use crate::spec::Backing;
use crate::{Added, Placement, VirtualTopology};
use std::collections::BTreeMap;
use topology::Bytes;

/// What to add to a VM that runs, or to take from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resize {
    /// What the guest sees; it stays as it is.
    pub topology: VirtualTopology,
    /// Where its clients live now: new threads and new memory go there.
    pub placement: Placement,
    /// What new memory is made of, and when it is taken: as the rest of the VM's.
    pub backing: Backing,
    /// What was plugged before, as far as it was written down.
    pub added: Added,
    /// Indices of vCPUs to plug.
    pub plug: Vec<u32>,
    /// Indices of vCPUs to unplug: of those that were plugged.
    pub unplug: Vec<u32>,
    /// The new memory of each virtual node whose memory changes.
    pub memory: BTreeMap<u32, Bytes>,
    /// How long the guest may do nothing of what it should.
    pub patience: Patience,
}

/// What became of a [`Resize`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// All that is plugged in now.
    pub added: Added,
    /// What the guest has not done in its time, as sentences; empty where it has done everything.
    pub undone: Vec<String>,
    /// What else its owner should know, as sentences.
    pub notes: Vec<String>,
}
