//! `homenode vm delete`.

use crate::commands::vm::stop;
use crate::failure::bad_input;
use crate::{backend, kept, output};
use inventory::InventoryError;
use qemu::{RuntimeDir, background};
use vm::life::State;
use vm::truth::Process;

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str, force: bool) -> anyhow::Result<()> {
    let mut held = match kept::hold(directory, name) {
        Err(error) if force && error.downcast_ref().is_some_and(InventoryError::is_unreadable) => {
            return unreadable(directory, name);
        }
        held => held?,
    };
    stop::handed_over(&held)?;
    let state = held.record().life.state;
    match state {
        State::Suspended => stop::forget_memory(directory, &mut held, force)?,
        // Its record may be an old one, of another directory.
        _ if !state.has_process() && backend::pid(held.record()).is_none() => {}
        _ if force => _ = stop::stop(directory, &mut held, true)?,
        _ => {
            let does = if state.has_process() { format!("is {state}") } else { "has a process".to_owned() };
            return Err(bad_input(format!(
                "VM {name} {does}: `homenode vm stop {name}` first, or `homenode vm delete {name} --force`"
            )));
        }
    }
    match backend::of(directory, &held.record().life.backend).forget(name) {
        Err(error) if force => output::note(error),
        forgotten => forgotten?,
    }
    held.delete().map_err(kept::failure)?;
    output::line(format_args!("VM {name} is forgotten; its disks and the file of its spec stay"))
}

/// Forgets a VM whose files no longer say what it is.
fn unreadable(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    match background::process(directory, name)? {
        Process::Gone { .. } => {}
        _ => return Err(bad_input(format!("VM {name} has a process: `homenode vm stop {name} --force` first"))),
    }
    kept::inventory().forget(name).map_err(kept::failure)?;
    output::line(format_args!("VM {name} is forgotten; its disks and the file of its spec stay"))
}
