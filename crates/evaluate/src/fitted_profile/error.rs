//! Why a profile cannot be fitted.

use crate::modelled::ModelledError;
use crate::profiles::ProfileError;
use simulator::{ModelError, SolveError};
use topology::TomlError;

/// A measured run that no profile can be fitted to.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// No native configuration.
    #[error(
        "{directory}: no native scan: its configurations are {has}, none of which runs on the host itself. \
         Add one with runs = \"native\" and measure again"
    )]
    NoNative {
        /// Results directory.
        directory: String,
        /// Configurations.
        has: String,
    },
    /// The copy of the experiment is gone.
    #[error(
        "{directory}: experiment.toml cannot be read, which says how the threads were placed: give a results \
         directory as `homenode evaluate` left it"
    )]
    NoExperiment {
        /// Results directory.
        directory: String,
    },
    /// The figure is none that was measured, or several were and none is named.
    #[error("{directory}: {problem}: name one with --figure: {has}")]
    Figure {
        /// Results directory.
        directory: String,
        /// What is wrong.
        problem: String,
        /// Figures that there are.
        has: String,
    },
    /// A figure that is neither a time nor a rate.
    #[error(
        "{directory}: {figure} is in {unit}, which is neither a time (s, ms, min, ...) nor a rate of work \
         (.../s, .../d with better = \"more\"): the time of a run cannot be told from it. Measure the wall \
         time, or name another figure with --figure"
    )]
    NoTime {
        /// Results directory.
        directory: String,
        /// The figure.
        figure: String,
        /// Its unit.
        unit: String,
    },
    /// A native figure that nobody checked.
    #[error(
        "{directory}: {figure} with {threads} threads is not verified: a wrong result can be quick. Say in \
         the experiment how to check it ([command.verify], docs/command.md) and measure again"
    )]
    NotVerified {
        /// Results directory.
        directory: String,
        /// The figure.
        figure: String,
        /// Threads.
        threads: u32,
    },
    /// A native figure that is missing or wrong.
    #[error(
        "{directory}: the native {figure} with {threads} threads has no figure ({why}): complete it with \
         `homenode evaluate --resume {directory}`, or measure again"
    )]
    NoFigure {
        /// Results directory.
        directory: String,
        /// The figure.
        figure: String,
        /// Threads.
        threads: u32,
        /// What is wrong.
        why: String,
    },
    /// Too few numbers of threads.
    #[error(
        "{directory}: the native scan has {has} to fit on, and one number of threads does not tell computing \
         from waiting for memory. Measure with threads = [1, 2, 4, ...], or say what binds the program with \
         --class{because}"
    )]
    OneCount {
        /// Results directory.
        directory: String,
        /// What there is.
        has: String,
        /// Why it is so few, where that is not plain.
        because: String,
    },
    /// A number of threads that was not measured.
    #[error("--fit-threads {wanted}: the native scan has {has}: give some of these")]
    NoSuchCount {
        /// What was asked for.
        wanted: u32,
        /// What there is.
        has: String,
    },
    /// A class that does not go with what was measured.
    #[error("--class: {0}")]
    Class(&'static str),
    /// The machine file has no rates.
    #[error(
        "{machine}: it has no [rates], so that nothing can be fitted: calibrate it, where the run was \
         measured, with `homenode calibrate --out FILE`, and give that file with --on"
    )]
    NotCalibrated {
        /// The machine.
        machine: String,
    },
    /// The machine file is of another machine.
    #[error(
        "the run was measured on {measured}, and --on is {given}: give the file that `homenode calibrate` \
         wrote on {measured}"
    )]
    OtherMachine {
        /// Where it was measured.
        measured: String,
        /// Whose file was given.
        given: String,
    },
    /// The fit gives nothing that can be.
    #[error("the figures fit no program that can be: {0}; measure again on a quieter host")]
    Impossible(String),
    /// The machine cannot be modelled.
    #[error(transparent)]
    Machine(#[from] ModelError),
    /// The model gives no rate.
    #[error("the model cannot be fitted: {0}")]
    Solve(#[from] SolveError),
    /// The run cannot be modelled on its machine.
    #[error(transparent)]
    Modelled(#[from] ModelledError),
    /// A profile that comes with homenode cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The profile that was made is not one.
    #[error("the fitted profile cannot be read back: {0}")]
    Text(#[from] TomlError),
}
