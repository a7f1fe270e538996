//! Serial consoles: bytes to a terminal or a file, the last of them kept.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use vm::ConsoleTo;

/// Bytes that are kept of what a guest wrote.
const KEPT_BYTES: usize = 64 << 10;

/// The last bytes of a stream, and why no more of it is written to its sink.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    dropped: Arc<OnceLock<String>>,
}

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..excess);
    }

    /// Why the rest was not written to its sink, as a sentence; `None` where all was.
    pub(crate) fn dropped(&self) -> Option<&str> {
        self.dropped.get().map(String::as_str)
    }

    /// The last `count` lines, control characters removed.
    pub(crate) fn lines(&self, count: usize) -> Vec<String> {
        let bytes: Vec<u8> = self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let clean = |line: &str| line.chars().filter(|letter| !letter.is_control()).collect::<String>();
        let lines: Vec<String> = text.lines().map(clean).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].to_vec()
    }
}

/// Where bytes go besides the tail.
#[derive(Debug)]
pub(crate) enum Sink {
    Stdout,
    File(File),
    Nowhere,
}

impl Sink {
    /// Opens the file, if there is one.
    pub(crate) fn open(to: &ConsoleTo) -> io::Result<Self> {
        Ok(match to {
            ConsoleTo::Terminal => Self::Stdout,
            ConsoleTo::File(path) => Self::File(crate::boot::open_console(path)?),
            ConsoleTo::Kept => Self::Nowhere,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Self::File(file) => file.write_all(bytes),
            Self::Nowhere => Ok(()),
        }
    }
}

/// Reads `from` to its end on a thread of its own: a guest never waits for a full console. A sink
/// that fails (full disk, closed pipe) is no longer written to ([`Tail::dropped`]).
pub(crate) fn pump(what: String, mut from: impl Read + Send + 'static, mut sink: Sink) -> (Tail, JoinHandle<()>) {
    let tail = Tail::default();
    let kept = tail.clone();
    let thread = thread::spawn(move || {
        let mut chunk = [0u8; 4096];
        loop {
            let bytes = match from.read(&mut chunk) {
                Ok(0) => return,
                Ok(count) => &chunk[..count],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            kept.push(bytes);
            if let Err(error) = sink.write(bytes) {
                // It fails once only.
                let _ = kept.dropped.set(format!("cannot write the {what}: {error}; the rest of it was dropped"));
                sink = Sink::Nowhere;
            }
        }
    });
    (tail, thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_the_file_is_appended_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console");
        std::fs::write(&path, "before\n").unwrap();
        let sink = Sink::open(&ConsoleTo::File(path.clone())).unwrap();
        let (tail, thread) = pump("console".into(), &b"one\r\n\x1b[0mtwo\n\nthree"[..], sink);
        thread.join().unwrap();
        assert_eq!(tail.lines(2), ["[0mtwo", "three"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"before\none\r\n\x1b[0mtwo\n\nthree");
    }

    #[test]
    fn old_bytes_make_room() {
        let tail = Tail::default();
        tail.push(&[b'a'; KEPT_BYTES]);
        tail.push(b"\nend");
        assert_eq!(tail.lines(1), ["end"]);
        assert_eq!(tail.kept.lock().unwrap().len(), KEPT_BYTES);
    }

    #[test]
    fn a_full_disk_does_not_stop_the_guest() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (tail, thread) = pump("console".into(), &b"words"[..], Sink::File(full));
        thread.join().unwrap();
        assert_eq!(tail.lines(1), ["words"]);
        let dropped = tail.dropped().unwrap();
        assert!(dropped.contains("cannot write the console") && dropped.contains("No space left"), "{dropped}");
    }
}
