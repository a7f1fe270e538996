//! The pure scheduler: vNUMA sizing and initial placement. Data in, data out: no clock, no file, no thread, no randomness.

mod occupancy;
mod plan;
pub mod spec;

pub use occupancy::{NodeUse, Occupancy};
pub use plan::{Client, MemoryPolicy, Placement, Plan, Reason, VirtualNode, VirtualTopology};
pub use spec::{SpecError, VmSpec};
