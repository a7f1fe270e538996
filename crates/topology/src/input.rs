//! Files that users name, and what of them is quoted in errors.
//!
//! A name may be a mistake: a disk image, `/dev/zero`, a pipe that never ends. So every reader
//! takes at most what such a file can have, and says so beyond; and an error shows the beginning of
//! a text, in which nothing can spoil a terminal.
//!
//! ```
//! use topology::input;
//! let error = input::text("/dev/zero", input::LONGEST_TEXT).expect_err("endless").to_string();
//! assert_eq!(error, "more than 1 MiB, the most that is read");
//! assert_eq!(input::excerpt("\x1b[31mred"), "\u{fffd}[31mred");
//! ```

use crate::Bytes;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The most of a text that a person writes: VM specs, experiments, policies, profiles, machine
/// files.
pub const LONGEST_TEXT: u64 = 1 << 20;
/// The most of a file that a program writes: states, results, archives, XML (the largest of hwloc
/// that is known has 20 MB).
pub const LONGEST_FILE: u64 = 64 << 20;
/// The most of one line in a file of lines: recordings, journals.
pub const LONGEST_LINE: u64 = LONGEST_FILE;
/// The most characters that are kept of a name: libvirt takes what a file name may have, 255 bytes
/// with its ending; QEMU takes any length.
pub const LONGEST_NAME: usize = 255;

/// The bytes of a file, at most `most` of them.
///
/// # Errors
/// The file cannot be read, or has more.
pub fn bytes(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    limited(File::open(path)?, most)
}

/// The text of a file, at most `most` bytes.
///
/// # Errors
/// As [`bytes`], and where it is no UTF-8.
pub fn text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    utf_8(bytes(path, most)?)
}

/// All that `from` gives, at most `most` bytes.
///
/// # Errors
/// It cannot be read, or gives more.
pub fn limited(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    check(bytes.len(), most)?;
    Ok(bytes)
}

/// Appends the next line with its end, at most [`LONGEST_LINE`] bytes, and returns its length: 0 at
/// the end of the file.
///
/// # Errors
/// It cannot be read, or is longer.
pub fn line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let length = from.take(LONGEST_LINE + 1).read_until(b'\n', line)?;
    check(length, LONGEST_LINE)?;
    Ok(length)
}

/// The lines of a file without their ends, each at most [`LONGEST_LINE`] bytes.
pub struct Lines(BufReader<File>);

/// Opens a file of lines.
///
/// # Errors
/// It cannot be opened.
pub fn lines(path: impl AsRef<Path>) -> io::Result<Lines> {
    Ok(Lines(BufReader::new(File::open(path)?)))
}

impl Iterator for Lines {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Vec::new();
        match line(&mut self.0, &mut bytes) {
            Ok(0) => None,
            Ok(_) => Some(utf_8(bytes).map(|text| text.trim_end_matches(['\n', '\r']).to_owned())),
            Err(error) => Some(Err(error)),
        }
    }
}

fn utf_8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not a text (UTF-8)"))
}

fn check(length: usize, most: u64) -> io::Result<()> {
    if length as u64 <= most {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidData, format!("more than {}, the most that is read", Bytes(most))))
}

/// What is wanted of a directory's files and directories, by name.
///
/// # Errors
/// The directory cannot be read.
pub fn entries(directory: &Path, wanted: impl Fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = entries.filter(|path| wanted(path)).collect();
    found.sort_unstable();
    Ok(found)
}

/// What an error shows of a foreign text: its first 80 characters, in one line.
pub fn excerpt(text: &str) -> String {
    one_line(text.trim_matches([' ', '\t', '\r', '\n']), 80)
}

/// A message that may quote all of what it is about (serde_json's do): its beginning and its end,
/// where it says the place, in one line.
pub fn shortened(message: &str) -> String {
    const BEGINNING: usize = 400;
    const END: usize = 100;
    let length = message.chars().count();
    if length <= BEGINNING + END {
        return one_line(message, length);
    }
    let end: String = message.chars().skip(length - END).collect();
    one_line(message, BEGINNING) + " " + &one_line(&end, END)
}

/// A name that somebody else chose, of a VM, a thread, a file: in one line, at most
/// [`LONGEST_NAME`] characters.
pub fn name(text: &str) -> String {
    one_line(text, LONGEST_NAME)
}

/// The first `most` characters as one line, with `...` where there are more.
pub fn one_line(text: &str, most: usize) -> String {
    cut(text, most).replace(['\n', '\t', '\r'], " ")
}

/// The first `most` characters, [harmless](harmless), with `...` where there are more.
pub fn cut(text: &str, most: usize) -> String {
    let start = text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end]);
    let dots = if start.len() < text.len() { "..." } else { "" };
    harmless(start) + dots
}

/// The text with U+FFFD for each character that does something to a terminal or a log other than to
/// be shown: control characters, but for the ends of lines and tabs, and what turns the direction
/// of writing, so that a text reads otherwise than it is.
pub fn harmless(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let end = if line.ends_with("\r\n") { "\r\n" } else { "\n" };
        let (line, end) = line.strip_suffix(end).map_or((line, ""), |line| (line, end));
        line.replace(|letter: char| is_harmful(letter), "\u{fffd}") + end
    });
    lines.collect()
}

/// Whether a character does something to a terminal other than to be shown; an end of a line is no
/// question here, and a tab does not.
pub fn is_harmful(letter: char) -> bool {
    let turns = matches!(letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (letter.is_control() && letter != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").expect("written");
        assert_eq!(text(&path, 5).expect("it fits"), "12345");
        assert_eq!(text(&path, 4).expect_err("too long").to_string(), "more than 4 B, the most that is read");
        std::fs::write(&path, b"\xff").expect("written");
        assert!(text(&path, 4).expect_err("no text").to_string().contains("UTF-8"));
        assert!(bytes(directory.path(), 4).is_err());
    }

    #[test]
    fn lines_are_read_one_by_one() {
        let (mut from, mut found) = (&b"one\ntwo"[..], Vec::new());
        assert_eq!(line(&mut from, &mut found).expect("a line"), 4);
        assert_eq!((line(&mut from, &mut found).expect("a line"), found.as_slice()), (3, &b"one\ntwo"[..]));
        assert_eq!(line(&mut from, &mut found).expect("the end"), 0);
        let mut endless = io::BufReader::new(io::repeat(0));
        assert!(line(&mut endless, &mut Vec::new()).is_err());
    }

    #[test]
    fn what_is_quoted_is_short_and_harmless() {
        assert_eq!(excerpt(&"ä".repeat(81)), "ä".repeat(80) + "...");
        assert_eq!(excerpt(" a\x1b]0;title\x07b\n"), "a\u{fffd}]0;title\u{fffd}b");
        assert_eq!(cut("one\ntwo", 5), "one\nt...");
        assert_eq!(name("web\nnode 0: forged\u{202e}\u{9b}2J"), "web node 0: forged\u{fffd}\u{fffd}2J");
        assert_eq!(harmless("a\u{9b}1m\rb\tc\r\n-\u{1b}\nend"), "a\u{fffd}1m\u{fffd}b\tc\r\n-\u{fffd}\nend");
        let long = format!("\"{}\" at line 1", "x".repeat(10_000));
        let short = shortened(&long);
        assert!(short.len() < 510 && short.ends_with("x\" at line 1") && short.contains("... x"), "{short}");
        assert_eq!(shortened("short\n"), "short ");
        assert_eq!(name(&"n".repeat(120_000)).len(), LONGEST_NAME + 3);
    }
}
