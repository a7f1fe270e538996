//! `homenode vm set`: vCPUs and memory of a VM are added or taken away.
//!
//! **Rule.** Of a VM that runs: what is plugged in is read from it; which virtual nodes change is
//! the scheduler's answer; where their clients live now, the kernel's. Where a home has no room
//! nothing is done. What is plugged is written down device by device, so that a kill at any moment
//! leaves a VM that the next `vm set` goes on with. Of a VM that does not run: what its virtual
//! nodes have at its next power-on.

mod view;

use super::super::run::{self as starting};
use crate::args_vm::SetArguments;
use crate::failure::bad_input;
use crate::{backend, balancer_host, balancer_place, hidden_vms, kept, output};
use anyhow::{Context, anyhow, bail};
use inventory::{Held, InventoryError, Kept};
use qemu::{Reserved, RuntimeDir};
use scheduler::growth::{self, Growing, Growth, Wanted};
use scheduler::{Observation, Occupancy, VmKey, VmObservation, present_homes};
use std::collections::BTreeMap;
use std::time::Duration;
use topology::{Bytes, Machine, NodeId};
use view::Answer;
use vm::history::LifeEvent;
use vm::life::State;
use vm::spec::Fill;
use vm::{Added, NodeSize, NodeUse, Placement, Resize, Resized, VirtualTopology, Vm, VmSpec};

/// How long a guest may do nothing of what it should.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, arguments: &SetArguments) -> anyhow::Result<()> {
    let held = kept::hold(directory, &arguments.name)?;
    let answer = match held.record().life.state {
        State::Running | State::Paused => while_it_runs(directory, held, arguments)?,
        State::Planned | State::Stopped | State::Lost => at_next_power_on(held, arguments)?,
        state @ (State::Starting | State::Suspended | State::MigratingOut | State::MigratingIn) => {
            let name = &arguments.name;
            return Err(bad_input(format!(
                "VM {name} is {state}: its size can be changed while it runs, or while it is stopped"
            )));
        }
    };
    if arguments.json {
        output::json("vm.set", &answer)?
    } else {
        output::print(answer.text())?
    }
    match answer.undone.len() {
        0 => Ok(()),
        _ => bail!("VM {}: its guest has not done all of it yet; the same command waits for it again", arguments.name),
    }
}

fn wanted(arguments: &SetArguments, block: Bytes, dimms: BTreeMap<u32, Bytes>) -> Wanted {
    let nodes = arguments.nodes.as_ref().map(|nodes| nodes.iter().map(|node| node.0).collect());
    Wanted { vcpus: arguments.vcpus, memory: arguments.memory, nodes, block, dimms }
}

/// The growth of a VM whose virtual nodes have sizes now.
fn growth(held: &Held, topology: &VirtualTopology, now: &[NodeSize], wanted: &Wanted) -> anyhow::Result<Growth> {
    let grown = growth::grow(topology, now, wanted);
    grown.map_err(|error| bad_input(format!("VM {}: {error}", held.record().spec.name)))
}

/// Sizes once a growth is done.
fn after(now: &[NodeSize], growth: &Growth, topology: &VirtualTopology) -> Vec<NodeSize> {
    let mut after = now.to_vec();
    for size in &mut after {
        let Some(node) = topology.nodes.iter().find(|node| node.id == size.virtual_node) else { continue };
        size.vcpus.extend(growth.plug.iter().filter(|vcpu| node.vcpus.contains(vcpu)));
        size.vcpus.retain(|vcpu| !growth.unplug.contains(vcpu));
        size.memory = growth.memory.get(&size.virtual_node).copied().unwrap_or(size.memory);
    }
    after
}

fn checked(spec: VmSpec) -> anyhow::Result<VmSpec> {
    let checked = spec.check();
    checked.map_err(|problem| bad_input(format!("VM {}: {problem}", spec.name)))?;
    Ok(spec)
}

