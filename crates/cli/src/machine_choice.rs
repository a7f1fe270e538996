//! Which machine a command is about: `--on`, `--connect`, or this host.

use crate::args::{ConnectArguments, MachineArguments};
use crate::failure::bad_input;
use crate::{remote_host, this_host};
use simulator::machine_check::{Finding, check};
use std::path::Path;
use topology::rates::Rates;
use topology::read::{self, Described};
use topology::{Machine, input};

/// The machine that the arguments name: a shipped one, a file or directory, or a synthetic string;
/// this host without `--on`.
pub(crate) fn machine(arguments: &MachineArguments) -> anyhow::Result<Machine> {
    match &arguments.on {
        None => this_host::machine(),
        Some(choice) => named(choice),
    }
}

/// As [`machine`]; with `--connect`, the host of that libvirt.
pub(crate) fn machine_or_host(arguments: &MachineArguments, connect: &ConnectArguments) -> anyhow::Result<Machine> {
    connect.connect.as_deref().map_or_else(|| machine(arguments), remote_host::machine)
}

/// The machine that `choice` names and its rates, for whoever models it.
///
/// # Errors
/// Bad input: those of [`machine`], a machine without rates (only machine files have them), and
/// rates that cannot be.
pub(crate) fn described(choice: &str) -> anyhow::Result<(Machine, Rates)> {
    let Described { machine, rates } = with_rates(choice)?;
    let refusal = rates.as_ref().and_then(|rates| check(&machine, rates).into_iter().find(Finding::refuses));
    match (rates, refusal) {
        (Some(rates), None) => Ok((machine, rates)),
        (Some(_), Some(finding)) => Err(bad_input(format!(
            "--on {choice}: {finding}. `homenode machine check {choice}` lists all that is wrong"
        ))),
        (None, _) => Err(bad_input(format!(
            "--on {choice}: {} cannot be modelled: it has no rates (latencies, bandwidths, links). Only a machine file \
            can have them, in a table [rates] (docs/machine-file.md); `homenode calibrate --out FILE` measures this \
            host and writes one. Machines with rates that come with homenode: {}",
            machine.name,
            names_with_rates().join(", ")
        ))),
    }
}

/// The text of the machine file that `choice` names: a shipped one, or a file that is TOML by its
/// name.
///
/// # Errors
/// Bad input: there is no such file, it cannot be read, or it is no machine file.
pub(crate) fn machine_file(choice: &str) -> anyhow::Result<String> {
    if let Some(text) = read::shipped_text(choice) {
        return Ok(text.to_owned());
    }
    let path = Path::new(choice);
    if !path.is_file() {
        let known: Vec<&str> = read::shipped_names().collect();
        let valid = "give a machine file (.toml), or one of those that come with homenode";
        return Err(bad_input(format!("{choice}: no such file or machine; {valid}: {}", known.join(", "))));
    }
    let valid = "only a machine file (.toml) has rates that can be checked";
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(bad_input(format!("{choice}: its name does not end in .toml; {valid}")));
    }
    input::text(path, input::LONGEST_TEXT)
        .map_err(|error| bad_input(format!("{choice}: cannot be read: {error}; {valid}")))
}

fn names_with_rates() -> Vec<&'static str> {
    let has_rates = |name: &&str| matches!(read::shipped_described(name), Some(Ok(Described { rates: Some(_), .. })));
    read::shipped_names().filter(has_rates).collect()
}

fn named(choice: &str) -> anyhow::Result<Machine> {
    with_rates(choice).map(|described| described.machine)
}

fn with_rates(choice: &str) -> anyhow::Result<Described> {
    let without = |machine: Machine| Described { machine, rates: None };
    if let Some(described) = read::shipped_described(choice) {
        return described.map_err(bad_input);
    }
    let path = Path::new(choice);
    if path.is_dir() {
        return read::from_root(path).map(without).map_err(bad_input);
    }
    if path.exists() {
        return from_file(path, choice);
    }
    if is_synthetic(choice) {
        return read::from_synthetic(choice).map(without).map_err(bad_input);
    }
    Err(bad_input(format!("--on {choice}: no such machine, file or directory. {}", valid())))
}

fn valid() -> String {
    let names: Vec<&str> = read::shipped_names().collect();
    format!(
        "Machines that come with homenode: {}. Or give a machine file (.toml), hwloc XML, libvirt's capabilities \
        (XML), a directory or .tar.gz with a captured /sys, or a synthetic string such as 'pack:2 [numa] l3:2 core:4 \
        pu:2'",
        names.join(", ")
    )
}

/// Every word of the grammar has a colon or a bracket; a path that is not there has none, but for
/// exotic names.
fn is_synthetic(choice: &str) -> bool {
    choice.contains([':', '[']) && !choice.contains('/')
}

/// Reads a file by what it holds: an archive, XML, or else a machine file.
fn from_file(path: &Path, choice: &str) -> anyhow::Result<Described> {
    let without = |machine: Machine| Described { machine, rates: None };
    let unreadable = |error: std::io::Error| bad_input(format!("--on {choice}: cannot be read: {error}"));
    let bytes = input::bytes(path, input::LONGEST_FILE).map_err(unreadable)?;
    const ZIPPED: [u8; 2] = [0x1f, 0x8b];
    if bytes.starts_with(&ZIPPED) || path.extension().is_some_and(|extension| extension == "tar") {
        let name = path.file_name().map_or(choice.into(), |name| name.to_string_lossy());
        let name = name.trim_end_matches(".gz").trim_end_matches(".tar").trim_end_matches(".tgz");
        return read::from_archive(&bytes, name).map(without).map_err(bad_input);
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| bad_input(format!("--on {choice}: neither text nor a .tar.gz archive. {}", valid())))?;
    if text.trim_start().starts_with('<') {
        return read::from_xml(&text, choice).map(without).map_err(bad_input);
    }
    read::described(&text, choice).map_err(bad_input)
}
