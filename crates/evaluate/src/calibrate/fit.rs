//! Rates out of what was measured, so that the closed queueing network gives it again.
//!
//! Latencies are taken as they are. Each other value is the one number that gives one figure: lines
//! in flight that of one thread, a node's bandwidth that of all threads, a link's that of all
//! threads on the other node's memory. The rate rises with each of them, so halving an interval
//! finds it; a general optimiser would fit all figures a little, and none would be left to test the
//! model on.

mod links;

use super::CalibrateError;
use super::file;
use super::measure::{Measured, ScanCell};
use super::regular::Regular;
use crate::{kernels, profiles};
use serde::Serialize;
use simulator::threads::streams::groups;
use simulator::threads::{Cores, Thread, ThreadPolicy, works};
use simulator::{Amva, CoreWork, MachineModel, Profile, RateSolver};
use topology::rates::{Rates, Source, Sourced};
use topology::{Machine, NodeId};

/// Most rounds over lines in flight and bandwidth, each of which depends a little on the other.
const ROUNDS: usize = 20;
/// Relative change of a value below which another round would change nothing.
const SETTLED: f64 = 1e-5;
/// Halvings of an interval in a search.
const HALVINGS: usize = 26;
/// Bounds of lines in flight.
const LINES: (f64, f64) = (1.0, 1024.0);
/// A bandwidth of more than this times what was moved does not bind any more.
const UNBOUND: f64 = 8.0;
/// Work of a core with two busy threads: in the middle of what is known of x86.
const SMT_YIELD: f64 = 1.2;

/// A figure, measured and modelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residual {
    /// What it is.
    pub what: String,
    /// Measured.
    pub measured: f64,
    /// Modelled with the fitted rates.
    pub modelled: f64,
    /// `MB/s`, `ns`, or `us`.
    pub unit: &'static str,
    /// Whether a rate was fitted on it (for a bandwidth: on the mean of the kernels).
    pub fitted: bool,
}

impl Residual {
    /// Modelled against measured, in per cent.
    pub fn error_percent(&self) -> f64 {
        100.0 * (self.modelled / self.measured - 1.0)
    }
}

/// Rates, and how well they fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The rates.
    pub rates: Rates,
    /// All figures.
    pub residuals: Vec<Residual>,
    /// What could not be fitted, as sentences.
    pub notes: Vec<String>,
}

/// Fits the rates of a regular machine.
///
/// # Errors
/// The figures give no machine, or the model no rate.
pub fn fit(regular: &Regular, measured: &Measured) -> Result<Fitted, CalibrateError> {
    let machine = file::machine(regular)?;
    let profile = profiles::find("stream-ordinary").map_err(|error| CalibrateError::Plan(error.to_string()))?;
    let kernels = profile.kernels.iter().map(simulator::workload::Kernel::profile).collect();
    let bench = Bench::new(&machine, kernels);
    let mut notes = Vec::new();
    let mut rates = start(regular, measured);
    let bound = node(&bench, measured, &mut rates)?;
    rates.node_bandwidth_gb_per_s = bandwidth(&rates, measured, bound, &mut notes);
    if measured.latency_ns.len() > 1 {
        links::fit(&bench, measured, &mut rates, &mut notes)?;
    }
    let residuals = residuals(&bench, measured, &rates)?;
    Ok(Fitted { rates, residuals, notes })
}

/// Latencies as measured, everything else to be fitted.
fn start(regular: &Regular, measured: &Measured) -> Rates {
    let own: Vec<f64> = (0..measured.latency_ns.len()).map(|index| measured.latency_ns[index][index]).collect();
    let local = own.iter().sum::<f64>() / own.len().max(1) as f64;
    let value = |value, source, from: &str| Sourced { value, source, from: from.to_owned() };
    let smt = "homenode calibrate does not measure it; in the middle of what is known of two threads on an x86 core";
    Rates {
        lines_in_flight_per_core: value(
            10.0,
            Source::Calibrated,
            "STREAM with 1 thread on this host, mean of the four kernels",
        ),
        smt_yield: (regular.threads_per_core > 1).then(|| value(SMT_YIELD, Source::Assumed, smt)),
        local_latency_ns: value(
            local,
            Source::Measured,
            "latency chase on this host, memory of the own node, page walks included",
        ),
        node_bandwidth_gb_per_s: value(UNBOUND * most_moved(measured), Source::Calibrated, "not fitted yet"),
        channels_per_node: None,
        channel_mt_per_s: None,
        llc_bandwidth_gb_per_s: None,
        llc_latency_ns: None,
        row_conflict_droop: None,
        flits: None,
        latencies: None,
        links: Vec::new(),
        routes: Vec::new(),
        network: None,
    }
}

