//! Ending a process without ever hitting another one that got its number.

use super::checked;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Sends a signal to a process by number. Use [`ProcessHandle`] wherever the process may already
/// have ended.
pub fn send_signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes two numbers and touches no memory.
    checked(libc::c_long::from(unsafe { libc::kill(pid as libc::pid_t, signal) })).map(drop)
}

/// One certain process (pidfd_open(2)): its number may be used again, the handle stays with it.
/// Readable once the process has ended.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// The process that has this number now.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two numbers and touches no memory.
        let descriptor = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) })?;
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }))
    }

    /// Another handle on the same process.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends it a signal; an error of kind `ESRCH` if it has ended.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, no siginfo is passed, and the call touches no memory of
        // ours.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, no_info, 0) };
        checked(result).map(drop)
    }

    /// Waits until it has ended; false when `timeout` passed first.
    pub fn wait_ended(&self, timeout: std::time::Duration) -> io::Result<bool> {
        super::wait_readable(self, timeout)
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_handle_ends_its_process_and_says_so() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let handle = ProcessHandle::open(child.id()).unwrap();
        assert!(!handle.wait_ended(Duration::ZERO).unwrap());
        handle.signal(libc::SIGKILL).unwrap();
        assert!(handle.wait_ended(Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
        assert_eq!(handle.signal(libc::SIGKILL).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
