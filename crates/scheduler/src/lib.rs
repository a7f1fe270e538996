//! The pure scheduler: vNUMA sizing, initial placement, rebalancing. Data in, data out: no clock,
//! no file, no thread, no randomness.

mod action;
mod backing;
pub mod balance;
mod caches;
mod claims;
mod client_memory;
mod cores;
mod divide;
mod eligible;
mod error;
mod examination;
mod exchange;
mod expected;
mod explain;
mod fleet;
pub mod growth;
mod holding;
pub mod home;
mod host;
mod meter;
mod observation;
mod occupancy;
mod placement;
mod planner;
mod present;
mod promised;
mod rehome;
mod said;
mod sizing;
pub mod told;
mod topology_difference;

pub use action::{Act, Action, ActionError, Done, Host, Observe, ObserveError, VcpuGroup};
pub use caches::{vcpu_groups, with_groups};
pub use claims::Claims;
pub use divide::common_divisor;
pub use error::PlanError;
pub use examination::{HostSettings, LlcBalancing, OtherThread, OtherThreadKind, SchedulingClass, VmLimits, rebound};
pub use exchange::{Exchange, PortRates};
pub use fleet::{Beside, Fit, FleetMachine, FleetOption, FleetPlan, FleetVm, plan_fleet};
pub use holding::{Holding, Resident};
pub use meter::{TrafficMeter, TrafficSource};
pub use observation::{
    Backing, ClientId, ClientObservation, GroupObservation, GuestMachine, Mobility, Moment, NodeObservation,
    Observation, PolicyOfMemory, RunState, Traffic, USUAL_SHARES, Unseen, VmKey, VmObservation,
};
pub use occupancy::Occupancy;
pub use placement::EXACT_STEPS;
pub use planner::{plan, plan_together, plan_within};
pub use present::present_homes;
pub use promised::{keeps_to_nodes, promised};
pub use rehome::{rehome, rehome_within};
pub use said::{Said, SaidBy};
pub use topology_difference::topology_difference;
