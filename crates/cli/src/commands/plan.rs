//! `homenode plan`.

use crate::args::PlanArguments;
use crate::commands::plan_emit;
use crate::failure::bad_input;
use crate::output;
use crate::{balancer_place, machine_choice, plan_view, remote_host, vm_spec_file};
use anyhow::Context;
use scheduler::{Occupancy, Plan, PlanError, VmSpec};
use serde::Serialize;
use topology::Machine;

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    machine: &'a str,
    occupancy: &'a Occupancy,
    plan: &'a Plan,
}

/// Runs the command.
pub(crate) fn run(arguments: &PlanArguments) -> anyhow::Result<()> {
    let spec = vm_spec_file::read(&arguments.spec)?;
    let (machine, occupancy) = machine_and_occupancy(arguments, &spec)?;
    let plan = scheduler::plan(&machine, &occupancy, &spec).map_err(|error| failure(&error, arguments))?;
    if let Some(stack) = arguments.emit {
        return plan_emit::print(stack, &machine, &spec, &plan, arguments);
    }
    if arguments.json {
        return output::json("plan", &Report { machine: &machine.name, occupancy: &occupancy, plan: &plan });
    }
    output::print(plan_view::view(&machine, &occupancy, &plan))
}

/// Another machine than a host is taken to be empty.
fn machine_and_occupancy(arguments: &PlanArguments, spec: &VmSpec) -> anyhow::Result<(Machine, Occupancy)> {
    if let Some(uri) = &arguments.connect.connect {
        return remote_host::machine_and_occupancy(uri);
    }
    let machine = machine_choice::machine(&arguments.machine)?;
    let occupancy = if arguments.machine.on.is_some() { Occupancy::default() } else { live_occupancy(&machine, spec)? };
    Ok((machine, occupancy))
}

/// What the VMs on this host hold, whoever started them.
fn live_occupancy(machine: &Machine, spec: &VmSpec) -> anyhow::Result<Occupancy> {
    let running = linux::vms::running().context("the running VMs cannot be read")?;
    let mut occupancy = balancer_place::occupancy(&running, machine);
    qemu::set_aside(&mut occupancy, machine, spec);
    Ok(occupancy)
}

fn failure(error: &PlanError, arguments: &PlanArguments) -> anyhow::Error {
    let text = format!("{}: {error}", arguments.spec.display());
    if error.is_bad_input() { bad_input(text) } else { anyhow::anyhow!(text) }
}
