//! What results directories hold, to be shown again: a measured run or a prediction. Nothing in
//! them is changed.

use super::{ModelledMachine, Results, ResultsError};
use crate::experiment::Experiment;
use crate::modelled::Prediction;
use crate::modelled::beside::MeasuredRun;
use crate::tables::{self, Table};
use crate::text;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// What a results directory holds.
#[derive(Clone, Debug)]
pub enum Held {
    /// What was measured.
    Measured(Box<MeasuredRun>),
    /// What was computed on the model of a machine.
    Modelled(Box<Modelled>),
}

/// A prediction, with what it was made of.
#[derive(Clone, Debug)]
pub struct Modelled {
    /// The experiment, from its copy.
    pub experiment: Experiment,
    /// Every figure.
    pub prediction: Prediction,
    /// The machines.
    pub machines: Vec<ModelledMachine>,
}

/// A results directory in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its path.
    pub directory: String,
    /// Title of the experiment; `None` where nobody can say.
    pub title: Option<String>,
    /// When it began, in UTC, RFC 3339; `None` of a prediction.
    pub at: Option<String>,
    /// The machine that it is of.
    pub machine: Option<String>,
    /// What it holds.
    pub state: EntryState,
}

/// What a results directory holds, as far as its names say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryState {
    /// Everything was measured.
    Measured,
    /// Something is missing; `homenode evaluate --resume` continues it.
    NotComplete,
    /// A prediction.
    Modelled,
}

/// The fields of its files that a list shows.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Titled {
    title: Option<String>,
    complete: bool,
    at: Option<String>,
    machine: Named,
    configurations: Vec<OnMachine>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OnMachine {
    machine: Option<String>,
}

impl Held {
    /// What the directory holds.
    ///
    /// # Errors
    /// It holds neither a measured run nor a prediction, or a file of it cannot be read.
    pub fn of(path: &Path) -> Result<Self, ResultsError> {
        let results = Results { path: path.to_owned() };
        if !path.join("predictions.json").exists() {
            return Ok(Self::Measured(Box::new(Results::measured(path)?)));
        }
        let foreign = |reason: String| ResultsError::Foreign { path: path.to_owned(), reason };
        Ok(Self::Modelled(Box::new(Modelled {
            experiment: crate::parse::read(&path.join("experiment.toml"))
                .map_err(|error| foreign(error.to_string()))?,
            prediction: results.read_json("predictions.json")?,
            machines: results.read_json("machines.json")?,
        })))
    }

    /// Its tables, as they were printed when it was made.
    pub fn tables(&self) -> Vec<Table> {
        match self {
            Self::Measured(run) => tables::all(&run.resolved, &run.summary),
            Self::Modelled(one) => tables::modelled(&one.experiment, &one.prediction),
        }
    }

    /// The tables with what a reader has to know above them; `width` as for [`text::render`].
    pub fn text(&self, width: Option<usize>) -> String {
        match self {
            Self::Measured(run) => text::render(&run.summary, &self.tables(), width),
            Self::Modelled(one) => text::render_modelled(&one.prediction, &self.tables(), width),
        }
    }
}

/// All results directories in one, oldest first by their names. What is none is passed over.
///
/// # Errors
/// The directory cannot be read.
pub fn entries(parent: &Path) -> Result<Vec<Entry>, ResultsError> {
    let unlisted = |source| ResultsError::List { path: parent.to_owned(), source };
    let listed = fs::read_dir(parent).map_err(unlisted)?;
    let paths: Result<Vec<_>, _> = listed.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(unlisted)?;
    paths.sort();
    Ok(paths.iter().filter_map(|path| entry(path)).collect())
}

fn entry(path: &Path) -> Option<Entry> {
    let results = Results { path: path.to_owned() };
    let read = |name: &str| results.read_json::<Titled>(name).unwrap_or_default();
    let is_modelled = path.join("predictions.json").exists();
    if !is_modelled && !path.join("resolved.json").exists() {
        return None;
    }
    let (tables, environment) = match is_modelled {
        true => (read("predictions.json"), Titled::default()),
        false => (read("tables.json"), read("environment.json")),
    };
    let state = match (is_modelled, tables.complete) {
        (true, _) => EntryState::Modelled,
        (_, true) => EntryState::Measured,
        (_, false) => EntryState::NotComplete,
    };
    let of_copy = || crate::parse::read(&path.join("experiment.toml")).ok().map(|experiment| experiment.title);
    Some(Entry {
        directory: path.display().to_string(),
        title: tables.title.or_else(of_copy),
        at: environment.at,
        machine: environment.machine.name.or_else(|| tables.configurations.into_iter().find_map(|one| one.machine)),
        state,
    })
}
