//! A plan as tables for people.

use comfy_table::{Cell, CellAlignment, Table, presets};
use scheduler::{MemoryPolicy, Plan};
use std::fmt::Write;
use topology::{Bytes, CpuSet, Machine};

/// The virtual topology, the placement, and the reasons for both.
pub(crate) fn view(machine: &Machine, plan: &Plan) -> String {
    let topology = &plan.topology;
    let told = if topology.exposed { "told to the guest" } else { "not told to the guest" };
    let mut text = format!(
        "VM {} on {}: {}, {told}; {} of {} vCPUs\n\n",
        plan.vm,
        machine.name,
        count(topology.nodes.len(), "virtual node"),
        count(topology.sockets as usize, "virtual socket"),
        topology.cores_per_socket,
    );
    section(&mut text, "Placement", &placement(plan));
    if topology.exposed && topology.nodes.len() > 1 {
        section(&mut text, "Distances that the guest sees", &distances(plan));
    }
    section(&mut text, "What the VM takes of the machine", &holdings(machine, plan));
    text.push_str(&reasons(plan));
    if !plan.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &plan.warnings {
        let _ = writeln!(text, "Warning: {warning}");
    }
    text
}

fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn section(text: &mut String, title: &str, table: &Table) {
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let _ = writeln!(text, "{title}\n{}\n", lines.join("\n"));
}

/// A table without lines, its columns parted by two spaces.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((2, 0));
    }
    table
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn placement(plan: &Plan) -> Table {
    let mut table = table(&["virtual node", "vCPUs", "memory", "home", "CPUs", "memory policy"]);
    for client in &plan.placement.clients {
        for node in plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id)) {
            let vcpus: CpuSet = node.vcpus.iter().map(|&vcpu| topology::CpuId(vcpu)).collect();
            let home = if client.home.len() == 1 { "node" } else { "nodes" };
            table.add_row([
                right(node.id),
                Cell::new(vcpus),
                right(node.memory),
                Cell::new(format!("{home} {}", client.home)),
                Cell::new(&client.cpus),
                Cell::new(policy(client.memory_policy)),
            ]);
        }
    }
    table
}

fn policy(policy: MemoryPolicy) -> &'static str {
    match policy {
        MemoryPolicy::Bind => "bind",
        MemoryPolicy::Interleave => "interleave",
        MemoryPolicy::Default => "default",
    }
}

fn distances(plan: &Plan) -> Table {
    let ids: Vec<String> = plan.topology.nodes.iter().map(|node| node.id.to_string()).collect();
    let mut header = vec!["virtual node"];
    header.extend(ids.iter().map(String::as_str));
    let mut table = table(&header);
    for (id, row) in ids.iter().zip(&plan.topology.distances) {
        let mut cells = vec![right(id)];
        cells.extend(row.iter().map(right));
        table.add_row(cells);
    }
    table
}

fn holdings(machine: &Machine, plan: &Plan) -> Table {
    let mut table = table(&["node", "vCPUs", "of cores", "memory", "of free"]);
    for (&node, taken) in &plan.holdings {
        let free = machine.node(node).map_or(Bytes(0), |node| node.free.unwrap_or(node.memory));
        table.add_row([
            right(node),
            right(taken.vcpus),
            right(machine.usable_cores(node).len()),
            right(taken.memory),
            right(free),
        ]);
    }
    table
}

/// Widest line of the reasons: it fits most terminals and reads well in a file.
const WIDTH: usize = 100;

/// Each choice on its line, what speaks for it below, indented.
fn reasons(plan: &Plan) -> String {
    let mut text = String::from("Why\n");
    for reason in &plan.reasons {
        let _ = writeln!(text, "  {}", reason.choice);
        for line in wrapped(&reason.because, WIDTH - 6) {
            let _ = writeln!(text, "      {line}");
        }
    }
    text
}

/// `text` in lines of at most `width` characters, broken at spaces.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
