//! `homenode-guest`: homenode's agent. As process 1 of a tiny guest it brings the machine up and
//! serves a virtio-serial port; on a host it serves its standard input and output; from a shell it
//! runs STREAM or says what machine it sees.

mod agent;
mod arguments;
mod console;
mod disk_root;
mod host;
mod init;
mod job;
mod join;
mod logins;
mod pattern;
mod pinning;
mod place;
mod port;
mod power;
mod programs;
mod seen;
mod stream_command;

use arguments::Mode;
use std::process::ExitCode;

/// Allocations from this size on get fresh pages, so that the thread that touches them decides on
/// which node they are.
const FRESH_PAGES_FROM_BYTES: usize = 256 << 10;

fn main() -> ExitCode {
    linux::sys::map_allocations_of(FRESH_PAGES_FROM_BYTES);
    // The kernel hands init whatever it did not understand of its own command line, so a guest
    // reads no arguments.
    if std::process::id() == 1 {
        init::run();
    }
    let mode = match arguments::parse(std::env::args().skip(1)) {
        Ok(mode) => mode,
        Err(error) => {
            eprintln!("homenode-guest: {error:#}");
            return ExitCode::from(2);
        }
    };
    let result = match mode {
        Mode::Help => {
            print!("{}", arguments::HELP);
            Ok(())
        }
        Mode::InGuest => init::serve_beside(),
        Mode::Native => agent::native(),
        Mode::Hello => agent::print_hello(),
        Mode::Stream(job, repetitions) => stream_command::run(&job, repetitions),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("homenode-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}
