//! Where an experiment runs. [`crate::real`] is this host; tests script one.

use crate::WorldError;
use crate::disturbance::Reading;
use crate::resolve::ResolvedConfiguration;
use network::SwitchSeen;
use std::time::{Duration, Instant};
use workloads::protocol::{FromAgent, ToAgent};

/// A message and when it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Moment of arrival on the host's clock.
    pub at: Instant,
    /// The message.
    pub message: FromAgent,
}

/// Why a participant cannot be heard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It said nothing in time.
    #[error("it said nothing in time")]
    Timeout,
    /// The connection is gone, or what it said cannot be understood.
    #[error("{0}")]
    Broken(String),
}

/// What a participant was started as.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartedAs {
    /// `kvm`, `tcg` or `none`.
    pub accelerator: String,
    /// QEMU's version.
    pub qemu: Option<String>,
    /// The plan, as JSON.
    pub plan: Option<serde_json::Value>,
}

/// Where a participant's VM really is, read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whereabouts {
    /// Share of its memory that lies on its home nodes.
    pub local_share: Option<f64>,
    /// Share of its memory that the host maps by pages larger than the smallest.
    pub large_page_share: Option<f64>,
    /// All that was read, as JSON.
    pub residence: Option<serde_json::Value>,
}

/// A process that carries out jobs: an agent on the host, or one in a VM.
pub trait Participant {
    /// Name of the VM, or `native`.
    fn name(&self) -> &str;
    /// Process on the host.
    fn pid(&self) -> u32;
    /// When it was started.
    fn started(&self) -> Instant;
    /// What it was started as.
    fn started_as(&self) -> StartedAs;
    /// Sends a message.
    ///
    /// # Errors
    /// The connection is gone.
    fn send(&mut self, message: &ToAgent) -> Result<(), LinkError>;
    /// Waits for the next message.
    ///
    /// # Errors
    /// Nothing came in time, or the connection is gone.
    fn receive(&mut self, timeout: Duration) -> Result<Said, LinkError>;
    /// Reads back where it is.
    fn whereabouts(&mut self) -> Whereabouts;
    /// Why its process ended; `None` while it runs.
    fn exited(&mut self) -> Option<String>;
    /// Why it stands still though its process runs; `None` where nothing says so. Does not wait.
    fn stalled(&mut self) -> Option<String> {
        None
    }
    /// The last lines of its console.
    fn console_tail(&self, lines: usize) -> Vec<String>;
    /// Ends it.
    fn stop(self: Box<Self>);
}

/// What starts participants and reads the machine's CPU time.
pub trait World {
    /// Starts all participants of a configuration.
    ///
    /// # Errors
    /// One could not be started; none is left running.
    fn start(&mut self, configuration: &ResolvedConfiguration) -> Result<Vec<Box<dyn Participant>>, WorldError>;
    /// What the switches of a configuration that runs have carried up to now.
    ///
    /// # Errors
    /// Who keeps them is gone.
    fn switches(&mut self, _: &ResolvedConfiguration) -> Result<Vec<SwitchSeen>, WorldError> {
        Ok(Vec::new())
    }
    /// CPU time up to now; `own` is that of homenode and of the processes `pids`.
    ///
    /// # Errors
    /// The machine does not say.
    fn cpu_reading(&mut self, pids: &[u32]) -> Result<Reading, WorldError>;
    /// Now, in UTC, RFC 3339.
    fn timestamp(&self) -> String;
}
