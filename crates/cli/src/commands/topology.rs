//! `homenode topology`.

use crate::args::TopologyArguments;
use crate::failure::unwritable;
use crate::output;
use crate::{machine_choice, machine_view};
use anyhow::Context;
use serde::Serialize;
use std::fs;
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
        return capture(file);
    }
    let machine = machine_choice::machine_or_host(&arguments.machine, &arguments.connect)?;
    if arguments.json {
        return output::json("topology", &Report { machine: &machine });
    }
    output::print(machine_view::view(&machine))
}

/// Packs this host's files; a half-written archive is not left behind.
fn capture(file: &Path) -> anyhow::Result<()> {
    let archive = read::capture(Path::new("/")).context("this host cannot be read")?;
    if let Err(error) = fs::write(file, &archive) {
        // What is no ordinary file, a device for one, is not ours to remove.
        if fs::symlink_metadata(file).is_ok_and(|found| found.is_file()) {
            let _ = fs::remove_file(file);
        }
        let advice = "the capture cannot be written; give a file in a directory that exists and has room";
        return Err(unwritable(format_args!("{}: {advice}", file.display()), &error));
    }
    output::line(format_args!(
        "{}: {} bytes; look at it with `homenode topology --on {0}`",
        file.display(),
        archive.len()
    ))?;
    Ok(())
}
