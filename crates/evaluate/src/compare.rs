//! Measured runs side by side: of two hosts, two kernels, two versions of homenode.
//!
//! **Rule.** Figures of the same configuration, point and quantity are compared with those of the
//! first run: the geometric means of their rounds, with an interval that draws the rounds of each
//! run for itself. What differs between the runs stands above them: a ratio means little where more
//! than one thing does. Where the interval holds 1, the runs are not told apart; where there is no
//! interval, if their repetitions overlap.
//!
//! **Example.** `A` on kernel 6.1 and `B` on 6.12: one row, `Kernel`, says what differs; `Copy` at
//! 4 threads is 20 000 and 21 000 MB/s, and `B / A` is 1.05.

use crate::evaluation::unique;
use crate::figure::{Figure, Spread};
use crate::interval::Interval;
use crate::modelled::beside::MeasuredRun;
use crate::point::Point;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use workloads::workload::Quantity;

/// Settings of the experiment that are shown where they differ; the rest is counted.
const MOST_SETTINGS: usize = 12;
/// Parts of an experiment that change no measurement.
const NOT_MEASURED: [&str; 4] = ["title", "published", "statement", "machine"];

/// Measured runs, the first of which the others are compared with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Their results directories, as the user wrote them.
    pub runs: Vec<String>,
    /// What is not the same in all.
    pub differences: Vec<Difference>,
    /// Every figure that at least two runs have.
    pub figures: Vec<Compared>,
}

/// Something that is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// What.
    pub what: String,
    /// In each run; `None` where it has none.
    pub values: Vec<Option<String>>,
}

/// A figure of several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Name of the configuration.
    pub configuration: String,
    /// What was run.
    pub point: Point,
    /// What is counted.
    pub quantity: Quantity,
    /// In each run; `None` where it has none.
    pub figures: Vec<Option<Figure>>,
    /// How many times as good as in the first run; over 1 is better.
    pub ratios: Vec<Option<f64>>,
    /// Where each ratio is, with a confidence of 95 %; `None` of too few rounds.
    pub intervals: Vec<Option<Interval>>,
    /// Whether the run differs from the first by more than chance.
    pub told_apart: Vec<bool>,
}

/// Why runs cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// There is nothing to compare.
    #[error("no two of these runs have a figure of the same configuration, point and quantity")]
    NothingInCommon,
}

impl Comparison {
    /// Of these runs.
    ///
    /// # Errors
    /// No two of them have a figure of the same.
    pub fn of(runs: &[MeasuredRun]) -> Result<Self, CompareError> {
        let figures: Vec<Vec<Figure>> = runs.iter().map(|run| run.summary.figures()).collect();
        let mut known: Vec<&Figure> = Vec::new();
        for figure in figures.iter().flatten() {
            if !known.iter().any(|other| other.is_beside(figure)) {
                known.push(figure);
            }
        }
        let compared = known.into_iter().map(|figure| compared(figure, &figures));
        let figures: Vec<Compared> =
            compared.filter(|row: &Compared| row.figures.iter().flatten().count() > 1).collect();
        if figures.is_empty() {
            return Err(CompareError::NothingInCommon);
        }
        let directories = runs.iter().map(|run| run.directory.clone()).collect();
        Ok(Self { runs: directories, differences: differences(runs), figures })
    }

    /// Names of the configurations, in their order.
    pub(crate) fn configurations(&self) -> Vec<&str> {
        unique(self.figures.iter().map(|row| row.configuration.as_str()))
    }
}

fn compared(figure: &Figure, runs: &[Vec<Figure>]) -> Compared {
    let of_run = |run: &Vec<Figure>| run.iter().find(|other| other.is_beside(figure)).cloned();
    let figures: Vec<Option<Figure>> = runs.iter().map(of_run).collect();
    let first = figures.first().cloned().flatten();
    let against = |other: &Option<Figure>| Some(other.as_ref()?.ratio_of_runs(first.as_ref()?));
    let ratios: Vec<Option<(f64, Option<Interval>)>> = figures.iter().map(against).collect();
    let intervals: Vec<Option<Interval>> =
        ratios.iter().map(|ratio| ratio.and_then(|(_, interval)| interval)).collect();
    let apart = |(other, interval): (&Option<Figure>, &Option<Interval>)| {
        let spread = |figure: &Option<Figure>| figure.as_ref().and_then(|figure| figure.spread.clone());
        match interval {
            Some(interval) => !interval.holds(1.0),
            None => spread(&first).zip(spread(other)).is_some_and(|(one, other)| are_apart(&one, &other)),
        }
    };
    Compared {
        configuration: figure.configuration.clone(),
        point: figure.point.clone(),
        quantity: figure.quantity.clone(),
        ratios: ratios.iter().map(|ratio| ratio.map(|(ratio, _)| ratio)).collect(),
        told_apart: figures.iter().zip(&intervals).map(apart).collect(),
        intervals,
        figures,
    }
}

