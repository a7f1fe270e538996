//! What is measured: STREAM with more and more threads on one node, the latency chase and STREAM
//! from each node to each node's memory.

use super::CalibrateError;
use super::regular::Regular;
use crate::estimate;
use crate::journal::Journal;
use crate::kernels;
use crate::parse;
use crate::point::Point;
use crate::progress::Progress;
use crate::resolve::{Host, Resolved, resolve};
use crate::runner::Runner;
use crate::summary::{Cell, State, Summary, summarise};
use crate::world::World;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use topology::{Bytes, Machine, NodeId};
use workloads::Section;
use workloads::chase::Chase;
use workloads::choice::Choice;
use workloads::stream::Stream;
use workloads::stream::arrays::llc_sum;
use workloads::workload::Workload;

/// Threads take cores in turn, one thread a core first, which is what the model's cells assume.
const EXPERIMENT: &str = r#"
name = "calibrate"
title = "Calibration of this host"
workload = "numa_matrix"
pinning = "scatter"
repetitions = 5
rounds = 2
[stream]
max_elements = 400_000_000
[chase]
max_buffer = "2 GiB"
[[configuration]]
name = "native"
runs = "native"
"#;

const QUICK: &str = r#"
name = "calibrate"
title = "Quick calibration of this host"
workload = "numa_matrix"
pinning = "scatter"
repetitions = 3
rounds = 1
[stream]
max_elements = 16_000_000
[chase]
max_buffer = "128 MiB"
loads = 500_000
[limits]
repeat_disturbed = 0
[[configuration]]
name = "native"
runs = "native"
"#;

/// STREAM's bandwidth on the memory of the threads' own node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScanCell {
    /// Threads.
    pub threads: u32,
    /// Copy, Scale, Add or Triad, by index.
    pub kernel: usize,
    /// Best repetition, in MB/s of 10^6 bytes.
    pub mb_per_s: f64,
}

/// STREAM's Triad on the memory of another node, with all threads of the own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RemoteCell {
    /// Index of the threads' node.
    pub cpu_node: usize,
    /// Index of the arrays' node.
    pub memory_node: usize,
    /// Threads.
    pub threads: u32,
    /// Best repetition, in MB/s of 10^6 bytes.
    pub mb_per_s: f64,
}

/// All figures. Nodes are indexes as in the machine file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// On the first node, by threads, then by kernel.
    pub scan: Vec<ScanCell>,
    /// From each node to each: nanoseconds of a dependent load.
    pub latency_ns: Vec<Vec<f64>>,
    /// Between different nodes.
    pub remote: Vec<RemoteCell>,
    /// What was disturbed, as sentences.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// What will run on a host.
///
/// # Errors
/// There is not enough memory to measure.
pub(super) fn resolved(machine: &Machine, available: Bytes, quick: bool) -> Result<Resolved, CalibrateError> {
    let text = if quick { QUICK } else { EXPERIMENT };
    let plan = |error: String| CalibrateError::Plan(error);
    let experiment = parse::parse(text, Path::new("calibrate")).map_err(|error| plan(error.to_string()))?;
    let host = Host { machine, available, emulated: false };
    let planner =
        |machine: &Machine, specs: &[vm::VmSpec]| scheduler::plan_together(machine, &Default::default(), specs);
    let mut resolved = resolve(&experiment, &host, &planner).map_err(|error| plan(error.to_string()))?;
    let Some(node) = machine.nodes.first() else { return Err(plan("the host has no node".to_owned())) };
    let threads = machine.usable_cpus(node.id).len() as u32;
    let cores = machine.usable_cores(node.id).len() as u32;
    for configuration in &mut resolved.configurations {
        let scan = counts(cores, threads).into_iter();
        let id = node.id.0;
        configuration.points.extend(scan.map(|threads| Point::of_pair(Stream::NAME, id, id, threads)));
        configuration.points.sort_unstable();
        configuration.points.dedup();
    }
    let caches = llc_sum(machine).0 / machine.nodes.len().max(1) as u64;
    let buffer = resolved.parameters::<Chase>().map_or(Bytes(0), Chase::buffer_bytes);
    if buffer.0 < 4 * caches {
        resolved.notes.push(format!(
            "The latency chase's buffer, {buffer}, is only {:.2} x the last-level caches of a node: caches may help \
            its latency.",
            buffer.0 as f64 / caches as f64
        ));
    }
    let smallest = machine.nodes.iter().map(|node| node.free.unwrap_or(node.memory)).min().unwrap_or_default();
    // Three arrays and the agent's own needs must fit on the smallest node: memory is bound to it.
    let most = smallest.0 / 10 * 8 / 24;
    let bounded = resolved.parameters::<Stream>().filter(|stream| stream.elements() > most).cloned();
    if let Some(stream) = bounded {
        let section = Section::new(Stream { elements: Choice::Fixed(most.max(1000)), ..stream });
        let streams = resolved.workloads.iter_mut().filter(|one| one.section.name() == Stream::NAME);
        streams.for_each(|one| one.section = section.clone());
        resolved.notes.push(format!("The free memory of a node bounds each array to {most} elements."));
    }
    Ok(resolved)
}

