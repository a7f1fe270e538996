//! What can go wrong with a VM that goes elsewhere.

use crate::protocol::ProtocolError;
use std::io;
use topology::Bytes;
use vm::backend::{BackendError, ErrorKind};
use vm::sending::Ram;

/// Why a VM did not go, or is not known to have gone.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// What was asked for cannot be.
    #[error("{0}")]
    BadInput(String),
    /// The destination does not take it.
    #[error("{host} does not take VM {vm}: {because}")]
    Refused {
        /// The VM.
        vm: String,
        /// The destination.
        host: String,
        /// Why, as a sentence.
        because: String,
        /// Whether what was asked for cannot be.
        bad_input: bool,
    },
    /// It was not sent, and goes on where it was.
    #[error("VM {vm} was not sent to {host} and goes on here: {because}")]
    Stayed {
        /// The VM.
        vm: String,
        /// The destination.
        host: String,
        /// Why.
        because: String,
    },
    /// Whether it runs at the destination is not known.
    #[error(
        "VM {vm}: {host} was told to run it and cannot be asked whether it does ({because}). It stands still \
        here. When {host} can be reached: `homenode vm migrate {vm} --resolve`"
    )]
    Undecided {
        /// The VM.
        vm: String,
        /// The destination.
        host: String,
        /// Why it cannot be asked.
        because: String,
    },
    /// It runs there, and needs memory that is still here.
    #[error(
        "VM {vm} runs on {host}, and {left} of its memory are still here: the link was cut. The guest stops there \
        where it needs them. Do not end it here. When {host} can be reached: `homenode vm migrate {vm} --resolve`"
    )]
    MemoryHere {
        /// The VM.
        vm: String,
        /// The destination.
        host: String,
        /// What has not gone yet.
        left: Bytes,
    },
    /// Its QEMU ended while it was sent.
    #[error("VM {vm}: its QEMU ended while it was sent: {because}")]
    SourceLost {
        /// The VM.
        vm: String,
        /// Its last words.
        because: String,
    },
    /// The other side cannot be reached, or has gone.
    #[error("{host}: {because}")]
    Link {
        /// The other side.
        host: String,
        /// What happened.
        because: String,
    },
    /// What the other side says is not understood.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The QEMU that receives it.
    #[error(transparent)]
    Qemu(#[from] qemu::QemuError),
    /// What runs it here.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// What is kept.
    #[error(transparent)]
    Inventory(#[from] inventory::InventoryError),
    /// An operation on a file or a program failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// Why.
        source: io::Error,
    },
}

impl MigrationError {
    /// For `map_err`: an operation that failed.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    pub(crate) fn just_ended(vm: &str) -> Self {
        let text = format!("VM {vm}: its process has just ended");
        Self::Backend(BackendError::new(ErrorKind::Gone, text))
    }

    pub(crate) fn out_of_turn(host: &str) -> Self {
        Self::Link { host: host.to_owned(), because: "it sent a message that does not belong here".to_owned() }
    }

    pub(crate) fn called_off(host: &str) -> Self {
        Self::Link { host: host.to_owned(), because: "it has called the migration off".to_owned() }
    }

    /// Adds how far the guest had come to why it ends there.
    pub(crate) fn with_progress(self, came: Option<Ram>) -> Self {
        let (Self::Link { host, because }, Some(ram)) = (&self, came) else { return self };
        let left = format!("{} of {} were left in round {}", ram.remaining, ram.total, ram.rounds);
        // Known from the second round on.
        let writes = match ram.dirty_per_second {
            Bytes(0) => String::new(),
            dirty => format!(", and the guest writes {dirty} in a second"),
        };
        Self::Link { host: host.clone(), because: format!("{because}: {left}{writes}") }
    }

    /// Whether what was asked for cannot be, and nothing was changed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::BadInput(_) | Self::Protocol(ProtocolError::Version { .. }) => true,
            Self::Refused { bad_input, .. } => *bad_input,
            Self::Qemu(error) => error.is_bad_input(),
            Self::Backend(error) => error.is_bad_input(),
            Self::Inventory(error) => error.is_bad_input(),
            _ => false,
        }
    }
}
