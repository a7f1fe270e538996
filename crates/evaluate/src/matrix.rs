//! Tables of what is measured at pairs of nodes: from each CPU node (rows) to each memory node
//! (columns).

use crate::summary::{Cell, ConfigurationSummary, Summary};
use crate::tables::{Row, Table, figure};
use std::collections::BTreeSet;
use workloads::workload::Quantity;

/// For each configuration and workload, the quantity that stands for it.
pub(crate) fn tables(summary: &Summary) -> Vec<Table> {
    let mut tables = Vec::new();
    for configuration in &summary.configurations {
        let emulated = if summary.emulated && !configuration.native { ", EMULATED (TCG)" } else { "" };
        let about = format!("{} ({}){emulated}", configuration.name, configuration.shape);
        let workloads: BTreeSet<&str> = pairs(configuration).map(|cell| cell.point.workload.as_str()).collect();
        for workload in workloads {
            let cells: Vec<&Cell> = pairs(configuration).filter(|cell| cell.point.workload == workload).collect();
            let last = cells.iter().find_map(|cell| cell.figures.last());
            let name = last.map_or_else(|| workload.to_owned(), |figures| title(&figures.quantity));
            tables.push(matrix(&cells, format!("{name}: {about}"), last.map(|figures| &figures.quantity)));
        }
    }
    tables
}

fn pairs(configuration: &ConfigurationSummary) -> impl Iterator<Item = &Cell> {
    configuration.cells.iter().filter(|cell| cell.point.pair().is_some())
}

fn title(quantity: &Quantity) -> String {
    match quantity.unit.as_str() {
        "ns" => "Latency of a dependent load, ns".to_owned(),
        "MB/s" => format!("{} bandwidth of all CPUs of a node, MB/s", quantity.name),
        unit => format!("{}, {unit}", quantity.name),
    }
}

fn matrix(cells: &[&Cell], title: String, quantity: Option<&Quantity>) -> Table {
    let (cpu_nodes, memory_nodes): (BTreeSet<u32>, BTreeSet<u32>) =
        cells.iter().filter_map(|cell| cell.point.pair()).unzip();
    let columns = memory_nodes.iter().map(|node| format!("memory {node}"));
    let text = |from: u32, to: u32| {
        let cell = cells.iter().copied().find(|cell| cell.point.pair() == Some((from, to)));
        quantity.map_or_else(|| crate::tables::NONE.to_owned(), |quantity| figure(cell, quantity))
    };
    let rows = cpu_nodes.iter().map(|&from| {
        let figures = memory_nodes.iter().map(|&to| text(from, to));
        Row::measured(std::iter::once(format!("CPUs of {from}")).chain(figures).collect())
    });
    Table {
        title,
        header: std::iter::once("Node".to_owned()).chain(columns).collect(),
        rows: rows.collect(),
        notes: Vec::new(),
    }
}
