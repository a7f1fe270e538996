//! From raw records to figures: best, median, ratio, and what was rejected.

use crate::carried::{self, Carried};
use crate::evaluation;
use crate::figure::{Figure, OfRound, Provenance, Spread};
use crate::guest_clock;
use crate::kernels::median;
use crate::point::Point;
use crate::records::{Done, Record, Repetition};
use crate::resolve::Resolved;
use crate::until::{self, Reached};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use workloads::workload::{Quantity, Verification};

/// All figures of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the experiment.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What was settled of each workload, in one line each.
    pub workloads: Vec<String>,
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
    /// How many times as good each figure is as the native one.
    pub ratios: Vec<Figure>,
    /// How far `[until]` came, of an experiment that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
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

/// How far a cell's figures can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Measured.
    Measured,
    /// Measured, but every repetition was disturbed.
    Disturbed,
    /// A job's result was wrong: no figure.
    Wrong,
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
    /// Whether all results were checked; if nobody could, the figures count, but say so.
    pub verified: bool,
    /// What is wrong with the result, of [`State::Wrong`].
    pub wrong: Option<String>,
    /// Of each quantity, in the order of the workload's; empty without a figure.
    pub figures: Vec<Reduced>,
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
    /// Median share of a CPU that homenode, its VMs and its agents took, in per cent.
    #[serde(default)]
    pub own_cpu_percent: Option<f64>,
    /// Smallest share of a VM's memory on its home nodes; `None` where nobody can say.
    pub local_share: Option<f64>,
    /// Smallest share of memory that the host maps by pages larger than the smallest; `None` where
    /// nobody can say.
    #[serde(default)]
    pub large_page_share: Option<f64>,
    /// How fast the clock of an emulated guest ran, as a multiple of the host's: at least that, in
    /// the worst repetition that counts. `None` elsewhere, where clocks are the host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_clock: Option<f64>,
    /// The same of one that ran slow: at most that, in the worst job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_guest_clock: Option<f64>,
    /// What the configuration's switches carried in all visits of the point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Carried>,
    /// Of each visit of which nobody knows what they carried, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<String>,
}

/// Figures of one quantity, in its unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduced {
    /// What was measured.
    pub quantity: Quantity,
    /// Each participant's best repetition, taken together (the sum of bandwidths, as in the ESX 4.1
    /// article).
    pub best: f64,
    /// How the repetitions differ.
    #[serde(flatten)]
    pub spread: Spread,
}

impl Summary {
    /// The configuration that the others are compared with.
    pub fn native(&self) -> Option<&ConfigurationSummary> {
        self.configurations.iter().find(|configuration| configuration.native)
    }

    /// Everything that was measured.
    pub fn figures(&self) -> Vec<Figure> {
        let of_cell = |configuration: &ConfigurationSummary, cell: &Cell| {
            let figure = |reduced: &Reduced| Figure {
                configuration: configuration.name.clone(),
                point: cell.point.clone(),
                quantity: reduced.quantity.clone(),
                value: reduced.best,
                spread: Some(reduced.spread.clone()),
                provenance: Provenance::Measured {
                    disturbed: cell.state == State::Disturbed,
                    verified: cell.verified,
                    emulated: self.emulated && !configuration.native,
                },
            };
            cell.figures.iter().map(figure).collect::<Vec<_>>()
        };
        let of_one =
            |one: &ConfigurationSummary| one.cells.iter().flat_map(|cell| of_cell(one, cell)).collect::<Vec<_>>();
        self.configurations.iter().flat_map(of_one).collect()
    }
}

impl Cell {
    /// Figures of a quantity, by its name.
    pub fn of(&self, quantity: &str) -> Option<&Reduced> {
        self.figures.iter().find(|figures| figures.quantity.name.eq_ignore_ascii_case(quantity))
    }
}

fn quantities(resolved: &Resolved, point: &Point) -> Vec<Quantity> {
    resolved.workload(&point.workload).map(|workload| workload.quantities()).unwrap_or_default()
}

fn is_wrong(done: &Done) -> bool {
    matches!(done.verification, Verification::Wrong { .. })
}

