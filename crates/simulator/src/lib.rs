//! The modelled machine: what a workload reaches on a machine that need not be here.
//!
//! A [`MachineModel`] is a machine with its [`topology::rates::Rates`], as stations that serve
//! cache lines. A [`Profile`] says what a workload asks of a core, [`CoreWork`] which core works on
//! which memory; together they are [`Group`]s of identical actors, and a [`RateSolver`] says how
//! many lines each of them moves. Pure: no clock, no file, no thread, no randomness that was not
//! handed in.

mod amva;
pub mod application;
pub mod checkers;
mod classes;
mod error;
pub mod events;
pub mod faults;
mod group;
pub mod host;
pub mod machine_check;
mod max_min;
mod memo;
mod model;
mod pages;
mod profile;
pub mod rivals;
mod routes;
mod solver;
pub mod threads;
pub mod traces;
pub mod workload;

pub use amva::Amva;
pub use classes::{Active, ClassId, Classes, merge};
pub use error::{ModelError, SolveError};
pub use group::{CoreWork, Group};
pub use host::SimulatedHost;
pub use max_min::MaxMin;
pub use memo::Memo;
pub use model::{MachineModel, Station, StationId, StationKind};
pub use pages::{PageWalk, Pages};
pub use profile::Profile;
pub use solver::{RateSolver, Solution};
