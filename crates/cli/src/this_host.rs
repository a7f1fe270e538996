//! This host as a machine, with what somebody measured of it.
//!
//! `homenode calibrate --out /etc/homenode/machine.toml` writes the rates of this host where every
//! command that looks at it reads them. Without that file, what memory carries is what the firmware
//! told Linux, or unknown.

use crate::failure::bad_input;
use anyhow::Context;
use std::io::ErrorKind;
use std::path::PathBuf;
use topology::read;
use topology::{Bandwidths, Machine, input};

/// The machine file of this host.
pub(crate) const MACHINE_FILE: &str = "/etc/homenode/machine.toml";
/// Names another; tests and containers do.
const VARIABLE: &str = "HOMENODE_MACHINE_FILE";

/// This host, with what this process may use of it.
///
/// # Errors
/// It cannot be read; bad input: its machine file is of another machine, or cannot be read.
pub(crate) fn machine() -> anyhow::Result<Machine> {
    let machine = read::live().context("this host cannot be read")?;
    let bandwidth = measured(&machine)?.or(&machine.bandwidth);
    Ok(Machine { bandwidth, ..machine })
}

/// What the machine file of this host says that memory and links carry; nothing where there is no
/// such file.
///
/// # Errors
/// Bad input: it cannot be read, or has other nodes than this host.
pub(crate) fn measured(machine: &Machine) -> anyhow::Result<Bandwidths> {
    let path = std::env::var_os(VARIABLE).map_or_else(|| PathBuf::from(MACHINE_FILE), PathBuf::from);
    let text = match input::text(&path, input::LONGEST_TEXT) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Bandwidths::default()),
        text => text.map_err(|why| bad_input(format!("{}: {why}", path.display())))?,
    };
    let described = read::described(&text, &path.display().to_string()).map_err(bad_input)?;
    let (written, here) = (described.machine.node_ids(), machine.node_ids());
    if written != here {
        return Err(bad_input(format!(
            "{}: it describes a machine with NUMA nodes {written}, and this host has {here}: it is of another machine. \
            `homenode calibrate --force --out {0}` writes it anew",
            path.display()
        )));
    }
    Ok(described.machine.bandwidth)
}
