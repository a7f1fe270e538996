//! Why a machine could not be read.

use std::path::PathBuf;

/// Why a machine could not be read. Each names the source, the place in it, and what would be
/// valid.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A directory or archive without the files that describe a machine.
    #[error(
        "{place} describes no machine: {missing} is missing; give a directory or archive that holds `sys` and `proc` \
        of a Linux host"
    )]
    NotAMachine {
        /// The directory or archive.
        place: String,
        /// The file or directory that every Linux host has.
        missing: String,
    },
    /// A file of `/sys` or `/proc` that does not say what the kernel writes there.
    #[error("{place}: {file} says `{value}`: expected {expected}")]
    File {
        /// The directory or archive.
        place: String,
        /// The file, relative to it.
        file: String,
        /// What it says, shortened.
        value: String,
        /// What would be valid.
        expected: String,
    },
    /// A file that cannot be read at all.
    #[error("{}: cannot be read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An archive that is damaged or beyond the limits.
    #[error("{archive}: {reason}")]
    Archive {
        /// The archive.
        archive: String,
        /// What is wrong and what would be valid.
        reason: String,
    },
    /// A machine file that is no TOML, or has an unknown field or a value of a wrong kind.
    #[error(transparent)]
    Toml(#[from] crate::TomlError),
    /// A document (XML or machine file) that cannot be used.
    #[error("{file}: {reason}")]
    Document {
        /// The file.
        file: String,
        /// Where in it, what it says, and what would be valid.
        reason: String,
    },
    /// A field of a machine file with a value that cannot be.
    #[error("{file}: {field} = {value}: {valid}")]
    Field {
        /// The file.
        file: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be valid.
        valid: String,
    },
    /// A synthetic string that cannot be used.
    #[error("synthetic machine `{text}`: `{word}` at character {position}: {reason}")]
    Synthetic {
        /// The whole string, shortened.
        text: String,
        /// The word that is wrong.
        word: String,
        /// Its first character in the string, counted from 1.
        position: usize,
        /// What is wrong and what would be valid.
        reason: String,
    },
    /// A machine beyond [`MOST_THREADS`](super::MOST_THREADS) or [`MOST_NODES`](super::MOST_NODES).
    #[error("{place}: {count} {what} are more than the {most} that homenode reads")]
    TooLarge {
        /// The source.
        place: String,
        /// Hardware threads or NUMA nodes.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
}

/// Refuses a machine that is too large.
pub(crate) fn check_size(place: &str, threads: usize, nodes: usize) -> Result<(), ReadError> {
    let sizes = [("hardware threads", threads, super::MOST_THREADS), ("NUMA nodes", nodes, super::MOST_NODES)];
    match sizes.into_iter().find(|&(_, count, most)| count > most) {
        Some((what, count, most)) => Err(ReadError::TooLarge { place: crate::input::name(place), what, count, most }),
        None => Ok(()),
    }
}
