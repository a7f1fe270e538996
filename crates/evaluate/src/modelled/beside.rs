//! Figures that were measured in a run of the same experiment, to stand beside the modelled ones:
//! their rows and points never look like those of the model.

use super::{PredictedConfiguration, Prediction};
use crate::environment::Environment;
use crate::experiment::Experiment;
use crate::figure::{Figure, Provenance};
use crate::resolve::Resolved;
use crate::summary::Summary;
use serde::{Deserialize, Serialize};

/// A measured run.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredRun {
    /// Its results directory, as the user wrote it.
    pub directory: String,
    /// What was measured.
    pub summary: Summary,
    /// What was decided on its host.
    pub resolved: Resolved,
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
    /// Configurations that ran on the machine and in the shape that were modelled, so that an error
    /// against their measured figures means something.
    pub compared: Vec<String>,
    /// Every measured figure of a configuration that the model has too.
    pub figures: Vec<Figure>,
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
    let (directory, at) = (run.directory.clone(), run.environment.at.clone());
    prediction.beside = Some(Beside { directory, compared: compared(prediction, run), machine, at, figures });
    Ok(())
}

fn figures(prediction: &Prediction, run: &MeasuredRun) -> Vec<Figure> {
    let is_known = |figure: &Figure| prediction.configurations.iter().any(|one| one.name == figure.configuration);
    run.summary.figures().into_iter().filter(is_known).collect()
}

fn compared(prediction: &Prediction, run: &MeasuredRun) -> Vec<String> {
    let is_same = |one: &&PredictedConfiguration| {
        let mut measured = run.summary.configurations.iter().filter(|measured| measured.name == one.name);
        one.machine == run.environment.machine.name && measured.any(|measured| measured.shape == one.shape)
    };
    prediction.configurations.iter().filter(is_same).map(|one| one.name.clone()).collect()
}

/// What a reader has to know, instead of the note that nothing was measured.
fn notes(experiment: &Experiment, prediction: &Prediction, run: &MeasuredRun, figures: &[Figure]) -> Vec<String> {
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
            "{}: not modelled on {machine}, where it was measured, so that no error against the measured figure is \
            given.",
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
    if figures.iter().any(Figure::is_emulated) {
        notes.push(
            "VMs were measured EMULATED (TCG), which the model does not cover: no error is given for them.".to_owned(),
        );
    }
    if figures.iter().any(Figure::is_disturbed) {
        notes.push(
            "~ every repetition was disturbed: the measured figure is the best of the disturbed ones.".to_owned(),
        );
    }
    if figures.iter().any(|figure| matches!(figure.provenance, Provenance::Measured { verified: false, .. })) {
        notes.push("? not verified: nobody said how to check that the measured result is right.".to_owned());
    }
    if !run.summary.complete {
        notes.push("The measured evaluation is not complete.".to_owned());
    }
    notes
}
