//! What tables, charts and reports show of an experiment: its configurations, and figures of every
//! provenance.
//!
//! **Rule.** A measured run and a prediction become the same thing. What differs is which figures
//! stand in the first row of each subject: the measured or the modelled ones. Those of another
//! provenance stand below them.

use crate::experiment::Experiment;
use crate::figure::{Figure, Origin, SHARE};
use crate::modelled::Prediction;
use crate::point::Point;
use crate::published::{self, Published};
use crate::resolve::Resolved;
use crate::summary::{State, Summary};
use workloads::workload::Quantity;

/// Configurations and figures.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Whose figures stand first: measured ones, or those of the model.
    pub origin: Origin,
    /// In the order of the experiment.
    pub configurations: Vec<Shown>,
    /// Of every provenance.
    pub figures: Vec<Figure>,
    /// How many times as good each is as the native one of its provenance.
    pub ratios: Vec<Figure>,
    /// Where the published ones stand.
    pub published: Vec<Published>,
}

/// A series: a quantity that was counted at several sizes or loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    /// The quantity.
    pub(crate) name: String,
    /// Its unit.
    pub(crate) unit: String,
    /// What rises.
    pub(crate) parameter: String,
    /// Its unit.
    pub(crate) parameter_unit: String,
    /// Rising, each once.
    pub(crate) values: Vec<u64>,
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// What runs: `on the host`, `2 VMs x 8 vCPUs`.
    pub shape: String,
    /// Whether it runs on the host itself.
    pub native: bool,
    /// The machine that it was modelled on.
    pub machine: Option<String>,
    /// Whether its VMs were measured by software emulation.
    pub emulated: bool,
    /// What was run, or should have been.
    pub points: Vec<Point>,
    /// Where the result was wrong, so that there is no figure.
    pub wrong: Vec<Point>,
    /// What would be measured of a point without a figure.
    expected: Vec<(String, Vec<Quantity>)>,
    /// Whether the published figures are of the same machine, so that errors against them mean
    /// something.
    pub compares_published: bool,
    /// The same of the measured figures beside modelled ones.
    pub compares_measured: bool,
}

impl Shown {
    /// `native (on the host) on hp-dl380-g6`; without the machine where it is this one.
    pub(crate) fn about(&self) -> String {
        let machine = self.machine.as_ref().map_or_else(String::new, |machine| format!(" on {machine}"));
        let emulated = if self.emulated { ", EMULATED (TCG)" } else { "" };
        format!("{} ({}){machine}{emulated}", self.name, self.shape)
    }
}

impl Evaluation {
    /// Of what was measured.
    pub fn measured(resolved: &Resolved, summary: &Summary) -> Self {
        let configurations = summary.configurations.iter().map(|one| {
            let points: Vec<Point> = one.cells.iter().map(|cell| cell.point.clone()).collect();
            let wrong = one.cells.iter().filter(|cell| cell.state == State::Wrong).map(|cell| cell.point.clone());
            let mut workloads: Vec<String> = points.iter().map(|point| point.workload.clone()).collect();
            workloads.dedup();
            let expected = workloads.into_iter().map(|name| {
                let quantities = resolved.workload(&name).map(|section| section.quantities()).unwrap_or_default();
                (name, quantities)
            });
            Shown {
                name: one.name.clone(),
                shape: one.shape.clone(),
                native: one.native,
                machine: None,
                emulated: summary.emulated && !one.native,
                wrong: wrong.collect(),
                expected: expected.collect(),
                points,
                compares_published: false,
                compares_measured: false,
            }
        });
        let configurations = configurations.collect();
        let others = published::figures(&resolved.experiment);
        let mut ratios = summary.ratios.clone();
        ratios.extend(summary.native().map(|native| ratios_to(&native.name, &others)).unwrap_or_default());
        // Published times of an application are not those of what runs in its place: ratios are
        // comparable.
        let others = if resolved.experiment.is_application() { Vec::new() } else { others };
        let figures = summary.figures().into_iter().chain(others).collect();
        let published = resolved.experiment.published.clone();
        Self { origin: Origin::Measured, configurations, figures, ratios, published }
    }

