//! Tables of a NUMA matrix: from each CPU node (rows) to each memory node (columns).

use crate::point::Point;
use crate::summary::{Cell, ConfigurationSummary, State, Summary};
use crate::tables::{Row, Table};
use std::collections::BTreeSet;

/// Latency and bandwidth of each configuration.
pub(crate) fn tables(summary: &Summary) -> Vec<Table> {
    let emulated = |configuration: &ConfigurationSummary| {
        if summary.emulated && !configuration.native { ", EMULATED (TCG)" } else { "" }
    };
    let mut tables = Vec::new();
    for configuration in &summary.configurations {
        let about = format!("{} ({}){}", configuration.name, configuration.shape, emulated(configuration));
        tables.push(matrix(configuration, format!("Latency of a dependent load, ns: {about}"), latency));
        tables.push(matrix(configuration, format!("Triad bandwidth of all CPUs of a node, MB/s: {about}"), bandwidth));
    }
    tables
}

fn latency(configuration: &ConfigurationSummary, cpu_node: u32, memory_node: u32) -> String {
    let cell = configuration.cell(Point::Latency { cpu_node, memory_node });
    figure(cell, |cell| cell.latency_ns, 1)
}

fn bandwidth(configuration: &ConfigurationSummary, cpu_node: u32, memory_node: u32) -> String {
    let is_pair = |cell: &&Cell| matches!(cell.point, Point::Bandwidth { cpu_node: from, memory_node: to, .. } if from == cpu_node && to == memory_node);
    figure(configuration.cells.iter().find(is_pair), |cell| Some(cell.kernels.last()?.best_mb_per_s), 0)
}

fn figure(cell: Option<&Cell>, of: impl Fn(&Cell) -> Option<f64>, digits: usize) -> String {
    let Some(cell) = cell else { return "-".to_owned() };
    match (cell.state, of(cell)) {
        (State::NotVerified, _) => "not verified".to_owned(),
        (State::Disturbed, Some(value)) => format!("{value:.digits$} ~"),
        (State::Measured, Some(value)) => format!("{value:.digits$}"),
        _ => "-".to_owned(),
    }
}

fn matrix(
    configuration: &ConfigurationSummary,
    title: String,
    cell: impl Fn(&ConfigurationSummary, u32, u32) -> String,
) -> Table {
    let pairs = configuration.cells.iter().filter_map(|cell| match cell.point {
        Point::Latency { cpu_node, memory_node } => Some((cpu_node, memory_node)),
        _ => None,
    });
    let (cpu_nodes, memory_nodes): (BTreeSet<u32>, BTreeSet<u32>) = pairs.unzip();
    let columns = memory_nodes.iter().map(|node| format!("memory {node}"));
    let rows = cpu_nodes.iter().map(|&from| {
        let figures = memory_nodes.iter().map(|&to| cell(configuration, from, to));
        Row::measured(std::iter::once(format!("CPUs of {from}")).chain(figures).collect())
    });
    Table {
        title,
        header: std::iter::once("Node".to_owned()).chain(columns).collect(),
        rows: rows.collect(),
        notes: Vec::new(),
    }
}
