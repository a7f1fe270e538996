//! The tables of an evaluation, as text cells, whatever its figures' provenance. [`crate::text`]
//! and [`crate::report`] draw them.

mod applications;
mod matrix;
mod quality;
mod runs;
mod scan;
mod series;
mod statements;
mod subject;
mod switches;
pub(crate) mod words;

pub(crate) use scan::ratios_at;

use crate::compare::Comparison;
use crate::evaluation::Evaluation;
use crate::experiment::Experiment;
use crate::modelled::Prediction;
use crate::point::Point;
use crate::resolve::Resolved;
use crate::summary::Summary;
use words::NOT_IN_TEXT;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// One line above it.
    pub title: String,
    /// Of the columns.
    pub header: Vec<String>,
    /// In order.
    pub rows: Vec<Row>,
    /// Lines below it.
    pub notes: Vec<String>,
}

/// A row. Modelled figures carry `≈`, published ones stand in brackets: `[6388]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As many as the header has.
    pub cells: Vec<String>,
    /// What its figures are.
    pub kind: Kind,
}

/// What the figures of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Measured here.
    Measured,
    /// Given by the model.
    Modelled,
    /// Published by others.
    Published,
    /// Errors of the model.
    Error,
}

/// All tables of what was measured, in the order in which they are read.
pub fn all(resolved: &Resolved, summary: &Summary) -> Vec<Table> {
    let evaluation = Evaluation::measured(resolved, summary);
    let mut tables = figures(&evaluation);
    tables.extend(applications::measured(&resolved.experiment, &evaluation));
    tables.extend(quality::tables(summary));
    tables.extend(switches::table(summary));
    tables
}

/// All tables of a prediction.
pub fn modelled(experiment: &Experiment, prediction: &Prediction) -> Vec<Table> {
    let evaluation = Evaluation::modelled(experiment, prediction);
    let mut tables = match &experiment.application {
        Some(section) => applications::tables(section, &evaluation),
        None => figures(&evaluation),
    };
    tables.extend(statements::table(&prediction.statements));
    tables
}

/// Tables of measured runs side by side.
pub fn compared(comparison: &Comparison) -> Vec<Table> {
    runs::tables(comparison)
}

fn figures(evaluation: &Evaluation) -> Vec<Table> {
    let over_threads = scan::tables(evaluation).into_iter().chain(series::tables(evaluation));
    over_threads.chain(matrix::tables(evaluation)).collect()
}

fn header(labels: &[&str], points: &[Point]) -> Vec<String> {
    let labels = labels.iter().map(|&label| label.to_owned());
    labels.chain(points.iter().map(|point| point.threads.to_string())).collect()
}

/// Names of which a source has no figure in its text.
fn not_published(names: &[&str]) -> Option<String> {
    (!names.is_empty()).then(|| format!("[ ] {}: {NOT_IN_TEXT}.", names.join(", ")))
}
