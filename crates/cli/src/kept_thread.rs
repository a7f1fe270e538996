//! QEMU's main thread, where a homenode that was killed while it plugged a vCPU in left it
//! ([`linux::vm::main_thread`]).
//!
//! **Rule.** Whoever looks at a VM on which nobody is at work brings it back.

use crate::{backend, output};
use inventory::{Inventory, Record};
use linux::LinuxError;
use linux::vm::main_thread::left_behind;
use topology::CpuSet;
use vm::backend::ReachedBy;

/// Brings the main thread of a VM that runs back to its own CPUs.
pub(crate) fn free(inventory: &Inventory, record: &Record) {
    let vm = &record.spec.name;
    let grows =
        record.topology.as_ref().is_some_and(|topology| topology.nodes.iter().any(|node| !node.absent.is_empty()));
    // libvirt's own threads are libvirt's to bind.
    let ours = grows && record.life.backend == ReachedBy::Qemu;
    let Some(pid) = ours.then(|| backend::pid(record)).flatten() else { return };
    // Nobody plugs anything in while it is held.
    if !matches!(left(pid, record), Ok(Some(_))) {
        return;
    }
    let Ok(held) = inventory.hold_now(vm) else { return };
    let freed = left(pid, held.record()).and_then(|left| match left {
        Some(usual) => linux::sys::set_affinity(pid, &usual)
            .map_err(|error| LinuxError::call(format!("let QEMU's main thread run on CPUs {usual} again"), error)),
        None => Ok(()),
    });
    if let Err(error) = freed {
        output::note(format_args!("VM {vm}: {error}"));
    }
}

fn left(pid: u32, record: &Record) -> Result<Option<CpuSet>, LinuxError> {
    let threads = linux::process::threads(pid)?;
    let threads: Vec<(u32, &str)> = threads.iter().map(|thread| (thread.id, thread.name.as_str())).collect();
    let clients = || record.placement.as_ref().map(|kept| kept.placement.cpus_apart()).unwrap_or_default();
    left_behind(pid, &threads, clients)
        .map_err(|error| LinuxError::call("read the affinity of QEMU's threads".to_owned(), error))
}
