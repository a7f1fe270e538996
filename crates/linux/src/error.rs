//! What can go wrong when the host is asked something.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A question to the host that it did not answer.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// A file of `/proc` or `/sys` cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of `/proc` or `/sys` says something that this program does not understand.
    #[error("{}: no {field} where the kernel documents one", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        field: &'static str,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Call {
        /// What was tried, for example `bind thread 12 to CPUs 0-3`.
        action: String,
        /// Why.
        source: io::Error,
    },
    /// Where a VM's memory is in QEMU's address space cannot be told, or not by this user.
    #[error("where its memory is in QEMU's address space cannot be told, or not by this user")]
    NoRegions,
    /// A kernel that was built without `CONFIG_NUMA`.
    #[error("this kernel has no numa_maps")]
    NoNumaMaps,
    /// The machine cannot be read.
    #[error("{0}")]
    Machine(String),
    /// A process is called QEMU, and is another program.
    #[error("process {pid} calls itself QEMU and is not")]
    NotQemu {
        /// The process.
        pid: u32,
    },
    /// QEMU without a guest: it starts, or never will have one.
    #[error("process {pid} runs QEMU's program, and has neither a guest's memory nor vCPU threads")]
    NoGuest {
        /// The process.
        pid: u32,
    },
    /// A process says of itself what no VM has.
    #[error("process {pid} says it is QEMU and is not watched: {why}")]
    Doubtful {
        /// The process.
        pid: u32,
        /// What it says.
        why: String,
    },
    /// Nothing can be seen of what runs.
    #[error("{0}")]
    Observe(scheduler::ObserveError),
}

impl LinuxError {
    /// A system call that failed while `action` was tried.
    pub fn call(action: impl Into<String>, source: io::Error) -> Self {
        Self::Call { action: action.into(), source }
    }

    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    /// Whether this process had too few descriptors, or the host too little memory, to look: what
    /// was not seen may be there.
    pub fn is_short_of_resources(&self) -> bool {
        matches!(self, Self::Read { source, .. } if is_short_of_resources(source))
    }

    pub(crate) fn format(path: &Path, field: &'static str) -> Self {
        Self::Format { path: path.to_owned(), field }
    }
}

/// As [`LinuxError::is_short_of_resources`].
pub(crate) fn is_short_of_resources(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// The text of a file of `/proc` or `/sys`. Bytes that are not UTF-8 are replaced.
pub(crate) fn read_text(path: &Path) -> Result<String, LinuxError> {
    let mut bytes = Vec::with_capacity(ONE_READ);
    let read = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|source| LinuxError::Read { path: path.to_owned(), source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Most files of `/proc` are shorter, and read at once: the kernel gives them no length, so that a
/// reader without room would begin with 32 bytes.
const ONE_READ: usize = 4096;
