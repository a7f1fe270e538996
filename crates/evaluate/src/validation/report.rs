//! All published experiments on the model, and their errors by group.

use super::cell::{Errors, Role, ValidationCell};
use super::gates::{Gate, gates};
use super::outcome::StatementOutcome;
use super::shipped::{self, PredictionError};
use crate::experiment::Experiment;
use crate::modelled::Prediction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Name of the group of cells near the knee; they are in the group of their table too.
pub const KNEE: &str = "STREAM, the knee (4 threads)";
/// The seed of every validation: the same figures each time.
pub const SEED: u64 = 1;

/// All published figures beside the modelled ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Always true: no figure here was measured by homenode.
    pub modelled: bool,
    /// Version of homenode.
    pub homenode: String,
    /// Commit that it was built from, where known.
    pub commit: Option<String>,
    /// Decides what was drawn.
    pub seed: u64,
    /// In the order of the experiments, calibrated and held out apart.
    pub groups: Vec<GroupErrors>,
    /// All held-out figures together, those of the knee once.
    pub held_out: GroupErrors,
    /// All figures that no value was fitted to: those that are held out, and those reported as
    /// outside of what the model covers.
    pub never_fitted: GroupErrors,
    /// Limits on the errors, and what they are.
    pub gates: Vec<Gate>,
    /// Every cell.
    pub cells: Vec<ValidationCell>,
    /// What the sources say in words.
    pub statements: Vec<StatementOutcome>,
}

/// Errors of the cells of a group that were used for the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupErrors {
    /// Name.
    pub group: String,
    /// What its figures were used for.
    pub role: Role,
    /// By the closed queueing network.
    pub queueing: Errors,
    /// By max-min fairness, where it was run.
    pub max_min: Errors,
    /// Cells whose figure is not published in text.
    pub not_in_text: usize,
    /// The cell with the largest error by the queueing network.
    pub worst: Option<ValidationCell>,
}

/// Runs everything.
///
/// # Errors
/// An experiment cannot be run on the model; none as shipped.
pub fn validate() -> Result<Validation, PredictionError> {
    let mut all = Vec::new();
    for name in shipped::names() {
        if let Some(experiment) = shipped::experiment(name) {
            let experiment = experiment?;
            let prediction = shipped::run(&experiment, &format!("{name}.toml"), None, SEED)?;
            all.push((experiment, prediction));
        }
    }
    Ok(of(&all))
}

/// The errors of these predictions.
pub fn of(all: &[(Experiment, Prediction)]) -> Validation {
    let statements: Vec<StatementOutcome> = all.iter().flat_map(|(_, one)| one.statements.clone()).collect();
    let cells: Vec<ValidationCell> = all
        .iter()
        .flat_map(|(_, one)| one.cells.iter().cloned().chain(one.statements.iter().filter_map(StatementOutcome::cell)))
        .collect();
    let knee: Vec<ValidationCell> = all.iter().flat_map(|(experiment, one)| knee(experiment, one)).collect();
    let mut groups = by_group(&cells);
    groups.extend(by_group(&knee));
    let held_out: Vec<&ValidationCell> = cells.iter().filter(|cell| cell.role == Role::HeldOut).collect();
    let never_fitted: Vec<&ValidationCell> = cells.iter().filter(|cell| cell.role != Role::Calibrated).collect();
    let mut validation = Validation {
        modelled: true,
        homenode: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("HOMENODE_COMMIT").map(str::to_owned),
        seed: SEED,
        groups,
        held_out: errors("all held-out figures", Role::HeldOut, &held_out),
        never_fitted: errors("all figures that were never fitted", Role::Reported, &never_fitted),
        gates: Vec::new(),
        cells,
        statements,
    };
    validation.gates = gates(&validation);
    validation
}

/// The held-out cells near the knee, in a group of their own.
fn knee(experiment: &Experiment, prediction: &Prediction) -> Vec<ValidationCell> {
    let is_near = |cell: &&ValidationCell| {
        let mut tables = experiment.published.iter().filter(|table| table.configuration == cell.configuration);
        cell.role == Role::HeldOut && tables.any(|table| cell.threads.is_some_and(|count| table.knee.contains(&count)))
    };
    let renamed = |cell: &ValidationCell| ValidationCell { group: KNEE.to_owned(), ..cell.clone() };
    prediction.cells.iter().filter(is_near).map(renamed).collect()
}

fn by_group(cells: &[ValidationCell]) -> Vec<GroupErrors> {
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for cell in cells {
        if seen.insert(&cell.group) {
            for role in [Role::HeldOut, Role::Calibrated, Role::Reported] {
                let own: Vec<&ValidationCell> =
                    cells.iter().filter(|other| other.group == cell.group && other.role == role).collect();
                if !own.is_empty() {
                    groups.push(errors(&cell.group, role, &own));
                }
            }
        }
    }
    groups
}

fn errors(group: &str, role: Role, cells: &[&ValidationCell]) -> GroupErrors {
    let size = |cell: &ValidationCell| cell.error().map_or(-1.0, f64::abs);
    let worst = cells.iter().filter(|cell| cell.published.is_some());
    GroupErrors {
        group: group.to_owned(),
        role,
        queueing: Errors::of(cells.iter().filter_map(|cell| cell.error())),
        max_min: Errors::of(cells.iter().filter_map(|cell| cell.cross_check_error())),
        not_in_text: cells.iter().filter(|cell| cell.published.is_none()).count(),
        worst: worst.max_by(|one, other| size(one).total_cmp(&size(other))).map(|&cell| cell.clone()),
    }
}
