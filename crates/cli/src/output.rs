//! Standard output of every command: texts for people, documents for programs, JSON.
//!
//! Whoever reads, `head` for one, may have seen enough: then the rest is not written, and that is
//! no failure. JSON is one object that says what it is: `{"format": "homenode.top", "version": 1,
//! ...}`; `format` is the command's words with dots between, and `version` rises when a reader
//! would break.
//!
//! **Names, errors and messages are whatever somebody wrote**: another user, a guest, another host.
//! All texts for people and all JSON goes through here and cannot steer a terminal
//! ([`topology::input::harmless`]); in JSON such characters are escapes. Texts for people are ASCII
//! where the locale is not UTF-8. Documents (`exact`) are what the user's own files say.

use anyhow::Context;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;
use topology::input::{harmless, is_harmful};

/// Writes a text for people.
///
/// # Errors
/// Nothing can be written, for another reason than that nobody reads any more: a full disk.
pub(crate) fn print(text: impl Display) -> anyhow::Result<()> {
    exact(readable(&text.to_string()))
}

/// Writes a text for people, and ends the line.
///
/// # Errors
/// As [`print()`].
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    print(format_args!("{text}\n"))
}

/// Writes a line for people to standard error, after the program's name. Nothing more can be done
/// where that cannot be written.
pub(crate) fn note(text: impl Display) {
    say(format_args!("homenode: {text}\n"));
}

/// Writes a text for people to standard error, as [`note`].
pub(crate) fn say(text: impl Display) {
    let _ = io::stderr().lock().write_all(readable(&text.to_string()).as_bytes());
}

/// Writes a document that a program reads, as it is.
///
/// # Errors
/// As [`print()`].
pub(crate) fn exact(document: impl AsRef<str>) -> anyhow::Result<()> {
    write_to(&mut io::stdout().lock(), document.as_ref().as_bytes())
}

/// Writes the result of a command as JSON that people can read, too. `command`: its words with dots
/// between, `vm.list`.
///
/// # Errors
/// As [`print()`], and where the value cannot be written as a JSON object.
pub(crate) fn json(command: &str, content: &impl Serialize) -> anyhow::Result<()> {
    exact(json_document(command, content)?)
}

/// What [`json`] writes, for where it goes elsewhere.
///
/// # Errors
/// As [`json_text`].
pub(crate) fn json_document(command: &str, content: &impl Serialize) -> anyhow::Result<String> {
    Ok(escaped(&serde_json::to_string_pretty(&Envelope::new(command, content))?) + "\n")
}

/// As [`json`], in one line: for commands that go on telling.
///
/// # Errors
/// As [`json`].
pub(crate) fn json_line(command: &str, content: &impl Serialize) -> anyhow::Result<()> {
    exact(json_text(command, content)?)
}

/// As [`json_line`], to standard error.
///
/// # Errors
/// As [`json_line`].
pub(crate) fn json_to_errors(command: &str, content: &impl Serialize) -> anyhow::Result<()> {
    write_to(&mut io::stderr().lock(), json_text(command, content)?.as_bytes())
}

/// What [`json_line`] writes, for where it goes elsewhere.
///
/// # Errors
/// The value cannot be written as a JSON object.
pub(crate) fn json_text(command: &str, content: &impl Serialize) -> anyhow::Result<String> {
    Ok(escaped(&serde_json::to_string(&Envelope::new(command, content))?) + "\n")
}

/// JSON with escapes for what would steer a terminal: only its strings can hold any, and of those
/// the control characters of ASCII are escapes already.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '\n' => text.push(letter),
            _ if is_harmful(letter) => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => text.push(letter),
        }
    }
    text
}

/// Commands whose JSON is not of version 1 any more: figures have one form, units are as printed.
const RAISED: [(&str, u32); 4] = [("advise", 2), ("evaluate", 2), ("evaluate.dry_run", 2), ("validate", 2)];

/// What stands before the content of every JSON object.
#[derive(Serialize)]
struct Envelope<'a, T: Serialize> {
    format: String,
    version: u32,
    #[serde(flatten)]
    content: &'a T,
}

impl<'a, T: Serialize> Envelope<'a, T> {
    fn new(command: &str, content: &'a T) -> Self {
        let raised = RAISED.iter().find(|(name, _)| *name == command);
        Self { format: format!("homenode.{command}"), version: raised.map_or(1, |(_, version)| *version), content }
    }
}

/// Whether the locale's texts are UTF-8.
pub(crate) fn is_utf8() -> bool {
    static UTF8: OnceLock<bool> = OnceLock::new();
    *UTF8.get_or_init(|| locale_is_utf8(|name| std::env::var(name).ok()))
}

/// The first of the three that says something decides, as for every program (locale(7)).
fn locale_is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    said.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The text as the locale can show it, and so that it does nothing to a terminal.
pub(crate) fn readable(text: &str) -> String {
    let text = harmless(text);
    if is_utf8() || text.is_ascii() { text } else { ascii(&text) }
}

/// Lines, bars and marks as ASCII of the same width, so that columns stay under each other; what
/// has no likeness is a question mark.
pub(crate) fn ascii(text: &str) -> String {
    let like = |character: char| match character {
        '\0'..='\x7f' => character,
        '≈' => '~',
        '─' | '—' | '–' | '−' => '-',
        '│' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => '+',
        '×' => 'x',
        '█' | '▉' | '▊' | '▋' | '▌' => '#',
        '▲' => '^',
        '▼' => 'v',
        '…' => '.',
        '°' | '·' => '.',
        'µ' | 'μ' => 'u',
        _ => '?',
    };
    text.chars().map(like).collect()
}

fn write_to(out: &mut impl Write, bytes: &[u8]) -> anyhow::Result<()> {
    // What the buffer keeps would be written at the end of the program, where nobody hears of a
    // failure.
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

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

    #[test]
    fn every_json_says_first_what_it_is() {
        #[derive(Serialize)]
        struct Content {
            nodes: BTreeMap<u32, u32>,
        }
        let content = Content { nodes: BTreeMap::from([(1, 2)]) };
        let text = serde_json::to_string(&Envelope::new("vm.list", &content)).unwrap();
        assert_eq!(text, r#"{"format":"homenode.vm.list","version":1,"nodes":{"1":2}}"#);
    }

    #[test]
    fn json_says_the_same_and_steers_no_terminal() {
        let name = "web\u{1b}[2J\u{9b}2J\u{202e}\n\u{7f}";
        let text = escaped(&serde_json::to_string_pretty(&[name]).unwrap());
        assert_eq!(text, "[\n  \"web\\u001b[2J\\u009b2J\\u202e\\n\\u007f\"\n]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [name]);
    }

    #[test]
    fn the_locale_is_the_first_variable_that_says_one() {
        let locale = |set: &[(&str, &str)]| {
            locale_is_utf8(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(locale(&[("LANG", "de_DE.UTF-8")]) && locale(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
        assert!(!locale(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")]) && !locale(&[]) && !locale(&[("LANG", "de_DE")]));
    }

    #[test]
    fn ascii_has_the_same_width() {
        let text = "┌ node 0 ──┐ ≈ 7 é";
        assert_eq!(ascii(text), "+ node 0 --+ ~ 7 ?");
    }
}
