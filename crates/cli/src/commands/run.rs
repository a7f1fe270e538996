//! `homenode run`.

use crate::args::RunArguments;

/// Runs the command.
pub(crate) fn run(_arguments: &RunArguments) -> anyhow::Result<()> {
    Err(crate::failure::bad_input("not built yet"))
}
