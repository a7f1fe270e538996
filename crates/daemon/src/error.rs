//! What can go wrong around the loop.

use scheduler::ObserveError;
use std::io;
use std::path::PathBuf;
use topology::TomlError;

/// Why the balancer cannot start, or a file of its cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A file cannot be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// `read the policy`, `save the state`.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The policy file cannot be used.
    #[error(transparent)]
    Policy(#[from] TomlError),
    /// Another balancer works on this host.
    #[error("another balancer runs on this host: {}. Two would move the same VMs against each other: stop it \
        first", holder(*pid))]
    Running {
        /// Its process; `None` where its lock file does not say.
        pid: Option<u32>,
    },
    /// A file that was named for a balancer's state is somebody else's.
    #[error("{}: not a balancer's state; name a file that a balancer wrote, or one that is not there \
        yet", .0.display())]
    NotAState(PathBuf),
    /// Nothing at all can be read of the host.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// A line of a recording cannot be used.
    #[error("{}:{line}: {problem}", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what would be valid.
        problem: String,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "a process that has not said its number yet".to_owned(), |pid| format!("process {pid}"))
}

impl DaemonError {
    /// A file that could not be read or written.
    pub(crate) fn file(path: impl Into<PathBuf>, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.into(), action, source }
    }

    /// Whether the user can mend it in a file or on the command line.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Policy(_)
                | Self::Recording { .. }
                | Self::File { action: "read the policy" | "read the recording", .. }
        )
    }
}
