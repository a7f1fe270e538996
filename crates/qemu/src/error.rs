//! What can go wrong with a VM.

use std::io;
use std::path::PathBuf;
use topology::Bytes;

/// A VM that could not be started, reached or ended.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// There is no QEMU.
    #[error(
        "VM {vm}: no QEMU: `{binary}` {problem}; install the Debian package qemu-system-x86, or name another binary in HOMENODE_QEMU"
    )]
    NoQemu {
        /// The VM.
        vm: String,
        /// What was looked for.
        binary: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The host lacks the memory.
    #[error(
        "VM {vm}: memory = {needed}, but the host has {available} available (MemAvailable of /proc/meminfo); stop something or lower `memory`"
    )]
    Memory {
        /// The VM.
        vm: String,
        /// What the VM and QEMU itself need.
        needed: Bytes,
        /// What the host has.
        available: Bytes,
    },
    /// The plan and the spec do not fit each other, or the spec cannot be carried out.
    #[error("VM {vm}: {problem}")]
    Spec {
        /// The VM.
        vm: String,
        /// Field, value, and what would be valid.
        problem: String,
    },
    /// A file that the spec names cannot be used.
    #[error("VM {vm}: {field} = {}: {source}", path.display())]
    File {
        /// The VM.
        vm: String,
        /// The field of the spec.
        field: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The tiny guest is not there or does not fit together.
    #[error("VM {vm}: {problem}")]
    TinyGuest {
        /// The VM.
        vm: String,
        /// What is missing, and what to do.
        problem: String,
    },
    /// QEMU ended when it should run.
    #[error("VM {vm}: QEMU ended ({status}). Its last words:\n{last_words}{hint}")]
    Ended {
        /// The VM.
        vm: String,
        /// Exit status or signal.
        status: String,
        /// The last lines of its standard error.
        last_words: String,
        /// A known cause, as a line of its own; may be empty.
        hint: String,
    },
    /// QEMU refused a command.
    #[error("VM {vm}: QEMU refused `{command}`: {message}")]
    Refused {
        /// The VM.
        vm: String,
        /// The QMP command.
        command: String,
        /// QEMU's own words.
        message: String,
    },
    /// QEMU did not answer in time.
    #[error("VM {vm}: no answer to {what} within {seconds} s")]
    Timeout {
        /// The VM.
        vm: String,
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// QEMU closed the connection.
    #[error("VM {vm}: QEMU closed its monitor")]
    Closed {
        /// The VM.
        vm: String,
    },
    /// A VM of this name runs already.
    #[error("VM {vm}: a VM of this name runs already (process {pid}); stop it, or choose another `name`")]
    NameTaken {
        /// The VM.
        vm: String,
        /// Its process; 0 where it is only being started.
        pid: u32,
    },
    /// No VM of this name runs in the background.
    #[error("no VM named {vm} runs in the background; `homenode vm list` shows those that do")]
    NoSuchVm {
        /// The name that was asked for.
        vm: String,
    },
    /// An operation on a file, a socket or a process failed.
    #[error("VM {vm}: cannot {action}: {source}")]
    Io {
        /// The VM.
        vm: String,
        /// What was tried.
        action: String,
        /// Why.
        source: io::Error,
    },
    /// The host did not answer a question.
    #[error("VM {vm}: {source}")]
    Host {
        /// The VM.
        vm: String,
        /// The question and the answer.
        source: linux::LinuxError,
    },
}

impl QemuError {
    /// For `map_err`: an operation of `vm` that failed.
    pub(crate) fn io(vm: &str, action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let (vm, action) = (vm.to_owned(), action.into());
        move |source| Self::Io { vm, action, source }
    }

    /// For `map_err`: a question to the host about `vm` that failed.
    pub(crate) fn host(vm: &str) -> impl FnOnce(linux::LinuxError) -> Self {
        let vm = vm.to_owned();
        move |source| Self::Host { vm, source }
    }

    /// Whether what the user wrote is the cause, and nothing was started.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Spec { .. } | Self::File { .. })
    }
}
