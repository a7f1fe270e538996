//! `homenode vm pause`, `vm continue` and `vm reset`: what is told to a VM that has a process.

use crate::{kept, output};
use anyhow::anyhow;
use inventory::Held;
use qemu::{InBackground, RuntimeDir};
use vm::history::LifeEvent;
use vm::life::Step;
use vm::{Backend, Vm};

/// Stops its vCPUs.
pub(super) fn pause(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    let mut held = kept::hold(directory, name)?;
    held.may(Step::Pause).map_err(kept::failure)?;
    reach(directory, name)?.pause()?;
    step(&mut held, Step::Pause, LifeEvent::Paused)?;
    output::line(format_args!("VM {name} is paused; its memory stays where it is"))
}

/// Lets its vCPUs go on.
pub(super) fn unpause(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    let mut held = kept::hold(directory, name)?;
    held.may(Step::Continue).map_err(kept::failure)?;
    reach(directory, name)?.unpause()?;
    step(&mut held, Step::Continue, LifeEvent::Continued)?;
    output::line(format_args!("VM {name} runs"))
}

/// Resets its machine.
pub(super) fn reset(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    let mut held = kept::hold(directory, name)?;
    // What runs can be paused, and nothing else can.
    held.may(Step::Pause).map_err(kept::failure)?;
    reach(directory, name)?.reset()?;
    held.change_life(|life| life.tell(LifeEvent::Reset, kept::now())).map_err(kept::failure)?;
    output::line(format_args!("VM {name} was reset"))
}

fn reach(directory: &RuntimeDir, name: &str) -> anyhow::Result<Box<dyn Vm>> {
    let vm = InBackground::of(directory.clone()).adopt(name)?;
    vm.ok_or_else(|| anyhow!("VM {name}: its process has just ended"))
}

fn step(held: &mut Held, step: Step, event: LifeEvent) -> anyhow::Result<()> {
    held.step(step, Some(event), kept::now()).map_err(kept::failure)
}
