//! `homenode vm`.

use crate::args::VmCommand;

/// Runs the command.
pub(crate) fn run(_command: &VmCommand) -> anyhow::Result<()> {
    Err(crate::failure::bad_input("not built yet"))
}
