//! Why an evaluation stopped. Everything measured so far is kept in each case.

use crate::image_boot;
use crate::journal::JournalError;
use linux::LinuxError;
use qemu::{AgentError, QemuError};

/// What the world of an evaluation could not do: start a participant, or say how busy the machine
/// is.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A VM could not be started.
    #[error(transparent)]
    Vm(#[from] QemuError),
    /// A VM could not be started or reached.
    #[error(transparent)]
    Backend(#[from] vm::BackendError),
    /// An agent on the host could not be started.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Switches cannot be made, or a card cannot be plugged in.
    #[error(transparent)]
    Network(#[from] network::NetworkError),
    /// The host did not answer.
    #[error(transparent)]
    Host(#[from] LinuxError),
    /// Files of the host cannot be brought into the tiny guest.
    #[error("cannot bring the host's files into the tiny guest: {problem}")]
    GuestFiles {
        /// Why.
        problem: String,
    },
    /// A guest of packages, or of an image, cannot be used.
    #[error(transparent)]
    Image(#[from] images::ImagesError),
    /// There is no way to a participant's agent.
    #[error("{name}: {problem}")]
    NoLink {
        /// The participant.
        name: String,
        /// Why.
        problem: String,
    },
}

/// Why an evaluation stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Asked to, by a signal.
    #[error("interrupted")]
    Interrupted,
    /// A participant could not be started.
    #[error("configuration \"{configuration}\": cannot start: {reason}")]
    Start {
        /// The configuration.
        configuration: String,
        /// Why.
        reason: Box<WorldError>,
    },
    /// A participant said nothing in time.
    #[error("{name}: no {awaited} within {seconds} s{advice}{}", console_end(.console))]
    Silent {
        /// The participant.
        name: String,
        /// What was waited for.
        awaited: &'static str,
        /// How long, in seconds.
        seconds: u32,
        /// What may mend it; may be empty.
        advice: &'static str,
        /// Last lines of its console.
        console: Vec<String>,
    },
    /// A participant ended.
    #[error("{name}: it ended while homenode waited for {awaited}: {reason}{}", console_end(.console))]
    Died {
        /// The participant.
        name: String,
        /// What was waited for.
        awaited: &'static str,
        /// Its last words.
        reason: String,
        /// Last lines of its console.
        console: Vec<String>,
    },
    /// A participant runs, and its guest does not go on.
    #[error("{name}: it stands still while homenode waits for {awaited}: {reason}{}", console_end(.console))]
    Stalled {
        /// The participant.
        name: String,
        /// What was waited for.
        awaited: &'static str,
        /// Why.
        reason: String,
        /// Last lines of its console.
        console: Vec<String>,
    },
    /// A participant could not carry out a job.
    #[error("{name}: {message}")]
    Failed {
        /// The participant.
        name: String,
        /// Its own words.
        message: String,
    },
    /// No job can be made of a workload.
    #[error("workload \"{workload}\": no job: {reason}")]
    Job {
        /// The workload.
        workload: String,
        /// Why.
        reason: String,
    },
    /// The machine does not say how busy it is.
    #[error("cannot read the machine's CPU time: {0}")]
    Load(Box<WorldError>),
    /// Results cannot be written or read.
    #[error("cannot keep results: {0}")]
    Journal(#[from] JournalError),
}

impl RunError {
    /// The same where guests boot a disk image of somebody's own.
    pub(crate) fn of_image(self) -> Self {
        match self {
            Self::Silent { name, awaited, seconds, console, .. } => {
                Self::Silent { name, awaited, seconds, advice: image_boot::advice(&console), console }
            }
            other => other,
        }
    }
}

fn console_end(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!("\n  its console ended with:\n    {}", lines.join("\n    "))
}
