//! The pure scheduler: vNUMA sizing and initial placement. Data in, data out: no clock, no file, no thread, no randomness.

mod divide;
mod error;
mod explain;
mod host;
mod occupancy;
mod placement;
mod plan;
mod planner;
mod sizing;
pub mod spec;

pub use error::PlanError;
pub use occupancy::{NodeUse, Occupancy};
pub use placement::EXACT_STEPS;
pub use plan::{Client, MemoryPolicy, Placement, Plan, Reason, VirtualNode, VirtualTopology};
pub use planner::{plan, plan_together, plan_within};
pub use spec::VmSpec;