fn at_next_power_on(mut held: Held, arguments: &SetArguments) -> anyhow::Result<Answer> {
    let record = held.record().clone();
    let state = record.life.state;
    let Some(topology) = &record.topology else {
        if arguments.nodes.is_some() {
            return Err(bad_input(format!("VM {}: it gets its virtual nodes at its first power-on", arguments.name)));
        }
        let mut spec = record.spec;
        spec.shape.vcpus = arguments.vcpus.unwrap_or(spec.shape.vcpus);
        spec.shape.memory = arguments.memory.unwrap_or(spec.shape.memory);
        let spec = checked(spec)?;
        if !arguments.dry_run {
            held.set_spec(spec).map_err(kept::failure)?;
        }
        return Ok(Answer::at_rest(&arguments.name, state, arguments.dry_run, &[], &[]));
    };
    let now = record.sizes();
    let growth = growth(&held, topology, &now, &wanted(arguments, Bytes::MIB, BTreeMap::new()))?;
    let sizes = after(&now, &growth, topology);
    let spec = checked(record.spec.of_sizes(&sizes))?;
    if !arguments.dry_run {
        let write = || {
            held.set_topology(Some(topology.powered_on_with(&sizes)))?;
            let placement = record.placement.clone().map(|kept| Kept { added: Added::default(), ..kept });
            held.set_placement(placement)?;
            held.set_spec(spec)?;
            held.change_life(|life| life.tell(LifeEvent::resized(&now, &sizes), kept::now()))
        };
        write().map_err(kept::failure)?;
    }
    Ok(Answer::at_rest(&arguments.name, state, arguments.dry_run, &now, &sizes))
}

fn while_it_runs(directory: &RuntimeDir, mut held: Held, arguments: &SetArguments) -> anyhow::Result<Answer> {
    let name = &arguments.name;
    let state = held.record().life.state;
    let unplaced = || anyhow!("VM {name}: nothing is kept of where it lives");
    let topology = held.record().topology.clone().ok_or_else(unplaced)?;
    let placement = held.record().placement.clone().ok_or_else(unplaced)?.placement;
    // The look at the host comes first: it may want the monitor, which we have from then on.
    let lock = starting::lock(directory)?;
    let host = Host::look()?;
    let placement = host.present(name, &placement);
    let mut vm = backend::reach(directory, held.record())?;
    let added = plugged(vm.as_mut(), &mut held, &topology, &placement)?;
    let now = added.sizes(&topology);
    let spec = held.record().spec.clone();
    let wanted = wanted(arguments, qemu::block_size(&spec.backing), added.dimms());
    let growth = growth(&held, &topology, &now, &wanted)?;
    let sizes = after(&now, &growth, &topology);
    let new_spec = checked(spec.of_sizes(&sizes))?;
    if spec.backing.fill == Fill::OnTouch {
        growth::is_there(&host.machine, &new_spec.shape, spec.shape.memory)?;
    }
    let mut answer = Answer::live(name, state, arguments.dry_run, (&now, &sizes), &growth, &placement);
    let key = host.key(name);
    let growing = Growing {
        vm: &key,
        placement: &placement,
        now: &now,
        topology: &topology,
        growth: &growth,
        huge_pages: spec.backing.huge_pages,
        machine: &host.machine,
        occupancy: &host.occupancy(),
        observation: &host.running,
    };
    answer.warnings = match growth::room(&growing) {
        Ok(warnings) => warnings,
        // What is taken on touch is promised beyond what there is.
        Err(lacks) if spec.backing.fill == Fill::OnTouch => vec![lacks.to_string()],
        Err(lacks) => bail!("VM {name}: nothing was changed: {lacks}"),
    };
    if arguments.dry_run {
        return Ok(answer);
    }
    let more = growth::more_held(&placement, &topology, &now, &growth);
    let reservation = lock.reserve_growth(host.grown(&spec, &more))?;
    // What an earlier call plugged and the guest did not take in its time is waited for too.
    let stay = added.vcpus.iter().copied().filter(|vcpu| !growth.unplug.contains(vcpu));
    let mut memory = growth.memory;
    for device in &added.memory {
        let size = sizes.iter().find(|size| size.virtual_node == device.virtual_node);
        memory.extend(size.map(|size| (device.virtual_node, size.memory)));
    }
    let resize = Resize {
        topology,
        placement,
        backing: spec.backing,
        plug: growth.plug.into_iter().chain(stay).collect(),
        added,
        unplug: growth.unplug,
        memory,
        patience: PATIENCE,
    };
    let resized_now = resize_and_write(vm.as_mut(), &mut held, &resize);
    drop(reservation);
    let Resized { added, undone, notes } = resized_now?;
    let reached = added.sizes(&resize.topology);
    let spec = if reached == sizes { new_spec } else { checked(spec.of_sizes(&reached))? };
    held.set_spec(spec).map_err(kept::failure)?;
    if reached != now {
        held.change_life(|life| life.tell(LifeEvent::resized(&now, &reached), kept::now())).map_err(kept::failure)?;
    }
    answer.is_done(&reached, &resize.placement, undone, notes);
    Ok(answer)
}

