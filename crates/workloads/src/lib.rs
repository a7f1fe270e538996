//! The kernels that homenode measures with, natively and in a guest from the same code, and the words that a controller and an
//! agent exchange about them.

pub mod protocol;

/// Most repetitions in one job: bounds the memory of a result that is kept raw.
pub const MAX_REPETITIONS: u32 = 250;