/// Reduces the records of an evaluation.
pub fn summarise(resolved: &Resolved, records: &[Record]) -> Summary {
    let summary = reduce(resolved, records);
    let reached = until::reached(resolved, records, &summary.ratios);
    let complete = match &reached {
        Some(reached) => reached.ended_by.is_some(),
        None => crate::results::remaining(resolved, records).is_empty(),
    };
    Summary { complete, reached, ..summary }
}

/// The same, before anybody knows whether it is complete.
pub(crate) fn reduce(resolved: &Resolved, records: &[Record]) -> Summary {
    let raw = Raw::of(records);
    let configurations: Vec<ConfigurationSummary> = resolved
        .configurations
        .iter()
        .map(|configuration| ConfigurationSummary {
            name: configuration.name.clone(),
            shape: configuration.shape(),
            native: configuration.vms.is_empty(),
            cells: configuration
                .points
                .iter()
                .map(|point| {
                    let cell = raw.cell(&configuration.name, point, &quantities(resolved, point));
                    let emulated = resolved.emulated && !configuration.vms.is_empty();
                    let [fast, slow] =
                        [cell.guest_clock, cell.slow_guest_clock].map(|clock| clock.filter(|_| emulated));
                    Cell { guest_clock: fast, slow_guest_clock: slow, ..cell }
                })
                .collect(),
        })
        .collect();
    let mut summary = Summary {
        name: resolved.experiment.name.clone(),
        title: resolved.experiment.title.clone(),
        workloads: resolved.workloads.iter().map(|one| one.about.clone()).filter(|about| !about.is_empty()).collect(),
        emulated: resolved.emulated,
        qemu: records.iter().rev().find_map(|record| match record {
            Record::Start(start) => start.qemu.clone(),
            _ => None,
        }),
        complete: false,
        notes: resolved.notes.clone(),
        configurations,
        ratios: Vec::new(),
        reached: None,
    };
    if let Some(native) = summary.native() {
        summary.ratios = evaluation::ratios_to(&native.name, &summary.figures());
    }
    summary
}

/// Records, by what they belong to.
struct Raw<'a> {
    repetitions: Vec<&'a Repetition>,
    done: BTreeMap<u64, Vec<&'a Done>>,
    carried: BTreeMap<(&'a str, &'a Point), Vec<&'a Carried>>,
    uncounted: BTreeMap<(&'a str, &'a Point), Vec<&'a String>>,
}

impl<'a> Raw<'a> {
    fn of(records: &'a [Record]) -> Self {
        let (done, carried, uncounted) = Default::default();
        let mut raw = Self { repetitions: Vec::new(), done, carried, uncounted };
        for record in records {
            match record {
                Record::Repetition(repetition) => raw.repetitions.push(repetition),
                Record::Done(done) => raw.done.entry(done.job).or_default().push(done),
                Record::Visit { configuration, point, carried, uncounted, .. } => {
                    raw.carried.entry((configuration.as_str(), point)).or_default().extend(carried);
                    raw.uncounted.entry((configuration.as_str(), point)).or_default().extend(uncounted);
                }
                _ => {}
            }
        }
        raw
    }

    /// Whether all participants of a job have finished it, so that its verification is known.
    fn is_finished(&self, repetition: &Repetition) -> bool {
        self.done.get(&repetition.job).is_some_and(|done| done.len() == repetition.participants.len())
    }

