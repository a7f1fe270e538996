//! What can go wrong with a command, in words for people.

use std::fmt;

/// Why a command has no figures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A pattern is no regular expression.
    #[error("the pattern `{pattern}` cannot be used: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// Nothing matched.
    #[error("figure \"{figure}\": {sought} is not in {place} ({lines} lines){hint}")]
    NotFound {
        /// Name of the figure.
        figure: String,
        /// What was looked for.
        sought: String,
        /// Where.
        place: String,
        /// Lines that were there.
        lines: u64,
        /// What may help.
        hint: String,
    },
    /// Several matched where there must be one.
    #[error(
        "figure \"{figure}\": {sought} is {count} times in {place} (lines {first} and {last} among them); write which \
        = \"first\" or \"last\""
    )]
    Several {
        /// Name of the figure.
        figure: String,
        /// What was looked for.
        sought: String,
        /// Where.
        place: String,
        /// How often it is there.
        count: u64,
        /// Line or row of the first, from 1.
        first: u64,
        /// Line or row of the last, from 1.
        last: u64,
    },
    /// What matched is no number.
    #[error("figure \"{figure}\": `{text}` in {place} is not a number")]
    NotANumber {
        /// Name of the figure.
        figure: String,
        /// What is there.
        text: String,
        /// Where.
        place: String,
    },
    /// A document is none, or too long to be read.
    #[error("figure \"{figure}\": {place} is no {kind}: {reason}")]
    Document {
        /// Name of the figure.
        figure: String,
        /// Where.
        place: String,
        /// What it should be.
        kind: Kind,
        /// Why it is not.
        reason: String,
    },
    /// A file that holds a figure cannot be read.
    #[error("cannot read {file}, which holds a figure: {reason}")]
    File {
        /// Its name in the directory in which the command ran.
        file: String,
        /// The system's reason.
        reason: String,
    },
    /// The command could not be run.
    #[error("{program}: {reason}")]
    Run {
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
    /// The command ended otherwise than it must.
    #[error("phase \"{phase}\" {how}{said}")]
    Ended {
        /// The phase.
        phase: String,
        /// `ended with exit status 3`, ...
        how: String,
        /// Its last lines, or nothing.
        said: String,
    },
}

/// What a document should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One JSON document.
    Json,
    /// A table with a header.
    Csv,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "JSON document",
            Self::Csv => "CSV table with a header",
        })
    }
}
