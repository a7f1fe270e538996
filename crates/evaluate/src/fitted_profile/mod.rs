//! `homenode profile`: a workload profile out of a measured scan over threads, natively on a
//! calibrated host, so that the model can say what the program would do on another machine.
//!
//! [`scan`] is what was measured, [`bench`] what unit work takes on the model at each number of
//! threads, [`shapes`] the kinds of program that are tried, [`streams`] STREAM's kernels, [`file`]
//! the profile's text, [`vms`] what it predicts for the VMs that were measured beside.

mod bench;
mod error;
mod file;
pub(crate) mod least_squares;
pub mod scan;
mod shapes;
mod streams;
mod vms;

pub use error::FitError;
pub use shapes::{Candidate, Parts, word};
pub use vms::VmResidual;

use crate::modelled::beside::MeasuredRun;
use bench::Bench;
use scan::Scan;
use serde::Serialize;
use simulator::MachineModel;
use simulator::workload::{Class, WorkloadProfile};
use topology::read::Described;

/// What a user wants of the fit.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The figure to fit, where several were measured.
    pub figure: Option<String>,
    /// Numbers of threads to fit on; the others test the profile. Default: all that leave each core
    /// with one busy thread.
    pub fit_threads: Vec<u32>,
    /// What binds the program, where that is known; else it is chosen.
    pub class: Option<Class>,
}

/// A figure of the scan, measured and modelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residual {
    /// Which figure.
    pub figure: String,
    /// Threads.
    pub threads: u32,
    /// Measured.
    pub measured: f64,
    /// By the model, with the fitted profile.
    pub modelled: f64,
    /// By the model, with a profile of the same kind that was fitted without this number of
    /// threads; `None` where the rest is too little for that.
    pub left_out: Option<f64>,
    /// Unit of all.
    pub unit: String,
    /// Whether the profile was fitted on it.
    pub fitted: bool,
    /// Median repetition against the best, in per cent: how far the measurement itself is unsure.
    pub spread_percent: f64,
}

impl Residual {
    /// Modelled against measured, in per cent.
    pub fn error_percent(&self) -> f64 {
        100.0 * (self.modelled / self.measured - 1.0)
    }

    /// The same of [`Residual::left_out`].
    pub fn left_out_percent(&self) -> Option<f64> {
        self.left_out.map(|modelled| 100.0 * (modelled / self.measured - 1.0))
    }
}

/// A fitted profile.
#[derive(Clone, Debug, Serialize)]
pub struct FittedProfile {
    /// The profile.
    pub profile: WorkloadProfile,
    /// Its file.
    pub text: String,
    /// The machine that it was measured on.
    pub machine: String,
    /// What the time of the profile is a time of.
    pub work: String,
    /// Where the time of one thread goes; `None` of STREAM.
    pub parts: Option<Parts>,
    /// Each figure of the scan.
    pub residuals: Vec<Residual>,
    /// The kinds of program that were tried, best first; empty of STREAM.
    pub candidates: Vec<Candidate>,
    /// VMs that were measured beside.
    pub vms: Vec<VmResidual>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// Fits a profile to a measured run.
///
/// # Errors
/// What was measured cannot be fitted; the message says what to measure or to write instead.
pub fn fit(run: &MeasuredRun, described: &Described, wanted: &Wanted) -> Result<FittedProfile, FitError> {
    let scan = Scan::of(run, wanted.figure.as_deref())?;
    let rates = described.rates.as_ref().ok_or_else(|| FitError::NotCalibrated { machine: scan.machine.clone() })?;
    if described.machine.name != scan.machine {
        return Err(FitError::OtherMachine { measured: scan.machine.clone(), given: described.machine.name.clone() });
    }
    let model = MachineModel::new(&described.machine, rates)?;
    let bench = Bench::new(&scan, &described.machine, &model)?;
    let fitted = bench.fitted_counts(&scan, wanted)?;
    let mut notes = scan.notes();
    notes.extend(bench.notes(&scan, &fitted, wanted));
    let mut profile = if scan.is_stream() {
        streams::fit(&scan, &bench, &fitted)?
    } else {
        shapes::fit(&scan, &bench, &fitted, wanted)?
    };
    notes.append(&mut profile.notes);
    profile.notes = notes;
    profile.vms = vms::predicted(&scan, described, &profile.profile, &mut profile.notes)?;
    profile.text = file::text(&scan, &profile)?;
    Ok(profile)
}
