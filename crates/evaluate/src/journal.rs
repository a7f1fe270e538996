//! `records.jsonl`: one line a record, flushed one by one, so that a kill at any moment leaves all
//! lines but the last one whole.

use crate::records::{Line, Record, SCHEMA};
use linux::lock_file::{LockFile, LockFileError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use topology::input::shortened;

/// Records that cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Reading or writing failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another homenode writes the file.
    #[error("{}: another homenode{} is writing it; wait until it ends, or stop it", path.display(),
        holder.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Busy {
        /// The file.
        path: PathBuf,
        /// Its process, where it had time to say so.
        holder: Option<u32>,
    },
    /// A line other than the last is not a record.
    #[error("{}: line {line} is not a record of schema {SCHEMA}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// Why.
        reason: String,
    },
}

/// The open file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    appended: Vec<Record>,
    #[allow(dead_code, reason = "dropping it releases the lock")]
    lock: Option<LockFile>,
}

impl Journal {
    /// Opens the file for appending and makes it if it is missing. It stays locked until the
    /// journal is dropped.
    ///
    /// # Errors
    /// The file cannot be opened, or another homenode writes it.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let file = linux::named_file::append(path, &[]).map_err(|source| io_error(path, source))?;
        let lock = Some(lock_beside(path)?);
        Ok(Self { path: path.to_owned(), file, appended: Vec::new(), lock })
    }

    /// One without a name on disk: nothing is left of it, however this process ends.
    ///
    /// # Errors
    /// No file can be made.
    pub fn without_name() -> Result<Self, JournalError> {
        let path = std::env::temp_dir();
        let file = tempfile::tempfile().map_err(|source| io_error(&path, source))?;
        Ok(Self { path, file, appended: Vec::new(), lock: None })
    }

    /// All its records.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn into_records(mut self) -> Result<Vec<Record>, JournalError> {
        self.file.rewind().map_err(|source| io_error(&self.path, source))?;
        Ok(read(BufReader::new(self.file), &self.path)?.0)
    }

    /// Appends a record. It is in the kernel's hands when this returns: a killed homenode loses
    /// nothing.
    ///
    /// # Errors
    /// The file cannot be written, for example because the disk is full.
    pub fn append(&mut self, record: Record) -> Result<(), JournalError> {
        let line = Line { schema: SCHEMA, record };
        let mut text = serde_json::to_string(&line).map_err(|error| io_error(&self.path, error.into()))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(|source| io_error(&self.path, source))?;
        self.appended.push(line.record);
        Ok(())
    }

    /// What was appended since it was opened.
    pub fn appended(&self) -> &[Record] {
        &self.appended
    }
}

/// The lock of a journal, in a file of its own: everybody may read results, and so could hold the
/// lock of the journal itself.
fn lock_beside(path: &Path) -> Result<LockFile, JournalError> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".lock");
    LockFile::take(&path.with_file_name(name), Duration::ZERO).map_err(|error| match error {
        LockFileError::Held { holder, .. } => JournalError::Busy { path: path.to_owned(), holder },
        LockFileError::Io { path, source } => io_error(&path, source),
    })
}

fn io_error(path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { path: path.to_owned(), source }
}

/// What every line has, of whatever schema.
#[derive(serde::Deserialize)]
struct Version {
    schema: u32,
}

/// The records of a file, and whether a half-written last line was cut off.
#[derive(Debug)]
pub struct Recovered {
    /// All whole lines.
    pub records: Vec<Record>,
    /// Whether the file ended in the middle of a line.
    pub cut: bool,
}

/// All whole lines of a file, of which nothing is changed.
///
/// # Errors
/// The file cannot be read, or a whole line is not a record of this schema.
pub fn look(path: &Path) -> Result<Vec<Record>, JournalError> {
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    Ok(read(BufReader::new(file), path)?.0)
}

