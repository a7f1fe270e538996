//! `homenode topology`.

use crate::args::TopologyArguments;
use crate::{machine_choice, machine_view, named_file, output};
use anyhow::Context;
use serde::Serialize;
use std::path::Path;
use topology::{Machine, read};

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    machine: &'a Machine,
}

/// Runs the command.
pub(crate) fn run(arguments: &TopologyArguments) -> anyhow::Result<()> {
    if let Some(file) = &arguments.capture {
        return capture(file, arguments.force);
    }
    let machine = machine_choice::machine_or_host(&arguments.machine, &arguments.connect)?;
    if arguments.json {
        return output::json("topology", &Report { machine: &machine });
    }
    output::print(machine_view::view(&machine))
}

/// Packs this host's files into a new file.
fn capture(file: &Path, force: bool) -> anyhow::Result<()> {
    named_file::check("--capture", file, force)?;
    let archive = read::capture(Path::new("/")).context("this host cannot be read")?;
    named_file::write(file, &archive, force)?;
    output::line(format_args!(
        "{}: {} bytes; look at it with `homenode topology --on {0}`",
        file.display(),
        archive.len()
    ))
}
