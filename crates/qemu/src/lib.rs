//! QEMU as homenode drives it: its command line, QMP, the life of its processes, and the agents in its guests.

mod accelerator;
pub mod agent;
mod at_home;
mod binary;
mod boot;
pub mod command_line;
mod console;
mod error;
mod launch;
mod process;
mod qmp;
mod residence;
mod running;
#[cfg(test)]
mod samples;
pub mod tiny_guest;

pub use accelerator::{Accelerator, TcgThreads};
pub use agent::{AgentError, AgentLink, Arrived, NativeAgent};
pub use binary::{BINARY_VARIABLE, locate as locate_qemu};
pub use error::QemuError;
pub use launch::{ConsoleTo, Launch};
pub use process::ExitWatch;
pub use residence::{MemoryResidence, Residence, VcpuResidence};
pub use running::{RunningVm, command_by_hand};
pub use tiny_guest::{TinyGuest, TinyGuestError};
