//! `homenode topology`.

use crate::args::TopologyArguments;
use crate::output;
use crate::{machine_choice, machine_view};
use anyhow::Context;
use serde::Serialize;
use std::fs;
use std::path::Path;
use topology::{Machine, read};

/// What `--json` prints. A change that breaks readers raises `version`.
#[derive(Serialize)]
struct Report<'a> {
    format: &'static str,
    version: u32,
    machine: &'a Machine,
}

/// Runs the command.
pub(crate) fn run(arguments: &TopologyArguments) -> anyhow::Result<()> {
    if let Some(file) = &arguments.capture {
        return capture(file);
    }
    let machine = machine_choice::machine_or_host(&arguments.machine, &arguments.connect)?;
    let text = if arguments.json {
        let report = Report { format: "homenode-topology", version: 1, machine: &machine };
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        machine_view::view(&machine)
    };
    output::print(text)
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
        return Err(error).with_context(|| format!("{}: {advice}", file.display()));
    }
    output::line(format_args!(
        "{}: {} bytes; look at it with `homenode topology --on {0}`",
        file.display(),
        archive.len()
    ))?;
    Ok(())
}