    /// Of a prediction, with the measured run beside it, where there is one. Where an application's
    /// published figures are of another machine, they are left out.
    pub fn modelled(experiment: &Experiment, prediction: &Prediction) -> Self {
        let measured = prediction.beside.iter().flat_map(|beside| &beside.figures);
        let own: Vec<Figure> = prediction.figures.iter().chain(measured).cloned().collect();
        let foreign = experiment.is_application()
            && !prediction.configurations.iter().all(|configuration| configuration.is_published_machine);
        let configurations = prediction.configurations.iter().map(|one| {
            let mut points: Vec<Point> = Vec::new();
            for figure in own.iter().filter(|figure| figure.configuration == one.name) {
                if !points.iter().any(|known| known.is_beside(&figure.point)) {
                    points.push(figure.point.clone());
                }
            }
            Shown {
                name: one.name.clone(),
                shape: one.shape.clone(),
                native: one.native,
                machine: Some(one.machine.clone()),
                emulated: false,
                points,
                wrong: Vec::new(),
                expected: Vec::new(),
                compares_published: one.is_published_machine,
                compares_measured: prediction.beside.iter().any(|beside| beside.compared.contains(&one.name)),
            }
        });
        let configurations: Vec<Shown> = configurations.collect();
        let (others, published) = match foreign {
            true => (Vec::new(), Vec::new()),
            false => (published::figures(experiment), experiment.published.clone()),
        };
        let figures: Vec<Figure> = own.into_iter().chain(others).collect();
        let native = configurations.iter().find(|shown| shown.native);
        let ratios = native.map(|native| ratios_to(&native.name, &figures)).unwrap_or_default();
        Self { origin: Origin::Modelled, configurations, figures, ratios, published }
    }

    /// Figures of every provenance, of one configuration, point and quantity.
    pub(crate) fn at<'a>(
        &'a self,
        configuration: &'a str,
        point: &'a Point,
        quantity: &'a str,
    ) -> impl Iterator<Item = &'a Figure> {
        let all = self.figures.iter().filter(move |figure| figure.configuration == configuration);
        all.filter(move |figure| figure.point.is_beside(point) && figure.is_of(quantity))
    }

    /// What a configuration has figures of at some of its points, each once, in order; what it
    /// should have, if it has none.
    pub(crate) fn quantities(&self, shown: &Shown, is_wanted: impl Fn(&Point) -> bool) -> Vec<Quantity> {
        let own = self.figures.iter().filter(|figure| {
            figure.origin() == self.origin && figure.configuration == shown.name && is_wanted(&figure.point)
        });
        let mut all: Vec<Quantity> = Vec::new();
        for quantity in own.map(|figure| &figure.quantity).filter(|quantity| quantity.unit != SHARE) {
            if !all.iter().any(|known| known.name == quantity.name) {
                all.push(quantity.clone());
            }
        }
        if all.is_empty() {
            let wanted =
                |workload: &str| shown.points.iter().any(|point| point.workload == workload && is_wanted(point));
            let expected = shown.expected.iter().filter(|(workload, _)| wanted(workload));
            all = expected.flat_map(|(_, quantities)| quantities.clone()).collect();
        }
        all
    }

    /// The series that any configuration has, in order, each with all values where it was counted.
    pub(crate) fn series(&self) -> Vec<Set> {
        let mut sets: Vec<Set> = Vec::new();
        let of_one = |shown| self.quantities(shown, |point| point.width().is_some());
        for quantity in self.configurations.iter().flat_map(of_one) {
            let Some(at) = quantity.at.clone() else { continue };
            let known = sets.iter().position(|set| set.name == at.series);
            let index = known.unwrap_or_else(|| {
                let (name, parameter, parameter_unit) = (at.series.clone(), at.parameter.clone(), at.unit.clone());
                sets.push(Set { name, unit: quantity.unit.clone(), parameter, parameter_unit, values: Vec::new() });
                sets.len() - 1
            });
            if let Err(place) = sets[index].values.binary_search(&at.value) {
                sets[index].values.insert(place, at.value);
            }
        }
        sets
    }

    /// What a source shows only as a picture.
    pub(crate) fn is_only_picture(&self, configuration: &str, quantity: &str, threads: u32) -> bool {
        let mut all = self.published.iter().filter(|published| published.configuration == configuration);
        all.any(|published| published.is_only_picture(quantity, threads))
    }

    /// The configuration that the others are compared with.
    pub(crate) fn native(&self) -> Option<&Shown> {
        self.configurations.iter().find(|shown| shown.native)
    }
}

/// How many times as good figures are as those of a configuration, each compared with the one of
/// its own provenance.
pub(crate) fn ratios_to(base: &str, figures: &[Figure]) -> Vec<Figure> {
    let bases: Vec<&Figure> = figures.iter().filter(|figure| figure.configuration == base).collect();
    let ratio = |own: &Figure| {
        let is_base = |other: &&&Figure| {
            other.origin() == own.origin() && other.point.is_beside(&own.point) && own.is_of(&other.quantity.name)
        };
        Some(own.ratio(bases.iter().find(is_base)?))
    };
    figures.iter().filter(|figure| figure.configuration != base).filter_map(ratio).collect()
}

/// Numbers of threads of some points, each once, rising.
pub(crate) fn widths<'a>(points: impl IntoIterator<Item = &'a Point>) -> Vec<u32> {
    let mut widths: Vec<u32> = points.into_iter().filter_map(Point::width).collect();
    widths.sort_unstable();
    widths.dedup();
    widths
}

/// Each once, in the order of first sight.
pub(crate) fn unique<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
