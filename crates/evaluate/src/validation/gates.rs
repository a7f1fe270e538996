//! How wrong the model may be: limits on held-out errors, set before the model was written in this
//! form and never by fitting to them. A change that breaks one makes a test fail.

use super::cell::{Errors, Role, ValidationCell};
use super::report::{GroupErrors, KNEE, Validation};
use serde::{Deserialize, Serialize};

/// A limit and what it limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// What is limited, in words.
    pub what: String,
    /// What it is.
    pub value: f64,
    /// The most that it may be.
    pub limit: f64,
}

impl Gate {
    /// Whether the limit is kept.
    pub fn holds(&self) -> bool {
        self.value <= self.limit
    }
}

/// Groups whose held-out errors are limited: mean and largest, in per cent.
const GROUPS: [(&str, f64, Option<f64>); 5] = [
    ("STREAM Table 2", 4.0, Some(7.0)),
    ("STREAM Table 1", 5.0, Some(12.0)),
    (KNEE, 7.0, None),
    ("NAMD", 2.5, Some(8.0)),
    ("Rome STREAM", 3.0, None),
];
/// Held-out cells that are limited one by one: group, figure, threads, error in per cent.
const CELLS: [(&str, &str, u32, f64); 7] = [
    ("vNUMA, DL980", "swim", 64, 15.0),
    ("vNUMA, DL980", "art", 64, 15.0),
    ("vNUMA, DL980", "fma3d", 64, 3.0),
    ("vNUMA, DL980", "wupwise", 64, 3.0),
    ("vNUMA, DL980", "equake", 64, 7.0),
    ("vNUMA, R910", "milc", 16, 3.0),
    ("vNUMA, R910", "lu", 16, 3.0),
];
/// Near the knee the queueing network must be better than max-min fairness by this factor.
const KNEE_FACTOR: f64 = 2.0;
/// The experiment whose statements on locality (half, 70 %, half) must all hold.
const LOCALITY: &str = "stream-esx41";
/// Limit on the mean held-out error of everything that is printed as a table: STREAM and NAMD, in
/// per cent.
const TABLES: f64 = 4.0;
/// Limit on the mean of all held-out errors, in per cent.
const EVERYTHING: f64 = 5.0;

/// All gates with what they are now. What is missing is infinitely wrong.
pub fn gates(validation: &Validation) -> Vec<Gate> {
    let gate = |what: String, value: f64, limit: f64| Gate { what, value, limit };
    let mut gates = Vec::new();
    for (name, mean, most) in GROUPS {
        let errors = held_out(validation, name).map(|group| group.queueing);
        let of = |pick: fn(&Errors) -> f64| errors.as_ref().map_or(f64::INFINITY, pick);
        gates.push(gate(format!("{name}: mean error, %"), of(|errors| errors.mape_percent), mean));
        if let Some(most) = most {
            gates.push(gate(format!("{name}: largest error, %"), of(|errors| errors.max_percent), most));
        }
    }
    let factor = held_out(validation, KNEE)
        .map_or(f64::INFINITY, |group| KNEE_FACTOR * group.queueing.mape_percent / group.max_min.mape_percent);
    gates.push(gate(format!("{KNEE}: {KNEE_FACTOR} x its mean error / that of max-min fairness"), factor, 1.0));
    for (group, figure, threads, limit) in CELLS {
        let is_it = |cell: &&ValidationCell| {
            cell.group == group && cell.figure == figure && cell.threads == Some(threads) && cell.role == Role::HeldOut
        };
        let error = validation.cells.iter().find(is_it).and_then(ValidationCell::error);
        let percent = error.map_or(f64::INFINITY, |error| 100.0 * error.abs());
        gates.push(gate(format!("{group}: {figure} at {threads}, error, %"), percent, limit));
    }
    let in_tables = validation.cells.iter().filter(|cell| {
        cell.role == Role::HeldOut && ["STREAM Table 1", "STREAM Table 2", "NAMD"].contains(&cell.group.as_str())
    });
    let tables = Errors::of(in_tables.filter_map(ValidationCell::error));
    let tables = if tables.cells == 0 { f64::INFINITY } else { tables.mape_percent };
    gates.push(gate("all printed tables: mean error, %".to_owned(), tables, TABLES));
    gates.push(gate(
        "everything held out: mean error, %".to_owned(),
        validation.held_out.queueing.mape_percent,
        EVERYTHING,
    ));
    let of_article = validation.statements.iter().filter(|one| one.experiment == LOCALITY && one.role == Role::HeldOut);
    let fails = of_article.filter(|one| !one.holds).count();
    gates.push(gate("statements of the STREAM article that do not hold".to_owned(), fails as f64, 0.0));
    gates
}

fn held_out<'a>(validation: &'a Validation, name: &str) -> Option<&'a GroupErrors> {
    validation
        .groups
        .iter()
        .find(|group| group.group == name && group.role == Role::HeldOut && group.queueing.cells > 0)
}
