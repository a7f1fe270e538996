//! A plan as tables for people.

use crate::machine_view;
use crate::text::{Table, count, lines, table, table_of, width, wrapped};
use scheduler::Occupancy;
use std::collections::BTreeSet;
use std::fmt::Write;
use topology::{Bytes, CpuId, CpuSet, HardwareThread, Machine, NodeId};
use vm::{Client, MemoryPolicy, Plan, VirtualNode};

/// The virtual topology, the placement, and the reasons for both.
pub(crate) fn view(machine: &Machine, occupancy: &Occupancy, plan: &Plan) -> String {
    let topology = &plan.topology;
    let told = if topology.exposed { "told to the guest" } else { "not told to the guest" };
    let mut text = format!(
        "VM {} on {}: {}, {told}; {} of {}{}\n\n",
        plan.vm,
        machine.name,
        count(topology.nodes.len(), "virtual node"),
        count(topology.sockets as usize, "virtual socket"),
        count((topology.cores_per_socket * topology.threads_per_core) as usize, "vCPU"),
        if topology.dies_per_socket == 1 { String::new() } else { format!(" in {} dies", topology.dies_per_socket) },
    );
    section(&mut text, "Placement", &placement(plan));
    if plan.placement.clients.iter().any(|client| !client.groups.is_empty()) {
        section(&mut text, "Groups, each under one last-level cache", &groups(machine, occupancy, plan));
    }
    if topology.exposed && topology.nodes.len() > 1 {
        section(&mut text, "Distances that the guest sees", &distances(plan));
    }
    section(&mut text, "What the VM takes of the machine", &holdings(machine, occupancy, plan));
    text.push_str(&reasons(plan));
    if !plan.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &plan.warnings {
        let _ = writeln!(text, "Warning: {warning}");
    }
    text
}

fn section(text: &mut String, title: &str, table: &Table) {
    let _ = writeln!(text, "{title}\n{}\n", lines(table));
}

fn placement(plan: &Plan) -> Table {
    let mut table = table(["Virtual node", "vCPUs", "Memory", "Home", "CPUs", "Memory policy"], &[0, 2]);
    for client in &plan.placement.clients {
        for node in plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id)) {
            let home = if client.home.len() == 1 { "node" } else { "nodes" };
            table.add_row([
                node.id.to_string(),
                vcpus(node),
                memory(node),
                format!("{home} {}", client.home),
                cpus(client, &node.vcpus),
                policy(client.memory_policy).to_owned(),
            ]);
        }
    }
    table
}

fn groups(machine: &Machine, occupancy: &Occupancy, plan: &Plan) -> Table {
    let mut table = table(["vCPUs", "Cache", "CPUs", "Bound vCPUs of other VMs"], &[3]);
    for group in plan.placement.clients.iter().flat_map(|client| &client.groups) {
        let cache = machine.llcs.iter().find(|llc| llc.id == group.llc);
        let kind = cache.map_or_else(|| "cache".to_owned(), machine_view::cache_name);
        table.add_row([
            group.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect::<CpuSet>().to_string(),
            format!("{} ({kind})", group.llc),
            group.cpus.to_string(),
            occupancy.caches.get(&group.llc).copied().unwrap_or(0).to_string(),
        ]);
    }
    table
}

/// `0-7`, or `0-3, one each` where vCPUs are bound 1:1.
fn cpus(client: &Client, vcpus: &[u32]) -> String {
    let bound: CpuSet = vcpus.iter().filter_map(|vcpu| client.vcpu_cpus.get(vcpu)).copied().collect();
    if bound.is_empty() { client.cpus.to_string() } else { format!("{bound}, one each") }
}

/// `0-1`, or `0-1 (2-5 later)` where some may be plugged.
fn vcpus(node: &VirtualNode) -> String {
    let set = |vcpus: &mut dyn Iterator<Item = u32>| vcpus.map(topology::CpuId).collect::<CpuSet>().to_string();
    let there = set(&mut node.present());
    match set(&mut node.absent.iter().copied()) {
        none if none.is_empty() => there,
        later if there.is_empty() => format!("({later} later)"),
        later => format!("{there} ({later} later)"),
    }
}

/// `4 GiB`, or `4 GiB (8 GiB later)` where some may be plugged.
fn memory(node: &VirtualNode) -> String {
    if node.growth.0 == 0 { node.memory.to_string() } else { format!("{} ({} later)", node.memory, node.growth) }
}

fn policy(policy: MemoryPolicy) -> &'static str {
    match policy {
        MemoryPolicy::Bind => "bind",
        MemoryPolicy::Interleave => "interleave",
        MemoryPolicy::Preferred => "preferred",
        MemoryPolicy::Default => "default",
    }
}

fn distances(plan: &Plan) -> Table {
    let ids: Vec<String> = plan.topology.nodes.iter().map(|node| node.id.to_string()).collect();
    let mut header = vec!["Virtual node".to_owned()];
    header.extend(ids.iter().cloned());
    let columns: Vec<usize> = (0..header.len()).collect();
    let mut table = table_of(header, &columns);
    for (id, row) in ids.iter().zip(&plan.topology.distances) {
        let mut cells = vec![id.clone()];
        cells.extend(row.iter().map(u32::to_string));
        table.add_row(cells);
    }
    table
}

fn holdings(machine: &Machine, occupancy: &Occupancy, plan: &Plan) -> Table {
    let mut table = table(["Node", "vCPUs", "of cores", "Memory", "of free"], &[0, 1, 2, 3, 4]);
    for (&node, taken) in &plan.holdings {
        let free = machine.node(node).map_or(Bytes(0), |node| occupancy.free_for(node, &plan.backing));
        table.add_row([
            node.to_string(),
            taken.vcpus.to_string(),
            cores_for(machine, plan, node).to_string(),
            taken.memory.to_string(),
            free.to_string(),
        ]);
    }
    table
}

/// Cores of a node of the kind that the plan is on: as strong, and isolated or not.
fn cores_for(machine: &Machine, plan: &Plan, node: NodeId) -> usize {
    let cpus = plan.cpus();
    let (kinds, isolated) = (machine.capacities_of(&cpus), cpus.is_subset(&machine.isolated));
    let counts = |thread: &&HardwareThread| {
        thread.node == node
            && machine.isolated.contains(thread.id) == isolated
            && kinds.contains(&thread.core_capacity())
    };
    machine.bindable_threads().filter(counts).map(|thread| thread.core).collect::<BTreeSet<_>>().len()
}

/// Each choice on its line, what speaks for it below, indented.
fn reasons(plan: &Plan) -> String {
    let mut text = String::from("Why\n");
    for reason in &plan.reasons {
        let _ = writeln!(text, "  {}", reason.choice);
        for line in wrapped(&reason.because, width() - 6) {
            let _ = writeln!(text, "      {line}");
        }
    }
    text
}
