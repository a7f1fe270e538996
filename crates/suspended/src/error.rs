//! Why a file is not the guest that it should be.

use std::io;
use std::path::{Path, PathBuf};

/// A file that cannot be written, or from which no guest may go on.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is a file already.
    #[error("{}: it is there already; name another file, or remove it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another homenode writes it.
    #[error("{}: another homenode writes this file now; name another one", path.display())]
    Written {
        /// The file.
        path: PathBuf,
    },
    /// It is no file of a suspended VM, or not one that this homenode reads.
    #[error("{}: {problem}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What it is.
        problem: String,
    },
    /// It is not as it was written.
    #[error("{}: it is damaged: {problem}; no guest was started from it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, and how that was seen.
        problem: String,
    },
    /// The disk has no room for it.
    #[error("{}: the VM has {needed} in memory, and {free} are free there: {missing} are missing; name \
        another place with --to", path.display())]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// What it may take.
        needed: topology::Bytes,
        /// What is free.
        free: topology::Bytes,
        /// The difference.
        missing: topology::Bytes,
    },
    /// Whoever had it written does not want it any more.
    #[error("{}: it was called off", path.display())]
    CalledOff {
        /// The file.
        path: PathBuf,
    },
    /// Its disk does not take what is written.
    #[error("cannot write {}: its disk hangs", path.display())]
    Hangs {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl FileError {
    /// Whether another file is what helps.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Exists { .. }
            | Self::Written { .. }
            | Self::Other { .. }
            | Self::Damaged { .. }
            | Self::NoRoom { .. } => true,
            Self::CalledOff { .. } | Self::Hangs { .. } => false,
            Self::Io { source, .. } => matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput),
        }
    }

    /// For `map_err`: an operation on a file that failed.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