/// Whether all repetitions of one are below all of the other.
fn are_apart(one: &Spread, other: &Spread) -> bool {
    let ends = |spread: &Spread| {
        let all = || spread.repetitions.iter().copied();
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max))
    };
    let (one, other) = (ends(one), ends(other));
    one.1 < other.0 || other.1 < one.0
}

fn differences(runs: &[MeasuredRun]) -> Vec<Difference> {
    let all: Vec<Vec<(String, String)>> = runs.iter().map(surroundings).collect();
    let mut differences = differing(&all);
    let settings: Vec<Vec<(String, String)>> = runs.iter().map(settings).collect();
    let mut of_file = differing(&settings);
    let more = of_file.len().saturating_sub(MOST_SETTINGS);
    of_file.truncate(MOST_SETTINGS);
    differences.extend(of_file);
    if more > 0 {
        let values = runs.iter().map(|run| Some(format!("{}/experiment.toml", run.directory))).collect();
        differences.push(Difference { what: format!("{more} more settings"), values });
    }
    differences
}

/// Machine and software, as far as a figure depends on them.
fn surroundings(run: &MeasuredRun) -> Vec<(String, String)> {
    let environment = &run.environment;
    let machine = &environment.machine;
    let governors: Vec<String> = environment.governors.iter().map(|(name, cpus)| format!("{name} ({cpus})")).collect();
    let known = [
        ("Machine", Some(machine.name.clone())),
        ("NUMA nodes", Some(machine.nodes.len().to_string())),
        ("Hardware threads", Some(machine.usable_threads().count().to_string())),
        ("CPU", environment.cpu_model.clone()),
        ("Kernel", Some(environment.kernel.clone())),
        ("Governors", Some(governors.join(", "))),
        ("Kernel parameters", environment.kernel_parameters.clone()),
        ("SMT", environment.smt.clone()),
        ("Boost", environment.boost.map(|boost| if boost { "on" } else { "off" }.to_owned())),
        ("Microcode", environment.microcode.clone()),
        ("Huge pages", environment.transparent_huge_pages.clone()),
        ("NUMA balancing", environment.numa_balancing.clone()),
        ("Accelerator", Some(environment.accelerator.clone())),
        ("QEMU", run.summary.qemu.clone()),
        ("homenode", Some(environment.homenode.clone())),
        ("Commit", environment.commit.clone()),
        ("Workload", Some(run.summary.workloads.join("; "))),
    ];
    let shapes = run.summary.configurations.iter().map(|one| (format!("Shape of {}", one.name), one.shape.clone()));
    let mitigations =
        environment.mitigations.iter().map(|(fault, how)| (format!("Mitigation of {fault}"), how.clone()));
    let known = known.into_iter().filter_map(|(what, value)| Some((what.to_owned(), value?)));
    known.chain(mitigations).chain(shapes).collect()
}

/// Every setting of the experiment, by its place in the file.
fn settings(run: &MeasuredRun) -> Vec<(String, String)> {
    let mut all = BTreeMap::new();
    if let Some(Ok(Value::Object(fields))) = run.experiment.as_ref().map(serde_json::to_value) {
        for (name, value) in fields.iter().filter(|(name, _)| !NOT_MEASURED.contains(&name.as_str())) {
            match value {
                // By the name of the workload, as in the file.
                Value::Array(sections) if name == "sections" => sections.iter().for_each(|section| {
                    flatten(section["workload"].as_str().unwrap_or(name), &section["parameters"], &mut all);
                }),
                value => flatten(name, value, &mut all),
            }
        }
    }
    all.into_iter().collect()
}

fn flatten(place: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| flatten(&format!("{place}.{name}"), value, into))
        }
        Value::Array(all) if all.iter().any(Value::is_object) => {
            all.iter().enumerate().for_each(|(index, value)| flatten(&format!("{place}[{index}]"), value, into));
        }
        Value::Null => {}
        other => {
            into.insert(place.to_owned(), other.to_string());
        }
    }
}

fn differing(all: &[Vec<(String, String)>]) -> Vec<Difference> {
    let names = unique(all.iter().flatten().map(|(what, _)| what));
    let of_run = |run: &Vec<(String, String)>, wanted: &String| {
        run.iter().find(|(what, _)| what == wanted).map(|(_, value)| value.clone())
    };
    let rows = names
        .into_iter()
        .map(|what| Difference { what: what.clone(), values: all.iter().map(|run| of_run(run, what)).collect() });
    rows.filter(|row| row.values.iter().collect::<BTreeSet<_>>().len() > 1).collect()
}
