//! The experiments with published figures that come with homenode, inside the program.

use crate::experiment::Experiment;
use crate::modelled::{Inputs, ModelledError, Prediction, is_file, predict};
use crate::parse::{self, ExperimentError};
use crate::profiles::{self, ProfileError};
use simulator::workload::WorkloadProfile;
use std::collections::BTreeMap;
use std::path::Path;
use topology::read::Described;
use workloads::stream::{Stores, Stream};

macro_rules! experiment_files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every file in `experiments/` that has published figures for the model.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../experiments/", $name, ".toml")))),*];
    };
}

experiment_files!("stream-esx41", "rome-stream", "namd", "spec-mpi", "spec-omp");

/// What of an experiment, or of what it names, makes it unusable on the model.
#[derive(Debug, thiserror::Error)]
pub enum PredictionError {
    /// The experiment.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A profile.
    #[error("{file}: {source}")]
    Profile {
        /// File of the experiment.
        file: String,
        /// What is wrong with the profile.
        source: Box<ProfileError>,
    },
    /// A machine file.
    #[error("{file}: machine = \"{name}\": {problem}")]
    Machine {
        /// File of the experiment.
        file: String,
        /// The machine file.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The prediction.
    #[error("{file}: {source}")]
    Modelled {
        /// File of the experiment.
        file: String,
        /// Why there is none.
        source: ModelledError,
    },
}

/// Names of the experiments, in the order in which they are reported.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(name, _)| name)
}

/// An experiment that comes with homenode. `None`: there is none of this name.
///
/// # Errors
/// None for the files as shipped: a test reads each.
pub fn experiment(name: &str) -> Option<Result<Experiment, ExperimentError>> {
    let &(name, text) = FILES.iter().find(|&&(known, _)| known == name)?;
    Some(parse::parse(text, Path::new(&format!("{name}.toml"))))
}

/// Runs an experiment on the model; `file` is what errors call it, `on` the machine of `--on`.
///
/// # Errors
/// See [`PredictionError`].
pub fn run(
    experiment: &Experiment,
    file: &str,
    on: Option<&Described>,
    seed: u64,
) -> Result<Prediction, PredictionError> {
    let profiles = profiles_of(experiment)
        .map_err(|source| PredictionError::Profile { file: file.to_owned(), source: Box::new(source) })?;
    let machines = machines_of(experiment).map_err(|(name, problem)| PredictionError::Machine {
        file: file.to_owned(),
        name,
        problem,
    })?;
    let machine = |name: &str| machines.get(name).cloned().or_else(|| topology::read::shipped_described(name)?.ok());
    let inputs = Inputs { experiment, on, machines: &machine, profiles: &profiles, seed };
    predict(&inputs).map_err(|source| PredictionError::Modelled { file: file.to_owned(), source })
}

/// The machines that an experiment names by their files, by what it calls them.
///
/// # Errors
/// The name of the first that cannot be read, and why.
pub fn machines_of(experiment: &Experiment) -> Result<BTreeMap<String, Described>, (String, String)> {
    let own = experiment.configurations.iter().filter_map(|configuration| configuration.machine.as_ref());
    let files = experiment.machine.iter().chain(own).filter(|name| is_file(name));
    let read = |name: &String| {
        let text = topology::input::text(name, topology::input::LONGEST_TEXT)
            .map_err(|error| (name.clone(), format!("cannot read this machine file: {error}")))?;
        let described = topology::read::described(&text, name).map_err(|error| (name.clone(), error.to_string()))?;
        Ok((name.clone(), described))
    };
    files.map(read).collect()
}

/// Profiles of an experiment: of its applications, or of its kernels; without a name those that
/// nobody calibrated.
fn profiles_of(experiment: &Experiment) -> Result<Vec<WorkloadProfile>, ProfileError> {
    if let Some(section) = &experiment.application {
        return section.profiles.iter().map(|name| profiles::find(name)).collect();
    }
    let by_stores = match experiment.parameters::<Stream>().stores {
        Stores::Ordinary => "stream-ordinary",
        Stores::Streaming => "stream-streaming",
    };
    Ok(vec![profiles::find(experiment.profile.as_deref().unwrap_or(by_stores))?])
}
