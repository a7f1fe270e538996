//! `homenode topology`.

use crate::args::TopologyArguments;

/// Runs the command.
pub(crate) fn run(_arguments: &TopologyArguments) -> anyhow::Result<()> {
    Err(crate::failure::bad_input("not built yet"))
}
