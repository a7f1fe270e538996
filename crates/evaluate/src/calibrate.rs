//! `homenode calibrate`: measures a host and makes its machine file, with rates fitted so that the
//! model gives the figures again.
//!
//! [`regular`] is the machine as a machine file can say it, [`measure`] what is measured, [`fit`]
//! the rates, [`network`] those of messages between VMs, [`file`] the text.

pub mod file;
pub mod fit;
pub mod measure;
pub mod network;
pub mod regular;

use crate::RunError;
use crate::progress::Progress;
use crate::world::World;
use file::Described;
use fit::Fitted;
use measure::Measured;
use network::FittedNetwork;
use regular::{Irregularity, Regular};
use std::sync::atomic::AtomicBool;
use topology::{Bytes, Machine};

/// A host that cannot be calibrated.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A machine file cannot say what this host is like.
    #[error("{machine}: a machine file describes regular machines only, and here {reason}")]
    Irregular {
        /// Name of the host.
        machine: String,
        /// What is irregular.
        reason: Irregularity,
    },
    /// Nothing can be measured.
    #[error("cannot measure: {0}")]
    Plan(String),
    /// Measuring stopped.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Records cannot be kept meanwhile.
    #[error("cannot keep what is measured: {0}")]
    Records(String),
    /// A figure that the fit needs is not there.
    #[error("{what}: {why}; run it again")]
    NoFigure {
        /// What was measured.
        what: String,
        /// Why it has no figure.
        why: &'static str,
    },
    /// The figures fit no machine.
    #[error("what was measured gives no machine that can be: {0}; measure again on a quieter host")]
    Impossible(String),
    /// The model gives no rate.
    #[error("the model cannot be fitted: {0}")]
    Solve(#[from] simulator::SolveError),
}

/// A calibrated host.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// What was measured.
    pub measured: Measured,
    /// The rates, and how well they fit.
    pub fitted: Fitted,
    /// The machine file.
    pub described: Described,
    /// What a reader has to know: what the file cannot say, what was disturbed, what could not be
    /// fitted.
    pub notes: Vec<String>,
}

/// What is measured, and how long that takes.
pub struct Plan {
    /// The host as a machine file says it.
    pub regular: Regular,
    resolved: crate::resolve::Resolved,
    quick: bool,
    network: Option<FittedNetwork>,
}

impl Plan {
    /// Of a host with this memory to take.
    ///
    /// # Errors
    /// The host is not regular, or nothing can be measured on it.
    pub fn new(machine: &Machine, available: Bytes, quick: bool) -> Result<Self, CalibrateError> {
        let irregular = |reason| CalibrateError::Irregular { machine: machine.name.clone(), reason };
        let regular = Regular::of(machine).map_err(irregular)?;
        let resolved = measure::resolved(machine, available, quick)?;
        Ok(Self { regular, resolved, quick, network: None })
    }

    /// With the network of a measured scan.
    pub fn with_network(self, network: Option<FittedNetwork>) -> Self {
        Self { network, ..self }
    }

    /// Measures, fits and describes.
    ///
    /// # Errors
    /// Measuring fails or is cancelled, or what was measured gives no machine. Nothing is left
    /// then.
    pub fn calibrate(
        &self,
        world: &mut dyn World,
        progress: &mut dyn Progress,
        cancelled: &AtomicBool,
    ) -> Result<Calibration, CalibrateError> {
        let summary = measure::run(&self.resolved, world, progress, cancelled)?;
        let measured = Measured::of(&summary, &self.regular)?;
        let mut fitted = fit::fit(&self.regular, &measured)?;
        if let Some(network) = &self.network {
            fitted.rates.network = Some(network.rates.clone());
            fitted.residuals.extend(network.residuals.iter().cloned());
            fitted.notes.extend(network.notes.iter().cloned());
        }
        let lost = self.regular.lost.iter().cloned();
        let notes: Vec<String> =
            lost.chain(summary.notes).chain(measured.notes.clone()).chain(fitted.notes.clone()).collect();
        let described = file::describe(&self.regular, &fitted, &notes, self.quick)?;
        Ok(Calibration { measured, fitted, described, notes })
    }
}
