//! How an error leaves the program: its causes on standard error, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// What a user wrote, on the command line or in a file, cannot be used: exit code 2, nothing changed.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// Marks an error as bad input.
pub(crate) fn bad_input(error: impl fmt::Display) -> anyhow::Error {
    BadInput(error.to_string()).into()
}

/// Prints an error with its causes; 2 for bad input, 1 for everything else.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("homenode: {error:#}");
    let bad_input = error.chain().any(|cause| cause.is::<BadInput>());
    ExitCode::from(if bad_input { 2 } else { 1 })
}
