//! Whether modelled figures fulfil what a source says.

use super::cell::{Role, ValidationCell};
use super::statement::{Kind, Selection, Statement};
use crate::applications;
use crate::experiment::Experiment;
use crate::figure::{Figure, RATIO};
use crate::modelled::{ModelledError, Prediction};
use serde::{Deserialize, Serialize};

/// Figures that differ by less are equal: run-to-run variation of the sources is 1 to 2 %, and the
/// solver's own is far below this.
const EQUAL: f64 = 0.0005;

/// A statement of a source and what the model says to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatementOutcome {
    /// Name of the experiment.
    pub experiment: String,
    /// Its id, unique in the experiment.
    pub id: String,
    /// What the source says.
    pub text: String,
    /// Cells whose errors are averaged together.
    pub group: String,
    /// What it was used for.
    pub role: Role,
    /// How it is checked.
    pub kind: Kind,
    /// The published value, of a value.
    pub published: Option<f64>,
    /// By the queueing network: the ratio of a value or an inequality; the figures of an ordinal
    /// statement, as written.
    pub modelled: Vec<f64>,
    /// By max-min fairness.
    pub cross_check: Vec<f64>,
    /// Whether the model agrees.
    pub holds: bool,
    /// What would be valid, in words: `0.5 ± 0.01`; or the figures that decide.
    pub expected: String,
}

impl StatementOutcome {
    /// A published value as a cell; `None` for statements without a number.
    pub fn cell(&self) -> Option<ValidationCell> {
        let (Kind::Value, Some(&modelled)) = (self.kind, self.modelled.first()) else { return None };
        Some(ValidationCell {
            experiment: self.experiment.clone(),
            group: self.group.clone(),
            configuration: self.text.clone(),
            figure: self.id.clone(),
            threads: None,
            unit: RATIO.to_owned(),
            published: self.published,
            modelled,
            cross_check: self.cross_check.first().copied(),
            role: self.role,
        })
    }
}

/// What a source says of several applications' ratios together.
fn of_applications(experiment: &Experiment, prediction: &Prediction) -> Vec<StatementOutcome> {
    let Some(section) = &experiment.application else { return Vec::new() };
    let outcome = |outcome: applications::Outcome| StatementOutcome {
        experiment: experiment.name.clone(),
        id: outcome.comparison.id.clone(),
        text: outcome.comparison.text.clone(),
        group: format!("{}: statements", experiment.name),
        role: outcome.comparison.role,
        kind: Kind::Inequality,
        published: None,
        modelled: Vec::new(),
        cross_check: Vec::new(),
        holds: outcome.holds,
        expected: format!("{}; it is {}", outcome.expected, outcome.because),
    };
    applications::outcomes(section, &prediction.figures).into_iter().map(outcome).collect()
}

/// All statements of an experiment; none where a configuration ran on another machine than that of
/// the sources.
///
/// # Errors
/// A statement names figures that the experiment does not have.
pub(crate) fn outcomes(
    experiment: &Experiment,
    prediction: &Prediction,
) -> Result<Vec<StatementOutcome>, ModelledError> {
    if prediction.configurations.iter().any(|configuration| !configuration.is_published_machine) {
        return Ok(Vec::new());
    }
    let own = experiment.statements.iter().map(|statement| outcome(experiment, statement, prediction));
    let mut outcomes: Vec<StatementOutcome> = own.collect::<Result<_, _>>()?;
    outcomes.extend(of_applications(experiment, prediction));
    Ok(outcomes)
}

fn outcome(
    experiment: &Experiment,
    statement: &Statement,
    prediction: &Prediction,
) -> Result<StatementOutcome, ModelledError> {
    let field = |name: &str| format!("statement \"{}\": {name}", statement.id);
    let value = |selection: &Selection, name: &str| mean(selection, prediction, &field(name));
    let (modelled, cross_check) = if statement.kind == Kind::Ordinal {
        let all: Vec<(f64, f64)> =
            statement.order.iter().map(|selection| value(selection, "order")).collect::<Result<_, _>>()?;
        all.into_iter().unzip()
    } else {
        let missing = || ModelledError::Field { field: field("of"), problem: "it is missing".to_owned() };
        let of = value(statement.of.as_ref().ok_or_else(missing)?, "of")?;
        let against = statement.against.as_ref().map_or(Ok((1.0, 1.0)), |selection| value(selection, "against"))?;
        (vec![of.0 / against.0], vec![of.1 / against.1])
    };
    Ok(StatementOutcome {
        holds: holds(statement, &modelled),
        experiment: experiment.name.clone(),
        id: statement.id.clone(),
        text: statement.text.clone(),
        group: statement.group.clone().unwrap_or_else(|| format!("{}: statements", experiment.name)),
        role: statement.role,
        kind: statement.kind,
        published: statement.published,
        expected: expected(statement),
        modelled,
        cross_check,
    })
}

/// Geometric means of the selected figures, by both solvers.
fn mean(selection: &Selection, prediction: &Prediction, field: &str) -> Result<(f64, f64), ModelledError> {
    let is_named = |figure: &Figure| match selection.figures.is_empty() {
        true => !figure.is_of(crate::modelled::REMOTE_SHARE),
        false => selection.figures.iter().any(|name| figure.is_of(name)),
    };
    let of_count = |threads: Option<u32>| {
        selection.threads.is_empty() || threads.is_some_and(|threads| selection.threads.contains(&threads))
    };
    let all = prediction.figures.iter().filter(|figure| figure.configuration == selection.configuration);
    let chosen: Vec<_> = all.filter(|figure| is_named(figure) && of_count(figure.threads())).collect();
    if chosen.is_empty() {
        return Err(ModelledError::Field {
            field: field.to_owned(),
            problem: format!(
                "configuration \"{}\" has no figure of {:?} at {:?} threads",
                selection.configuration, selection.figures, selection.threads
            ),
        });
    }
    let mean =
        |of: fn(&Figure) -> f64| (chosen.iter().map(|figure| of(figure).ln()).sum::<f64>() / chosen.len() as f64).exp();
    Ok((mean(|figure| figure.value), mean(|figure| figure.cross_check().unwrap_or(figure.value))))
}

fn holds(statement: &Statement, modelled: &[f64]) -> bool {
    match statement.kind {
        Kind::Ordinal => modelled.windows(2).all(|pair| pair[0] > pair[1] * (1.0 + EQUAL)),
        Kind::Inequality => modelled.iter().all(|&ratio| {
            statement.below.is_none_or(|bound| ratio < bound) && statement.above.is_none_or(|bound| ratio > bound)
        }),
        Kind::Value => match (modelled.first(), statement.published, statement.tolerance) {
            (Some(ratio), Some(published), Some(tolerance)) => (ratio - published).abs() <= tolerance,
            _ => false,
        },
    }
}

fn expected(statement: &Statement) -> String {
    match statement.kind {
        Kind::Ordinal => {
            let names: Vec<&str> = statement.order.iter().map(|one| one.configuration.as_str()).collect();
            names.join(" > ")
        }
        Kind::Inequality => {
            let parts = [
                statement.above.map(|bound| format!("above {bound}")),
                statement.below.map(|bound| format!("below {bound}")),
            ];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
        }
        Kind::Value => {
            format!("{} ± {}", statement.published.unwrap_or_default(), statement.tolerance.unwrap_or_default())
        }
    }
}
