//! The `homenode` program, thin: parse, resolve, run, print.

mod args;
mod commands;
mod failure;
mod vm_spec_file;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    match commands::run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
