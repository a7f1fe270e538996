//! `homenode plan` of several VMs, or on several machines.

use super::plan_emit;
use crate::args::EmitArgument;
use crate::guest_images::{self, Missing};
use crate::text::count;
use crate::{fleet_choice, fleet_view, new_directory, output};
use anyhow::bail;
use scheduler::{Beside, FleetMachine, FleetPlan, FleetVm, Occupancy, plan_fleet};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use topology::{Bytes, Machine, Node, NodeId};
use vm::{NodeUse, Shape, VmSpec};

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    machines: Vec<MachineReport<'a>>,
    /// In the order of the specs; `machine` is an index into `machines`.
    vms: &'a [FleetVm],
}

#[derive(Serialize)]
struct MachineReport<'a> {
    machine: &'a str,
    /// What ran there before.
    occupied: &'a Occupancy,
    nodes: BTreeMap<NodeId, NodeReport>,
}

#[derive(Serialize)]
struct NodeReport {
    memory: Bytes,
    cores: usize,
    /// Held when all VMs are there.
    held: NodeUse,
    /// Kept for the QEMUs of planned VMs, and for everybody else on the host.
    memory_kept: Bytes,
    memory_free: Bytes,
}

/// Plans them together, and prints what fits where; fails where one fits nowhere.
pub(super) fn run(hosts: &[(Machine, Occupancy)], specs: &[VmSpec], json: bool) -> anyhow::Result<()> {
    let machines = machines(hosts);
    let plan = planned(&machines, specs);
    if json {
        let reports = machines.iter().enumerate().map(|(index, host)| report(host, &plan, index)).collect();
        output::json("plan.fleet", &Report { machines: reports, vms: &plan.vms })?;
    } else {
        output::print(fleet_view::view(&machines, specs, &plan))?;
    }
    match nowhere(&plan) {
        0 => Ok(()),
        nowhere => bail!("{nowhere} of {} fit nowhere", count(specs.len(), "VM")),
    }
}

/// Where texts go, and for what.
pub(super) struct Into<'a> {
    pub(super) stack: EmitArgument,
    pub(super) directory: &'a Path,
    /// Whether they are for other machines than this host.
    pub(super) elsewhere: bool,
}

/// Plans them together, writes a text for each VM, and prints what fits where. `files`: those of
/// the specs.
///
/// # Errors
/// One fits nowhere, or cannot be told in that stack's language: nothing is written then.
pub(super) fn emit(
    hosts: &[(Machine, Occupancy)],
    files: &[PathBuf],
    mut specs: Vec<VmSpec>,
    into: &Into<'_>,
) -> anyhow::Result<()> {
    // A text has no word for `web #1`.
    fleet_choice::number_with(&mut specs, "-");
    let specs: Vec<VmSpec> = specs
        .into_iter()
        .zip(files)
        .map(|(spec, file)| guest_images::realized(spec, file, Missing::Refuse))
        .collect::<anyhow::Result<_>>()?;
    let machines = machines(hosts);
    let shapes: Vec<Shape> = specs.iter().map(|spec| plan_emit::planned_shape(Some(into.stack), spec)).collect();
    let plan = planned(&machines, &shapes);
    let view = fleet_view::view(&machines, &specs, &plan);
    if nowhere(&plan) > 0 {
        output::print(view)?;
        bail!("{} of {} fit nowhere: nothing was written", nowhere(&plan), count(specs.len(), "VM"));
    }
    let mut texts = Vec::with_capacity(specs.len());
    for ((vm, spec), file) in plan.vms.iter().zip(&specs).zip(files) {
        let (Some(index), Some(plan)) = (vm.machine, &vm.plan) else { continue };
        let text = plan_emit::text(into.stack, machines[index].machine, spec, plan, file, into.elsewhere)?;
        let name = plan_emit::file_name(into.stack, &spec.name);
        let of_machine = if hosts.len() == 1 { PathBuf::new() } else { fleet_choice::directory_name(hosts, index) };
        texts.push((of_machine.join(name), text));
    }
    new_directory::write("--into", into.directory, &texts)?;
    output::print(view)?;
    output::line(format_args!("\n{} written into {}", count(texts.len(), "text"), into.directory.display()))
}

fn machines(hosts: &[(Machine, Occupancy)]) -> Vec<FleetMachine<'_>> {
    hosts.iter().map(|(machine, occupancy)| FleetMachine { machine, occupancy }).collect()
}

/// The plans, with what `run` keeps of each node too.
fn planned(machines: &[FleetMachine<'_>], shapes: &[impl AsRef<Shape>]) -> FleetPlan {
    let guest = |shape: &Shape| qemu::own_memory(shape.vcpus, shape.memory);
    let node = |node: &Node| qemu::headroom(node.memory);
    plan_fleet(machines, shapes, &Beside { guest: &guest, node: &node })
}

fn nowhere(plan: &FleetPlan) -> usize {
    plan.vms.iter().filter(|vm| vm.plan.is_none()).count()
}

fn report<'a>(host: &FleetMachine<'a>, plan: &FleetPlan, index: usize) -> MachineReport<'a> {
    let after = &plan.occupancies[index];
    let node = |node: &Node| {
        let cores = host.machine.usable_cores(node.id).len();
        let memory_kept = plan.kept(index, node.id);
        let (held, memory_free) = (after.of(node.id), after.free_memory(node).saturating_sub(memory_kept));
        (node.id, NodeReport { memory: node.memory, cores, held, memory_kept, memory_free })
    };
    let nodes = host.machine.nodes.iter().map(node).collect();
    MachineReport { machine: &host.machine.name, occupied: host.occupancy, nodes }
}
