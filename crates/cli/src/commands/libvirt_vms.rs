//! VMs of libvirt's on this host, where somebody looks for them with `homenode vm`: `virsh` lists, stops and reaches them.

use linux::Root;
use linux::vm::RunningVm;
use qemu::QemuError;
use vm::Manager;

/// Says on standard error which VMs libvirt runs on this host, if any.
pub(super) fn say() -> anyhow::Result<()> {
    let names = names()?;
    if !names.is_empty() {
        eprintln!("homenode: libvirt runs here: {}; `virsh list` shows them", names.join(", "));
    }
    Ok(())
}

/// The error, or, where libvirt runs a VM of that name, what to do with it.
pub(super) fn explain(error: QemuError, name: &str) -> anyhow::Error {
    let of_libvirt =
        matches!(error, QemuError::NoSuchVm { .. }) && names().is_ok_and(|names| names.iter().any(|seen| seen == name));
    if !of_libvirt {
        return error.into();
    }
    anyhow::anyhow!(
        "VM {name} is libvirt's: `virsh shutdown {name}` asks its guest to power off, `virsh destroy {name}` ends it, `virsh console {name}` is its console (with --connect URI where it is not virsh's own choice)"
    )
}

/// Names of the VMs that libvirt runs on this host, for whomever, as far as this user sees them.
fn names() -> anyhow::Result<Vec<String>> {
    let root = Root::default();
    let vms = linux::process::all()?.into_iter().filter_map(|pid| RunningVm::examine(&root, pid).ok().flatten());
    let of_libvirt =
        |vm: &RunningVm| matches!(vm.origin.manager, Manager::Libvirt | Manager::Openstack | Manager::Kubevirt);
    let mut names: Vec<String> = vms.filter(of_libvirt).map(|vm| vm.key.name).collect();
    names.sort_unstable();
    Ok(names)
}
