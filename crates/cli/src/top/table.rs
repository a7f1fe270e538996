//! The view as text: a table of nodes, a table of VMs, and what its words mean.

use super::columns::{COLUMNS, cut, fit};
use super::{View, VmRow};
use crate::cells::{bytes, dash, figure};
use crate::text::{Table, lines, table, table_of, wrapped};

/// What stands below the tables.
const LEGEND: &str = "Lives on: the node whose CPUs it keeps to (its home); a VM that floats keeps to none. Elsewhere: \
    memory that lies on other nodes. N%L: memory at home, in percent. `homenode help words` explains every word.";

/// Two tables; `width`: that of the terminal.
pub(crate) fn text(view: &View, width: Option<usize>) -> String {
    let mut parts = wrapped(&format!("homenode: {}", view.title()), crate::text::width());
    parts.extend(view.facts().iter().flat_map(|fact| wrapped(fact, crate::text::width())));
    parts.extend([String::new(), lines(&nodes(view)), String::new()]);
    if view.vms.is_empty() {
        parts.push("No VM runs that this user can see.".to_owned());
    } else {
        parts.push(vms(view, width));
        parts.push(String::new());
        parts.extend(wrapped(LEGEND, crate::text::width()));
    }
    parts.join("\n") + "\n"
}

fn nodes(view: &View) -> Table {
    let header = ["Node", "CPUs", "Used", "Load", "Memory", "Free", "Promised", "Clients", "vCPUs", "Ready"];
    let mut table = table(header, &[2, 3, 4, 5, 6, 7, 8, 9]);
    for row in &view.nodes {
        table.add_row([
            row.node.to_string(),
            row.cpus.to_string(),
            figure(row.cpu_used, 2),
            row.load_percent.map_or_else(dash, |percent| format!("{percent:.0} %")),
            row.memory.to_string(),
            bytes(row.memory_free),
            row.promised.to_string(),
            row.clients.to_string(),
            row.vcpus.to_string(),
            figure(row.cpu_waited, 2),
        ]);
    }
    table
}

fn vms(view: &View, width: Option<usize>) -> String {
    let rows: Vec<&VmRow> = view.vms.iter().collect();
    let fitting = fit(&rows, width);
    let header = fitting.iter().map(|&(index, _)| COLUMNS[index].title.to_owned()).collect();
    let right: Vec<usize> = (0..fitting.len()).filter(|&place| COLUMNS[fitting[place].0].right).collect();
    let mut table = table_of(header, &right);
    for row in rows {
        table.add_row(fitting.iter().map(|&(index, width)| cut(&(COLUMNS[index].cell)(row), width)));
    }
    lines(&table)
}
