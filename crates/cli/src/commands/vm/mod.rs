//! `homenode vm`: one file a subcommand.

mod adopt;
mod beside;
mod console;
mod delete;
mod disks;
mod forget;
mod list;
mod migrate;
mod migrate_libvirt;
mod move_client;
mod pause;
mod receive;
mod resize_topology;
mod resume;
mod set;
mod show;
mod start;
mod stop;
mod suspend;

use crate::args::VmCommand;
use crate::kept;

/// Runs the command.
pub(crate) fn run(command: &VmCommand) -> anyhow::Result<()> {
    let directory = kept::runtime_dir()?;
    match command {
        VmCommand::List { connect, json } => list::run(&directory, connect.as_deref(), *json),
        VmCommand::Adopt(arguments) => adopt::run(arguments),
        VmCommand::Show { name, json } => show::run(&directory, name, *json),
        VmCommand::Start { name, json } => start::run(&directory, name, *json),
        VmCommand::Console { name } => console::run(&directory, name),
        VmCommand::Pause { name } => pause::pause(&directory, name),
        VmCommand::Continue { name } => pause::unpause(&directory, name),
        VmCommand::Reset { name } => pause::reset(&directory, name),
        VmCommand::ResizeTopology { name, cancel } => resize_topology::run(&directory, name, *cancel),
        VmCommand::Move(arguments) => move_client::run(&directory, arguments),
        VmCommand::Migrate(arguments) => migrate::run(&directory, arguments),
        VmCommand::Receive(arguments) => receive::run(&directory, arguments),
        VmCommand::Suspend(arguments) => suspend::run(&directory, arguments),
        VmCommand::Resume(arguments) => resume::run(&directory, arguments),
        VmCommand::Set(arguments) => set::run(&directory, arguments),
        VmCommand::Stop { name, force } => stop::run(&directory, name, *force),
        VmCommand::Forget { name } => forget::run(&directory, name),
        VmCommand::Delete { name, force } => delete::run(&directory, name, *force),
    }
}
