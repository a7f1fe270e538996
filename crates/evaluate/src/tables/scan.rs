//! What was run at several numbers of threads: for each configuration a table, and one of all
//! compared with native. Laid out like Tables 1 and 2 of the ESX 4.1 STREAM article.

use super::subject::Subject;
use super::words::{NONE, NOT_IN_TEXT};
use super::{Kind, Row, Table, header, not_published};
use crate::evaluation::{Evaluation, Shown, unique, widths};
use crate::figure::{Figure, MB_PER_S, Origin, share};
use crate::interval::FEWEST_PAIRS;
use crate::modelled::REMOTE_SHARE;
use crate::point::Point;
use workloads::workload::Quantity;

/// A table of each configuration that has points at numbers of threads, and the ratios to native.
pub(super) fn tables(evaluation: &Evaluation) -> Vec<Table> {
    let is_scan = |shown: &&Shown| shown.points.iter().any(|point| point.width().is_some());
    let all = evaluation.configurations.iter().filter(is_scan);
    let mut tables: Vec<Table> = all.map(|shown| of_configuration(evaluation, shown)).collect();
    tables.extend(ratios(evaluation));
    tables
}

/// One point for each number of threads.
fn points(evaluation: &Evaluation, shown: &Shown) -> Vec<Point> {
    let published = evaluation.figures.iter().filter(|figure| {
        // Columns that nobody modelled would only be wide.
        evaluation.origin == Origin::Measured
            && figure.origin() == Origin::Published
            && figure.configuration == shown.name
    });
    let all: Vec<&Point> = shown.points.iter().chain(published.map(|figure| &figure.point)).collect();
    let counts = widths(all.iter().copied());
    counts.iter().filter_map(|&count| all.iter().find(|point| point.width() == Some(count)).copied().cloned()).collect()
}

fn of_configuration(evaluation: &Evaluation, shown: &Shown) -> Table {
    let points = points(evaluation, shown);
    let quantities = own_quantities(evaluation, shown);
    let subject = |label: String, quantity| subject(evaluation, shown, &points, quantity, label);
    let of_quantity = |quantity| subject(labelled(quantity, &quantities), quantity).rows();
    let mut rows: Vec<Row> = quantities.iter().flat_map(of_quantity).collect();
    let remote = share(REMOTE_SHARE);
    let remote = subject("Remote accesses".to_owned(), &remote);
    if remote.columns.iter().flatten().any(|figure| figure.value > 0.0) {
        rows.extend(remote.rows());
    }
    let published = evaluation.published.iter().filter(|one| one.configuration == shown.name);
    let sources = published.map(|table| format!("[ ] published: {}. {}", table.title, table.source));
    let sources = sources.filter(|_| rows.iter().any(|row| row.kind == Kind::Published));
    Table {
        title: title(evaluation, shown, &quantities),
        header: header(&[label(evaluation.origin, shown)], &points),
        notes: sources.chain(only_pictures(evaluation, shown, &points, &quantities)).collect(),
        rows,
    }
}

/// What a configuration has at numbers of threads, but for series: those have tables of their own.
fn own_quantities(evaluation: &Evaluation, shown: &Shown) -> Vec<Quantity> {
    let all = evaluation.quantities(shown, |point| point.width().is_some());
    all.into_iter().filter(|quantity| quantity.at.is_none()).collect()
}

fn subject<'a>(
    evaluation: &Evaluation,
    shown: &Shown,
    points: &[Point],
    quantity: &'a Quantity,
    label: String,
) -> Subject<'a> {
    let at = |point| evaluation.at(&shown.name, point, &quantity.name).cloned().collect();
    let empty = |point: &Point| if shown.wrong.contains(point) { "wrong" } else { NONE }.to_owned();
    let is_picture = |point: &Point| evaluation.is_only_picture(&shown.name, &quantity.name, point.threads);
    let unpublished = |point: &Point| if is_picture(point) { NOT_IN_TEXT } else { NONE }.to_owned();
    Subject {
        origin: evaluation.origin,
        labels: vec![label],
        quantity,
        columns: points.iter().map(at).collect(),
        empty: points.iter().map(empty).collect(),
        unpublished: points.iter().map(unpublished).collect(),
        compares_published: shown.compares_published,
        compares_measured: shown.compares_measured,
    }
}

/// What the source shows only as a picture at each number of threads.
fn only_pictures(evaluation: &Evaluation, shown: &Shown, points: &[Point], quantities: &[Quantity]) -> Option<String> {
    if evaluation.origin == Origin::Measured || !shown.compares_published {
        return None;
    }
    let is_missing = |quantity: &&Quantity| {
        let in_text = |point| {
            let mut all = evaluation.at(&shown.name, point, &quantity.name);
            all.any(|figure| figure.origin() == Origin::Published)
        };
        let is_picture = |point: &Point| evaluation.is_only_picture(&shown.name, &quantity.name, point.threads);
        points.iter().any(is_picture) && !points.iter().any(in_text)
    };
    let names: Vec<&str> = quantities.iter().filter(is_missing).map(|quantity| quantity.name.as_str()).collect();
    not_published(&names)
}

fn is_bandwidth(quantities: &[Quantity]) -> bool {
    quantities.iter().all(|quantity| quantity.unit == MB_PER_S)
}

fn title(evaluation: &Evaluation, shown: &Shown, quantities: &[Quantity]) -> String {
    let what = match (evaluation.origin, is_bandwidth(quantities), shown.native) {
        (Origin::Modelled, true, _) => "MODELLED memory bandwidth, MB/s",
        (Origin::Modelled, false, _) => "MODELLED",
        (_, true, true) => "Native memory bandwidth, MB/s",
        (_, true, false) => "Virtualized total memory bandwidth, MB/s",
        (_, false, true) => "Native",
        (_, false, false) => "Virtualized",
    };
    format!("{what}: {}", shown.about())
}