    fn cell(&self, configuration: &str, point: &Point, quantities: &[Quantity]) -> Cell {
        let own: Vec<&Repetition> =
            self.repetitions.iter().copied().filter(|repetition| repetition.configuration == configuration).collect();
        let all: Vec<&Repetition> = own
            .iter()
            .copied()
            .filter(|repetition| repetition.point == *point && self.is_finished(repetition))
            .collect();
        let jobs: BTreeSet<u64> = all.iter().map(|repetition| repetition.job).collect();
        let done: Vec<&Done> = jobs.iter().filter_map(|job| self.done.get(job)).flatten().copied().collect();
        let later: Vec<&Repetition> = all.into_iter().filter(|repetition| repetition.repetition > 0).collect();
        let undisturbed: Vec<&Repetition> = later.iter().copied().filter(|repetition| !repetition.rejected).collect();
        let disturbed: Vec<&Repetition> = later.iter().copied().filter(|repetition| repetition.rejected).collect();
        let rejected_count = disturbed.len();
        let (state, used, not_used) =
            match (later.is_empty(), done.iter().any(|done| is_wrong(done)), undisturbed.is_empty()) {
                (true, _, _) => (State::Missing, Vec::new(), Vec::new()),
                (_, true, _) => (State::Wrong, Vec::new(), Vec::new()),
                (_, _, true) => (State::Disturbed, later, Vec::new()),
                _ => (State::Measured, undisturbed, disturbed),
            };
        let together = used.iter().filter(|repetition| repetition.participants.len() > 1);
        let overlaps: Vec<f64> = together.map(|repetition| repetition.overlap).collect();
        let worst = overlaps.iter().copied().min_by(f64::total_cmp);
        let own_cpu: Vec<f64> = used.iter().filter_map(|repetition| repetition.own_cpu_percent).collect();
        let largest = |of: fn(&Repetition) -> f64| used.iter().map(|repetition| of(repetition)).fold(0.0, f64::max);
        Cell {
            point: point.clone(),
            state,
            verified: done.iter().all(|done| done.verification == Verification::Verified),
            wrong: done.iter().find_map(|done| match &done.verification {
                Verification::Wrong { reason } => Some(reason.clone()),
                _ => None,
            }),
            figures: quantities.iter().filter_map(|quantity| reduced(&used, &not_used, quantity)).collect(),
            counted: used.len(),
            rejected: rejected_count,
            overlap: median(&overlaps).zip(worst),
            other_cpu_percent: largest(|repetition| repetition.other_cpu_percent),
            steal_percent: largest(|repetition| repetition.steal_percent),
            own_cpu_percent: median(&own_cpu),
            large_page_share: done.iter().filter_map(|done| done.large_page_share).min_by(f64::total_cmp),
            local_share: done.iter().filter_map(|done| done.local_share).min_by(f64::total_cmp),
            guest_clock: used.iter().filter_map(|repetition| guest_clock::fast(repetition)).max_by(f64::total_cmp),
            slow_guest_clock: jobs.iter().filter_map(|job| guest_clock::slow(&own, *job)).min_by(f64::total_cmp),
            carried: carried::sum(self.carried.get(&(configuration, point)).into_iter().flatten().copied()),
            uncounted: self.uncounted.get(&(configuration, point)).into_iter().flatten().copied().cloned().collect(),
        }
    }
}

/// The value of each participant in a repetition; `None` unless all have one.
fn values(repetition: &Repetition, quantity: &Quantity) -> Option<Vec<f64>> {
    let of_one = |measured: &workloads::workload::Repetition| {
        measured.figures.iter().find(|figure| figure.quantity == quantity.name).map(|figure| figure.value)
    };
    repetition.participants.iter().map(of_one).collect()
}

/// Each participant's best repetition, taken together; `None` unless each has one.
fn best(used: &[&Repetition], quantity: &Quantity) -> Option<f64> {
    let of_each: Vec<Vec<f64>> = used.iter().filter_map(|repetition| values(repetition, quantity)).collect();
    let participants = 0..of_each.first()?.len();
    let best_of = |participant: usize| quantity.better.best(of_each.iter().map(|values| values[participant]));
    quantity.together.of(&participants.map(best_of).collect::<Option<Vec<f64>>>()?)
}

fn reduced(used: &[&Repetition], rejected: &[&Repetition], quantity: &Quantity) -> Option<Reduced> {
    let together = |all: &[&Repetition]| -> Vec<f64> {
        let values = all.iter().filter_map(|repetition| values(repetition, quantity));
        values.filter_map(|values| quantity.together.of(&values)).collect()
    };
    let rounds: BTreeSet<u32> = used.iter().map(|repetition| repetition.round).collect();
    let of_round = |round: u32| {
        let own: Vec<&Repetition> = used.iter().copied().filter(|repetition| repetition.round == round).collect();
        Some(OfRound { round, value: best(&own, quantity)? })
    };
    let rounds = rounds.into_iter().filter_map(of_round).collect();
    Some(Reduced {
        quantity: quantity.clone(),
        best: best(used, quantity)?,
        spread: Spread::of(quantity.better, together(used), together(rejected), rounds)?,
    })
}
