//! How a VM is sent to another host while it runs, and what came of it.
//!
//! **Rule.** What runs a VM sends its guest by one of two routes. A *manager* (libvirt) has a
//! protocol with the manager over there, and keeps the guest to one of the two. Over a *stream*
//! the guest goes to whoever reads the other end: when all of it is there it stands still at both
//! ends, and who sent it says which one goes on ([`crate::Vm::stay`] here; or it goes on there, and
//! [`crate::Vm::stop`] ends it here).
//!
//! ```text
//! send ─┬─> all there ──┬─> stop: it runs there
//!       │               └─> stay: it goes on here
//!       ├─> follows ── send_rest ──> stop        (postcopy: it can go on there only)
//!       └─> error ────────> stay
//! ```

use crate::Plan;
use crate::backend::{BackendError, ErrorKind, Transfer};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use topology::Bytes;

/// Where a VM goes while it runs, and how.
pub struct Sending<'a> {
    /// Which way.
    pub route: Route<'a>,
    /// How.
    pub tuning: Tuning,
}

/// Which way a guest goes.
pub enum Route<'a> {
    /// Into a connected socket, which another program of the same kind reads.
    Stream(OwnedFd),
    /// Into several ([`Tuning::connections`]), which what runs it makes by itself. Each is given
    /// away once it is there, in their order, to be led to one at the other end.
    Streams(&'a mut dyn FnMut(OwnedFd) -> Result<(), BackendError>),
    /// By the manager here to the one over there.
    Manager {
        /// That one, in its backend's words: libvirt's URI.
        uri: &'a str,
        /// The VM's virtual topology on its homes there.
        plan: &'a Plan,
        /// Disks of the same path are the same disks there.
        shared_storage: bool,
    },
}

impl Route<'_> {
    /// The error of a backend that cannot go this way.
    pub fn refused(&self, vm: &str) -> BackendError {
        let way = match self {
            Self::Stream(_) | Self::Streams(_) => "into a stream",
            Self::Manager { .. } => "by a manager",
        };
        BackendError::new(ErrorKind::BadInput, format!("VM {vm}: what runs it does not send its guest {way}"))
    }
}

/// How a guest is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Bytes in a second, at most. Default: as many as the link takes.
    pub bandwidth: Option<Bytes>,
    /// For how long the guest may stand still at the end, in milliseconds: memory is copied again
    /// until it is expected to take no more.
    pub downtime_ms: u64,
    /// Slows the guest down where it writes memory faster than the link takes it.
    pub auto_converge: bool,
    /// The rest of the memory goes after the guest, once all of it was sent once.
    #[serde(default)]
    pub postcopy: bool,
    /// How many connections carry the memory, from 1 to [`MOST_CONNECTIONS`]. Of more than one,
    /// another carries what is no memory.
    #[serde(default = "one")]
    pub connections: u32,
}

/// Most connections that carry a guest's memory. With the one beside them they are 9, and sshd
/// begins to refuse where more than 10 log in at once (`MaxStartups` of sshd_config(5)).
pub const MOST_CONNECTIONS: u32 = 8;

fn one() -> u32 {
    1
}

impl Default for Tuning {
    fn default() -> Self {
        Self { bandwidth: None, downtime_ms: 300, auto_converge: true, postcopy: false, connections: 1 }
    }
}

/// How far a guest has come. What a backend does not say is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Its memory; `None` where nothing is said of it.
    pub ram: Option<Ram>,
    /// Since its begin, in milliseconds.
    pub total_ms: Option<u64>,
    /// How long the guest stood still, in milliseconds; once it is over.
    pub downtime_ms: Option<u64>,
    /// How long it would stand still now, in milliseconds.
    pub expected_downtime_ms: Option<u64>,
    /// CPU time that is taken from the guest so that it writes less, in percent.
    pub throttle_percent: u64,
    /// Whether the rest of a guest that stands still goes now: it comes to its end by itself.
    #[serde(skip)]
    pub switches: bool,
}

/// The memory of a guest that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ram {
    /// All of the guest's.
    pub total: Bytes,
    /// Not there yet.
    pub remaining: Bytes,
    /// Sent so far.
    pub transferred: Bytes,
    /// What the guest writes anew in a second.
    pub dirty_per_second: Bytes,
    /// Rounds over its memory.
    pub rounds: u64,
    /// Millions of bits in a second, now.
    pub mbps: f64,
}

impl From<Ram> for Transfer {
    fn from(ram: Ram) -> Self {
        Self { done: Bytes(ram.total.0.saturating_sub(ram.remaining.0)), remaining: ram.remaining }
    }
}

/// Where the guest is afterwards.
#[derive(Debug)]
pub enum Sent {
    /// Over a stream: all of it is there, and it stands still here and there until it is said who
    /// has it.
    AllThere(Progress),
    /// The same, but for memory that follows it ([`crate::Vm::send_rest`]): it can go on there
    /// only.
    Follows,
    /// By a manager: it runs there, and has ended here.
    Went {
        /// For how long it stood still, in milliseconds, where that is known.
        still_ms: Option<u64>,
    },
    /// By a manager: it goes on here as before, and nothing of it is there.
    Stayed(BackendError),
    /// By a manager: it is not known. It does not run here, and may run there.
    Undecided(BackendError),
}

/// What became of memory that follows its guest.
#[derive(Debug)]
pub enum Rest {
    /// All of it went.
    Went(Progress),
    /// The stream was cut: it goes on over another one.
    Interrupted {
        /// How far it had come.
        progress: Progress,
        /// Whether memory went over this stream.
        resumed: bool,
    },
}

/// How fast a guest writes to its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirtyRate {
    /// Bytes in a second, each page counted once.
    pub per_second: Bytes,
    /// Seconds that it was watched.
    pub seconds: u64,
}
