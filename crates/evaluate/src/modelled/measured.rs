//! Rows of measured figures in the tables of modelled ones.

use super::Prediction;
use super::beside::MeasuredFigure;
use crate::tables::{NONE, Row};

/// The measured figures below a row of modelled ones, and the model's error against them; nothing
/// where none was measured. `points` are the columns, `named` gives the name of the figure in one.
pub(super) fn rows(
    prediction: &Prediction,
    configuration: &str,
    points: &[Option<u32>],
    named: impl Fn(usize) -> String,
    digits: usize,
) -> Vec<Row> {
    let Some(beside) = &prediction.beside else { return Vec::new() };
    let figure = |(column, threads): (usize, &Option<u32>)| beside.figure(configuration, &named(column), *threads);
    let figures: Vec<Option<&MeasuredFigure>> = points.iter().enumerate().map(figure).collect();
    let Some(first) = figures.iter().flatten().next() else { return Vec::new() };
    let label = if first.emulated { "  measured, EMULATED" } else { "  measured" };
    let value = |one: &MeasuredFigure| {
        let mark = if one.disturbed { " ~" } else { "" };
        format!("{:.digits$}{mark}", one.measured)
    };
    let error = |one: &MeasuredFigure| one.error.map(|error| format!("{:+.1} % (of measured)", 100.0 * error));
    let row = |label: &str, cell: &dyn Fn(&MeasuredFigure) -> Option<String>| {
        let cells = figures.iter().map(|figure| figure.and_then(cell).unwrap_or_else(|| NONE.to_owned()));
        Row::measured(std::iter::once(label.to_owned()).chain(cells).collect())
    };
    let mut rows = vec![row(label, &|one| Some(value(one)))];
    if figures.iter().flatten().any(|one| one.error.is_some()) {
        rows.push(row("  error", &error));
    }
    rows
}

/// Virtual divided by native, both measured.
pub(super) fn ratios(
    prediction: &Prediction,
    configuration: &str,
    native: &str,
    name: &str,
    counts: &[u32],
) -> Option<Row> {
    let beside = prediction.beside.as_ref()?;
    let ratio = |&count: &u32| {
        let own = beside.figure(configuration, name, Some(count))?;
        Some((own.measured / beside.figure(native, name, Some(count))?.measured, own.emulated))
    };
    let all: Vec<Option<(f64, bool)>> = counts.iter().map(ratio).collect();
    let (_, emulated) = all.iter().flatten().next()?;
    let label = if *emulated { "  measured, EMULATED" } else { "  measured" };
    let cells = all.iter().map(|ratio| ratio.map_or(NONE.to_owned(), |(ratio, _)| format!("{ratio:.2}")));
    Some(Row::measured([String::new(), label.to_owned()].into_iter().chain(cells).collect()))
}
