//! Times of applications and their ratios, laid out as the sources print them.
//! Times of what runs on a host in an application's place stand beside nothing; their ratios do.

use super::subject::Subject;
use super::words::{NONE, NOT_IN_TEXT};
use super::{Kind, Row, Table, header, not_published, scan};
use crate::applications::{Ratio, RatioTable, Section, Shows, ratios, times as times_of};
use crate::evaluation::{Evaluation, Shown, unique, widths};
use crate::experiment::{APPLICATION, Experiment};
use crate::figure::{Figure, GAIN, Origin, Provenance, RATIO, SECONDS, ratio_of};
use crate::point::Point;
use crate::validation::cell::Role;
use std::collections::BTreeSet;
use workloads::workload::Quantity;

/// Tables of times, where the section shows them, and of ratios. Published figures stand beside
/// those of their own machine only.
pub(super) fn tables(section: &Section, evaluation: &Evaluation) -> Vec<Table> {
    let mut tables = match section.shows_seconds {
        true => times(evaluation).into_iter().chain(scan::ratios(evaluation)).collect(),
        false => Vec::new(),
    };
    let all = ratios(section, &evaluation.figures);
    let counts = measured_counts(evaluation);
    let compares = evaluation.configurations.iter().all(|shown| shown.compares_published);
    tables.extend(section.ratios.iter().map(|table| {
        let columns = union(&counts, table.processes.iter().copied());
        ratio_table(table, &all, &evaluation.figures, &columns, compares)
    }));
    tables
}

/// For each application the time of each configuration, as in the tables of the NAMD article.
fn times(evaluation: &Evaluation) -> Vec<Table> {
    let own = evaluation.figures.iter().filter(|figure| figure.origin() == evaluation.origin);
    let times: Vec<&Figure> = own.filter(|figure| figure.quantity.unit == SECONDS).collect();
    let of_application = |quantity: &Quantity| {
        let own: Vec<&Figure> = times.iter().copied().filter(|figure| figure.is_of(&quantity.name)).collect();
        let counts = widths(own.iter().map(|figure| &figure.point));
        let point = |&count: &u32| Point::over_threads(APPLICATION, count);
        let points: Vec<Point> = counts.iter().map(point).collect();
        let runs = |shown: &&Shown| own.iter().any(|figure| figure.configuration == shown.name);
        let rows = |shown: &Shown| {
            // What was measured is another program's time: its ratios stand beside these, below.
            let is_its_own = |figure: &&Figure| figure.origin() != Origin::Measured;
            let at = |point| evaluation.at(&shown.name, point, &quantity.name).filter(is_its_own).cloned().collect();
            subject(&shown.name, quantity, points.iter().map(at).collect(), shown.compares_published).rows()
        };
        let rows: Vec<Row> = evaluation.configurations.iter().filter(runs).flat_map(rows).collect();
        let sources = unique(evaluation.published.iter().map(|known| format!("[ ] {}. {}", known.title, known.source)));
        let notes = match evaluation.published.is_empty() {
            true => Vec::new(),
            false => sources.into_iter().chain(unpublished(&rows)).collect(),
        };
        Table {
            title: format!("MODELLED time, s: {}", quantity.name),
            header: header(&["Total processes"], &points),
            rows,
            notes,
        }
    };
    unique(times.iter().map(|figure| &figure.quantity)).into_iter().map(of_application).collect()
}

fn subject<'a>(label: &str, quantity: &'a Quantity, columns: Vec<Vec<Figure>>, compares: bool) -> Subject<'a> {
    let has_own = |figures: &Vec<Figure>| figures.iter().any(|figure| figure.origin() == Origin::Modelled);
    let missing = |figures: &Vec<Figure>| if has_own(figures) { NOT_IN_TEXT } else { NONE }.to_owned();
    Subject {
        origin: Origin::Modelled,
        labels: vec![label.to_owned()],
        quantity,
        empty: vec![NONE.to_owned(); columns.len()],
        unpublished: columns.iter().map(missing).collect(),
        columns,
        compares_published: compares,
        compares_measured: false,
    }
}

