//! `homenode vm start`: a VM that is kept, with the virtual topology that it has for life.

use crate::commands::power_on::{PowerOn, power_on};
use crate::kept;
use qemu::RuntimeDir;
use vm::life::Step;

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str, json: bool) -> anyhow::Result<()> {
    let held = kept::hold(directory, name)?;
    held.may(Step::Start).map_err(kept::failure)?;
    let spec = held.record().spec.clone();
    let (whose, by) = (format!("VM {name}"), held.record().life.backend.clone());
    let wanted = PowerOn { held: Some(held), launch_spec: spec.clone(), spec_to_keep: spec, kernel: None, whose, by };
    power_on(directory, wanted, json)
}