/// What is plugged in, read from the VM and written down.
fn plugged(
    vm: &mut dyn Vm,
    held: &mut Held,
    topology: &VirtualTopology,
    placement: &Placement,
) -> anyhow::Result<Added> {
    let added = held.record().placement.as_ref().map(|kept| kept.added.clone()).unwrap_or_default();
    let nothing = Resize {
        topology: topology.clone(),
        placement: placement.clone(),
        backing: held.record().spec.backing,
        added,
        plug: Vec::new(),
        unplug: Vec::new(),
        memory: BTreeMap::new(),
        patience: Duration::ZERO,
    };
    Ok(resize_and_write(vm, held, &nothing)?.added)
}

/// Resizes a VM, and writes down each device as it comes and goes.
fn resize_and_write(vm: &mut dyn Vm, held: &mut Held, resize: &Resize) -> anyhow::Result<Resized> {
    let mut written: Result<(), InventoryError> = Ok(());
    let host = held.record().placement.as_ref().map(|kept| kept.host.clone()).unwrap_or_default();
    let mut write = |added: &Added| {
        let kept = Kept { host: host.clone(), placement: resize.placement.clone(), added: added.clone() };
        let now = held.set_placement(Some(kept));
        if written.is_ok() {
            written = now;
        }
    };
    let resized = vm.resize(resize, &mut write).map_err(backend::failure)?;
    // Also where its clients live now.
    write(&resized.added);
    written.map_err(kept::failure)?;
    Ok(resized)
}

/// The host that a VM grows on.
struct Host {
    machine: Machine,
    running: Observation,
}

impl Host {
    fn look() -> anyhow::Result<Self> {
        let running = balancer_host::examine()?;
        hidden_vms::say(&running);
        let machine = topology::read::live().context("this host cannot be read")?;
        Ok(Self { machine, running })
    }

    fn occupancy(&self) -> Occupancy {
        let mut occupancy = balancer_place::occupancy(&self.running, &self.machine);
        qemu::leave_to_others(&mut occupancy, &self.machine);
        occupancy
    }

    fn seen(&self, name: &str) -> Option<&VmObservation> {
        self.running.vms.iter().find(|vm| vm.vm.name == name && !vm.stranger)
    }

    fn key(&self, name: &str) -> VmKey {
        let unseen = || VmKey { name: name.to_owned(), ..VmKey::default() };
        self.seen(name).map_or_else(unseen, |seen| seen.vm.clone())
    }

    fn present(&self, name: &str, placement: &Placement) -> Placement {
        self.seen(name).map_or_else(|| placement.clone(), |seen| present_homes(&self.machine, seen, placement))
    }

    /// What the VM holds of each node, with what it gets.
    fn grown(&self, spec: &VmSpec, more: &BTreeMap<NodeId, NodeUse>) -> Reserved {
        let mut only = self.running.clone();
        only.vms.retain(|vm| vm.vm.name == spec.name && !vm.stranger);
        let mut held = Occupancy::of_observation(&only, &self.machine);
        held.hold(more);
        Reserved {
            vm: spec.name.clone(),
            holdings: held.nodes,
            taken: (spec.backing.fill == Fill::OnTouch).then_some(Bytes(0)),
            huge_pages: spec.backing.huge_pages,
            bound_cpus: held.bound_cpus,
            caches: held.caches,
        }
    }
}
