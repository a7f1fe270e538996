//! `homenode vm`: one file a subcommand.

mod console;
mod list;
mod stop;

use crate::args::VmCommand;
use qemu::RuntimeDir;

/// Runs the command.
pub(crate) fn run(command: &VmCommand) -> anyhow::Result<()> {
    let directory = RuntimeDir::open()?;
    match command {
        VmCommand::List { json } => list::run(&directory, *json),
        VmCommand::Console { name } => console::run(&directory, name),
        VmCommand::Stop { name, force } => stop::run(&directory, name, *force),
    }
}
