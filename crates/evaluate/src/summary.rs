//! From raw records to figures: best, median, ratio, and what was rejected.

use crate::kernels;
use crate::point::Point;
use crate::records::{Done, Record, Repetition};
use crate::resolve::Resolved;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use workloads::protocol::Figures;

/// All figures of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the experiment.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Elements of each array, over all VMs.
    pub elements: u64,
    /// Whether VMs ran by software emulation.
    pub emulated: bool,
    /// QEMU's version, of the VMs that ran.
    pub qemu: Option<String>,
    /// Whether all visits are complete.
    pub complete: bool,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// In the order of the experiment.
    pub configurations: Vec<ConfigurationSummary>,
}

/// Figures of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationSummary {
    /// Its name.
    pub name: String,
    /// What runs: `on the host`, `2 VMs x 8 vCPUs`.
    pub shape: String,
    /// Whether it runs on the host itself.
    pub native: bool,
    /// By point.
    pub cells: Vec<Cell>,
}

impl ConfigurationSummary {
    /// The cell of a point.
    pub fn cell(&self, point: Point) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.point == point)
    }
}

/// How far a cell's figures can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Measured and verified.
    Measured,
    /// Measured and verified, but every repetition was disturbed.
    Disturbed,
    /// A job's result was wrong: no figure.
    NotVerified,
    /// Not measured yet.
    Missing,
}

/// Figures of a configuration at a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What was measured.
    pub point: Point,
    /// How far to trust it.
    pub state: State,
    /// Copy, Scale, Add, Triad; empty for a latency, and without a figure.
    pub kernels: Vec<Kernel>,
    /// Nanoseconds of one load, of the best repetition.
    pub latency_ns: Option<f64>,
    /// Repetitions that count.
    pub counted: usize,
    /// Repetitions that were rejected, firsts of jobs left out.
    pub rejected: usize,
    /// Median and worst overlap of the repetitions that count; `None` of one participant.
    pub overlap: Option<(f64, f64)>,
    /// Largest share of a CPU that other processes took in a repetition that counts, in per cent.
    pub other_cpu_percent: f64,
    /// Largest share of a CPU that was stolen in a repetition that counts, in per cent.
    pub steal_percent: f64,
    /// Smallest share of a VM's memory on its home nodes; `None` where nobody can say.
    pub local_share: Option<f64>,
}

/// Figures of one kernel, in MB/s (10^6 bytes).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Sum over the participants of each one's best repetition, as in the ESX 4.1 article.
    pub best_mb_per_s: f64,
    /// Best repetition of the sum over the participants: what they reached at the same time.
    pub best_together_mb_per_s: f64,
    /// Median repetition of that sum.
    pub median_mb_per_s: f64,
    /// Every repetition that counts, of that sum, in the order of time.
    pub repetitions_mb_per_s: Vec<f64>,
    /// Every rejected repetition, of that sum, where others count.
    pub rejected_mb_per_s: Vec<f64>,
}

/// Reduces the records of an evaluation.
pub fn summarise(resolved: &Resolved, records: &[Record]) -> Summary {
    let raw = Raw::of(records);
    let configurations: Vec<ConfigurationSummary> = resolved
        .configurations
        .iter()
        .map(|configuration| ConfigurationSummary {
            name: configuration.name.clone(),
            shape: configuration.shape(),
            native: configuration.vms.is_empty(),
            cells: configuration.points.iter().map(|&point| raw.cell(&configuration.name, point)).collect(),
        })
        .collect();
    Summary {
        name: resolved.experiment.name.clone(),
        title: resolved.experiment.title.clone(),
        elements: resolved.arrays.elements,
        emulated: resolved.emulated,
        qemu: records.iter().rev().find_map(|record| match record {
            Record::Start(start) => start.qemu.clone(),
            _ => None,
        }),
        complete: crate::results::remaining(resolved, records).is_empty(),
        notes: resolved.notes.clone(),
        configurations,
    }
}

/// Records, by what they belong to.
struct Raw<'a> {
    repetitions: Vec<&'a Repetition>,
    done: BTreeMap<u64, Vec<&'a Done>>,
}

impl<'a> Raw<'a> {
    fn of(records: &'a [Record]) -> Self {
        let mut raw = Self { repetitions: Vec::new(), done: BTreeMap::new() };
        for record in records {
            match record {
                Record::Repetition(repetition) => raw.repetitions.push(repetition),
                Record::Done(done) => raw.done.entry(done.job).or_default().push(done),
                _ => {}
            }
        }
        raw
    }

