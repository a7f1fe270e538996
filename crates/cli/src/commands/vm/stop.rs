//! `homenode vm stop`.

use crate::commands::libvirt_vms;
use crate::failure::bad_input;
use crate::{backend, kept, output};
use anyhow::{Context, bail};
use inventory::{Held, InventoryError, Record};
use qemu::RuntimeDir;
use std::time::{Duration, Instant};
use vm::BackendError;
use vm::backend::{ErrorKind, ReachedBy, Stopped};
use vm::history::LifeEvent;
use vm::life::{State, Step};

/// How long a guest may take to power off.
const GRACE: Duration = Duration::from_secs(60);
/// How long a homenode that sends a VM may take to find out what became of it.
const SENDER_SAYS: Duration = Duration::from_secs(180);

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str, force: bool) -> anyhow::Result<()> {
    let how = match kept::hold_if_kept(directory, name) {
        Ok(Some(mut held)) if held.record().life.state == State::Suspended => {
            return forget_memory(directory, &mut held, force);
        }
        Ok(Some(mut held)) => stop(directory, &mut held, force)?,
        Ok(None) => end(directory, &ReachedBy::Qemu, name, force).map_err(|error| libvirt_vms::explain(error, name))?,
        // It is in another homenode's hands, or cannot be read. Whoever has it, or looks next, sees
        // its process gone, and writes down what has become of it.
        Err(error) if force && error.is::<InventoryError>() => match sent_to(name) {
            Some(to) => on_its_way(directory, name, to)?,
            None => end(directory, &reached_by(name), name, force)?,
        },
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

/// What runs a VM that somebody else holds.
fn reached_by(name: &str) -> ReachedBy {
    kept::inventory().read(name).map(|record| record.life.backend).unwrap_or_default()
}

/// Whether a VM is being sent, and to whom where it was handed over.
fn sent_to(name: &str) -> Option<Option<String>> {
    let life = kept::inventory().read(name).ok().map(|record| record.life)?;
    (life.state == State::MigratingOut).then(|| life.handed_over.map(|to| to.to))
}

/// Ends a VM that another homenode is sending, and waits for what that one makes of it: the guest
/// may have been handed over.
fn on_its_way(directory: &RuntimeDir, name: &str, mut to: Option<String>) -> anyhow::Result<Stopped> {
    match end(directory, &reached_by(name), name, true) {
        // It may have gone already.
        Err(error) if error.kind() == ErrorKind::Gone => {}
        ended => _ = ended?,
    }
    let deadline = Instant::now() + SENDER_SAYS;
    while Instant::now() < deadline {
        match kept::inventory().hold(name) {
            Err(InventoryError::Busy { .. }) => to = sent_to(name).flatten().or(to),
            Err(InventoryError::NoSuchVm { .. }) => {
                let to = to.unwrap_or_else(|| "another host".to_owned());
                bail!("VM {name} was not ended: it had gone to {to}, and runs there");
            }
            held => {
                let mut held = held.map_err(kept::failure)?;
                // It stayed after all, or has another home on this host.
                let there = backend::pid(held.record()).is_some();
                return if there {
                    stop(directory, &mut held, true)
                } else {
                    handed_over(&held).map(|()| Stopped::ByForce)
                };
            }
        }
    }
    bail!("VM {name}: its process here was ended, and the homenode that sends it does not say what became of it")
}

/// That a VM was not handed over to another host where it may run.
pub(super) fn handed_over(held: &Held) -> anyhow::Result<()> {
    let vm::history::Life { handed_over: Some(to), .. } = &held.record().life else { return Ok(()) };
    let name = &held.record().spec.name;
    Err(bad_input(format!(
        "VM {name} was handed over to {}, and may run there: `homenode vm migrate {name} --resolve` finds out. Here \
        it stands still",
        to.to
    )))
}

/// Stops a VM that is kept, and writes that down.
pub(super) fn stop(directory: &RuntimeDir, held: &mut Held, force: bool) -> anyhow::Result<Stopped> {
    let name = held.record().spec.name.clone();
    handed_over(held)?;
    if let Err(refused) = held.may(Step::Stop) {
        // Its record may be an old one, of another directory.
        let runs = backend::pid(held.record()).is_some();
        return if runs { Ok(process(directory, held.record(), force)?) } else { Err(kept::failure(refused)) };
    }
    if !force && held.record().life.state == State::Paused {
        // A guest whose vCPUs stand does not see its power button.
        backend::reach(directory, held.record())?.unpause()?;
        held.step(Step::Continue, Some(LifeEvent::Continued), kept::now()).map_err(kept::failure)?;
    }
    // Killed from here on, whoever looks next knows that its end was on purpose.
    held.change_life(|life| life.asked_to_end = true).map_err(kept::failure)?;
    let how = match process(directory, held.record(), force) {
        // It ended by itself meanwhile.
        Err(error) if error.kind() == ErrorKind::Gone => Stopped::ByGuest,
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

fn process(directory: &RuntimeDir, record: &Record, force: bool) -> Result<Stopped, BackendError> {
    end(directory, &record.life.backend, &record.spec.name, force)
}

fn end(directory: &RuntimeDir, by: &ReachedBy, name: &str, force: bool) -> Result<Stopped, BackendError> {
    backend::of(directory, by).stop(name, if force { Duration::ZERO } else { GRACE })
}

/// Ends what a homenode left that was killed after it had written down that the VM is suspended.
/// What writes the file itself (libvirt) ends the process with it: one that runs is somebody
/// else's, who resumed or started the VM.
pub(super) fn end_what_was_left(directory: &RuntimeDir, record: &Record) -> anyhow::Result<()> {
    if record.life.backend.kind().saves_files() {
        return Ok(());
    }
    match process(directory, record, true) {
        Err(error) if error.kind() != ErrorKind::Gone => Err(error.into()),
        _ => Ok(()),
    }
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
    end_what_was_left(directory, held.record())?;
    let step = held.step(Step::Stop, Some(LifeEvent::Stopped), kept::now());
    step.map_err(kept::failure)?;
    if let Some(file) = file {
        suspended::beside::remove(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    output::line(format_args!("VM {name} is stopped; its memory{shown} is gone"))
}
