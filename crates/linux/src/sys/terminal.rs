//! The terminal in raw mode, for as long as a value lives.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What Ctrl-C does on a raw terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtrlC {
    /// It is a byte like any other.
    Passed,
    /// It interrupts this process (SIGINT), as on an ordinary terminal.
    Interrupts,
}

/// A terminal that passes every key on at once, unchanged and without echo. Dropping it restores
/// the terminal.
#[derive(Debug)]
pub struct RawTerminal {
    terminal: OwnedFd,
    before: libc::termios,
}

impl RawTerminal {
    /// Puts the terminal behind `file` into raw mode; error `ENOTTY` if it is none, `EIO` if this
    /// process is in its background.
    pub fn enter(file: &impl AsFd, ctrl_c: CtrlC) -> io::Result<Self> {
        let terminal = file.as_fd().try_clone_to_owned()?;
        // SAFETY: both calls take an open descriptor or nothing, and touch no memory.
        let (foreground, ours) = unsafe { (libc::tcgetpgrp(terminal.as_raw_fd()), libc::getpgrp()) };
        if super::checked(libc::c_long::from(foreground))? != libc::c_long::from(ours) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        // SAFETY: termios is plain data for which all zeros is a valid value.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and `before` is valid for writes.
        super::checked(libc::c_long::from(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut before) }))?;
        let mut raw = before;
        // SAFETY: cfmakeraw only changes the flags of the value behind this valid pointer.
        unsafe { libc::cfmakeraw(&raw mut raw) };
        raw.c_oflag |= libc::OPOST | libc::ONLCR;
        if ctrl_c == CtrlC::Interrupts {
            raw.c_lflag |= libc::ISIG;
            raw.c_cc[libc::VSUSP] = libc::_POSIX_VDISABLE;
            raw.c_cc[libc::VQUIT] = libc::_POSIX_VDISABLE;
        }
        let this = Self { terminal, before };
        this.apply(&raw)?;
        Ok(this)
    }

    fn apply(&self, settings: &libc::termios) -> io::Result<()> {
        // SAFETY: the descriptor is open and `settings` is valid for reads.
        let result = unsafe { libc::tcsetattr(self.terminal.as_raw_fd(), libc::TCSANOW, settings) };
        super::checked(libc::c_long::from(result)).map(drop)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that has gone away has nothing to restore.
        let _ = self.apply(&self.before);
    }
}
