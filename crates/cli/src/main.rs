//! The `homenode` program, thin: parse, resolve, run, print.

mod accepted_file;
mod advise_view;
mod args;
mod args_balance;
mod args_guest;
mod args_libvirt;
mod args_migrate;
mod args_model;
mod args_results;
mod args_source;
mod args_switch;
mod args_vm;
mod backend;
mod balance_view;
mod balancer_host;
mod balancer_place;
mod cells;
mod check_subjects;
mod check_view;
mod commands;
mod doctor_view;
mod evaluation_view;
mod failure;
mod findings_groups;
mod findings_view;
mod fleet_choice;
mod fleet_view;
mod guest_images;
mod hidden_vms;
mod kept;
mod kept_moves;
mod kept_sizes;
mod kept_thread;
mod life_words;
mod machine_choice;
mod machine_view;
mod machine_view_picture;
mod measuring;
mod named_file;
mod nearest;
mod new_directory;
mod not_looked_at;
mod occupied;
mod output;
mod own_pages;
mod plan_view;
mod profile_view;
mod remote_host;
mod residence_view;
mod source;
mod switch_exchanges;
mod switches;
mod text;
mod this_host;
mod top;
mod trace_view;
mod transfer_view;
mod vm_choice;
mod vm_spec_file;
mod why_view;
mod words;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    match commands::run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
