//! `homenode vm move`: one client of a VM that runs goes to another node, threads and memory.
//!
//! **Rule.** As a balancer does it: its vCPUs are bound to all CPUs of the node, then its memory
//! follows. A balancer that runs finds it at home there. Where the node lacks room nothing is done;
//! what it will hold is reserved until it is there. A VM that is kept has its new home written
//! down, as the kernel says it afterwards.

use super::super::run::{self as starting};
use crate::args_vm::MoveArguments;
use crate::failure::bad_input;
use crate::{backend, balancer_host, balancer_place, hidden_vms, kept, output, vm_choice};
use anyhow::{Context, bail};
use inventory::{Held, Kept};
use linux::LinuxHost;
use qemu::{Reserved, RuntimeDir};
use scheduler::growth::Moving;
use scheduler::{
    Act, Action, ClientId, ClientObservation, Done, Observation, Observe, Occupancy, VmKey, VmObservation,
    present_homes, with_groups,
};
use serde_json::json;
use std::collections::BTreeMap;
use topology::words::count;
use topology::{Bytes, NodeId};
use vm::NodeUse;
use vm::history::LifeEvent;

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, arguments: &MoveArguments) -> anyhow::Result<()> {
    let lock = starting::lock(directory)?;
    let mut host = balancer_host::open(None, false)?;
    let observation = host.examine().context("the running VMs cannot be read")?;
    hidden_vms::say(&observation);
    let key = vm_choice::choose(&observation, &arguments.name)?;
    let held = hold(directory, &key)?;
    let to = NodeId(arguments.to);
    let (seen, client) = chosen(&observation, &key, ClientId(arguments.client))?;
    let mut occupancy = balancer_place::occupancy(&observation, host.machine());
    qemu::leave_to_others(&mut occupancy, host.machine());
    let moving = Moving { vm: seen, client, machine: host.machine(), occupancy: &occupancy };
    moving
        .check(to, (0, Bytes(0)))
        .map_err(|why| bad_input(format!("VM {}: client {}: {why}", key.name, client.id.0)))?;
    let reservation = lock.reserve_growth(reserved(&observation, &moving, to))?;
    let done = carry_out(&mut host, &observation, &key, client, to)?;
    drop(reservation);
    if let Some(held) = held {
        write_down(held, &mut host, &key)?;
    }
    let Done { moved, left, because } = done;
    if arguments.json {
        let content = json!({
            "vm": key.name, "client": client.id, "to": to, "moved_bytes": moved, "left_bytes": left, "because": because,
        });
        output::json("vm.move", &content)?;
    } else {
        let (vm, id) = (&key.name, client.id.0);
        output::line(format_args!("VM {vm}: client {id} lives on node {to}; {moved} of its memory came with it"))?;
        because.iter().for_each(output::note);
    }
    if left > Bytes(0) {
        bail!("VM {}: {left} of the memory of client {} stay where they were", key.name, client.id.0);
    }
    Ok(())
}

/// What is kept of the VM, held, so that nobody else changes it meanwhile; `None` where nothing is.
fn hold(directory: &RuntimeDir, key: &VmKey) -> anyhow::Result<Option<Held>> {
    let held = kept::hold_if_kept(directory, &key.name)?;
    Ok(held.filter(|held| backend::pid(held.record()) == Some(key.pid)))
}

fn chosen<'a>(
    observation: &'a Observation,
    key: &VmKey,
    id: ClientId,
) -> anyhow::Result<(&'a VmObservation, &'a ClientObservation)> {
    let gone = || anyhow::anyhow!("VM {}: it has just ended", key.name);
    let seen = observation.vms.iter().find(|seen| seen.vm == *key).ok_or_else(gone)?;
    let none = || {
        let ids: Vec<String> = seen.clients.iter().map(|client| client.id.0.to_string()).collect();
        let has = format!("it has {}: {}", count(ids.len(), "client"), ids.join(", "));
        bad_input(format!("VM {}: --client {}: {has} (`homenode top --once`)", key.name, id.0))
    };
    let client = seen.clients.iter().find(|client| client.id == id).ok_or_else(none)?;
    Ok((seen, client))
}

/// What the VM holds once it has moved, until its memory is there.
fn reserved(observation: &Observation, moving: &Moving<'_>, to: NodeId) -> Reserved {
    let mut only = observation.clone();
    only.vms.retain(|vm| vm.vm == moving.vm.vm);
    let mut holds = Occupancy::of_observation(&only, moving.machine);
    let held = moving.held();
    let all: Bytes = held.nodes.values().map(|held| held.memory).sum();
    let memory = all.saturating_sub(held.of(to).memory);
    let vcpus = moving.client.vcpus.saturating_sub(held.of(to).vcpus);
    let always_busy = if moving.vm.counts_full() { vcpus } else { 0 };
    holds.hold(&BTreeMap::from([(to, NodeUse { vcpus, always_busy, memory, ..NodeUse::default() })]));
    Reserved {
        vm: moving.vm.vm.name.clone(),
        holdings: holds.nodes,
        // What moves is there already.
        taken: Some(Bytes(0)),
        huge_pages: moving.client.huge_page_size,
        bound_cpus: holds.bound_cpus,
        caches: holds.caches,
    }
}

fn carry_out(
    host: &mut LinuxHost,
    observation: &Observation,
    key: &VmKey,
    client: &ClientObservation,
    to: NodeId,
) -> anyhow::Result<Done> {
    let (vm, id) = (key.clone(), client.id);
    let (home, cpus) = ([to].into_iter().collect(), host.machine().usable_cpus(to));
    let bind = Action::Bind { vm: vm.clone(), client: id, home, cpus, groups: Vec::new() };
    let bind = with_groups(host.machine(), observation, &bind);
    let bound = host.carry_out(&bind)?;
    let mut all = Done { because: bound.because, ..Done::default() };
    for (&from, &at_most) in client.memory.iter().flatten().filter(|(from, bytes)| **from != to && bytes.0 > 0) {
        let done = host.carry_out(&Action::MoveMemory { vm: vm.clone(), client: id, from, to, at_most })?;
        all.moved = all.moved.saturating_add(done.moved);
        all.left = all.left.saturating_add(done.left);
        all.because = all.because.into_iter().chain(done.because).reduce(|one, other| format!("{one}; {other}"));
    }
    Ok(all)
}

fn write_down(mut held: Held, host: &mut LinuxHost, key: &VmKey) -> anyhow::Result<()> {
    let now = host.examine().context("the running VMs cannot be read")?;
    let seen = now.vms.iter().find(|seen| seen.vm == *key);
    let (Some(seen), Some(kept)) = (seen, held.record().placement.clone()) else { return Ok(()) };
    let placement = present_homes(host.machine(), seen, &kept.placement);
    let changes: Vec<LifeEvent> = kept
        .placement
        .clients
        .iter()
        .zip(&placement.clients)
        .filter(|(before, now)| before.home != now.home)
        .map(|(before, now)| LifeEvent::Moved { client: now.id, from: before.home.clone(), to: now.home.clone() })
        .collect();
    held.set_placement(Some(Kept { placement, ..kept })).map_err(kept::failure)?;
    let tell = |life: &mut vm::history::Life| changes.into_iter().for_each(|event| life.tell(event, kept::now()));
    held.change_life(tell).map_err(kept::failure)
}
