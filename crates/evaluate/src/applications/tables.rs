//! Tables of modelled times and ratios, laid out as the sources print them. Modelled figures carry
//! `≈`, published ones stand in brackets.

use super::ratios::{Ratio, ratios};
use super::section::RatioTable;
use crate::experiment::{Experiment, Published};
use crate::modelled::{Figure, Prediction, Unit};
use crate::tables::{Row, Table};
use crate::validation::cell::Role;

/// Where a source shows a figure only as a picture, or not at all.
const NOT_PUBLISHED: &str = "not published in text";
/// Where a configuration does not run with so many processes.
const NONE: &str = "-";
/// Label of a row of errors.
const ERROR: &str = "  error";

/// Tables of the applications of an experiment: times and ratios. Published figures stand beside
/// those of their own machine only.
pub fn tables(experiment: &Experiment, prediction: &Prediction) -> Vec<Table> {
    let Some(section) = &experiment.application else { return Vec::new() };
    let figures = &prediction.figures;
    let compared = prediction.configurations.iter().all(|configuration| configuration.is_published_machine);
    let mut tables = if section.shows_seconds { times(experiment, figures) } else { Vec::new() };
    let all = ratios(section, figures);
    tables.extend(section.ratios.iter().map(|table| ratio_table(table, &all)));
    for table in &mut tables {
        table.title = format!("MODELLED {}", table.title);
        if !compared {
            table.rows.retain(|row| !row.published && row.cells.first().is_none_or(|label| label != ERROR));
            table.notes.clear();
        }
    }
    tables
}

/// For each application the time of each configuration, as in the tables of the NAMD article.
fn times(experiment: &Experiment, figures: &[Figure]) -> Vec<Table> {
    let is_time = |figure: &&Figure| figure.unit == Unit::Seconds;
    let names = unique(figures.iter().filter(is_time).map(|figure| figure.figure.as_str()));
    let of_application = |name: &&str| {
        let of: Vec<&Figure> = figures.iter().filter(|figure| figure.figure == **name).collect();
        let mut processes = unique(of.iter().filter_map(|figure| figure.threads));
        processes.sort_unstable();
        let configurations = unique(of.iter().map(|figure| figure.configuration.as_str()));
        let rows = |configuration: &&str| {
            let published = experiment.published.iter().filter(|known| known.configuration == **configuration);
            let published: Vec<&Published> = published.collect();
            time_rows(configuration, &of, &published, &processes)
        };
        let sources = unique(experiment.published.iter().map(|known| format!("[ ] {}. {}", known.title, known.source)));
        let rows: Vec<Row> = configurations.iter().flat_map(rows).collect();
        let notes = sources.into_iter().chain(unpublished(&rows)).collect();
        Table { title: format!("time, s: {name}"), header: header("Total processes", &processes), rows, notes }
    };
    names.iter().map(of_application).collect()
}

fn time_rows(configuration: &str, of: &[&Figure], published: &[&Published], processes: &[u32]) -> Vec<Row> {
    let figure = |count: &u32| {
        of.iter().find(|figure| figure.configuration == configuration && figure.threads == Some(*count)).copied()
    };
    let said = |figure: &Figure| {
        let count = figure.threads?;
        published.iter().find_map(|known| {
            let column = known.threads.iter().position(|&threads| threads == count)?;
            let value = *known.seconds.get(&figure.figure)?.get(column)?;
            let fitted = known.calibrated.get(&figure.figure).is_some_and(|counts| counts.contains(&count));
            let role = match (known.reported, fitted) {
                (_, true) => Role::Calibrated,
                (true, _) => Role::Reported,
                _ => Role::HeldOut,
            };
            Some((value, role))
        })
    };
    let modelled = |count: &u32| figure(count).map_or(NONE.to_owned(), |figure| format!("≈ {:.0}", figure.modelled));
    let published_cell = |count: &u32| match figure(count) {
        None => NONE.to_owned(),
        Some(figure) => said(figure).map_or(NOT_PUBLISHED.to_owned(), |(value, _)| format!("[{value:.0}]")),
    };
    let error = |count: &u32| match figure(count).and_then(|figure| Some((figure.modelled, said(figure)?))) {
        None => String::new(),
        Some((modelled, (value, role))) => error_text(modelled / value - 1.0, role),
    };
    rows(
        configuration,
        processes.iter().map(modelled),
        processes.iter().map(published_cell),
        processes.iter().map(error),
    )
}

