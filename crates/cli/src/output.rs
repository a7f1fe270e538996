//! Standard output of every command. Whoever reads, `head` for one, may have seen enough: then the rest is not written, and that is no failure.

use anyhow::Context;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes a text as it is.
///
/// # Errors
/// Nothing can be written, for another reason than that nobody reads any more: a full disk.
pub(crate) fn print(text: impl Display) -> anyhow::Result<()> {
    write_to(&mut io::stdout().lock(), text.to_string().as_bytes())
}

/// Writes a text, and ends the line.
///
/// # Errors
/// As [`print()`].
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    print(format_args!("{text}\n"))
}

/// Writes a value as JSON that people can read.
///
/// # Errors
/// As [`print()`], and where the value cannot be written as JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

fn write_to(out: &mut impl Write, bytes: &[u8]) -> anyhow::Result<()> {
    // What the buffer keeps would be written at the end of the program, where nobody hears of a failure.
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_failure_and_a_full_disk_is() {
        assert!(write_to(&mut Fails(ErrorKind::BrokenPipe), b"a").is_ok());
        let error = write_to(&mut Fails(ErrorKind::StorageFull), b"a").unwrap_err();
        assert!(format!("{error:#}").starts_with("standard output: "), "{error:#}");
    }
}
