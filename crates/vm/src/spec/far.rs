//! Whether a VM's memory may lie on nodes without CPUs.
//!
//! **Problem.** A memory expander (CXL) is larger and slower than a node's own memory, fast memory
//! beside a socket (HBM) smaller and faster. Both are nodes without CPUs. Memory that comes to lie
//! there because a node was full for a moment costs its VM dearly; memory that lies there on
//! purpose adds room, or bandwidth.
//!
//! **Rule.** Such a node is never a home. What of a VM's memory may lie there the spec says.
//!
//! **Example.** A node that gives 90 GB/s, and an expander beside it that gives 30: of a VM of 8
//! GiB with `by_bandwidth`, 2 GiB lie on the expander, spread over its memory in pieces of 2 MiB.

use super::check::{Checked, ensure};
use super::{Fill, Shape};
use crate::MemoryPolicy;
use serde::{Deserialize, Serialize};

/// What of a VM's memory may lie on nodes that have memory and no CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FarMemory {
    /// None.
    #[default]
    Never,
    /// What finds no room on the nodes of its home; such a node lends like any other.
    WhenFull,
    /// A part for good, by bandwidth: the nodes nearest to each home give as much of it as they
    /// give of the bandwidth of all.
    ByBandwidth,
}

impl FarMemory {
    /// Whether it is the default.
    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// Pieces are put in their places once, before the guest starts.
pub(super) fn check(shape: &Shape) -> Checked {
    if shape.policy.far_memory != FarMemory::ByBandwidth {
        return Ok(());
    }
    let refused = |field: &str, problem: &str| {
        ensure(false, field, || format!("it does not go with policy.far_memory = \"by_bandwidth\": {problem}"))
    };
    if !matches!(shape.policy.memory, None | Some(MemoryPolicy::Bind)) {
        refused(
            "policy.memory",
            "its memory is bound to the nodes where its parts lie; write \"bind\", or leave it out",
        )?;
    }
    if shape.backing.huge_pages.is_some() {
        refused(
            "backing.huge_pages",
            "pages of a pool stay in the pool that they came from; leave one of the two out",
        )?;
    }
    if shape.backing.fill == Fill::OnTouch {
        refused("backing.fill", "the parts are put in their places at the start; write \"at_start\"")?;
    }
    if shape.most_memory() > shape.memory {
        refused("max_memory", "memory that is plugged in later would not be divided; leave one of the two out")?;
    }
    Ok(())
}
