//! What can go wrong with a workload.

use crate::command::CommandError;
use std::fmt;

/// Why a workload could not be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadError {
    /// The job asks for what cannot be; names the field and what is valid.
    BadJob(String),
    /// Memory could not be reserved.
    Memory {
        /// Bytes of the piece that failed.
        bytes: usize,
    },
    /// Threads could not be started.
    Threads {
        /// How many were wanted.
        threads: usize,
        /// The system's reason.
        reason: String,
    },
    /// A thread or memory could not be placed.
    Placement(String),
    /// This CPU cannot store past the caches.
    NoStreamingStores(String),
    /// A thread of the team ended early.
    ThreadLost,
    /// A command could not be run, or its figures not be read.
    Command(CommandError),
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadJob(message) => f.write_str(message),
            Self::Memory { bytes } => {
                write!(f, "cannot reserve {} MiB of memory; use fewer elements or a smaller buffer", bytes >> 20)
            }
            Self::Threads { threads, reason } => write!(f, "cannot start {threads} threads: {reason}"),
            Self::Placement(message) => write!(f, "cannot place the workload: {message}"),
            Self::NoStreamingStores(reason) => {
                write!(f, "streaming stores are not possible here ({reason}); use `stores = \"ordinary\"`")
            }
            Self::Command(error) => error.fmt(f),
            Self::ThreadLost => f.write_str("a thread of the workload ended early"),
        }
    }
}

impl std::error::Error for WorkloadError {}