/// Traffic of the fastest cell in GB/s, if every counted byte moved once.
fn most_moved(measured: &Measured) -> f64 {
    measured.scan.iter().map(|cell| cell.mb_per_s).fold(0.0, f64::max) / 1000.0
}

/// Most threads of the scan.
fn most_threads(measured: &Measured) -> u32 {
    measured.scan.iter().map(|cell| cell.threads).max().unwrap_or(1)
}

/// Lines in flight and a node's bandwidth; whether the bandwidth binds with all threads.
fn node(bench: &Bench<'_>, measured: &Measured, rates: &mut Rates) -> Result<bool, CalibrateError> {
    // The start has one node's rates only: other nodes have no part in the scan.
    let most = most_threads(measured);
    let upper = UNBOUND * most_moved(measured);
    for _ in 0..ROUNDS {
        let before = (rates.lines_in_flight_per_core.value, rates.node_bandwidth_gb_per_s.value);
        let with_lines = |lines: f64| {
            let mut other = rates.clone();
            other.lines_in_flight_per_core.value = lines;
            bench.error(measured, &other, 1)
        };
        rates.lines_in_flight_per_core.value = search(LINES.0, LINES.1, with_lines)?;
        if most > 1 {
            let with_bandwidth = |gb_per_s: f64| {
                let mut other = rates.clone();
                other.node_bandwidth_gb_per_s.value = gb_per_s;
                bench.error(measured, &other, most)
            };
            rates.node_bandwidth_gb_per_s.value = search(upper / UNBOUND / 2.0, upper, with_bandwidth)?;
        }
        let settled = |now: f64, before: f64| (now / before - 1.0).abs() < SETTLED;
        if settled(rates.lines_in_flight_per_core.value, before.0)
            && settled(rates.node_bandwidth_gb_per_s.value, before.1)
        {
            break;
        }
    }
    Ok(most > 1 && rates.node_bandwidth_gb_per_s.value < 0.99 * upper)
}

fn bandwidth(rates: &Rates, measured: &Measured, bound: bool, notes: &mut Vec<String>) -> Sourced<f64> {
    let most = match most_threads(measured) {
        1 => "1 thread".to_owned(),
        most => format!("{most} threads"),
    };
    let value = rates.node_bandwidth_gb_per_s.value;
    if bound {
        let from = format!("STREAM with {most} on this host, mean of the four kernels");
        return Sourced { value, source: Source::Calibrated, from };
    }
    notes.push(format!(
        "With {most} a node's memory was not yet busy: its bandwidth cannot be fitted, and {value:.0} GB/s, {UNBOUND} \
        times what moved, stands for \"does not bind\"."
    ));
    let from = format!("{most} on this host did not fill the memory: so much that it never binds");
    Sourced { value, source: Source::Assumed, from }
}

fn residuals(bench: &Bench<'_>, measured: &Measured, rates: &Rates) -> Result<Vec<Residual>, CalibrateError> {
    let most = most_threads(measured);
    let model = bench.model(rates)?;
    let mut residuals = Vec::new();
    for ScanCell { threads, kernel, mb_per_s } in &measured.scan {
        residuals.push(Residual {
            what: format!(
                "{}, {threads} {}",
                kernels::NAMES[*kernel],
                if *threads == 1 { "thread" } else { "threads" }
            ),
            measured: *mb_per_s,
            modelled: bench.mb_per_s(&model, *kernel, *threads, (0, 0))?,
            unit: "MB/s",
            fitted: *threads == 1 || *threads == most,
        });
    }
    for (from, row) in measured.latency_ns.iter().enumerate() {
        for (to, &ns) in row.iter().enumerate() {
            let ends = (bench.machine.nodes[from].id, bench.machine.nodes[to].id);
            residuals.push(Residual {
                what: format!("latency, node {from} to {to}"),
                measured: ns,
                modelled: model.latency_ns(ends.0, ends.1),
                unit: "ns",
                fitted: true,
            });
        }
    }
    for cell in &measured.remote {
        residuals.push(Residual {
            what: format!("Triad, {} threads, node {} to {}", cell.threads, cell.cpu_node, cell.memory_node),
            measured: cell.mb_per_s,
            modelled: bench.mb_per_s(&model, super::measure::TRIAD, cell.threads, (cell.cpu_node, cell.memory_node))?,
            unit: "MB/s",
            fitted: true,
        });
    }
    Ok(residuals)
}