    /// Whether all participants of a job have finished it, so that its verification is known.
    fn is_finished(&self, repetition: &Repetition) -> bool {
        self.done.get(&repetition.job).is_some_and(|done| done.len() == repetition.figures.len())
    }

    fn cell(&self, configuration: &str, point: Point) -> Cell {
        let all: Vec<&Repetition> = self
            .repetitions
            .iter()
            .copied()
            .filter(|repetition| repetition.configuration == configuration && repetition.point == point)
            .filter(|repetition| self.is_finished(repetition))
            .collect();
        let jobs: BTreeSet<u64> = all.iter().map(|repetition| repetition.job).collect();
        let done: Vec<&Done> = jobs.iter().filter_map(|job| self.done.get(job)).flatten().copied().collect();
        let later: Vec<&Repetition> = all.into_iter().filter(|repetition| repetition.repetition > 0).collect();
        let undisturbed: Vec<&Repetition> = later.iter().copied().filter(|repetition| !repetition.rejected).collect();
        let disturbed: Vec<&Repetition> = later.iter().copied().filter(|repetition| repetition.rejected).collect();
        let rejected_count = disturbed.len();
        let (state, used, not_used) =
            match (later.is_empty(), done.iter().all(|done| done.verified), undisturbed.is_empty()) {
                (true, _, _) => (State::Missing, Vec::new(), Vec::new()),
                (_, false, _) => (State::NotVerified, Vec::new(), Vec::new()),
                (_, _, true) => (State::Disturbed, later, Vec::new()),
                _ => (State::Measured, undisturbed, disturbed),
            };
        let together = used.iter().filter(|repetition| repetition.figures.len() > 1);
        let overlaps: Vec<f64> = together.map(|repetition| repetition.overlap).collect();
        let worst = overlaps.iter().copied().min_by(f64::total_cmp);
        let largest = |of: fn(&Repetition) -> f64| used.iter().map(|repetition| of(repetition)).fold(0.0, f64::max);
        Cell {
            point,
            state,
            kernels: (0..4).filter_map(|kernel| kernel_figures(&used, &not_used, kernel)).collect(),
            latency_ns: used.iter().filter_map(|repetition| latency_ns(repetition)).min_by(f64::total_cmp),
            counted: used.len(),
            rejected: rejected_count,
            overlap: kernels::median(&overlaps).zip(worst),
            other_cpu_percent: largest(|repetition| repetition.other_cpu_percent),
            steal_percent: largest(|repetition| repetition.steal_percent),
            local_share: done.iter().filter_map(|done| done.local_share).min_by(f64::total_cmp),
        }
    }
}

/// MB/s of each participant in a repetition.
fn rates(repetition: &Repetition, kernel: usize) -> Option<Vec<f64>> {
    let rate = |figures: &Figures| match figures {
        Figures::Stream { seconds } => Some(kernels::mb_per_s(kernel, repetition.elements, seconds[kernel])),
        Figures::Chase { .. } => None,
    };
    repetition.figures.iter().map(rate).collect()
}

fn kernel_figures(used: &[&Repetition], rejected: &[&Repetition], kernel: usize) -> Option<Kernel> {
    let rates: Vec<Vec<f64>> = used.iter().filter_map(|repetition| rates(repetition, kernel)).collect();
    let participants = rates.first()?.len();
    let best_of = |participant: usize| rates.iter().map(|rates| rates[participant]).fold(0.0, f64::max);
    let together: Vec<f64> = rates.iter().map(|rates| rates.iter().sum()).collect();
    Some(Kernel {
        best_mb_per_s: (0..participants).map(best_of).sum(),
        best_together_mb_per_s: together.iter().copied().fold(0.0, f64::max),
        median_mb_per_s: kernels::median(&together)?,
        repetitions_mb_per_s: together,
        rejected_mb_per_s: rejected.iter().filter_map(|one| Some(self::rates(one, kernel)?.iter().sum())).collect(),
    })
}

/// Mean over the participants of a load's nanoseconds.
fn latency_ns(repetition: &Repetition) -> Option<f64> {
    let one = |figures: &Figures| match figures {
        Figures::Chase { seconds, loads } if *loads > 0 => Some(seconds / *loads as f64 * 1e9),
        _ => None,
    };
    let all: Option<Vec<f64>> = repetition.figures.iter().map(one).collect();
    all.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / all.len() as f64)
}
