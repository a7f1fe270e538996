//! One file a command.

mod advise;
mod balance;
mod balance_replay;
pub(crate) mod balance_trace;
mod calibrate;
mod check;
mod check_cured;
mod compare;
mod doctor;
mod doctor_network;
mod doctor_qemu;
mod evaluate;
mod guest;
mod help;
pub(crate) mod libvirt_vms;
mod machine;
mod plan;
mod plan_emit;
mod plan_fleet;
mod power_on;
mod profile;
mod results;
mod run;
mod run_check;
mod run_via_libvirt;
mod shell;
mod switch;
mod top;
mod topology;
mod validate;
mod vm;
mod why;

use crate::args::Command;

/// Carries out a command.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Topology(arguments) => topology::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Vm(arguments) => vm::run(&arguments.command),
        Command::Guest(arguments) => guest::run(&arguments),
        Command::Switch(arguments) => switch::run(&arguments),
        Command::Evaluate(arguments) => evaluate::run(&arguments),
        Command::Machine(arguments) => machine::run(&arguments),
        Command::Calibrate(arguments) => calibrate::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Results(arguments) => results::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Balance(arguments) => balance::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Why(arguments) => why::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Help { topic } => help::run(&topic),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man => shell::man(),
    }
}
