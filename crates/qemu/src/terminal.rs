//! A person at a VM's console.

use linux::sys::{CtrlC, RawTerminal};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

/// Ctrl-]: leaves the console, as in telnet and virsh.
const LEAVE: u8 = 0x1d;

/// The keyboard, connected to a console. Dropping it restores the terminal.
#[derive(Debug)]
pub struct Keyboard(#[allow(dead_code, reason = "dropping it restores the terminal")] Option<RawTerminal>);

impl Keyboard {
    /// Passes what is typed, or what standard input holds, to `console`, on a thread of its own;
    /// calls `leave` when Ctrl-] is pressed. Standard input of a job in the background is left
    /// alone: to read it would stop the job.
    pub fn connect(console: UnixStream, ctrl_c: CtrlC, leave: impl FnOnce() + Send + 'static) -> Self {
        let stdin = io::stdin();
        match RawTerminal::enter(&stdin, ctrl_c) {
            Ok(raw) => {
                thread::spawn(move || pass(io::stdin().lock(), console, Some(LEAVE), leave));
                Self(Some(raw))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                thread::spawn(move || pass(io::stdin().lock(), console, None, || {}));
                Self(None)
            }
            Err(_) => Self(None),
        }
    }

    /// Whether somebody sits at a terminal.
    pub fn is_terminal(&self) -> bool {
        self.0.is_some()
    }
}

fn pass(mut from: impl Read, mut to: impl Write, leave_at: Option<u8>, leave: impl FnOnce()) {
    let mut chunk = [0u8; 256];
    // The end of the input, or of the VM, ends the passing on; the VM goes on without a keyboard.
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let typed = &chunk[..count];
        let end = leave_at.and_then(|key| typed.iter().position(|&byte| byte == key));
        if to.write_all(&typed[..end.unwrap_or(count)]).is_err() {
            return;
        }
        if end.is_some() {
            return leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_before_the_key_reaches_the_guest() {
        let (mut typed, mut left) = (Vec::new(), false);
        pass(&b"ls\r\x1dmore"[..], &mut typed, Some(LEAVE), || left = true);
        assert_eq!((typed.as_slice(), left), (&b"ls\r"[..], true));
    }

    #[test]
    fn a_pipe_may_hold_any_byte() {
        let (mut typed, mut left) = (Vec::new(), false);
        pass(&b"a\x1db"[..], &mut typed, None, || left = true);
        assert_eq!((typed.as_slice(), left), (&b"a\x1db"[..], false));
    }
}