/// 1, 2, 4, ..., one thread a core, and all.
fn counts(cores: u32, threads: u32) -> Vec<u32> {
    let powers = (0..31).map(|power| 1u32 << power).take_while(|&count| count < threads);
    let mut all: Vec<u32> = powers.chain([cores, threads]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Measures. What is kept meanwhile has no name on disk: nothing is left, however this ends.
///
/// # Errors
/// A participant fails, or `cancelled` is set.
pub(super) fn run(
    resolved: &Resolved,
    world: &mut dyn World,
    progress: &mut dyn Progress,
    cancelled: &AtomicBool,
) -> Result<Summary, CalibrateError> {
    let kept = |error: &dyn std::fmt::Display| CalibrateError::Records(error.to_string());
    let mut journal = Journal::without_name().map_err(|error| kept(&error))?;
    Runner::new(resolved, world, &mut journal, progress, cancelled, 0).run(&estimate::visits(resolved))?;
    let records = journal.into_records().map_err(|error| kept(&error))?;
    Ok(summarise(resolved, &records))
}

impl Measured {
    /// Out of a summary.
    ///
    /// # Errors
    /// A figure is missing, or its result was wrong.
    pub(super) fn of(summary: &Summary, regular: &Regular) -> Result<Self, CalibrateError> {
        let count = regular.nodes.len();
        let mut measured =
            Self { scan: Vec::new(), latency_ns: vec![vec![0.0; count]; count], remote: Vec::new(), notes: Vec::new() };
        let mut disturbed = 0;
        for cell in summary.configurations.iter().flat_map(|configuration| &configuration.cells) {
            disturbed += usize::from(cell.state == State::Disturbed);
            measured.take(cell, regular)?;
        }
        if disturbed > 0 {
            measured.notes.push(format!(
                "{disturbed} of {} figures were disturbed by other processes in every repetition: measure again on a \
                quieter host.",
                summary.configurations.iter().map(|configuration| configuration.cells.len()).sum::<usize>()
            ));
        }
        Ok(measured)
    }

    fn take(&mut self, cell: &Cell, regular: &Regular) -> Result<(), CalibrateError> {
        let none = |why| CalibrateError::NoFigure { what: cell.point.to_string(), why };
        match cell.state {
            State::Missing => return Err(none("it was not measured")),
            State::Wrong => return Err(none("its result was wrong")),
            State::Measured | State::Disturbed => {}
        }
        let index = |node| regular.index(NodeId(node)).ok_or_else(|| none("it is of an unknown node"));
        let Some((from, to)) = cell.point.pair() else { return Ok(()) };
        let (cpu_node, memory_node, threads) = (index(from)?, index(to)?, cell.point.threads);
        let best = |quantity: &str| cell.of(quantity).map(|figures| figures.best);
        if cell.point.workload == Chase::NAME {
            let latency_ns = best("latency").ok_or_else(|| none("it has no latency"))?;
            self.latency_ns[cpu_node][memory_node] = latency_ns;
        } else if cpu_node != memory_node {
            let mb_per_s = best(kernels::NAMES[TRIAD]).ok_or_else(|| none("it has no bandwidth"))?;
            self.remote.push(RemoteCell { cpu_node, memory_node, threads, mb_per_s });
        } else if cpu_node == 0 {
            for (kernel, name) in kernels::NAMES.iter().enumerate() {
                let mb_per_s = best(name).ok_or_else(|| none("it has no bandwidth"))?;
                self.scan.push(ScanCell { threads, kernel, mb_per_s });
            }
        }
        Ok(())
    }
}

/// Triad's index among the kernels.
pub(super) const TRIAD: usize = 3;

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn the_scan_has_powers_of_two_all_cores_and_all_threads() {
        assert_eq!(counts(4, 8), [1, 2, 4, 8]);
        assert_eq!(counts(6, 12), [1, 2, 4, 6, 8, 12]);
        assert_eq!(counts(1, 1), [1]);
    }
}
