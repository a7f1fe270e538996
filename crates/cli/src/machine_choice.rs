//! Which machine a command is about: `--on`, or this host.

use crate::args::MachineArguments;
use crate::failure::bad_input;
use anyhow::Context;
use std::path::Path;
use topology::{Machine, read};

/// Larger files are no machine: the largest hwloc XML known has 20 MB.
const LARGEST_FILE: u64 = 256 << 20;

/// The machine that the arguments name: a shipped one, a file or directory, or a synthetic string; this host without `--on`.
pub(crate) fn machine(arguments: &MachineArguments) -> anyhow::Result<Machine> {
    match &arguments.on {
        None => read::live().context("this host cannot be read"),
        Some(choice) => named(choice),
    }
}

fn named(choice: &str) -> anyhow::Result<Machine> {
    if let Some(machine) = read::shipped(choice) {
        return machine.map_err(bad_input);
    }
    let path = Path::new(choice);
    if path.is_dir() {
        return read::from_root(path).map_err(bad_input);
    }
    if path.exists() {
        return from_file(path, choice);
    }
    if is_synthetic(choice) {
        return read::from_synthetic(choice).map_err(bad_input);
    }
    Err(bad_input(format!("--on {choice}: no such machine, file or directory. {}", valid())))
}

fn valid() -> String {
    let names: Vec<&str> = read::shipped_names().collect();
    format!(
        "Machines that come with homenode: {}. Or give a machine file (.toml), hwloc XML, a directory or .tar.gz with a captured /sys, or a synthetic string such as 'pack:2 [numa] l3:2 core:4 pu:2'",
        names.join(", ")
    )
}

/// Every word of the grammar has a colon or a bracket; a path that is not there has none, but for exotic names.
fn is_synthetic(choice: &str) -> bool {
    choice.contains([':', '[']) && !choice.contains('/')
}

/// Reads a file by what it holds: an archive, XML, or else a machine file.
fn from_file(path: &Path, choice: &str) -> anyhow::Result<Machine> {
    let unreadable = |error: std::io::Error| bad_input(format!("--on {choice}: cannot be read: {error}"));
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > LARGEST_FILE {
        return Err(bad_input(format!("--on {choice}: {size} bytes are too many for a machine. {}", valid())));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    const ZIPPED: [u8; 2] = [0x1f, 0x8b];
    if bytes.starts_with(&ZIPPED) || path.extension().is_some_and(|extension| extension == "tar") {
        let name = path.file_name().map_or(choice.into(), |name| name.to_string_lossy());
        let name = name.trim_end_matches(".gz").trim_end_matches(".tar").trim_end_matches(".tgz");
        return read::from_archive(&bytes, name).map_err(bad_input);
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| bad_input(format!("--on {choice}: neither text nor a .tar.gz archive. {}", valid())))?;
    if text.trim_start().starts_with('<') {
        return read::from_hwloc_xml(&text, choice).map_err(bad_input);
    }
    read::from_toml(&text, choice).map_err(bad_input)
}