fn ratio_table(table: &RatioTable, all: &[Ratio], figures: &[Figure], columns: &[u32], compares: bool) -> Table {
    let of: Vec<&Ratio> = all.iter().filter(|ratio| std::ptr::eq(ratio.table, table)).collect();
    let rows_of = |name: &str| {
        let quantity = ratio_of(name, unit(table));
        let at = |&count: &u32| {
            let ratio = of.iter().find(|ratio| ratio.figure == name && ratio.processes == count);
            let own = ratio.map_or_else(Vec::new, |ratio| ratio_figures(ratio, &quantity, compares));
            own.into_iter().chain(measured_ratio(table, figures, &quantity, count)).collect()
        };
        subject(name, &quantity, columns.iter().map(at).collect(), compares).rows()
    };
    let rows: Vec<Row> = unique(of.iter().map(|ratio| ratio.figure)).into_iter().flat_map(rows_of).collect();
    let what = match table.base {
        Some(base) => format!("time of {} with {base} processes / with so many", table.time_of.join(", ")),
        None => format!("time of {} / time of {}", table.time_of.join(", "), table.divided_by.join(", ")),
    };
    let errors = if rows.iter().any(|row| row.kind == Kind::Error) { " Errors are of the ratio." } else { "" };
    let source = format!("[ ] {}.{errors}", table.source);
    let points: Vec<Point> = columns.iter().map(|&count| Point::over_threads(APPLICATION, count)).collect();
    Table {
        title: format!("MODELLED {}: {what}", table.title),
        header: header(&["Total processes"], &points),
        notes: if compares { std::iter::once(source).chain(unpublished(&rows)).collect() } else { Vec::new() },
        rows,
    }
}

/// The modelled ratio, and the published one where it is of the same machine.
fn ratio_figures(ratio: &Ratio, quantity: &Quantity, compares: bool) -> Vec<Figure> {
    let known = ratio.published.filter(|_| compares);
    let published = known.map(|(value, role)| published(ratio.table, quantity, ratio.processes, value, role));
    let modelled = Figure {
        configuration: ratio.table.title.clone(),
        point: Point::over_threads(APPLICATION, ratio.processes),
        quantity: quantity.clone(),
        value: ratio.modelled,
        spread: None,
        provenance: Provenance::Modelled { cross_check: ratio.cross_check },
    };
    std::iter::once(modelled).chain(published).collect()
}

/// The ratio of two measured times: how many times as good the second is.
fn measured_ratio(table: &RatioTable, figures: &[Figure], quantity: &Quantity, processes: u32) -> Option<Figure> {
    let (over, of) = times_of(table, figures, Origin::Measured, &quantity.name, processes)?;
    let is_verified = |figure: &Figure| matches!(figure.provenance, Provenance::Measured { verified: true, .. });
    Some(Figure {
        quantity: quantity.clone(),
        provenance: Provenance::Measured {
            disturbed: over.is_disturbed() || of.is_disturbed(),
            verified: is_verified(over) && is_verified(of),
            emulated: over.is_emulated() || of.is_emulated(),
        },
        ..of.ratio(over)
    })
}

/// Numbers of threads that were measured.
fn measured_counts(evaluation: &Evaluation) -> Vec<u32> {
    widths(evaluation.figures.iter().filter(|figure| figure.origin() == Origin::Measured).map(|figure| &figure.point))
}

fn union(counts: &[u32], others: impl Iterator<Item = u32>) -> Vec<u32> {
    counts.iter().copied().chain(others).collect::<BTreeSet<u32>>().into_iter().collect()
}

