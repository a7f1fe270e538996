//! VMs of libvirt's on this host, where somebody looks for them with `homenode vm`: `virsh` lists,
//! stops and reaches them.

use libvirt::local_names;
use qemu::QemuError;

/// Says on standard error which VMs libvirt runs on this host, if any.
pub(super) fn say() -> anyhow::Result<()> {
    let names = local_names()?;
    if !names.is_empty() {
        crate::output::note(format_args!("VMs of libvirt run here: {}; `virsh list` shows them", names.join(", ")));
    }
    Ok(())
}

/// The error, or, where libvirt runs a VM of that name, what to do with it.
pub(super) fn explain(error: QemuError, name: &str) -> anyhow::Error {
    let of_libvirt = matches!(error, QemuError::NoSuchVm { .. })
        && local_names().is_ok_and(|names| names.iter().any(|seen| seen == name));
    if !of_libvirt {
        return error.into();
    }
    let word = topology::words::quoted(name);
    anyhow::anyhow!(
        "VM {name} is libvirt's: `virsh shutdown {word}` asks its guest to power off, `virsh destroy {word}` ends it, `virsh console {word}` is its console (with --connect URI where it is not virsh's own choice)"
    )
}
