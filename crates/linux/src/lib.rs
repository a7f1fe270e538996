//! The real host: system calls, processes, load, and the virtual machines that run on it.
//!
//! The static guest program links this crate too, for [`sys`]: keep it light.

pub mod binding;
pub mod capabilities;
pub mod cgroup;
pub mod counters;
mod devices;
mod error;
mod guest_environment;
pub mod host;
pub mod large_pages;
pub mod load;
pub mod lock_file;
pub mod memory;
pub mod moving;
pub mod named_file;
pub mod pins;
mod proc_text;
pub mod process;
pub mod residence;
pub mod room;
mod root;
pub mod sys;
mod traffic;
pub mod unique;
mod users;
pub mod vm;

pub use error::LinuxError;
pub use guest_environment::{GUEST_ENVIRONMENT, GUEST_FILES};
pub use host::{HostOptions, LinuxHost, NEWCOMERS_WITHIN, examine_this_host};
pub use root::Root;
pub use traffic::{TrafficFrom, TrafficOptions};
pub use users::{Trusted, Users};