/// A quantity, with its unit where not all of the table are MB/s.
fn labelled(quantity: &Quantity, all: &[Quantity]) -> String {
    if is_bandwidth(all) { quantity.name.clone() } else { format!("{}, {}", quantity.name, quantity.unit) }
}

fn label(origin: Origin, shown: &Shown) -> &'static str {
    if shown.native || origin == Origin::Modelled { "Threads" } else { "Total threads" }
}

/// Virtual compared with native, of figures of each provenance; columns where nothing can be
/// compared are left out.
pub(super) fn ratios(evaluation: &Evaluation) -> Option<Table> {
    let native = evaluation.native()?;
    let quantities = own_quantities(evaluation, native);
    let virtuals: Vec<&Shown> = evaluation.configurations.iter().filter(|shown| !shown.native).collect();
    let all: Vec<Point> = unique(std::iter::once(&native).chain(&virtuals).flat_map(|shown| points(evaluation, shown)));
    let counts = widths(&all);
    let point = |count: &u32| all.iter().find(|point| point.width() == Some(*count));
    let has_any = |point: &&Point| {
        let mut pairs = virtuals.iter().flat_map(|shown| quantities.iter().map(move |quantity| (shown, quantity)));
        pairs.any(|(shown, quantity)| !ratios_at(evaluation, shown, point, quantity).is_empty())
    };
    let columns: Vec<Point> = counts.iter().filter_map(point).filter(has_any).cloned().collect();
    let of_quantity = |shown: &Shown, index: usize, quantity: &Quantity| {
        let first = if index == 0 { shown.name.clone() } else { String::new() };
        let printed = Quantity { decimals: 2, unit: String::new(), ..quantity.clone() };
        let none = vec![NONE.to_owned(); columns.len()];
        Subject {
            origin: evaluation.origin,
            labels: vec![first, quantity.name.clone()],
            quantity: &printed,
            columns: columns.iter().map(|point| ratios_at(evaluation, shown, point, quantity)).collect(),
            empty: none.clone(),
            unpublished: none,
            compares_published: false,
            compares_measured: false,
        }
        .rows()
    };
    let of_configuration = |shown: &&Shown| {
        let all = quantities.iter().enumerate();
        all.flat_map(|(index, quantity)| of_quantity(shown, index, quantity)).collect::<Vec<_>>()
    };
    let rows: Vec<Row> = virtuals.iter().flat_map(of_configuration).collect();
    if rows.is_empty() || columns.is_empty() {
        return None;
    }
    let what = if evaluation.origin == Origin::Modelled { "MODELLED virtual" } else { "Virtual" };
    let is_emulated = evaluation.origin == Origin::Measured && virtuals.iter().any(|shown| shown.emulated);
    let emulated = is_emulated.then(|| EMULATED.to_owned());
    let notes = emulated.into_iter().chain(intervals(&evaluation.ratios)).chain(sources(evaluation, &rows)).collect();
    let figure = if is_bandwidth(&quantities) { "Kernel" } else { "Figure" };
    Some(Table {
        title: format!("{what} / native: 1.00 = as fast as native"),
        header: header(&["Configuration", figure], &columns),
        rows,
        notes,
    })
}

/// Where the published figures of the rows stand, where no table of their own says it.
fn sources(evaluation: &Evaluation, rows: &[Row]) -> Vec<String> {
    let is_said = evaluation.figures.iter().any(|figure| figure.origin() == Origin::Published);
    if is_said || rows.iter().all(|row| row.kind != Kind::Published) {
        return Vec::new();
    }
    let all = evaluation.published.iter();
    unique(all.map(|known| format!("[ ] published, of the program itself: {}. {}", known.title, known.source)))
}

/// What the rows of intervals say, and why some have none.
fn intervals(ratios: &[Figure]) -> Vec<String> {
    let mut measured = ratios.iter().filter(|ratio| ratio.origin() == Origin::Measured).peekable();
    if measured.peek().is_none() {
        return Vec::new();
    }
    let (with, without): (Vec<&Figure>, Vec<&Figure>) = measured.partition(|ratio| ratio.interval().is_some());
    let rounds = |ratio: &Figure| ratio.spread.as_ref().map_or(0, |spread| spread.rounds.len());
    let most = with.iter().map(|ratio| rounds(ratio)).max();
    let said = most.map(|most| {
        format!(
            "95 %: where the ratio is, with that confidence: pairs of the same round, up to {most}, drawn \
             again and again."
        )
    });
    let few = (!without.is_empty()).then(|| {
        let whose = if with.is_empty() { String::new() } else { format!(" for {} of the ratios", without.len()) };
        format!(
            "Too few runs for an interval{whose}: it takes {FEWEST_PAIRS} rounds that both have and that \
             differ (rounds, or [until], in the experiment)."
        )
    });
    said.into_iter().chain(few).collect()
}

pub(super) const EMULATED: &str =
    "EMULATED (TCG): these ratios are those of software emulation, not of hardware virtualization.";

/// A ratio of each provenance of which both have a figure: over 1 is better than natively.
pub(crate) fn ratios_at(evaluation: &Evaluation, shown: &Shown, point: &Point, quantity: &Quantity) -> Vec<Figure> {
    let is_here = |ratio: &&Figure| {
        ratio.configuration == shown.name && ratio.point.is_beside(point) && ratio.is_of(&quantity.name)
    };
    let mut all: Vec<Figure> = Vec::new();
    for ratio in evaluation.ratios.iter().filter(is_here) {
        if all.iter().all(|known| known.origin() != ratio.origin()) {
            all.push(ratio.clone());
        }
    }
    all
}
