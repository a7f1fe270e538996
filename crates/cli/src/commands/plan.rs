//! `homenode plan`.

use crate::args::PlanArguments;

/// Runs the command.
pub(crate) fn run(_arguments: &PlanArguments) -> anyhow::Result<()> {
    Err(crate::failure::bad_input("not built yet"))
}
