//! `[[published]]` of an experiment: figures of others that stand beside ours.
//!
//! **Rule.** A published figure names its quantity, the unit and a value for each number of
//! threads. The quantity is one that the experiment's own workload counts: which of two values is
//! the better one follows from it, and the unit must be the same.
//!
//! **Example.** `{ quantity = "Copy", unit = "MB/s", values = [6388, 12163] }` beside
//! `threads = [1, 2]` are two figures.

use crate::experiment::{Experiment, NUMA_MATRIX};
use crate::figure::{Figure, Provenance, SECONDS, same_name, seconds};
use crate::modelled::check::Fault;
use crate::point::Point;
use crate::validation::cell::Role;
use serde::{Deserialize, Serialize};
use workloads::workload::Quantity;

/// Figures of others, for one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The configuration that they stand beside.
    pub configuration: String,
    /// What the figures are, in one line.
    pub title: String,
    /// Where they were published.
    pub source: String,
    /// Cells whose errors are averaged together. Default: the name of the experiment.
    #[serde(default)]
    pub group: Option<String>,
    /// Total threads of each column.
    pub threads: Vec<u32>,
    /// The figures, a quantity each.
    #[serde(default, rename = "figure")]
    pub figures: Vec<PublishedFigure>,
    /// Thread counts near the knee, where memory begins to saturate: their errors are averaged once
    /// more on their own.
    #[serde(default)]
    pub knee: Vec<u32>,
    /// Whether these figures are shown and never gated: the model is known not to cover them.
    #[serde(default)]
    pub reported: bool,
}

/// What was published of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// What is counted, by the name that the workload gives it.
    pub quantity: String,
    /// Its unit.
    pub unit: String,
    /// A value for each of the thread counts; none where the source only shows a picture.
    #[serde(default)]
    pub values: Vec<f64>,
    /// Thread counts whose values a value of the model was fitted to.
    #[serde(default)]
    pub calibrated: Vec<u32>,
    /// Thread counts that the source shows only as a picture.
    #[serde(default)]
    pub only_pictures: Vec<u32>,
}

/// Keys that named a quantity and its unit in one word, and the unit.
const OLD_KEYS: [(&str, &str); 2] = [("mb_per_s", "MB/s"), ("seconds", SECONDS)];
/// Lists that named the quantities themselves.
const OLD_LISTS: [&str; 2] = ["calibrated", "only_pictures"];

/// What to write instead of a field that `[[published]]` had once; `field` is its path.
pub(crate) fn instead_of(field: &str) -> Option<String> {
    let key = field.strip_prefix("published[")?.split_once("].").map(|(_, key)| key)?;
    let key = key.split('.').next()?;
    if let Some((_, unit)) = OLD_KEYS.iter().find(|(old, _)| *old == key) {
        return Some(format!(
            "a published figure names its quantity and unit: write figure = [{{ quantity = \"...\", unit = \
             \"{unit}\", values = [...] }}]"
        ));
    }
    let is_old = OLD_LISTS.contains(&key);
    is_old.then(|| format!("it belongs to a figure: write figure = [{{ quantity = \"...\", ..., {key} = [...] }}]"))
}

impl Published {
    /// What was published of a quantity.
    pub fn of(&self, quantity: &str) -> Option<&PublishedFigure> {
        self.figures.iter().find(|figure| same_name(&figure.quantity, quantity))
    }

    /// The value of a quantity at a thread count.
    pub fn value(&self, quantity: &str, threads: u32) -> Option<f64> {
        let column = self.threads.iter().position(|&count| count == threads)?;
        self.of(quantity)?.values.get(column).copied()
    }

    /// Thread counts at which a value of the model was fitted to a quantity.
    pub(crate) fn calibrated(&self, quantity: &str) -> &[u32] {
        self.of(quantity).map_or(&[], |figure| &figure.calibrated)
    }

    /// Whether the source shows a quantity only as a picture at a thread count.
    pub(crate) fn is_only_picture(&self, quantity: &str, threads: u32) -> bool {
        self.of(quantity).is_some_and(|figure| figure.only_pictures.contains(&threads))
    }

    /// What the model used a value for.
    pub(crate) fn role(&self, quantity: &str, threads: u32) -> Role {
        match (self.calibrated(quantity).contains(&threads), self.reported) {
            (true, _) => Role::Calibrated,
            (false, true) => Role::Reported,
            (false, false) => Role::HeldOut,
        }
    }

    fn figures(&self, experiment: &Experiment) -> Vec<Figure> {
        let of_one = |one: &PublishedFigure| -> Vec<Figure> {
            let Some(quantity) = quantity(experiment, &one.quantity) else { return Vec::new() };
            let figure = |(&threads, &value): (&u32, &f64)| Figure {
                configuration: self.configuration.clone(),
                point: Point::over_threads(&experiment.workload, threads),
                provenance: Provenance::Published {
                    title: self.title.clone(),
                    role: self.role(&one.quantity, threads),
                },
                quantity: quantity.clone(),
                value,
                spread: None,
            };
            self.threads.iter().zip(&one.values).map(figure).collect()
        };
        self.figures.iter().flat_map(of_one).collect()
    }
}

/// All published figures of an experiment.
pub(crate) fn figures(experiment: &Experiment) -> Vec<Figure> {
    experiment.published.iter().flat_map(|published| published.figures(experiment)).collect()
}

/// What an experiment's workload counts at numbers of threads; of applications, what kernels in
/// their place count.
fn quantities(experiment: &Experiment) -> Vec<Quantity> {
    experiment.parts().into_iter().flat_map(|(section, _)| section.quantities()).collect()
}

