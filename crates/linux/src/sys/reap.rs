//! Processes that have ended, and what they used.

use super::checked;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use topology::Bytes;

/// A process that has ended and was waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reaped {
    /// Its number, which may now be used again.
    pub pid: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// CPU time in user mode, with that of its own children that it waited for.
    pub user_seconds: f64,
    /// CPU time in the kernel, with that of its own children that it waited for.
    pub system_seconds: f64,
    /// Largest resident memory of it, or of one of those children.
    pub peak_memory: Bytes,
}

/// From now on processes that lose their parent become children of this one, if it was an ancestor
/// of theirs, instead of init's (prctl(2), PR_SET_CHILD_SUBREAPER): none of what we start can get
/// away.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: this prctl takes a number and touches no memory.
    checked(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) })).map(drop)
}

/// Waits until any child ends; `None` when there is none. It takes away the end of each child of
/// this process, so that only a program may use it that waits for its children in no other way.
pub fn wait_for_any_child() -> io::Result<Option<Reaped>> {
    loop {
        let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
        // SAFETY: both places are valid for writes of what wait4 writes.
        let pid = unsafe { libc::wait4(-1, &raw mut status, 0, usage.as_mut_ptr()) };
        match checked(libc::c_long::from(pid)) {
            Ok(pid) => {
                // SAFETY: zeroed, which is valid for a struct of numbers, then written by wait4.
                let usage = unsafe { usage.assume_init() };
                return Ok(Some(Reaped {
                    pid: pid as u32,
                    status: ExitStatus::from_raw(status),
                    user_seconds: seconds(usage.ru_utime),
                    system_seconds: seconds(usage.ru_stime),
                    peak_memory: Bytes::from_kib(u64::try_from(usage.ru_maxrss).unwrap_or(0)),
                }));
            }
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}
