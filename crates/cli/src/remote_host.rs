//! Another host by `--connect`: its libvirt's words as errors of ours.

use crate::failure::bad_input;
use libvirt::remote::Remote;
use libvirt::{Connection, LibvirtError};
use scheduler::Occupancy;
use topology::Machine;

/// The machine of the libvirt at `uri`.
pub(crate) fn machine(uri: &str) -> anyhow::Result<Machine> {
    Connection::new(Some(uri)).machine().map_err(failure)
}

/// The machine, and what its running domains hold of it.
pub(crate) fn machine_and_occupancy(uri: &str) -> anyhow::Result<(Machine, Occupancy)> {
    let (machine, occupancy, notes) = open(uri)?.occupied()?;
    for note in notes {
        crate::output::note(note);
    }
    Ok((machine, occupancy))
}

/// The host, to be looked at.
pub(crate) fn open(uri: &str) -> anyhow::Result<Remote> {
    Remote::open(Connection::new(Some(uri))).map_err(failure)
}

/// Bad input where the URI itself is wrong.
pub(crate) fn failure(error: LibvirtError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(format!("--connect: {error}")) } else { error.into() }
}
