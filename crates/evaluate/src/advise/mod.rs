//! `homenode advise`: the shapes that a VM could have on a machine, each on the model, ranked, with
//! the resource that binds.

mod binding;
mod shapes;
mod uncertainty;

pub use shapes::Shape;
pub use uncertainty::Uncertainty;

use crate::experiment::Experiment;
use crate::modelled::{Inputs, ModelledError, Prediction, REMOTE_SHARE, predict};
use crate::validation::cell::ValidationCell;
use serde::Serialize;
use simulator::workload::WorkloadProfile;
use topology::read::Described;
use vm::VmSpec;
use workloads::workload::Quantity;

/// A shape with its expected figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The shape.
    pub shape: Shape,
    /// Names of other shapes that come out as the same VMs on the same homes.
    pub same_as: Vec<String>,
    /// Home nodes of each VM's clients: `0 | 1`.
    pub homes: Vec<String>,
    /// The figure: of the last kernel, or of the application.
    pub modelled: f64,
    /// What the figure counts.
    pub quantity: Quantity,
    /// How much of the best candidate's performance it reaches: 1 for the best.
    pub relative: f64,
    /// Share of memory traffic to other nodes than the thread's; `None` where the model does not
    /// say.
    pub remote_share: Option<f64>,
    /// The resource that binds, and where.
    pub binds: String,
}

/// Shapes, best first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Always true: no figure here was measured.
    pub modelled: bool,
    /// The machine.
    pub machine: String,
    /// Title of the workload's profile.
    pub workload: String,
    /// Which figure ranks: a kernel, or the application.
    pub figure: String,
    /// How wrong the model was on published figures of this kind.
    pub uncertainty: Uncertainty,
    /// Best first.
    pub candidates: Vec<Candidate>,
    /// Shapes that this machine cannot hold, each with the reason.
    pub left_out: Vec<String>,
}

impl Advice {
    /// Whether the model can tell a candidate from the best: their difference is more than its
    /// usual error.
    pub fn is_told_apart(&self, candidate: &Candidate) -> bool {
        100.0 * (1.0 - candidate.relative) > self.uncertainty.usual_percent
    }
}

/// Compares the shapes of `spec` on a machine that is otherwise empty.
///
/// # Errors
/// The machine has no rates, no shape fits, or rates cannot be computed.
pub fn advise(
    spec: &VmSpec,
    described: &Described,
    profile: &WorkloadProfile,
    threads: Option<u32>,
    validation: &[ValidationCell],
) -> Result<Advice, ModelledError> {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut left_out = Vec::new();
    let figure = profile.kernels.last().map_or_else(|| profile.name.clone(), |kernel| kernel.name.clone());
    for shape in shapes::shapes(spec, &described.machine, threads) {
        let (candidate, key) = match one(&shape, described, profile, &figure) {
            Ok(candidate) => candidate,
            Err(error) if is_of_the_machine(&error) => return Err(error),
            Err(error) => {
                left_out.push(format!("{}: {error}", shape.name));
                continue;
            }
        };
        match candidates.iter_mut().find(|known| same(known, &candidate, &key)) {
            Some(known) => known.same_as.push(shape.name),
            None => candidates.push(candidate),
        }
    }
    rank(&mut candidates);
    if candidates.is_empty() {
        let field = format!("{}: no shape fits on {}", spec.name, described.machine.name);
        return Err(ModelledError::Field { field, problem: left_out.join("; ") });
    }
    Ok(Advice {
        modelled: true,
        machine: described.machine.name.clone(),
        workload: profile.title.clone(),
        figure,
        uncertainty: Uncertainty::of(profile, validation),
        candidates,
        left_out,
    })
}

/// Whether no shape can be modelled on this machine, whatever it is.
fn is_of_the_machine(error: &ModelledError) -> bool {
    matches!(error, ModelledError::NoRates { .. } | ModelledError::Model(_) | ModelledError::Unknown { .. })
}

/// What makes two shapes the same: their VMs' homes and the threads at work.
struct Key {
    homes: Vec<String>,
    threads: u32,
}

fn same(known: &Candidate, other: &Candidate, key: &Key) -> bool {
    let close = (known.modelled / other.modelled - 1.0).abs() < 1e-9;
    close && known.homes == key.homes && known.shape.threads == key.threads && known.shape.vms == other.shape.vms
}

fn one(
    shape: &Shape,
    described: &Described,
    profile: &WorkloadProfile,
    figure: &str,
) -> Result<(Candidate, Key), ModelledError> {
    let experiment: Experiment = shape.experiment(profile)?;
    let profiles = std::slice::from_ref(profile);
    let machines = |_: &str| None;
    let inputs = Inputs { experiment: &experiment, on: Some(described), machines: &machines, profiles, seed: 0 };
    let prediction = predict(&inputs)?;
    let of = |name: &str| prediction.figures.iter().find(|other| other.quantity.name == name);
    let Some(found) = of(figure) else {
        let problem = format!("{} threads over {} VMs give no figure", shape.threads, shape.vms);
        return Err(ModelledError::Field { field: shape.name.clone(), problem });
    };
    let homes = homes(&prediction);
    let candidate = Candidate {
        shape: shape.clone(),
        same_as: Vec::new(),
        homes: homes.clone(),
        modelled: found.value,
        quantity: found.quantity.clone(),
        relative: 1.0,
        remote_share: of(REMOTE_SHARE).map(|share| share.value),
        binds: binding::binds(described, &prediction)?,
    };
    Ok((candidate, Key { homes, threads: shape.threads }))
}

fn homes(prediction: &Prediction) -> Vec<String> {
    prediction.configurations.iter().flat_map(|configuration| configuration.homes.clone()).collect()
}

/// Best first; shapes as good as each other stay in the order in which they were proposed.
fn rank(candidates: &mut [Candidate]) {
    let performance = |candidate: &Candidate| candidate.quantity.better.ratio(candidate.modelled, 1.0);
    candidates.sort_by(|one, other| performance(other).total_cmp(&performance(one)));
    let best = candidates.first().map_or(1.0, performance);
    for candidate in candidates {
        candidate.relative = performance(candidate) / best;
    }
}

#[cfg(test)]
mod tests;
