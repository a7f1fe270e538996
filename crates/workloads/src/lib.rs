//! What homenode measures with, natively and in a guest from the same code, and the words that a
//! controller and an agent exchange about it. [`workload`] says what a workload is.

// Copy must be loads and stores, not a call of memcpy: see stream/kernels.rs.
#![no_builtins]

mod adaptive_resonance;
mod barotropic;
pub mod chase;
pub mod choice;
pub mod command;
mod conjugate_gradient;
mod crew;
mod error;
mod explicit_elements;
mod fft3d;
pub mod kernel;
mod kind;
mod lattice_dslash;
mod multigrid;
mod placement;
pub mod protocol;
mod shallow_water;
mod ssor_wavefront;
pub mod stream;
mod team;
pub mod workload;

pub use crew::Crew;
pub use error::WorkloadError;
pub use kind::{Kind, Parameters, Section};
pub use placement::{Anywhere, Placement};

use placement::count_pages;

/// All workloads that an agent can run. A new one: its folder, and a line here.
pub const WORKLOADS: &[Kind] = &[
    Kind::of::<stream::Stream>(),
    Kind::of::<chase::Chase>(),
    Kind::of::<command::Section>(),
    Kind::of::<kernel::Programs>(),
    // Each of `kernel::KERNELS`, by its place there.
    Kind::of::<kernel::KernelSection<0>>(),
    Kind::of::<kernel::KernelSection<1>>(),
    Kind::of::<kernel::KernelSection<2>>(),
    Kind::of::<kernel::KernelSection<3>>(),
    Kind::of::<kernel::KernelSection<4>>(),
    Kind::of::<kernel::KernelSection<5>>(),
    Kind::of::<kernel::KernelSection<6>>(),
    Kind::of::<kernel::KernelSection<7>>(),
    Kind::of::<kernel::KernelSection<8>>(),
];

/// Most repetitions in one job: bounds the memory of a result that is kept raw.
pub const MAX_REPETITIONS: u32 = 250;
