//! `homenode vm stop`.

use crate::commands::libvirt_vms;
use crate::commands::vm::pause;
use crate::failure::bad_input;
use crate::{kept, output};
use anyhow::Context;
use inventory::{Held, InventoryError};
use qemu::{QemuError, RuntimeDir, background};
use std::time::Duration;
use vm::backend::Stopped;
use vm::history::LifeEvent;
use vm::life::{State, Step};

/// How long a guest may take to power off.
const GRACE: Duration = Duration::from_secs(60);

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str, force: bool) -> anyhow::Result<()> {
    let how = match kept::hold_if_kept(directory, name) {
        Ok(Some(mut held)) if held.record().life.state == State::Suspended => {
            return forget_memory(directory, &mut held, force);
        }
        Ok(Some(mut held)) => stop(directory, &mut held, force)?,
        Ok(None) => process(directory, name, force).map_err(|error| libvirt_vms::explain(error, name))?,
        // It is in another homenode's hands, or cannot be read. Whoever has it, or looks next, sees
        // its process gone, and writes down what has become of it.
        Err(error) if force && error.is::<InventoryError>() => process(directory, name, force)?,
        Err(error) => return Err(error),
    };
    match how {
        Stopped::ByGuest => output::line(format_args!("VM {name} powered off")),
        Stopped::ByForce if force => output::line(format_args!("VM {name} was ended")),
        Stopped::ByForce => {
            output::line(format_args!("VM {name} did not power off within {} s and was ended", GRACE.as_secs()))
        }
    }
}

/// Stops a VM that is kept, and writes that down.
pub(super) fn stop(directory: &RuntimeDir, held: &mut Held, force: bool) -> anyhow::Result<Stopped> {
    let name = held.record().spec.name.clone();
    if let Err(refused) = held.may(Step::Stop) {
        // Its record may be an old one, of another directory.
        let runs = background::pid(directory, &name).is_some();
        return if runs { Ok(process(directory, &name, force)?) } else { Err(kept::failure(refused)) };
    }
    if !force && held.record().life.state == State::Paused {
        // A guest whose vCPUs stand does not see its power button.
        pause::reach(directory, &name)?.unpause()?;
        held.step(Step::Continue, Some(LifeEvent::Continued), kept::now()).map_err(kept::failure)?;
    }
    // Killed from here on, whoever looks next knows that its end was on purpose.
    held.change_life(|life| life.asked_to_end = true).map_err(kept::failure)?;
    let how = match process(directory, &name, force) {
        // It ended by itself meanwhile.
        Err(QemuError::NoSuchVm { .. }) => Stopped::ByGuest,
        Err(error) => {
            held.change_life(|life| life.asked_to_end = false).map_err(kept::failure)?;
            return Err(error.into());
        }
        Ok(how) => how,
    };
    let written = held.step(Step::Stop, Some(LifeEvent::Stopped), kept::now());
    written.with_context(|| format!("VM {name} has ended, and that could not be written down"))?;
    Ok(how)
}

fn process(directory: &RuntimeDir, name: &str, force: bool) -> Result<Stopped, QemuError> {
    background::stop(directory, name, if force { Duration::ZERO } else { GRACE })
}

/// A VM that is suspended stops by losing its memory.
pub(super) fn forget_memory(directory: &RuntimeDir, held: &mut Held, force: bool) -> anyhow::Result<()> {
    let name = held.record().spec.name.clone();
    let file = held.record().life.suspended_in.clone();
    let shown = file.as_ref().map_or_else(String::new, |file| format!(" in {}", file.display()));
    if !force {
        return Err(bad_input(format!(
            "VM {name} is suspended: its memory{shown} would be lost. `homenode vm resume {name}` lets it go \
            on; --force forgets its memory"
        )));
    }
    // One whose suspension was cut short may still be there, paused.
    match process(directory, &name, true) {
        Err(QemuError::NoSuchVm { .. }) => {}
        ended => _ = ended?,
    }
    let step = held.step(Step::Stop, Some(LifeEvent::Stopped), kept::now());
    step.map_err(kept::failure)?;
    if let Some(file) = file {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("cannot remove {}", file.display()))?,
        }
    }
    output::line(format_args!("VM {name} is stopped; its memory{shown} is gone"))
}
