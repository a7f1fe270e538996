//! VMs of libvirt's on this host, where somebody looks for them with `homenode vm`: `virsh` lists,
//! stops and reaches them.

use crate::failure::bad_input;
use libvirt::local_names;
use vm::BackendError;
use vm::backend::ErrorKind;

/// Says on standard error which VMs libvirt runs on this host, if any.
pub(super) fn say() -> anyhow::Result<()> {
    let names = local_names()?;
    if !names.is_empty() {
        crate::output::note(format_args!("VMs of libvirt run here: {}; `virsh list` shows them", names.join(", ")));
    }
    Ok(())
}

/// What to do with a VM that libvirt runs; `None` where it runs none of that name.
pub(crate) fn way_to(name: &str) -> Option<String> {
    local_names().ok()?.iter().find(|seen| *seen == name)?;
    let word = topology::words::quoted(name);
    Some(format!(
        "VM {name} is libvirt's: `virsh shutdown {word}` asks its guest to power off, `virsh destroy {word}` ends it, `virsh console {word}` is its console (with --connect URI where it is not virsh's own choice)"
    ))
}

/// The error; where there is no such VM, that is bad input, and libvirt may run one of that name.
pub(super) fn explain(error: impl Into<BackendError>, name: &str) -> anyhow::Error {
    let error = error.into();
    match error.kind() {
        ErrorKind::Gone => bad_input(way_to(name).unwrap_or_else(|| error.to_string())),
        _ => error.into(),
    }
}
