//! Figures that were measured in a run of the same experiment, to stand beside the modelled ones:
//! their rows and points never look like those of the model.

use super::{Prediction, Unit};
use crate::environment::Environment;
use crate::experiment::Experiment;
use crate::summary::{Cell, Reduced, State, Summary};
use serde::{Deserialize, Serialize};

/// A measured run.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredRun {
    /// Its results directory, as the user wrote it.
    pub directory: String,
    /// What was measured (`tables.json`).
    pub summary: Summary,
    /// The experiment as it was then; `None` where its copy cannot be read any more.
    pub experiment: Option<Experiment>,
    /// Where and when (`environment.json`).
    pub environment: Environment,
}

/// A measured run beside the modelled figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Results directory of the measured run.
    pub directory: String,
    /// The machine that it was measured on.
    pub machine: String,
    /// When, in UTC, RFC 3339.
    pub at: String,
    /// Every measured figure of a configuration that the model has too.
    pub figures: Vec<MeasuredFigure>,
}

/// A measured figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredFigure {
    /// The configuration.
    pub configuration: String,
    /// As [`super::Figure::figure`].
    pub figure: String,
    /// As [`super::Figure::threads`].
    pub threads: Option<u32>,
    /// Of both figures.
    pub unit: Unit,
    /// The best of the repetitions that count.
    pub measured: f64,
    /// Whether other processes disturbed every repetition.
    pub disturbed: bool,
    /// Whether VMs ran by software emulation, which no machine's model covers.
    pub emulated: bool,
    /// The modelled figure, where the model has one.
    pub modelled: Option<f64>,
    /// Modelled divided by measured, less one. `None` of another machine or shape, and of
    /// emulation, where it would mean nothing.
    pub error: Option<f64>,
}

impl Beside {
    /// The figure of a configuration, by its name and threads.
    pub fn figure(&self, configuration: &str, name: &str, threads: Option<u32>) -> Option<&MeasuredFigure> {
        self.figures.iter().find(|figure| {
            figure.configuration == configuration
                && figure.figure.eq_ignore_ascii_case(name)
                && figure.threads == threads
        })
    }
}

/// A measured run that cannot stand beside a prediction, without its directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BesideError {
    /// It is of another experiment.
    #[error("it holds a run of the experiment {found:?}; give one of {wanted:?}")]
    OtherExperiment {
        /// What it is of.
        found: String,
        /// What it should be of.
        wanted: String,
    },
    /// It has no figure that the prediction has.
    #[error("it has no measured figure of any of these configurations: {wanted}; it has: {found}")]
    NoFigure {
        /// Configurations of the prediction.
        wanted: String,
        /// Configurations of the run.
        found: String,
    },
}

/// Puts a measured run beside the figures of a prediction.
///
/// # Errors
/// It is of another experiment, or has no figure of a configuration that the prediction has.
pub fn beside(experiment: &Experiment, prediction: &mut Prediction, run: &MeasuredRun) -> Result<(), BesideError> {
    if run.summary.name != prediction.name {
        let (found, wanted) = (run.summary.name.clone(), prediction.name.clone());
        return Err(BesideError::OtherExperiment { found, wanted });
    }
    let figures = figures(prediction, run);
    if figures.is_empty() {
        let names = |all: Vec<&str>| all.join(", ");
        return Err(BesideError::NoFigure {
            wanted: names(prediction.configurations.iter().map(|one| one.name.as_str()).collect()),
            found: names(run.summary.configurations.iter().map(|one| one.name.as_str()).collect()),
        });
    }
    let machine = run.environment.machine.name.clone();
    prediction.notes = notes(experiment, prediction, run, &figures);
    prediction.beside =
        Some(Beside { directory: run.directory.clone(), machine, at: run.environment.at.clone(), figures });
    Ok(())
}

