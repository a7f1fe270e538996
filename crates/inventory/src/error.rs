//! What can go wrong with what is kept of a VM.

use std::io;
use std::path::PathBuf;
use topology::TomlError;
use vm::life::NotNow;

/// A VM that is not kept, or whose files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// There is no such VM.
    #[error("no VM named {vm} is kept; `homenode vm list` shows those that are")]
    NoSuchVm {
        /// The name that was asked for.
        vm: String,
    },
    /// The name is taken.
    #[error("VM {vm}: a VM of this name is kept already; `homenode vm delete {vm}` forgets it")]
    NameTaken {
        /// The name.
        vm: String,
    },
    /// Another homenode has it.
    #[error("VM {vm}: another homenode is at work on it; try again when that has ended")]
    Busy {
        /// The VM.
        vm: String,
    },
    /// What was asked for is not possible in its state.
    #[error("VM {vm}: {source}")]
    NotNow {
        /// The VM.
        vm: String,
        /// Its state, and what is possible.
        source: NotNow,
    },
    /// A file of it holds something else than it should.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the field.
        problem: String,
    },
    /// Its spec cannot be read.
    #[error(transparent)]
    Spec(#[from] TomlError),
    /// The system refuses an operation.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, with the path.
        action: String,
        /// Why.
        source: io::Error,
    },
}

impl InventoryError {
    /// Whether the user asked for what cannot be.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoSuchVm { .. } | Self::NameTaken { .. } | Self::NotNow { .. })
    }

    /// Whether what is kept of the VM cannot be understood.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Content { .. } | Self::Spec(_))
    }

    /// For `map_err`: an operation that failed.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}
