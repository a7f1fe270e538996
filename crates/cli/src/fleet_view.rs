//! Several VMs on several machines as tables for people: where each goes, then what is left of the
//! machines.

use crate::cells::dash;
use crate::text::{Table, count, lines, table, width, wrapped};
use scheduler::{Fit, FleetMachine, FleetOption, FleetPlan, FleetVm};
use std::fmt::Write;
use topology::NodeSet;
use vm::VmSpec;

/// What the column `kept` is.
const KEPT: &str = "kept: for QEMU itself beside each guest, and for everybody else on the host, as `run` keeps it.";

/// Machines that are named where a VM would fit too.
const OTHERS_SHOWN: usize = 2;

/// Where each VM goes, why some go nowhere, what is left.
pub(crate) fn view(machines: &[FleetMachine<'_>], specs: &[VmSpec], plan: &FleetPlan) -> String {
    let placed = plan.vms.iter().filter(|vm| vm.plan.is_some()).count();
    let (vms, on) = (count(specs.len(), "VM"), count(machines.len(), "machine"));
    let nowhere = match specs.len() - placed {
        0 => "all fit".to_owned(),
        nowhere => format!("{placed} fit, {nowhere} fit nowhere"),
    };
    let mut text =
        format!("{vms} on {on}, planned together: {nowhere}\n\n{}\n", lines(&vms_table(machines, specs, plan)));
    if placed < specs.len() {
        text.push('\n');
    }
    for (spec, vm) in specs.iter().zip(&plan.vms).filter(|(_, vm)| vm.plan.is_none()) {
        for option in &vm.options {
            let why = option.refusal.as_deref().unwrap_or("it does not fit");
            add(&mut text, &format!("{} does not fit on {}: {why}", spec.name, option.machine));
        }
    }
    if plan.vms.iter().flat_map(|vm| &vm.plan).any(|plan| !plan.warnings.is_empty()) {
        text.push('\n');
    }
    for vm in &plan.vms {
        for warning in vm.plan.iter().flat_map(|plan| &plan.warnings) {
            add(&mut text, &format!("Warning: {}: {warning}", vm.vm));
        }
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "\nWhat is left of the machines\n{}\n", lines(&machines_table(machines, plan)));
    text.push('\n');
    add(&mut text, KEPT);
    let unused = machines.len() - used(machines, plan).count();
    if unused > 0 {
        let _ = writeln!(text, "\nNothing was planned for {} more.", count(unused, "machine"));
    }
    text
}

fn add(text: &mut String, words: &str) {
    for (index, line) in wrapped(words, width() - 4).iter().enumerate() {
        let deeper = if index > 0 { "    " } else { "" };
        let _ = writeln!(text, "{deeper}{line}");
    }
}

fn vms_table(machines: &[FleetMachine<'_>], specs: &[VmSpec], plan: &FleetPlan) -> Table {
    let mut table = table(["VM", "vCPUs", "Memory", "Goes to", "Nodes", "Fits", "Remote", "As well on"], &[1, 2, 6]);
    for (spec, vm) in specs.iter().zip(&plan.vms) {
        let machine = vm.machine.map_or_else(dash, |index| machines[index].machine.name.clone());
        table.add_row([
            vm.vm.clone(),
            spec.vcpus.to_string(),
            spec.memory.to_string(),
            machine,
            vm.plan.as_ref().map_or_else(dash, |plan| {
                let homes = plan.placement.clients.iter().fold(NodeSet::new(), |all, one| all.union(&one.home));
                homes.to_string()
            }),
            words(vm.fit).to_owned(),
            vm.remote_permille.map_or_else(dash, |permille| format!("{} %", f64::from(permille) / 10.0)),
            others(vm),
        ]);
    }
    table
}

/// A fit in words.
fn words(fit: Fit) -> &'static str {
    match fit {
        Fit::OneNode => "on one node",
        Fit::SeveralNodes => "on several nodes",
        Fit::Interleaved => "interleaved",
        Fit::NotAtAll => "not at all",
    }
}

/// Other machines that would have held it as well when it was its turn.
fn others(vm: &FleetVm) -> String {
    let as_well = |&(index, option): &(usize, &FleetOption)| {
        Some(index) != vm.machine && option.fit == vm.fit && option.fit != Fit::NotAtAll
    };
    let all: Vec<&str> =
        vm.options.iter().enumerate().filter(as_well).map(|(_, option)| option.machine.as_str()).collect();
    let shown = all[..all.len().min(OTHERS_SHOWN)].join(", ");
    match all.len().saturating_sub(OTHERS_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Machines that something was planned for, by index, or none was: then all.
fn used<'a>(
    machines: &'a [FleetMachine<'a>],
    plan: &'a FleetPlan,
) -> impl Iterator<Item = (usize, &'a FleetMachine<'a>)> {
    let placed = plan.vms.iter().any(|vm| vm.machine.is_some());
    let is_used = move |index: usize| !placed || plan.vms.iter().any(|vm| vm.machine == Some(index));
    machines.iter().enumerate().filter(move |(index, _)| is_used(*index))
}

fn machines_table(machines: &[FleetMachine<'_>], plan: &FleetPlan) -> Table {
    let mut table =
        table(["Machine", "Node", "vCPUs", "of cores", "Memory held", "kept", "free", "of"], &[1, 2, 3, 4, 5, 6, 7]);
    for (machine, host) in used(machines, plan) {
        let occupancy = &plan.occupancies[machine];
        for (index, node) in host.machine.nodes.iter().enumerate() {
            let (held, kept) = (occupancy.of(node.id), plan.kept(machine, node.id));
            table.add_row([
                if index == 0 { host.machine.name.clone() } else { String::new() },
                node.id.to_string(),
                held.vcpus.to_string(),
                host.machine.usable_cores(node.id).len().to_string(),
                held.memory.to_string(),
                kept.to_string(),
                occupancy.free_memory(node).saturating_sub(kept).to_string(),
                node.memory.to_string(),
            ]);
        }
    }
    table
}
