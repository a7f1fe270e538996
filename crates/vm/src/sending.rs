//! How a VM is sent to another host, and what came of it.

use crate::Plan;
use crate::backend::BackendError;
use topology::Bytes;

/// Where a VM goes while it runs, and how.
#[derive(Clone, Copy)]
pub struct Sending<'a> {
    /// The manager over there, in its backend's words: libvirt's URI.
    pub to: &'a str,
    /// Its virtual topology on its homes there.
    pub plan: &'a Plan,
    /// Bytes in a second, at most. Default: as many as the link takes.
    pub bandwidth: Option<Bytes>,
    /// For how long the guest may stand still at the end, in milliseconds.
    pub downtime_ms: u64,
    /// Slows the guest down where it writes memory faster than the link takes it.
    pub auto_converge: bool,
    /// Disks of the same path are the same disks there.
    pub shared_storage: bool,
    /// Asked now and then: true calls it off.
    pub called_off: &'a dyn Fn() -> bool,
}

/// Where the guest is afterwards.
#[derive(Debug)]
pub enum Sent {
    /// It runs there, and has ended here.
    Went {
        /// For how long it stood still, in milliseconds, where that is known.
        still_ms: Option<u64>,
    },
    /// It goes on here as before, and nothing of it is there.
    Stayed(BackendError),
    /// It is not known. It does not run here: it may run there.
    Undecided(BackendError),
}
