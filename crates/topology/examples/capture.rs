//! Packs a directory with `sys` and `proc` as `homenode topology --capture` packs this host:
//! `capture DIRECTORY FILE.tar.gz`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, file] = arguments.as_slice() else {
        eprintln!("usage: capture DIRECTORY FILE.tar.gz");
        return ExitCode::from(2);
    };
    let written = topology::read::capture(Path::new(directory))
        .map_err(|error| error.to_string())
        .and_then(|archive| std::fs::write(file, archive).map_err(|error| format!("{file}: {error}")));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capture: {error}");
            ExitCode::FAILURE
        }
    }
}