/// The quantity of this name. Of an application it is the time of its run.
fn quantity(experiment: &Experiment, name: &str) -> Option<Quantity> {
    if experiment.is_application() {
        return Some(seconds(name));
    }
    quantities(experiment).into_iter().find(|known| same_name(&known.name, name))
}

/// The first published figure of an experiment that cannot be used: its field, what it holds, and
/// what would be valid.
pub(crate) fn first_fault(experiment: &Experiment) -> Fault {
    let of_one = |(index, published): (usize, &Published)| {
        fault(experiment, published, &|name| format!("published[{index}].{name}"))
    };
    experiment.published.iter().enumerate().find_map(of_one)
}

fn fault(experiment: &Experiment, published: &Published, field: &dyn Fn(&str) -> String) -> Fault {
    let names: Vec<&str> = experiment.configurations.iter().map(|configuration| configuration.name.as_str()).collect();
    if !names.contains(&published.configuration.as_str()) {
        let valid = format!("one of the configurations: {}", names.join(", "));
        return Some((field("configuration"), format!("{:?}", published.configuration), valid));
    }
    if experiment.workload == NUMA_MATRIX && !published.figures.is_empty() {
        let valid = format!("none beside workload = \"{NUMA_MATRIX}\": they are of numbers of threads, not of nodes");
        return Some((field("figure"), format!("{} figures", published.figures.len()), valid));
    }
    let of_figure = |(index, figure): (usize, &PublishedFigure)| {
        let again = published.figures[..index].iter().any(|other| same_name(&other.quantity, &figure.quantity));
        fault_of_figure(experiment, published, figure, again, &|name| field(&format!("figure[{index}].{name}")))
    };
    published.figures.iter().enumerate().find_map(of_figure)
}

fn fault_of_figure(
    experiment: &Experiment,
    published: &Published,
    figure: &PublishedFigure,
    again: bool,
    field: &dyn Fn(&str) -> String,
) -> Fault {
    let fault = |name: &str, value: String, valid: String| Some((field(name), value, valid));
    let named = format!("{:?}", figure.quantity);
    if again {
        return fault("quantity", named, "a quantity that no other figure of this table has".to_owned());
    }
    let Some(quantity) = quantity(experiment, &figure.quantity) else {
        let known: Vec<String> = quantities(experiment).into_iter().map(|known| known.name).collect();
        return fault("quantity", named, format!("what the workload counts: {}", known.join(", ")));
    };
    if figure.unit != quantity.unit {
        let valid = format!("{:?}, the unit in which the workload counts {}", quantity.unit, quantity.name);
        return fault("unit", format!("{:?}", figure.unit), valid);
    }
    if figure.values.is_empty() && figure.only_pictures.is_empty() {
        return fault("values", "[]".to_owned(), "values, or only_pictures where the source has no number".to_owned());
    }
    if !figure.values.is_empty() && figure.values.len() != published.threads.len() {
        let valid = format!("one value for each of threads = {:?}", published.threads);
        return fault("values", format!("{} values", figure.values.len()), valid);
    }
    if let Some(value) = figure.values.iter().find(|value| !(value.is_finite() && **value > 0.0)) {
        return fault("values", value.to_string(), format!("{}, more than 0", figure.unit));
    }
    let has_value = |count: u32| !figure.values.is_empty() && published.threads.contains(&count);
    if let Some(count) = figure.calibrated.iter().find(|count| !has_value(**count)) {
        return fault("calibrated", count.to_string(), "thread counts that have a value".to_owned());
    }
    let count = figure.only_pictures.iter().find(|count| has_value(**count))?;
    fault("only_pictures", count.to_string(), "thread counts without a value: this one has one".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Origin;
    use crate::parse;
    use std::path::Path;
    use workloads::workload::Better;

    #[test]
    fn a_commands_own_figures_have_published_ones_beside_them() {
        let text = r#"
            name = "own"
            title = "Own"
            workload = "command"
            [command]
            argv = ["solver"]
            [[command.figure]]
            name = "speed"
            unit = "{step}/s"
            better = "more"
            regex = "([0-9.]+) steps"
            [[command.figure]]
            name = "latency"
            unit = "us"
            regex = '([0-9]+) bytes .* ([0-9.]+) us'
            over = { name = "message size", unit = "B", at = [64, 1024] }
            [[configuration]]
            name = "native"
            runs = "native"
            [[published]]
            configuration = "native"
            title = "t"
            source = "s"
            threads = [1, 2]
            figure = [
                { quantity = "speed", unit = "{step}/s", values = [10, 19] },
                { quantity = "latency at 64 B", unit = "us", values = [1.5, 1.6], calibrated = [2] },
            ]
        "#;
        let experiment = parse::parse(text, Path::new("own.toml")).expect("valid");
        let all = figures(&experiment);
        let told: Vec<_> = all.iter().map(|one| (one.quantity.name.as_str(), one.point.threads, one.value)).collect();
        let latency = "latency at 64 B";
        assert_eq!(told, [("speed", 1, 10.0), ("speed", 2, 19.0), (latency, 1, 1.5), (latency, 2, 1.6)]);
        assert!(all.iter().all(|figure| figure.origin() == Origin::Published));
        // What the file does not say is the workload's.
        assert_eq!((all[0].quantity.better, all[2].quantity.better), (Better::More, Better::Less));
        assert_eq!(all[2].quantity.at.as_ref().map(|at| at.value), Some(64));
        assert_eq!(all[3].provenance, Provenance::Published { title: "t".to_owned(), role: Role::Calibrated });
    }
}
