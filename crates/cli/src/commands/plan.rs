//! `homenode plan`.

use crate::args::{EmitArgument, PlanArguments};
use crate::check_subjects::proxmox_definition;
use crate::commands::{plan_emit, plan_fleet};
use crate::failure::bad_input;
use crate::guest_images::{self, Missing};
use crate::output;
use crate::text::count;
use crate::{
    balancer_host, balancer_place, fleet_choice, hidden_vms, new_directory, not_looked_at, occupied, plan_view,
    remote_host, this_host, vm_spec_file,
};
use scheduler::{Occupancy, PlanError};
use serde::Serialize;
use stacks::check::Definition;
use stacks::domain::DomainError;
use std::path::{Path, PathBuf};
use topology::Machine;
use vm::{Plan, VmSpec};

/// The end of what is said of a VM that finds no room.
pub(super) const KEPT: &str = ". What QEMU itself takes beside the guest, and a part of each node for others, is left \
    out of what there is to give";

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    machine: &'a str,
    occupancy: &'a Occupancy,
    plan: &'a Plan,
}

/// Runs the command.
pub(crate) fn run(arguments: &PlanArguments) -> anyhow::Result<()> {
    let mut hidden = false;
    place(arguments, &mut hidden)?;
    hidden_vms::end(hidden)
}

/// The plan; `hidden`: whether VMs may run here that it does not count.
fn place(arguments: &PlanArguments, hidden: &mut bool) -> anyhow::Result<()> {
    let of_proxmox = |choice: &PathBuf| Some((choice.clone(), proxmox_definition(choice)?));
    if let Some((choice, definition)) = arguments.specs.iter().find_map(of_proxmox) {
        return existing(arguments, &choice, definition, hidden);
    }
    if let Some(directory) = &arguments.into {
        new_directory::check("--into", directory)?;
    }
    let (files, specs): (Vec<PathBuf>, Vec<VmSpec>) = fleet_choice::specs(&arguments.specs)?.into_iter().unzip();
    let hosts = hosts(arguments, None, hidden)?;
    let ([file], [spec], [(machine, occupancy)]) = (&files[..], &specs[..], &hosts[..]) else {
        return several(arguments, &hosts, &files, specs);
    };
    let shape = plan_emit::planned_shape(arguments.emit, spec);
    let mut held = occupancy.clone();
    qemu::set_aside(&mut held, machine, &shape);
    let plan = scheduler::plan(machine, &held, &shape).map_err(|error| failure(&error, file))?;
    if let Some(stack) = arguments.emit {
        let spec = guest_images::realized(spec.clone(), file, Missing::Refuse)?;
        let text = plan_emit::text(stack, machine, &spec, &plan, file, is_elsewhere(arguments))?;
        let name = PathBuf::from(plan_emit::file_name(stack, &spec.name));
        if let Some(directory) = &arguments.into {
            return new_directory::write("--into", directory, &[(name, text)]);
        }
        output::exact(text)?;
        output::note(alone(arguments, file, &machine.name));
        return Ok(());
    }
    if arguments.json {
        return output::json("plan", &Report { machine: &machine.name, occupancy, plan: &plan });
    }
    output::print(plan_view::view(machine, &held, &plan))
}

/// Whom the text of one VM did not look at.
fn alone(arguments: &PlanArguments, file: &Path, machine: &str) -> String {
    let is_spec =
        |path: &Path| path.extension().is_some_and(|ending| ending == "toml") && vm_spec_file::read(path).is_ok();
    let others = not_looked_at::sentence(&not_looked_at::beside(file, is_spec), "spec");
    let empty = match (arguments.connect.connect.is_some(), arguments.on.is_empty(), arguments.occupied.is_empty()) {
        (false, false, true) => format!("{machine} is taken to be empty (--occupied says what runs there)"),
        _ => "VMs that do not run there now were not looked at".to_owned(),
    };
    let whom = [Some(empty), others].into_iter().flatten().collect::<Vec<_>>().join(", and ");
    format!("{} is planned alone: {whom}. Several specs and --into DIRECTORY plan all together", file.display())
}

