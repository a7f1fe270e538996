//! `homenode evaluate`.

use crate::args::EvaluateArguments;

/// Runs the command.
pub(crate) fn run(_arguments: &EvaluateArguments) -> anyhow::Result<()> {
    Err(crate::failure::bad_input("not built yet"))
}
