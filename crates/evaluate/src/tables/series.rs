//! Series over sizes or loads: for each, and each number of threads, a row for each size and a
//! column for each configuration; then the same compared with native.
//!
//! **Example.** `bandwidth` of `native` and `2 VMs` at 64 and 1024 bytes: two rows, two columns.

use super::scan::{EMULATED, ratios_at};
use super::subject::Subject;
use super::words::NONE;
use super::{Row, Table};
use crate::evaluation::{Evaluation, Set, Shown, widths};
use crate::figure::{Figure, Origin};
use crate::point::Point;
use workloads::workload::Quantity;

/// The tables of all series.
pub(super) fn tables(evaluation: &Evaluation) -> Vec<Table> {
    let counts = widths(evaluation.configurations.iter().flat_map(|shown| &shown.points));
    let pairs = evaluation.series().into_iter().flat_map(|set| counts.iter().map(move |&count| (set.clone(), count)));
    pairs.flat_map(|(set, count)| of_series(evaluation, &set, count)).collect()
}

fn of_series(evaluation: &Evaluation, set: &Set, count: u32) -> Vec<Table> {
    let has = |shown: &&Shown| point(shown, count).is_some();
    let shown: Vec<&Shown> = evaluation.configurations.iter().filter(has).collect();
    let emulated = if shown.iter().any(|one| one.emulated) { Some(EMULATED.to_owned()) } else { None };
    let figures = |one: &Shown, point: &Point, quantity: &Quantity| -> Vec<Figure> {
        evaluation.at(&one.name, point, &quantity.name).cloned().collect()
    };
    let modelled = if evaluation.origin == Origin::Modelled { "MODELLED " } else { "" };
    let threads = if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
    let all = table(evaluation, set, count, &shown, None, figures);
    let virtuals: Vec<&Shown> = shown.iter().copied().filter(|one| !one.native).collect();
    let ratios = table(evaluation, set, count, &virtuals, Some(2), |one, point, quantity| {
        ratios_at(evaluation, one, point, quantity)
    });
    let title = format!("{modelled}{}, {}, over {}, {threads}", set.name, set.unit, set.parameter);
    let against = format!("{modelled}{}: virtual / native, over {}, {threads}", set.name, set.parameter);
    let titled = |table: Option<Table>, title: String| table.map(|table| Table { title, ..table });
    let ratios = titled(ratios, against).map(|table| Table { notes: emulated.into_iter().collect(), ..table });
    titled(all, title).into_iter().chain(ratios).collect()
}

/// The configuration's point with so many threads.
fn point(shown: &Shown, count: u32) -> Option<&Point> {
    shown.points.iter().find(|point| point.width() == Some(count))
}

/// A row for each value of the series, a column for each configuration; none where nothing is
/// known. `decimals`: of what is no figure of the series itself.
fn table(
    evaluation: &Evaluation,
    set: &Set,
    count: u32,
    shown: &[&Shown],
    decimals: Option<usize>,
    figures: impl Fn(&Shown, &Point, &Quantity) -> Vec<Figure>,
) -> Option<Table> {
    let quantities: Vec<Quantity> = shown
        .iter()
        .flat_map(|one| evaluation.quantities(one, |point| point.width() == Some(count)))
        .filter(|quantity| quantity.at.as_ref().is_some_and(|at| at.series == set.name))
        .collect();
    let of_value = |&value: &u64| -> Vec<Row> {
        let is_own = |quantity: &&Quantity| quantity.at.as_ref().is_some_and(|at| at.value == value);
        let Some(quantity) = quantities.iter().find(is_own) else { return Vec::new() };
        let at = |one: &&Shown| point(one, count).map_or_else(Vec::new, |point| figures(one, point, quantity));
        let columns: Vec<Vec<Figure>> = shown.iter().map(at).collect();
        if columns.iter().all(Vec::is_empty) {
            return Vec::new();
        }
        let unit = if decimals.is_some() { String::new() } else { quantity.unit.clone() };
        let decimals = decimals.unwrap_or(quantity.decimals);
        let is_wrong = |one: &&Shown| point(one, count).is_some_and(|point| one.wrong.contains(point));
        let empty = |one: &&Shown| if is_wrong(one) { "wrong" } else { NONE }.to_owned();
        Subject {
            origin: evaluation.origin,
            labels: vec![value.to_string()],
            quantity: &Quantity { decimals, unit, ..quantity.clone() },
            columns,
            empty: shown.iter().map(empty).collect(),
            unpublished: vec![NONE.to_owned(); shown.len()],
            compares_published: false,
            compares_measured: false,
        }
        .rows()
    };
    let rows: Vec<Row> = set.values.iter().flat_map(of_value).collect();
    let label = format!("{}, {}", set.parameter, set.parameter_unit);
    let header = std::iter::once(label).chain(shown.iter().map(|one| one.name.clone())).collect();
    (!rows.is_empty()).then(|| Table { title: String::new(), header, rows, notes: Vec::new() })
}
