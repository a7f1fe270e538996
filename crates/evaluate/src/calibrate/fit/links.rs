//! Links between nodes: measured from node to node, so each pair gets a link of its own. Whether
//! two pairs share a wire is not seen.

use super::{Bench, search};
use crate::calibrate::CalibrateError;
use crate::calibrate::measure::{Measured, RemoteCell, TRIAD};
use topology::Machine;
use topology::rates::{Flits, Latencies, Link, Rates, Source, Sourced, Vertex};

/// Relative difference of the two directions above which they are kept apart.
const SAME: f64 = 0.10;
/// A link of more than this times a node's bandwidth does not bind.
const UNBOUND: f64 = 8.0;

/// Links before they are fitted: they join all nodes and never bind.
pub(super) fn provisional(machine: &Machine, rates: &Rates) -> Vec<Link> {
    let ids: Vec<_> = machine.nodes.iter().map(|node| node.id).collect();
    let pairs = (0..ids.len()).flat_map(|one| (one + 1..ids.len()).map(move |other| (one, other)));
    let link = |(one, other): (usize, usize)| Link {
        between: (Vertex::Node(ids[one]), Vertex::Node(ids[other])),
        gb_per_s: UNBOUND * rates.node_bandwidth_gb_per_s.value,
        latency_ns: 0.0,
        source: Source::Calibrated,
        from: "not fitted yet".to_owned(),
    };
    pairs.map(link).collect()
}

/// The table of latencies, and the bandwidth of each link.
pub(super) fn fit(
    bench: &Bench<'_>,
    measured: &Measured,
    rates: &mut Rates,
    notes: &mut Vec<String>,
) -> Result<(), CalibrateError> {
    rates.flits = Some(Sourced {
        value: Flits { remote_read: (1.0, 9.0), remote_write: (9.0, 1.0), local_read_snoop: (0.0, 0.0) },
        source: Source::Assumed,
        from: "a header and eight times 8 bytes; the memory's directory filters snoops".to_owned(),
    });
    let table = latencies(measured, notes);
    rates.links = provisional(bench.machine, rates);
    let pairs: Vec<(usize, usize)> = pairs(bench.machine.nodes.len());
    let hop_ns = mean_hop_ns(&table.rows, &pairs);
    rates.links.iter_mut().for_each(|link| link.latency_ns = hop_ns);
    rates.latencies = Some(table);
    for (index, &(one, other)) in pairs.iter().enumerate() {
        let cells: Vec<&RemoteCell> = measured.remote.iter().filter(|cell| joins(cell, one, other)).collect();
        let upper = UNBOUND * rates.node_bandwidth_gb_per_s.value;
        let with = |gb_per_s: f64| {
            let mut tried = rates.clone();
            tried.links[index].gb_per_s = gb_per_s;
            error(bench, &tried, &cells)
        };
        let gb_per_s = search(0.1, upper, with)?;
        let binds = gb_per_s < 0.99 * upper;
        let link = &mut rates.links[index];
        link.gb_per_s = gb_per_s;
        link.from = if binds {
            "STREAM's Triad on this host, all threads of a node on the other's memory; latency: mean of all pairs, the \
            table has each"
                .to_owned()
        } else {
            link.source = Source::Assumed;
            notes.push(format!(
                "The link between nodes {one} and {other} was not busy: its bandwidth stands for \"does not bind\"."
            ));
            "all threads of a node did not fill it: so much that it never binds; latency: mean of all pairs, the table \
            has each"
                .to_owned()
        };
    }
    Ok(())
}

fn pairs(nodes: usize) -> Vec<(usize, usize)> {
    (0..nodes).flat_map(|one| (one + 1..nodes).map(move |other| (one, other))).collect()
}

fn joins(cell: &RemoteCell, one: usize, other: usize) -> bool {
    (cell.cpu_node, cell.memory_node) == (one, other) || (cell.cpu_node, cell.memory_node) == (other, one)
}

fn error(bench: &Bench<'_>, rates: &Rates, cells: &[&RemoteCell]) -> Result<f64, CalibrateError> {
    let model = bench.model(rates)?;
    let mut sum = 0.0;
    for cell in cells {
        let modelled = bench.mb_per_s(&model, TRIAD, cell.threads, (cell.cpu_node, cell.memory_node))?;
        sum += (modelled / cell.mb_per_s).ln();
    }
    Ok(sum)
}

/// As measured; the mean of both directions where they are nearly the same, and nowhere nearer than
/// the own memory.
fn latencies(measured: &Measured, notes: &mut Vec<String>) -> Latencies {
    let mut rows = measured.latency_ns.clone();
    let mut asymmetric_because = None;
    for (one, other) in pairs(rows.len()) {
        let (there, back) = (rows[one][other], rows[other][one]);
        if (there - back).abs() <= SAME * there.max(back) {
            let mean = f64::midpoint(there, back);
            rows[one][other] = mean;
            rows[other][one] = mean;
        } else {
            asymmetric_because = Some("the chase measured the two directions so on this host".to_owned());
        }
        let own = rows[one][one].max(rows[other][other]);
        if rows[one][other].min(rows[other][one]) < own {
            notes.push(format!(
                "Nodes {one} and {other} seem nearer to each other than to their own memory: noise; the \
                own latency is written."
            ));
            rows[one][other] = rows[one][other].max(own);
            rows[other][one] = rows[other][one].max(own);
        }
    }
    let from = "latency chase on this host, page walks included".to_owned();
    Latencies { rows, source: Source::Measured, from, asymmetric_because }
}

/// What a link adds, the same for all: the table has each pair, and with links alike the direct one
/// is always the route.
fn mean_hop_ns(rows: &[Vec<f64>], pairs: &[(usize, usize)]) -> f64 {
    let extra = |&(one, other): &(usize, usize)| {
        f64::midpoint(rows[one][other], rows[other][one]) - f64::midpoint(rows[one][one], rows[other][other])
    };
    let sum: f64 = pairs.iter().map(extra).sum();
    (sum / pairs.len().max(1) as f64).max(0.0)
}
