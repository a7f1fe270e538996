//! What to start.

use crate::{Plan, VmSpec};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// A VM that is to be started, and how.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What its owner wrote. Paths in it are absolute, or relative to the current directory.
    pub spec: VmSpec,
    /// Its virtual topology and its home.
    pub plan: Plan,
    /// Boots this kernel instead of the spec's.
    pub kernel: Option<PathBuf>,
    /// Where its serial console goes.
    pub console: ConsoleTo,
    /// Whether it has the virtio-serial port of homenode's agent.
    pub agent: bool,
    /// Its cards on switches.
    pub taps: Taps,
    /// The file that keeps the variables of its UEFI firmware, made where it is not there. `None`:
    /// they go with the VM.
    pub variables: Option<PathBuf>,
}

impl Launch {
    /// As its owner wrote it: its console kept, without an agent, cards on switches, or a file.
    pub fn new(spec: VmSpec, plan: Plan) -> Self {
        let console = ConsoleTo::Kept;
        Self { spec, plan, kernel: None, console, agent: false, taps: Taps::new(), variables: None }
    }
}

/// Tap devices by the number of the card that each is. Cards of other kinds have none.
pub type Taps = BTreeMap<usize, Tap>;

/// A tap device that QEMU inherits, or a socket in its place.
#[derive(Clone, Debug, Default)]
pub struct Tap {
    /// A descriptor for each queue.
    pub queues: Vec<Arc<OwnedFd>>,
    /// What is to stay open as long as the device is used: it tells others that it is.
    pub lock: Option<Arc<OwnedFd>>,
    /// What the descriptors are of.
    pub carries: Carries,
}

/// How frames are read from a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// From a tap device, each behind virtio-net's header.
    #[default]
    TapFrames,
    /// From a socket, a frame in each datagram.
    Datagrams,
}

impl From<Vec<OwnedFd>> for Tap {
    fn from(queues: Vec<OwnedFd>) -> Self {
        Self { queues: queues.into_iter().map(Arc::new).collect(), ..Self::default() }
    }
}

/// Where a serial console goes. The last lines are kept in memory in every case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsoleTo {
    /// Our standard output.
    Terminal,
    /// A file, appended to.
    File(PathBuf),
    /// Only the last lines, in memory.
    Kept,
}
