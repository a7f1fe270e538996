//! `homenode vm resize-topology`: what a fresh sizing would change, at the next power-on only.

use crate::{kept, life_words, output};
use anyhow::Context;
use qemu::RuntimeDir;
use scheduler::Occupancy;
use vm::VirtualTopology;

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str, cancel: bool) -> anyhow::Result<()> {
    let mut held = kept::hold(directory, name)?;
    let anew = |held: &mut inventory::Held, anew: bool| {
        held.change_life(|life| life.topology_anew = anew).map_err(kept::failure)
    };
    if cancel {
        let was = held.record().life.topology_anew;
        anew(&mut held, false)?;
        let words = if was { "keeps its virtual topology" } else { "was to keep its virtual topology anyway" };
        return output::line(format_args!("VM {name} {words}"));
    }
    let Some(old) = held.record().topology.clone() else {
        return output::line(format_args!("VM {name} was never started: it is sized at its first power-on anyway"));
    };
    let machine = topology::read::live().context("this host cannot be read")?;
    let new = scheduler::plan(&machine, &Occupancy::default(), &held.record().spec)?.topology;
    let differences = differences(&old, &new);
    if differences.is_empty() {
        anew(&mut held, false)?;
        return output::line(format_args!("VM {name}: a fresh sizing for this host would change nothing"));
    }
    anew(&mut held, true)?;
    let runs = held.record().life.state.has_process();
    let when = if runs { "after it was stopped; a guest that resets itself keeps what it has" } else { "then" };
    output::line(format_args!(
        "VM {name} is sized anew at its next power-on ({when}). On this host, empty, that changes:\n  {}\n`homenode vm resize-topology {name} --cancel` takes it back.",
        differences.join("\n  ")
    ))
}

/// What a fresh sizing changes, as `what: old -> new`.
fn differences(old: &VirtualTopology, new: &VirtualTopology) -> Vec<String> {
    let sockets = |topology: &VirtualTopology| {
        let VirtualTopology { sockets, cores_per_socket, threads_per_core, .. } = topology;
        format!("{sockets} x {cores_per_socket} x {threads_per_core}")
    };
    let growth = |topology: &VirtualTopology| format!("{} vCPUs, {}", topology.max_vcpus(), topology.max_memory());
    let told = |topology: &VirtualTopology| if topology.exposed { "yes" } else { "no" }.to_owned();
    let facts = [
        ("virtual nodes", life_words::topology(old), life_words::topology(new)),
        ("at most", growth(old), growth(new)),
        ("told to the guest", told(old), told(new)),
        ("sockets x cores x threads", sockets(old), sockets(new)),
        ("distances", format!("{:?}", old.distances), format!("{:?}", new.distances)),
    ];
    let differs = facts.into_iter().filter(|(_, old, new)| old != new);
    differs.map(|(what, old, new)| format!("{what}: {old} -> {new}")).collect()
}