fn ratio_table(table: &RatioTable, all: &[Ratio]) -> Table {
    let of: Vec<&Ratio> = all.iter().filter(|ratio| std::ptr::eq(ratio.table, table)).collect();
    let names = unique(of.iter().map(|ratio| ratio.figure));
    let rows_of = |name: &&str| {
        let ratio = |count: &u32| of.iter().find(|ratio| ratio.figure == *name && ratio.processes == *count);
        let modelled = |count: &u32| {
            ratio(count).map_or(NONE.to_owned(), |ratio| format!("≈ {}", table.shows.text(ratio.modelled)))
        };
        let published = |count: &u32| match ratio(count).map(|ratio| ratio.published) {
            None => NONE.to_owned(),
            Some(None) => NOT_PUBLISHED.to_owned(),
            Some(Some((value, _))) => format!("[{}]", table.shows.text(value)),
        };
        let error = |count: &u32| {
            let ratio = ratio(count);
            let known = ratio.and_then(|ratio| Some((ratio.error()?, ratio.published?.1)));
            known.map_or(String::new(), |(error, role)| error_text(error, role))
        };
        let columns = &table.processes;
        rows(name, columns.iter().map(modelled), columns.iter().map(published), columns.iter().map(error))
    };
    let what = match table.base {
        Some(base) => format!("time of {} with {base} processes / with so many", table.time_of.join(", ")),
        None => format!("time of {} / time of {}", table.time_of.join(", "), table.divided_by.join(", ")),
    };
    let rows: Vec<Row> = names.iter().flat_map(rows_of).collect();
    let has_errors = rows.iter().any(|row| row.cells.first().is_some_and(|label| label == ERROR));
    let errors = if has_errors { " Errors are of the ratio." } else { "" };
    let source = format!("[ ] {}.{errors}", table.source);
    let notes = std::iter::once(source).chain(unpublished(&rows)).collect();
    Table {
        title: format!("{}: {what}", table.title),
        header: header("Total processes", &table.processes),
        rows,
        notes,
    }
}

/// Names whose every published figure is missing from the text of the source, in one note below the
/// table.
fn unpublished(rows: &[Row]) -> Option<String> {
    let is_name = |row: &&Row| !row.cells.first().is_some_and(|label| label.starts_with("  "));
    let has_published = |at: usize| rows.get(at + 1).is_some_and(|next| next.published);
    let all = rows.iter().enumerate().filter(|(at, row)| is_name(row) && !has_published(*at));
    let names: Vec<&str> = all.filter_map(|(_, row)| row.cells.first().map(String::as_str)).collect();
    let every = names.len() == rows.iter().filter(is_name).count();
    match (names.is_empty(), every) {
        (true, _) => None,
        (_, true) => Some(format!("[ ] No figure of this table is known: {NOT_PUBLISHED}.")),
        _ => Some(format!("[ ] {}: {NOT_PUBLISHED}.", names.join(", "))),
    }
}

fn rows(
    name: &str,
    modelled: impl Iterator<Item = String>,
    published: impl Iterator<Item = String>,
    errors: impl Iterator<Item = String>,
) -> Vec<Row> {
    let errors: Vec<String> = errors.collect();
    let row = |name: &str, cells: Vec<String>, published| Row {
        cells: std::iter::once(name.to_owned()).chain(cells).collect(),
        published,
    };
    let published: Vec<String> = published.collect();
    let mut rows = vec![row(name, modelled.collect(), false)];
    if published.iter().any(|cell| cell.starts_with('[')) {
        rows.push(row("  published", published, true));
    }
    if errors.iter().any(|error| !error.is_empty()) {
        rows.push(row(ERROR, errors, false));
    }
    rows
}

fn error_text(error: f64, role: Role) -> String {
    let role = match role {
        Role::Calibrated => "calibrated",
        Role::HeldOut => "held out",
        Role::Reported => "reported",
    };
    format!("{:+.1} % ({role})", 100.0 * error)
}

fn header(label: &str, processes: &[u32]) -> Vec<String> {
    std::iter::once(label.to_owned()).chain(processes.iter().map(u32::to_string)).collect()
}

/// Each once, in the order of first sight.
fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
