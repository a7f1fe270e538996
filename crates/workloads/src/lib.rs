//! The kernels that homenode measures with, natively and in a guest from the same code, and the
//! words that a controller and an agent exchange about them.

// Copy must be loads and stores, not a call of memcpy: see stream/kernels.rs.
#![no_builtins]

pub mod chase;
pub mod command;
mod conjugate_gradient;
mod crew;
mod error;
pub mod kernel;
mod multigrid;
mod placement;
pub mod protocol;
mod shallow_water;
pub mod stream;
mod team;

pub use crew::Crew;
pub use error::WorkloadError;
pub use placement::{Anywhere, Placement};

use placement::count_pages;

/// Most repetitions in one job: bounds the memory of a result that is kept raw.
pub const MAX_REPETITIONS: u32 = 250;
