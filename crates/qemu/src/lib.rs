//! QEMU as homenode drives it: its command line, QMP, the life of its processes, and the agents in
//! its guests.

mod accelerator;
pub mod agent;
mod at_home;
mod attached;
mod backend;
pub mod background;
mod binary;
mod boot;
pub mod command_line;
mod console;
mod error;
mod far;
mod features;
mod firmware;
mod footprint;
pub mod guest_check;
mod hot_add;
pub mod migration;
pub mod monitor;
mod process;
mod qmp;
mod reservation;
mod runtime_dir;
#[cfg(test)]
mod samples;
mod saved;
mod state;
mod taps;
mod terminal;
pub mod tiny_guest;
mod user;

pub use accelerator::{accelerator, cpu_can_virtualize, needs_topoext};
pub use agent::{AgentError, AgentLink, Arrived, NativeAgent};
pub use attached::{AttachedVm, Ending, boot_files, boot_files_elsewhere, check, command_by_hand};
pub use backend::{Attached, InBackground};
pub use binary::{BINARY_VARIABLE, locate as locate_qemu};
pub use error::QemuError;
pub use features::{Feature, Features, features};
pub use footprint::{headroom, leave_to_others, own_memory, set_aside};
pub use hot_add::block_size;
pub use process::ExitWatch;
pub use reservation::{Reservation, Reserved, occupancy, reserved};
pub use runtime_dir::{DIRECTORY_VARIABLE, PlacementLock, RuntimeDir};
pub use saved::host_cpu;
pub use state::{BackgroundVm, Phase};
pub use terminal::Keyboard;
pub use tiny_guest::{TinyGuest, TinyGuestError};
