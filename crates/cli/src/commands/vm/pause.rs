//! `homenode vm pause`, `vm continue` and `vm reset`: what is told to a VM that has a process.

use crate::{backend, kept, output};
use inventory::Held;
use qemu::RuntimeDir;
use vm::history::LifeEvent;
use vm::life::Step;
use vm::{BackendError, Vm};

/// Stops its vCPUs.
pub(super) fn pause(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    let mut held = tell(directory, name, Step::Pause, |vm| vm.pause())?;
    held.step(Step::Pause, Some(LifeEvent::Paused), kept::now()).map_err(kept::failure)?;
    output::line(format_args!("VM {name} is paused; its memory stays where it is"))
}

/// Lets its vCPUs go on.
pub(super) fn unpause(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    let mut held = tell(directory, name, Step::Continue, |vm| vm.unpause())?;
    held.step(Step::Continue, Some(LifeEvent::Continued), kept::now()).map_err(kept::failure)?;
    output::line(format_args!("VM {name} runs"))
}

/// Resets its machine.
pub(super) fn reset(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    // What runs can be paused, and nothing else can.
    let mut held = tell(directory, name, Step::Pause, |vm| vm.reset())?;
    held.change_life(|life| life.tell(LifeEvent::Reset, kept::now())).map_err(kept::failure)?;
    output::line(format_args!("VM {name} was reset"))
}

/// Tells a VM something that it can be told where this step is possible.
fn tell(
    directory: &RuntimeDir,
    name: &str,
    step: Step,
    what: impl FnOnce(&mut dyn Vm) -> Result<(), BackendError>,
) -> anyhow::Result<Held> {
    let held = kept::hold(directory, name)?;
    held.may(step).map_err(kept::failure)?;
    what(&mut *backend::reach(directory, held.record())?)?;
    Ok(held)
}
