//! `homenode vm resize-topology`: what a fresh sizing would change, at the next power-on only.

use crate::failure::bad_input;
use crate::{kept, output};
use anyhow::Context;
use qemu::RuntimeDir;
use scheduler::Occupancy;
use vm::{VirtualTopology, VmSpec};

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str, cancel: bool) -> anyhow::Result<()> {
    let mut held = kept::hold(directory, name)?;
    let anew = |held: &mut inventory::Held, anew: bool| {
        held.change_life(|life| life.topology_anew = anew).map_err(kept::failure)
    };
    if cancel {
        let was = held.record().life.topology_anew;
        anew(&mut held, false)?;
        let words =
            if was { "keeps its virtual topology" } else { "keeps its virtual topology; nothing was to change" };
        return output::line(format_args!("VM {name} {words}"));
    }
    let Some(old) = held.record().topology.as_ref().map(|old| old.powered_on_with(&held.record().sizes())) else {
        return output::line(format_args!("VM {name} was never started: it is sized at its first power-on anyway"));
    };
    let new = sized_anew(&held.record().spec)?;
    let differences = scheduler::topology_difference(&old, &new);
    anew(&mut held, true)?;
    let runs = held.record().life.state.has_process();
    let when = if runs { ", after it was stopped; a reset changes nothing" } else { "" };
    let changes = match &differences[..] {
        // The next `run` may bring another spec.
        [] => " nothing, as long as its spec stays the same.".to_owned(),
        differences => format!(":\n  {}", differences.join("\n  ")),
    };
    output::line(format_args!(
        "VM {name} is sized anew at its next power-on{when}. If this host were empty, that would \
        change{changes}\n`homenode vm resize-topology {name} --cancel` takes it back.",
    ))
}

/// What this host, empty, would give it.
fn sized_anew(spec: &VmSpec) -> anyhow::Result<VirtualTopology> {
    let mut machine = topology::read::live().context("this host cannot be read")?;
    // What is free now is not what is free then.
    machine.nodes.iter_mut().for_each(|node| node.free = None);
    let planned = scheduler::plan(&machine, &Occupancy::default(), spec);
    Ok(planned.map_err(|error| if error.is_bad_input() { bad_input(error) } else { error.into() })?.topology)
}
