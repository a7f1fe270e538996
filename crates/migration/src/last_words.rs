//! What a program at the other end says on its standard error.
//!
//! **Problem.** ssh's standard error was ours: whatever the other host sent stood on root's
//! terminal as it was, escape sequences and gigabytes among it.
//!
//! **Rule.** All is read, so that nobody waits for us, and only its last [`KEPT_BYTES`] are kept.
//! They are shown where the link fails, as one line, cut and harmless ([`input::one_line`]).
//!
//! **Example.** `Host key verification failed.` stands behind "the connection was closed".

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use topology::input;

/// Bytes that are kept: a few lines.
const KEPT_BYTES: usize = 4 << 10;
/// Characters that are shown of the last line.
const LONGEST_SHOWN: usize = 300;
/// How long a program that has closed its link may take to say why.
const SAYS_WHY: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The end of what a program says.
#[derive(Debug)]
pub(crate) struct LastWords {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl LastWords {
    /// Listens in a thread of its own, until the program's end.
    pub(crate) fn listen(mut errors: impl Read + Send + 'static) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&kept);
        let reader = thread::spawn(move || {
            let mut chunk = [0; KEPT_BYTES];
            while let Ok(length @ 1..) = errors.read(&mut chunk) {
                let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&chunk[..length]);
                let over = kept.len().saturating_sub(KEPT_BYTES);
                kept.drain(..over);
            }
        });
        Self { kept, reader }
    }

    /// The last line that is not empty, for an error; `None` where nothing was said. Waits a moment
    /// for a program that is ending.
    pub(crate) fn last_line(&self) -> Option<String> {
        let deadline = Instant::now() + SAYS_WHY;
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(LOOK_AGAIN);
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let line = text.lines().rfind(|line| !line.trim().is_empty())?;
        Some(input::one_line(line.trim(), LONGEST_SHOWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_line_of(said: &[u8]) -> Option<String> {
        LastWords::listen(std::io::Cursor::new(said.to_vec())).last_line()
    }

    #[test]
    fn the_last_line_is_short_and_harmless() {
        assert_eq!(last_line_of(b""), None);
        assert_eq!(last_line_of(b"\r\n \n"), None);
        let said = b"Warning: added b.\r\nHost key verification failed.\r\n\r\n";
        assert_eq!(last_line_of(said).as_deref(), Some("Host key verification failed."));
        assert_eq!(last_line_of(b"\x1b[2J\xe2\x80\xaeforged").as_deref(), Some("\u{fffd}[2J\u{fffd}forged"));
        let long = last_line_of(&[b'x'; 100_000]).expect("a line");
        assert_eq!(long, "x".repeat(LONGEST_SHOWN) + "...");
    }
}
