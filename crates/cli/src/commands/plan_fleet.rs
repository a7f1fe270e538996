//! `homenode plan` of several VMs, or on several machines.

use crate::fleet_view;
use crate::output;
use crate::text::count;
use anyhow::bail;
use scheduler::{FleetMachine, FleetVm, Occupancy, plan_fleet};
use serde::Serialize;
use std::collections::BTreeMap;
use topology::{Bytes, Machine, Node, NodeId};
use vm::{NodeUse, VmSpec};

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
    memory_free: Bytes,
}

/// Plans them together, and prints what fits where; fails where one fits nowhere.
pub(super) fn run(hosts: &[(Machine, Occupancy)], specs: &[VmSpec], json: bool) -> anyhow::Result<()> {
    let machines: Vec<FleetMachine<'_>> =
        hosts.iter().map(|(machine, occupancy)| FleetMachine { machine, occupancy }).collect();
    let plan = plan_fleet(&machines, specs);
    if json {
        let machines = machines.iter().zip(&plan.occupancies).map(|(host, after)| report(host, after)).collect();
        output::json("plan.fleet", &Report { machines, vms: &plan.vms })?;
    } else {
        output::print(fleet_view::view(&machines, specs, &plan))?;
    }
    match plan.vms.iter().filter(|vm| vm.plan.is_none()).count() {
        0 => Ok(()),
        nowhere => bail!("{nowhere} of {} fit nowhere", count(specs.len(), "VM")),
    }
}

fn report<'a>(host: &FleetMachine<'a>, after: &Occupancy) -> MachineReport<'a> {
    let node = |node: &Node| {
        let cores = host.machine.usable_cores(node.id).len();
        let (held, memory_free) = (after.of(node.id), after.free_memory(node));
        (node.id, NodeReport { memory: node.memory, cores, held, memory_free })
    };
    let nodes = host.machine.nodes.iter().map(node).collect();
    MachineReport { machine: &host.machine.name, occupied: host.occupancy, nodes }
}
