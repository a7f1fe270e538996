//! A terminal that is drawn anew in place, and left as it was found.

use anyhow::Context;
use console::Term;
use linux::sys::{CtrlC, RawTerminal, wait_readable};
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How soon a signal is noticed.
const SLICE: Duration = Duration::from_millis(200);
/// The other screen of the terminal, cleared, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[2J\x1b[?25l";
/// The user's own screen again.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Whether the user wants to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Not yet: the time has passed, or the screen is to be drawn anew.
    No,
    /// `q`, Ctrl-C, or a signal.
    Yes,
}

/// The terminal, ours for as long as the value lives.
pub(crate) struct Screen {
    term: Term,
    ended: Arc<AtomicBool>,
    _raw: RawTerminal,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn enter() -> anyhow::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, ended.clone()).context("cannot watch for signals")?;
        }
        let raw = RawTerminal::enter(&io::stdin(), CtrlC::Passed).context("the terminal cannot be read key by key")?;
        let this = Self { term: Term::stdout(), ended, _raw: raw };
        this.write(ENTER)?;
        Ok(this)
    }

    /// Draws `text`, cut to what the terminal holds.
    pub(crate) fn show(&mut self, text: &str) -> anyhow::Result<()> {
        let (rows, columns) = self.term.size();
        self.write(&frame(text, usize::from(rows), usize::from(columns)))
    }

    /// Waits for a key or for the time to pass.
    pub(crate) fn wait(&mut self, time: Duration) -> anyhow::Result<Leave> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.ended.load(Ordering::Relaxed) {
                return Ok(Leave::Yes);
            }
            if left.is_zero() {
                return Ok(Leave::No);
            }
            match wait_readable(&io::stdin(), left.min(SLICE)) {
                Ok(true) if self.leaves()? => return Ok(Leave::Yes),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the terminal cannot be read"),
            }
        }
    }

    /// Whether a key that was pressed leaves. The end of the input does too.
    fn leaves(&self) -> anyhow::Result<bool> {
        const CTRL_C: u8 = 3;
        let mut keys = [0u8; 32];
        let count = io::stdin().lock().read(&mut keys).context("the terminal cannot be read")?;
        Ok(count == 0 || keys[..count].iter().any(|key| matches!(key, b'q' | b'Q' | &CTRL_C)))
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone away needs nothing.
        let _ = self.write(LEAVE);
    }
}

/// Each line over the one that stands there, its rest cleared; what does not fit is left out and said so.
fn frame(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let rows = rows.max(2);
    let shown = if lines.len() <= rows { lines.len() } else { rows - 1 };
    let mut frame = String::from("\x1b[H");
    for (index, line) in lines[..shown].iter().enumerate() {
        if index > 0 {
            frame.push_str("\r\n");
        }
        frame.extend(line.chars().take(columns));
        frame.push_str("\x1b[K");
    }
    if shown < lines.len() {
        let left_out: String = format!("... {} more lines", lines.len() - shown).chars().take(columns).collect();
        frame.push_str(&format!("\r\n{left_out}\x1b[K"));
    }
    frame.push_str("\x1b[J");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let text = "one\ntwo\nthree four\nfive";
        assert_eq!(frame(text, 24, 80), "\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\nthree four\x1b[K\r\nfive\x1b[K\x1b[J");
        assert_eq!(frame(text, 3, 5), "\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n... 2\x1b[K\x1b[J");
    }
}
