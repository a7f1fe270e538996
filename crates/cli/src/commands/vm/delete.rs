//! `homenode vm delete`.

use crate::commands::vm::stop;
use crate::failure::bad_input;
use crate::{backend, kept, output};
use inventory::InventoryError;
use qemu::{RuntimeDir, background};
use vm::backend::ReachedBy;
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
    let (state, by) = (held.record().life.state, held.record().life.backend.clone());
    let mut ended = "";
    match state {
        State::Suspended => stop::forget_memory(directory, &mut held, force)?,
        // Its record may be an old one, of another directory.
        _ if !state.has_process() && backend::pid(held.record()).is_none() => {}
        _ if force => {
            stop::stop(directory, &mut held, true)?;
            ended = "was ended and ";
        }
        _ => {
            let does = if state.has_process() { format!("is {state}") } else { "has a process".to_owned() };
            let other = match by {
                ReachedBy::Libvirt(_) => format!("`homenode vm forget {name}` leaves it running, as libvirt's own; "),
                ReachedBy::Qemu => String::new(),
            };
            return Err(bad_input(format!(
                "VM {name} {does}: {other}`homenode vm stop {name}` powers it down first; `homenode vm delete {name} \
                --force` ends it"
            )));
        }
    }
    match backend::of(directory, &by).forget(name) {
        Err(error) if force => output::note(error),
        forgotten => forgotten?,
    }
    held.delete().map_err(kept::failure)?;
    let definition = match &by {
        ReachedBy::Libvirt(domain) if domain.adopted => "its definition, which is its owner's, ",
        _ => "",
    };
    output::line(format_args!("VM {name} {ended}is forgotten; {definition}its disks and the file of its spec stay"))
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
