//! How an error leaves the program: its causes on standard error, and the exit code.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// What a user wrote, on the command line or in a file, cannot be used: exit code 2, nothing
/// changed.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BadInput {}

/// Nothing failed, and not everything could be looked at: exit code 3, so that a script need not
/// take it for either. It holds what that means for the answer.
#[derive(Debug)]
pub(crate) struct NotAllSeen(pub(crate) &'static str);

impl fmt::Display for NotAllSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not everything could be looked at: {}", self.0)
    }
}

impl Error for NotAllSeen {}

/// Marks an error as bad input.
pub(crate) fn bad_input(error: impl fmt::Display) -> anyhow::Error {
    BadInput(error.to_string()).into()
}

/// An output that the user named could not be written: `what` names it. The wrong place is bad
/// input; a full disk is not.
pub(crate) fn unwritable(what: impl fmt::Display, error: &(dyn Error + 'static)) -> anyhow::Error {
    let (mut cause, mut wrong_place) = (Some(error), false);
    while let Some(one) = cause {
        wrong_place |= one.downcast_ref::<io::Error>().is_some_and(|io| is_wrong_place(io.kind()));
        cause = one.source();
    }
    let text = format!("{what}: {error}");
    if wrong_place { bad_input(text) } else { anyhow::anyhow!(text) }
}

/// Whether another name would have helped.
fn is_wrong_place(kind: ErrorKind) -> bool {
    use ErrorKind::{
        AlreadyExists, InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    matches!(
        kind,
        AlreadyExists
            | InvalidFilename
            | InvalidInput
            | IsADirectory
            | NotADirectory
            | NotFound
            | PermissionDenied
            | ReadOnlyFilesystem
    )
}

/// Prints an error with its causes; 2 for bad input, 3 where not all could be seen, 1 for
/// everything else.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    // Whatever an error quotes of a file or a program that is not ours, the terminal shows a page
    // of it at most.
    const LONGEST_ERROR: usize = 8000;
    crate::output::note(topology::input::cut(&text(error), LONGEST_ERROR));
    let has = |is: fn(&(dyn Error + 'static)) -> bool| error.chain().any(is);
    ExitCode::from(match (has(|cause| cause.is::<BadInput>()), has(|cause| cause.is::<NotAllSeen>())) {
        (true, _) => 2,
        (false, true) => 3,
        (false, false) => 1,
    })
}

/// An error and its causes; a cause that the error already ends with is not said twice.
pub(crate) fn text(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = io::Error::from(ErrorKind::StorageFull);
        assert_eq!(text(&anyhow::Error::new(cause).context("cannot write")), "cannot write: no storage space");
        let said = qemu::QemuError::Directory { action: "read /a".into(), source: ErrorKind::NotFound.into() };
        assert_eq!(text(&said.into()), "cannot read /a: entity not found");
    }

    #[test]
    fn the_wrong_place_is_bad_input_and_a_full_disk_is_not() {
        let is_bad = |kind: ErrorKind| unwritable("--out a/b", &io::Error::from(kind)).is::<BadInput>();
        assert!(is_bad(ErrorKind::NotFound) && is_bad(ErrorKind::PermissionDenied) && is_bad(ErrorKind::IsADirectory));
        assert!(!is_bad(ErrorKind::StorageFull));
    }
}
