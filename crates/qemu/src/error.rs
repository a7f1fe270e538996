//! What can go wrong with a VM.

use crate::process::NO_MACHINE_TYPE;
use linux::room::Room;
use std::io;
use std::path::{Path, PathBuf};
use topology::Bytes;
use vm::Launch;

/// A VM that could not be started, reached or ended.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// There is no QEMU.
    #[error(
        "VM {vm}: no QEMU: `{binary}` {problem}; install the Debian package qemu-system-x86, or name another binary in \
        HOMENODE_QEMU"
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
        "VM {vm}: it takes {needed} of memory, and {} available{}: {guest} for the guest, {own} for QEMU itself{}, and \
        {headroom} that stay free for others; stop something or lower `memory`",
        has(.room), limit(.room), others(*.unfilled)
    )]
    Memory {
        /// The VM, or several that start together.
        vm: String,
        /// All that follows together.
        needed: Bytes,
        /// The guest's memory.
        guest: Bytes,
        /// What QEMU itself takes beside it.
        own: Bytes,
        /// What stays free for everybody else.
        headroom: Bytes,
        /// What other VMs that are being started have not filled yet.
        unfilled: Bytes,
        /// What there is.
        room: Room,
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
        /// Exit status or signal, and whose it was where that is known.
        status: String,
        /// The last lines of its standard error.
        last_words: String,
        /// A known cause, as a line of its own; may be empty.
        hint: String,
    },
    /// Somebody called the start off.
    #[error("VM {vm}: its start was called off; nothing of it is left")]
    CalledOff {
        /// The VM.
        vm: String,
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
    /// Nothing came of a guest that is written.
    #[error("VM {vm}: nothing of its guest was written for {seconds} s: its QEMU or the disk hangs")]
    Silent {
        /// The VM.
        vm: String,
        /// For how long.
        seconds: u64,
    },
    /// QEMU still has an earlier migration, which failed, and begins no other.
    #[error(
        "VM {vm}: its QEMU did not tidy up an earlier migration that failed, for {seconds} s, and cannot send its \
        guest \
        until it has. QEMU 10.0 may stay so for good where one of several connections was cut; the guest runs on all \
        the same, and `homenode vm stop {vm}` and `vm start {vm}` give it a new QEMU"
    )]
    NotTidiedUp {
        /// The VM.
        vm: String,
        /// How long was waited for.
        seconds: u64,
    },
    /// QEMU closed the connection.
    #[error("VM {vm}: QEMU closed its monitor")]
    Closed {
        /// The VM.
        vm: String,
    },
    /// A VM of this name runs already.
    #[error("VM {vm}: a VM of this name {}; stop it, or choose another `name`", taken(*.pid))]
    NameTaken {
        /// The VM.
        vm: String,
        /// Its process; 0 where it is only being started.
        pid: u32,
    },
    /// No VM of this name runs in the background.
    #[error("no VM named {vm} runs in the background{}; `homenode vm list` shows those that do", because(.cleaned))]
    NoSuchVm {
        /// The name that was asked for.
        vm: String,
        /// What was just removed of it, as a sentence.
        cleaned: Option<String>,
    },
    /// The directory of what runs here cannot be used.
    #[error("cannot {action}: {source}")]
    Directory {
        /// What was tried, with the path.
        action: String,
        /// Why.
        source: io::Error,
    },
    /// A guest cannot be asked to power off.
    #[error("{source}. Its guest cannot be asked to power off; `homenode vm stop {vm} --force` ends it without")]
    NotAsked {
        /// The VM.
        vm: String,
        /// Why.
        source: Box<QemuError>,
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

fn has(room: &Room) -> String {
    let verb = if room.limited_by.is_some() { "its cgroup has" } else { "the host has" };
    format!("{verb} {}", room.available)
}

fn limit(room: &Room) -> String {
    match &room.limited_by {
        Some(cgroup) => format!(" (memory limit {} of {})", room.total, cgroup.display()),
        None => " (MemAvailable of /proc/meminfo)".to_owned(),
    }
}

fn others(unfilled: Bytes) -> String {
    if unfilled.0 == 0 { String::new() } else { format!(", {unfilled} for VMs that are being started") }
}

fn taken(pid: u32) -> String {
    if pid == 0 { "is being started".to_owned() } else { format!("runs already (process {pid})") }
}

fn because(cleaned: &Option<String>) -> String {
    cleaned.as_ref().map_or_else(String::new, |cleaned| format!(": {cleaned}"))
}

impl QemuError {
    /// For `map_err`: an operation of `vm` that failed.
    pub(crate) fn io(vm: &str, action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let (vm, action) = (vm.to_owned(), action.into());
        move |source| Self::Io { vm, action, source }
    }

    /// For `map_err`: an operation on the runtime directory that failed.
    pub(crate) fn directory(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Directory { action, source }
    }

    /// For `map_err`: a file that the spec names in `field` and that cannot be used.
    pub(crate) fn file(launch: &Launch, field: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let (vm, field, path) = (launch.spec.name.clone(), field.to_owned(), path.to_owned());
        move |source| Self::File { vm, field, path, source }
    }

    /// For `map_err`: a question to the host about `vm` that failed.
    pub(crate) fn host(vm: &str) -> impl FnOnce(linux::LinuxError) -> Self {
        let vm = vm.to_owned();
        move |source| Self::Host { vm, source }
    }

    /// Whether what the user wrote is the cause, and nothing was started.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Spec { .. } | Self::NameTaken { .. } => true,
            Self::Ended { last_words, .. } => last_words.contains(NO_MACHINE_TYPE),
            // Another file would not help.
            Self::File { source, .. } => source.kind() != io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}
