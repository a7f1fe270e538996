//! What is run at pairs of nodes: from each CPU node (rows) to each memory node (columns).

use super::subject::Subject;
use super::words::NONE;
use super::{Row, Table};
use crate::evaluation::{Evaluation, Shown};
use crate::figure::{MB_PER_S, NS, Origin};
use crate::point::Point;
use std::collections::BTreeSet;
use workloads::chase::LOADED_LATENCY;
use workloads::workload::Quantity;

/// For each configuration and workload its latencies, else the quantity that stands for it: its
/// last one.
pub(super) fn tables(evaluation: &Evaluation) -> Vec<Table> {
    let of_one = |shown: &Shown| {
        let pairs = shown.points.iter().filter(|point| point.pair().is_some());
        let workloads: BTreeSet<String> = pairs.map(|point| point.workload.clone()).collect();
        workloads.into_iter().flat_map(|workload| of_workload(evaluation, shown, &workload)).collect::<Vec<_>>()
    };
    evaluation.configurations.iter().flat_map(of_one).collect()
}

fn title(origin: Origin, quantity: &Quantity) -> String {
    let (mark, latency) = match origin {
        Origin::Modelled => ("MODELLED ", "latency"),
        _ => ("", "Latency"),
    };
    match quantity.unit.as_str() {
        NS if quantity.name == LOADED_LATENCY => {
            format!("{mark}{latency} of a dependent load while the node's other CPUs stream, ns")
        }
        NS => format!("{mark}{latency} of a dependent load, ns"),
        MB_PER_S => format!("{mark}{} bandwidth of all CPUs of a node, MB/s", quantity.name),
        unit => format!("{mark}{}, {unit}", quantity.name),
    }
}

fn of_workload(evaluation: &Evaluation, shown: &Shown, workload: &str) -> Vec<Table> {
    let is_in = |point: &Point| point.workload == workload && point.pair().is_some();
    let mut quantities = evaluation.quantities(shown, is_in);
    if quantities.iter().any(|quantity| quantity.unit != NS) {
        quantities = quantities.pop().into_iter().collect();
    }
    quantities.iter().map(|quantity| matrix(evaluation, shown, workload, quantity)).collect()
}

fn matrix(evaluation: &Evaluation, shown: &Shown, workload: &str, quantity: &Quantity) -> Table {
    let is_in = |point: &Point| point.workload == workload && point.pair().is_some();
    let points: Vec<&Point> = shown.points.iter().filter(|point| is_in(point)).collect();
    let (cpu_nodes, memory_nodes): (BTreeSet<u32>, BTreeSet<u32>) =
        points.iter().filter_map(|point| point.pair()).unzip();
    let rows = |&from: &u32| {
        let at = |&to: &u32| points.iter().find(|point| point.pair() == Some((from, to))).copied();
        let row: Vec<Option<&Point>> = memory_nodes.iter().map(at).collect();
        let figures = |point: &Option<&Point>| {
            point.map_or_else(Vec::new, |point| evaluation.at(&shown.name, point, &quantity.name).cloned().collect())
        };
        let is_wrong = |point: &Option<&Point>| point.is_some_and(|point| shown.wrong.contains(point));
        let empty = |point| if is_wrong(point) { "wrong" } else { NONE }.to_owned();
        let subject = Subject {
            origin: evaluation.origin,
            labels: vec![format!("CPUs of {from}")],
            quantity,
            columns: row.iter().map(figures).collect(),
            empty: row.iter().map(empty).collect(),
            unpublished: vec![NONE.to_owned(); row.len()],
            compares_published: shown.compares_published,
            compares_measured: shown.compares_measured,
        };
        subject.rows()
    };
    let rows: Vec<Row> = cpu_nodes.iter().flat_map(rows).collect();
    Table {
        title: format!("{}: {}", title(evaluation.origin, quantity), shown.about()),
        header: std::iter::once("Node".to_owned())
            .chain(memory_nodes.iter().map(|node| format!("memory {node}")))
            .collect(),
        rows,
        notes: Vec::new(),
    }
}