fn figures(prediction: &Prediction, run: &MeasuredRun) -> Vec<MeasuredFigure> {
    let mut all = Vec::new();
    for configuration in &run.summary.configurations {
        let Some(predicted) = prediction.configurations.iter().find(|one| one.name == configuration.name) else {
            continue;
        };
        let emulated = run.summary.emulated && !configuration.native;
        let comparable = predicted.machine == run.environment.machine.name && predicted.shape == configuration.shape;
        for cell in &configuration.cells {
            for (figure, threads, unit, measured) in of_cell(cell) {
                let same = |one: &&super::Figure| {
                    one.configuration == configuration.name
                        && one.figure.eq_ignore_ascii_case(&figure)
                        && one.threads == threads
                };
                let modelled = prediction.figures.iter().find(same).map(|one| one.modelled);
                all.push(MeasuredFigure {
                    configuration: configuration.name.clone(),
                    figure,
                    threads,
                    unit,
                    measured,
                    disturbed: cell.state == State::Disturbed,
                    emulated,
                    modelled,
                    error: modelled.filter(|_| comparable && !emulated).map(|modelled| modelled / measured - 1.0),
                });
            }
        }
    }
    all
}

/// Name, threads, unit and value of each figure of a cell, named as the model names them.
fn of_cell(cell: &Cell) -> Vec<(String, Option<u32>, Unit, f64)> {
    let unit = |figures: &Reduced| match figures.quantity.unit.as_str() {
        "MB/s" => Some(Unit::MbPerS),
        "ns" => Some(Unit::Ns),
        "s" => Some(Unit::Seconds),
        _ => None,
    };
    let named =
        |figures: &Reduced| Some((figures.quantity.name.clone(), cell.point.width(), unit(figures)?, figures.best));
    let Some((from, to)) = cell.point.pair() else { return cell.figures.iter().filter_map(named).collect() };
    // Of a pair the model gives one figure only.
    let last = cell.figures.last().and_then(named);
    let kind = |unit: Unit| if unit == Unit::Ns { "latency" } else { "bandwidth" };
    last.map(|(_, _, unit, value)| (format!("{} {from} to {to}", kind(unit)), None, unit, value)).into_iter().collect()
}

/// What a reader has to know, instead of the note that nothing was measured.
fn notes(
    experiment: &Experiment,
    prediction: &Prediction,
    run: &MeasuredRun,
    figures: &[MeasuredFigure],
) -> Vec<String> {
    let machine = &run.environment.machine.name;
    let mut notes = vec![format!(
        "MODELLED: every modelled figure carries the mark ≈. Rows \"measured\" were measured on {machine} at {}: {}.",
        run.environment.at, run.directory
    )];
    notes.extend(prediction.notes.iter().skip(1).cloned());
    if run.experiment.as_ref() != Some(experiment) {
        notes.push(format!(
            "The experiment file is not the one that was measured; see {}/experiment.toml.",
            run.directory
        ));
    }
    let on_other: Vec<&str> = prediction
        .configurations
        .iter()
        .filter(|one| one.machine != *machine && figures.iter().any(|figure| figure.configuration == one.name))
        .map(|one| one.name.as_str())
        .collect();
    if !on_other.is_empty() {
        notes.push(format!(
            "{}: not modelled on {machine}, where it was measured, so that no error against the measured figure is given.",
            on_other.join(", ")
        ));
    }
    for configuration in &run.summary.configurations {
        let predicted = prediction.configurations.iter().find(|one| one.name == configuration.name);
        if let Some(predicted) = predicted.filter(|one| one.machine == *machine && one.shape != configuration.shape) {
            notes.push(format!(
                "{}: measured as {}, modelled as {}, so that no error against the measured figure is given.",
                configuration.name, configuration.shape, predicted.shape
            ));
        }
    }
    notes.extend(run.summary.notes.iter().map(|note| format!("Of what was measured: {note}")));
    if figures.iter().any(|figure| figure.emulated) {
        notes.push(
            "VMs were measured EMULATED (TCG), which the model does not cover: no error is given for them.".to_owned(),
        );
    }
    if figures.iter().any(|figure| figure.disturbed) {
        notes.push(
            "~ every repetition was disturbed: the measured figure is the best of the disturbed ones.".to_owned(),
        );
    }
    if !run.summary.complete {
        notes.push("The measured evaluation is not complete.".to_owned());
    }
    notes
}
