//! `homenode check`.

use crate::args::CheckArguments;

/// Runs the command.
pub(crate) fn run(_arguments: &CheckArguments) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
