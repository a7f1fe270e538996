//! One file a command.

mod evaluate;
mod plan;
mod run;
mod run_check;
mod shell;
mod topology;
mod vm;

use crate::args::Command;

/// Carries out a command.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Topology(arguments) => topology::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Vm(arguments) => vm::run(&arguments.command),
        Command::Evaluate(arguments) => evaluate::run(&arguments),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man => shell::man(),
    }
}
