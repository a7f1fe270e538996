//! The real host: system calls, processes, load, and the virtual machines that run on it.
//!
//! The static guest program links this crate too, for [`sys`]: keep it light.

mod error;
pub mod load;
pub mod memory;
pub mod process;
pub mod sys;
pub mod vms;

pub use error::LinuxError;
