//! The `homenode` program, thin: parse, resolve, run, print.

mod args;
mod commands;
mod evaluation_view;
mod failure;
mod machine_choice;
mod machine_view;
mod machine_view_picture;
mod plan_view;
mod residence_view;
mod text;
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
