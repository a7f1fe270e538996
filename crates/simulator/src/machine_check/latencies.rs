//! Latencies between nodes: a whole table, local memory the nearest, and no quarrel with the
//! distances.

use super::Findings;
use super::values::LATENCY_NS;
use topology::rates::{Latencies, Rates};
use topology::{Machine, NodeId};

/// Relative difference up to which two latencies are the same: a chase is not more exact.
const SAME: f64 = 0.01;

pub(super) fn check_table(machine: &Machine, rates: &Rates, findings: &mut Findings) {
    let Some(latencies) = &rates.latencies else { return };
    let field = "rates.latencies.rows";
    let count = machine.nodes.len();
    let rows = &latencies.rows;
    if rows.len() != count || rows.iter().any(|row| row.len() != count) {
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let problem = format!("the machine has {count} nodes");
        let cure = format!("{count} rows of {count} numbers");
        findings.impossible(field, format!("{} rows of {lengths:?} numbers", rows.len()), problem, &cure);
        return;
    }
    if !entries(machine, rows, findings) {
        return;
    }
    symmetry(machine, latencies, findings);
    let stated = rates.local_latency_ns.value;
    let differs = |i: &usize| (rows[*i][*i] / stated - 1.0).abs() > 0.25;
    if let Some(i) = (0..count).find(differs) {
        let problem = format!("local_latency_ns says {stated}, and the model takes the table");
        findings.doubtful(&format!("{field}[{i}][{i}]"), rows[i][i], problem, "make them agree");
    }
    findings.source("rates.latencies", "the table", latencies.source, &latencies.from);
}

/// Whether every entry is a time, and no memory nearer than the own.
fn entries(machine: &Machine, rows: &[Vec<f64>], findings: &mut Findings) -> bool {
    let before = findings.0.len();
    for (i, row) in rows.iter().enumerate() {
        for (j, &ns) in row.iter().enumerate() {
            let field = format!("rates.latencies.rows[{i}][{j}]");
            if !LATENCY_NS.contains(&ns) {
                let cure = "nanoseconds: a number above 0, from 1 to 1000000";
                findings.impossible(&field, ns, "it is out of range", cure);
            } else if ns < row[i] {
                let (from, to) = (machine.nodes[i].id, machine.nodes[j].id);
                let problem = format!("memory of node {to} would be nearer to node {from} than its own, {} ns", row[i]);
                findings.impossible(&field, ns, problem, "at least the latency of the own memory");
            }
        }
    }
    findings.0.len() == before
}

fn symmetry(machine: &Machine, latencies: &Latencies, findings: &mut Findings) {
    let reason = latencies.asymmetric_because.as_deref().unwrap_or_default();
    if !reason.trim().is_empty() {
        return;
    }
    let rows = &latencies.rows;
    for (i, row) in rows.iter().enumerate() {
        for (j, &there) in row.iter().enumerate().take(i) {
            let back = rows[j][i];
            if (there - back).abs() > SAME * there.max(back) {
                let (one, other) = (machine.nodes[i].id, machine.nodes[j].id);
                let problem = format!("from node {other} to node {one} it is {back}: the table is not symmetric");
                let cure = "make it symmetric, or say why in asymmetric_because";
                findings.impossible(&format!("rates.latencies.rows[{i}][{j}]"), there, problem, cure);
            }
        }
    }
}

/// Of two nodes, the one that the distances call nearer should not be the slower one.
pub(super) fn check_distances(machine: &Machine, latency_ns: &[Vec<f64>], findings: &mut Findings) {
    for (i, from) in machine.nodes.iter().enumerate() {
        let row = &latency_ns[i];
        if let Some((near, far)) = contradiction(machine, from.id, row) {
            let (near_id, far_id) = (machine.nodes[near].id, machine.nodes[far].id);
            let distance = |to| machine.distance(from.id, to);
            let value = format!("{} to node {near_id}, {} to node {far_id}", distance(near_id), distance(far_id));
            let problem = format!("the latencies say {:.0} and {:.0} ns: the other way round", row[near], row[far]);
            let cure = "placement goes by the distances, the model by the latencies: mend the wrong ones";
            findings.doubtful(&format!("distances[{i}]"), value, problem, cure);
        }
    }
}

/// Two nodes of which the first is nearer by distance and clearly slower by latency.
fn contradiction(machine: &Machine, from: NodeId, row: &[f64]) -> Option<(usize, usize)> {
    let nodes = &machine.nodes;
    let distance = |index: usize| machine.distance(from, nodes[index].id);
    let pairs = (0..nodes.len()).flat_map(|near| (0..nodes.len()).map(move |far| (near, far)));
    pairs.into_iter().find(|&(near, far)| distance(near) < distance(far) && row[near] > row[far] * (1.0 + SAME))
}