/// The machine on which figures are modelled.
struct Bench<'a> {
    machine: &'a Machine,
    cores: Cores,
    kernels: Vec<Profile>,
}

impl<'a> Bench<'a> {
    fn new(machine: &'a Machine, kernels: Vec<Profile>) -> Self {
        Self { machine, cores: Cores::of(machine), kernels }
    }

    fn model(&self, rates: &Rates) -> Result<MachineModel, CalibrateError> {
        let mut rates = rates.clone();
        if self.machine.nodes.len() > 1 && rates.links.is_empty() {
            rates.links = links::provisional(self.machine, &rates);
        }
        MachineModel::new(self.machine, &rates).map_err(|error| CalibrateError::Impossible(error.to_string()))
    }

    /// MB/s of a kernel with this many threads on a node and memory of a node, by their indexes.
    fn mb_per_s(
        &self,
        model: &MachineModel,
        kernel: usize,
        threads: u32,
        (cpu_node, memory_node): (usize, usize),
    ) -> Result<f64, CalibrateError> {
        self.rate(model, kernel, &self.works(threads, (cpu_node, memory_node)))
    }

    /// The busy cores: an idle core for each thread, then second threads.
    fn works(&self, threads: u32, (cpu_node, memory_node): (usize, usize)) -> Vec<(CoreWork, f64)> {
        let node = |index: usize| -> NodeId { self.machine.nodes[index].id };
        let on = [node(cpu_node)].into_iter().collect();
        let mut busy = self.cores.idle();
        let chosen = self.cores.place(&mut busy, &on, ThreadPolicy::LeastLoadedNode, threads).unwrap_or_default();
        let thread = |core| Thread { core, memory: vec![(node(memory_node), 1.0)] };
        works(&self.cores, &chosen.into_iter().map(thread).collect::<Vec<_>>())
    }

    fn rate(&self, model: &MachineModel, kernel: usize, works: &[(CoreWork, f64)]) -> Result<f64, CalibrateError> {
        let profile = &self.kernels[kernel];
        let groups = groups(model, profile, works, 0.0);
        let solution = Amva::default().solve(model.stations().len(), &groups)?;
        let lines: f64 = groups.iter().zip(&solution.lines_per_ns).map(|(group, rate)| group.actors * rate).sum();
        Ok(1000.0 * lines * profile.counted_bytes_per_line)
    }

    /// Mean over the kernels of ln(modelled / measured), on the first node's own memory.
    fn error(&self, measured: &Measured, rates: &Rates, threads: u32) -> Result<f64, CalibrateError> {
        let model = self.model(rates)?;
        let cells: Vec<&ScanCell> = measured.scan.iter().filter(|cell| cell.threads == threads).collect();
        let works = self.works(threads, (0, 0));
        let mut sum = 0.0;
        for cell in &cells {
            sum += (self.rate(&model, cell.kernel, &works)? / cell.mb_per_s).ln();
        }
        Ok(sum / cells.len().max(1) as f64)
    }
}

/// Where a rising function crosses zero between two values, by halving; an end of the interval
/// where it does not.
fn search(
    mut low: f64,
    mut high: f64,
    mut rising: impl FnMut(f64) -> Result<f64, CalibrateError>,
) -> Result<f64, CalibrateError> {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if rising(middle)? < 0.0 { low = middle } else { high = middle }
    }
    Ok(f64::midpoint(low, high))
}

#[cfg(test)]
mod tests;
