//! What the profile predicts for the VMs that were measured beside the native scan: the fit never
//! saw them.

use super::FitError;
use super::scan::{Scan, Work};
use crate::experiment::{Experiment, Runs};
use crate::figure::Figure;
use crate::modelled::{Inputs, predict};
use serde::Serialize;
use simulator::workload::WorkloadProfile;
use topology::read::Described;
use workloads::choice::Choice;

/// A figure of a VM, measured and predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmResidual {
    /// The configuration.
    pub configuration: String,
    /// Which figure.
    pub figure: String,
    /// Threads.
    pub threads: u32,
    /// Measured.
    pub measured: f64,
    /// By the model.
    pub modelled: f64,
    /// Unit of both.
    pub unit: String,
    /// Whether the VM ran by software emulation, which the model does not cover.
    pub emulated: bool,
}

impl VmResidual {
    /// Modelled against measured, in per cent; `None` of an emulated VM.
    pub fn error_percent(&self) -> Option<f64> {
        (!self.emulated).then(|| 100.0 * (self.modelled / self.measured - 1.0))
    }
}

/// Predicts each VM that was measured.
pub(super) fn predicted(
    scan: &Scan,
    described: &Described,
    profile: &WorkloadProfile,
    notes: &mut Vec<String>,
) -> Result<Vec<VmResidual>, FitError> {
    let measured: Vec<Figure> = scan.run.summary.figures();
    let mut experiment = scan.experiment.with_profile(profile);
    experiment.machine = None;
    experiment.published.clear();
    experiment.statements.clear();
    experiment.threads = Choice::Fixed(scan.counts());
    experiment.configurations.retain(|one| {
        one.runs == Runs::Vms && !one.modelled.only && measured.iter().any(|figure| figure.configuration == one.name)
    });
    let left_out = leave_several_out(scan, &mut experiment);
    if !left_out.is_empty() {
        notes.push(format!(
            "{}: each of several VMs does the whole work, where the model divides it among them: not compared.",
            left_out.join("; ")
        ));
    }
    if experiment.configurations.is_empty() {
        return Ok(Vec::new());
    }
    let inputs = Inputs {
        experiment: &experiment,
        on: Some(described),
        machines: &|_| None,
        profiles: std::slice::from_ref(profile),
        seed: 1,
    };
    let prediction = predict(&inputs)?;
    let beside = |figure: &Figure| -> Option<VmResidual> {
        let scanned = scan.figures.iter().find(|one| figure.is_of(&one.name))?;
        let of_profile = if profile.application.is_some() { profile.name.as_str() } else { scanned.name.as_str() };
        let is_beside = |other: &&Figure| {
            other.configuration == figure.configuration
                && other.threads() == figure.threads()
                && other.is_of(of_profile)
        };
        let modelled = prediction.figures.iter().find(is_beside)?.value;
        Some(VmResidual {
            configuration: figure.configuration.clone(),
            figure: scanned.name.clone(),
            threads: figure.threads()?,
            measured: figure.value,
            modelled: match profile.application.is_some() {
                true => scanned.work.figure(modelled),
                false => Work::Time(1.0).figure(modelled),
            },
            unit: scanned.unit.clone(),
            emulated: figure.is_emulated(),
        })
    };
    Ok(measured.iter().filter_map(beside).collect())
}

/// Of a program that every VM runs whole, the names of the configurations with several VMs.
fn leave_several_out(scan: &Scan, experiment: &mut Experiment) -> Vec<String> {
    let shapes = &scan.run.summary.configurations;
    let is_several =
        |name: &str| !scan.is_stream() && shapes.iter().any(|one| one.name == name && !one.shape.starts_with("1 VM "));
    let all = experiment.configurations.iter();
    let names = all.filter(|one| is_several(&one.name)).map(|one| one.name.clone()).collect();
    experiment.configurations.retain(|one| !is_several(&one.name));
    names
}
