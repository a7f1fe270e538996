//! What runs a VM that is kept: the one place where a backend is chosen.
//!
//! **Rule.** A VM's record says what runs it and how to reach it there
//! ([`vm::backend::ReachedBy`]). Whoever acts on a VM asks here, and then knows nothing of which
//! program it is. A third backend is a line in [`of`] and in [`pid`].

use crate::failure::bad_input;
use anyhow::anyhow;
use inventory::Record;
use libvirt::Domains;
use qemu::{InBackground, RuntimeDir, background};
use vm::backend::ReachedBy;
use vm::{Backend, BackendError, Vm};

/// The backend of a VM.
pub(crate) fn of(directory: &RuntimeDir, reached_by: &ReachedBy) -> Box<dyn Backend> {
    match reached_by {
        ReachedBy::Qemu => Box::new(InBackground::of(directory.clone())),
        ReachedBy::Libvirt(domain) => Box::new(Domains::of(domain)),
    }
}

/// The process of a VM that is kept, as far as this user sees it: nothing is asked or made for
/// that.
pub(crate) fn pid(record: &Record) -> Option<u32> {
    match &record.life.backend {
        ReachedBy::Qemu => background::pid_in(&RuntimeDir::of_this_user(), &record.spec.name),
        ReachedBy::Libvirt(domain) => libvirt::local_process(&domain.uuid).ok()?.map(|process| process.key.pid),
    }
}

/// A VM that is kept and has a process.
///
/// # Errors
/// It cannot be reached, or has just ended.
pub(crate) fn reach(directory: &RuntimeDir, record: &Record) -> anyhow::Result<Box<dyn Vm>> {
    let name = &record.spec.name;
    let vm = of(directory, &record.life.backend).adopt(name)?;
    vm.ok_or_else(|| anyhow!("VM {name}: its process has just ended"))
}

/// Marks what the user can mend as bad input.
pub(crate) fn failure(error: BackendError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(error) } else { error.into() }
}