/// The ratio tables of an experiment, of what was measured. Published ratios are those of the
/// machine and the programs of their source.
pub(super) fn measured(experiment: &Experiment, evaluation: &Evaluation) -> Vec<Table> {
    let Some(section) = &experiment.application else { return Vec::new() };
    let counts = measured_counts(evaluation);
    let emulated = if evaluation.configurations.iter().any(|one| one.emulated) { ", VMs EMULATED (TCG)" } else { "" };
    let machine = experiment.machine.as_deref().map_or(String::new(), |machine| format!(" on {machine}"));
    let of_table = |table: &RatioTable| {
        let columns = union(&counts, table.published.iter().map(|known| known.processes));
        let shown = |name: &&String| table.figures.is_empty() || table.figures.contains(name);
        let rows_of = |name: &String| measured_rows(table, &evaluation.figures, &columns, name);
        let rows: Vec<Row> = section.profiles.iter().filter(shown).flat_map(rows_of).collect();
        let what = match table.base {
            Some(base) => format!("time of {} with {base} threads / with so many", table.time_of.join(", ")),
            None => format!("time of {} / time of {}", table.time_of.join(", "), table.divided_by.join(", ")),
        };
        let note = format!("[ ] published, of the programs themselves{machine}: {}.", table.source);
        let has_published = rows.iter().any(|row| row.kind == Kind::Published);
        let points: Vec<Point> = columns.iter().map(|&count| Point::over_threads(APPLICATION, count)).collect();
        Table {
            title: format!("{}: {what}{emulated}", table.title),
            header: header(&["Threads"], &points),
            rows,
            notes: has_published.then_some(note).into_iter().collect(),
        }
    };
    // Of scaling from a number of processes that was not measured there is nothing to say.
    let is_measured = |table: &&RatioTable| table.base.is_none_or(|base| counts.contains(&base));
    section.ratios.iter().filter(is_measured).map(of_table).filter(|table| !table.rows.is_empty()).collect()
}

fn measured_rows(table: &RatioTable, figures: &[Figure], columns: &[u32], name: &str) -> Vec<Row> {
    let quantity = ratio_of(name, unit(table));
    let at = |&count: &u32| {
        let measured = measured_ratio(table, figures, &quantity, count);
        let mut known = table.published.iter().filter(|known| known.figure == name && known.processes == count);
        let published =
            known.next().map(|known| published(table, &quantity, count, table.shows.ratio(known.value), known.role));
        measured.into_iter().chain(published).collect()
    };
    let columns: Vec<Vec<Figure>> = columns.iter().map(at).collect();
    if !columns.iter().flatten().any(|figure| figure.origin() == Origin::Measured) {
        return Vec::new();
    }
    Subject {
        origin: Origin::Measured,
        unpublished: vec![NONE.to_owned(); columns.len()],
        ..subject(name, &quantity, columns, false)
    }
    .rows()
}

fn unit(table: &RatioTable) -> &'static str {
    if table.shows == Shows::Gain { GAIN } else { RATIO }
}

fn published(table: &RatioTable, quantity: &Quantity, processes: u32, value: f64, role: Role) -> Figure {
    Figure {
        configuration: table.title.clone(),
        point: Point::over_threads(APPLICATION, processes),
        quantity: quantity.clone(),
        value,
        spread: None,
        provenance: Provenance::Published { title: table.source.clone(), role },
    }
}

/// Names whose every published figure is missing from the text of the source, in one note below the
/// table.
fn unpublished(rows: &[Row]) -> Option<String> {
    let is_name = |row: &&Row| row.kind == Kind::Modelled;
    let has_published =
        |at: usize| rows[at + 1..].iter().take_while(|row| !is_name(row)).any(|row| row.kind == Kind::Published);
    let all = rows.iter().enumerate().filter(|(at, row)| is_name(row) && !has_published(*at));
    let names: Vec<&str> = all.filter_map(|(_, row)| row.cells.first().map(String::as_str)).collect();
    let every = names.len() == rows.iter().filter(is_name).count();
    match every && !names.is_empty() {
        true => Some(format!("[ ] No figure of this table is known: {NOT_IN_TEXT}.")),
        false => not_published(&names),
    }
}