/// Whether the plan is for another machine than this host.
fn is_elsewhere(arguments: &PlanArguments) -> bool {
    !arguments.on.is_empty() || arguments.connect.connect.is_some()
}

/// Several VMs, or several machines.
fn several(
    arguments: &PlanArguments,
    hosts: &[(Machine, Occupancy)],
    files: &[PathBuf],
    specs: Vec<VmSpec>,
) -> anyhow::Result<()> {
    let Some(stack) = arguments.emit else {
        return plan_fleet::run(hosts, &specs, arguments.json);
    };
    let Some(directory) = &arguments.into else {
        let (vms, machines) = (count(specs.len(), "VM"), count(hosts.len(), "machine"));
        return Err(bad_input(format!(
            "--emit prints one text, and there are {vms} on {machines}: add --into DIRECTORY, which gets a text for \
            each, all planned together"
        )));
    };
    plan_fleet::emit(hosts, files, specs, &plan_fleet::Into { stack, directory, elsewhere: is_elsewhere(arguments) })
}

/// A VM that Proxmox VE has already: the lines of its configuration that its home takes.
fn existing(
    arguments: &PlanArguments,
    choice: &Path,
    definition: anyhow::Result<Definition>,
    hidden: &mut bool,
) -> anyhow::Result<()> {
    let shown = choice.display();
    if arguments.specs.len() > 1 || arguments.emit != Some(EmitArgument::Proxmox) {
        return Err(bad_input(format!(
            "{shown}: names a VM of Proxmox VE, not a spec: give it alone, and with --emit proxmox; `homenode check \
            {shown}` judges it"
        )));
    }
    let definition = definition?;
    let hosts = hosts(arguments, Some(&definition.shaped().name), hidden)?;
    let [(machine, others)] = &hosts[..] else {
        return Err(bad_input(format!("{shown}: a VM of Proxmox VE has one host: give one machine")));
    };
    let failure = |error: DomainError| if error.is_bad_input() { bad_input(error) } else { error.into() };
    output::exact(&definition.proxmox_numa_lines(machine, others).map_err(failure)?)
}

/// The machines, and what runs there beside a VM that exists and is planned anew. Another machine
/// than a host is taken to be empty.
fn hosts(
    arguments: &PlanArguments,
    existing: Option<&str>,
    hidden: &mut bool,
) -> anyhow::Result<Vec<(Machine, Occupancy)>> {
    if let Some(uri) = &arguments.connect.connect {
        return Ok(vec![remote_host::machine_and_occupancy(uri)?]);
    }
    if arguments.on.is_empty() {
        let machine = this_host::machine()?;
        let mut occupancy = live_occupancy(&machine, existing, hidden)?;
        // What is written for another stack stays as it is, whatever runs here now.
        occupancy.balanced = arguments.emit.is_none() && balancer_place::balances();
        return Ok(vec![(machine, occupancy)]);
    }
    let machines = fleet_choice::machines(&arguments.on)?;
    let files = &arguments.occupied;
    if !files.is_empty() && files.len() != machines.len() {
        let (files, machines) = (count(files.len(), "file"), count(machines.len(), "machine"));
        return Err(bad_input(format!(
            "--occupied: {files} for {machines}: give one for each machine, in the same order"
        )));
    }
    let mut files = files.iter();
    let host = |mut machine: Machine| {
        let occupied = files.next().map(|file| occupied::read(file, &mut machine)).transpose()?;
        Ok((machine, occupied.unwrap_or_default()))
    };
    machines.into_iter().map(host).collect()
}

/// What the VMs on this host hold, whoever started them.
fn live_occupancy(machine: &Machine, existing: Option<&str>, hidden: &mut bool) -> anyhow::Result<Occupancy> {
    let running = balancer_host::examine()?;
    *hidden = hidden_vms::say(&running);
    Ok(balancer_place::occupancy_without(&running, machine, |name| Some(name) == existing))
}

fn failure(error: &PlanError, file: &Path) -> anyhow::Error {
    let mut text = format!("{}: {error}", file.display());
    if matches!(error, PlanError::Memory { .. }) {
        text += KEPT;
    }
    if error.is_bad_input() { bad_input(text) } else { anyhow::anyhow!(text) }
}