/// Reads all records. A last line without its end is cut off the file: it was being written when
/// homenode was killed, or the disk was full.
///
/// # Errors
/// The file cannot be read or shortened, or a whole line is not a record of this schema.
pub fn recover(path: &Path) -> Result<Recovered, JournalError> {
    let fail = |source| io_error(path, source);
    let (records, cut_at) = read(BufReader::new(File::open(path).map_err(fail)?), path)?;
    if let Some(whole) = cut_at {
        let _lock = lock_beside(path)?;
        let file = linux::named_file::append(path, &[]).map_err(fail)?;
        file.set_len(whole).map_err(fail)?;
    }
    Ok(Recovered { records, cut: cut_at.is_some() })
}

/// All records, and how long the file is without a last line that has no end, where it has one.
fn read(mut from: impl BufRead, path: &Path) -> Result<(Vec<Record>, Option<u64>), JournalError> {
    let (mut records, mut whole, mut number) = (Vec::new(), 0u64, 0);
    let mut text = Vec::new();
    loop {
        text.clear();
        let length = topology::input::line(&mut from, &mut text).map_err(|source| io_error(path, source))?;
        if length == 0 {
            return Ok((records, None));
        }
        if text.last() != Some(&b'\n') {
            return Ok((records, Some(whole)));
        }
        number += 1;
        whole += length as u64;
        let bad = |reason: String| JournalError::Line { path: path.to_owned(), line: number, reason };
        let malformed = |error: serde_json::Error| bad(shortened(&error.to_string()));
        let Version { schema } = serde_json::from_slice(&text).map_err(malformed)?;
        if schema != SCHEMA {
            let reason = format!("it has schema {schema}, of another version of homenode: start the evaluation anew");
            return Err(bad(reason));
        }
        let line: Line = serde_json::from_slice(&text).map_err(malformed)?;
        records.push(line.record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;

    fn visit(round: u32) -> Record {
        Record::Visit {
            configuration: "native".to_owned(),
            point: Point::over_threads("stream", 2),
            round,
            seconds: 1.5,
            carried: Vec::new(),
            uncounted: None,
        }
    }

    #[test]
    fn a_half_written_last_line_is_cut_off_and_the_rest_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("records.jsonl");
        let mut journal = Journal::open(&path).expect("open");
        journal.append(visit(0)).expect("written");
        journal.append(visit(1)).expect("written");
        drop(journal);
        let whole = std::fs::read(&path).expect("read");
        for lost in 1..20 {
            std::fs::write(&path, &whole[..whole.len() - lost]).expect("written");
            let recovered = recover(&path).expect("readable");
            assert!(recovered.cut);
            assert_eq!(recovered.records, [visit(0)]);
            let mut journal = Journal::open(&path).expect("open");
            journal.append(visit(2)).expect("written");
            drop(journal);
            assert_eq!(recover(&path).expect("readable").records, [visit(0), visit(2)]);
        }
    }

    #[test]
    fn two_sessions_do_not_write_one_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("records.jsonl");
        let first = Journal::open(&path).expect("open");
        assert!(matches!(Journal::open(&path), Err(JournalError::Busy { .. })));
        drop(first);
        assert!(Journal::open(&path).is_ok());
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("records.jsonl");
        std::fs::write(&path, "{\"schema\":2,\"record\":\"end\",\"at\":\"x\",\"why\":\"y\"}\n{}\n").expect("written");
        assert!(recover(&path).expect_err("broken").to_string().contains("line 2"));
        // As version 1 wrote it: with other fields.
        let old = "{\"schema\":1,\"record\":\"visit\",\"configuration\":\"native\",\"point\":{\"of\":\"stream\",\"threads\":1},\"round\":0}\n";
        std::fs::write(&path, old).expect("written");
        let message = recover(&path).expect_err("other schema").to_string();
        assert!(message.contains("it has schema 1") && message.contains("start the evaluation anew"), "{message}");
    }
}
