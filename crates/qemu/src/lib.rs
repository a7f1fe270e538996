//! QEMU as homenode drives it: its command line, QMP, the life of its processes, and the agents in its guests.

pub mod agent;
pub mod tiny_guest;

pub use agent::{AgentError, AgentLink, Arrived, NativeAgent};
pub use tiny_guest::{TinyGuest, TinyGuestError};
