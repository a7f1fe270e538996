//! The tables of an evaluation, as text cells: laid out like Tables 1 and 2 of the ESX 4.1 STREAM
//! article. [`crate::text`] and [`crate::report`] draw them.

use crate::experiment::{Published, WorkloadKind};
use crate::kernels;
use crate::matrix;
use crate::point::Point;
use crate::resolve::Resolved;
use crate::summary::{Cell, ConfigurationSummary, State, Summary};

/// Stands where there is no figure.
pub(crate) const NONE: &str = "-";

/// A table. Published figures are in rows of their own and in square brackets: `[6388]`.
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

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As many as the header has.
    pub cells: Vec<String>,
    /// Whether its figures are published ones, not measured.
    pub published: bool,
}

impl Row {
    pub(crate) fn measured(cells: Vec<String>) -> Self {
        Self { cells, published: false }
    }
}

/// All tables of an evaluation, in the order in which they are read.
pub fn all(resolved: &Resolved, summary: &Summary) -> Vec<Table> {
    let mut tables = match resolved.experiment.workload {
        WorkloadKind::Stream => stream(resolved, summary),
        WorkloadKind::NumaMatrix => matrix::tables(summary),
        WorkloadKind::Application => Vec::new(),
    };
    tables.push(quality(summary));
    tables
}

fn stream(resolved: &Resolved, summary: &Summary) -> Vec<Table> {
    let mut tables: Vec<Table> = summary
        .configurations
        .iter()
        .map(|configuration| bandwidth(configuration, &published_of(resolved, &configuration.name), summary))
        .collect();
    tables.extend(ratios(resolved, summary));
    tables
}

fn published_of<'a>(resolved: &'a Resolved, configuration: &str) -> Vec<&'a Published> {
    resolved.experiment.published.iter().filter(|published| published.configuration == configuration).collect()
}

/// Thread counts that a configuration or a table beside it has.
fn thread_counts(configuration: &ConfigurationSummary, published: &[&Published]) -> Vec<u32> {
    let measured = configuration.cells.iter().filter_map(|cell| match cell.point {
        Point::Stream { threads } => Some(threads),
        _ => None,
    });
    let mut counts: Vec<u32> =
        measured.chain(published.iter().flat_map(|published| published.threads.clone())).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn bandwidth(configuration: &ConfigurationSummary, published: &[&Published], summary: &Summary) -> Table {
    let threads = thread_counts(configuration, published);
    let label = if configuration.native { "Threads" } else { "Total threads" };
    let mut rows = Vec::new();
    for (kernel, name) in kernels::NAMES.iter().enumerate() {
        let figures = threads.iter().map(|&count| figure(configuration.cell(Point::Stream { threads: count }), kernel));
        rows.push(Row::measured(std::iter::once((*name).to_owned()).chain(figures).collect()));
        for table in published.iter().filter(|table| table.mb_per_s.in_order()[kernel].is_some()) {
            let figures = threads.iter().map(|&count| table.figure(kernel, count).map_or(NONE.to_owned(), bracketed));
            let cells = std::iter::once("  published".to_owned()).chain(figures).collect();
            rows.push(Row { cells, published: true });
        }
    }
    let what = if configuration.native { "Native memory bandwidth" } else { "Virtualized total memory bandwidth" };
    let emulated = if summary.emulated && !configuration.native { ", EMULATED (TCG)" } else { "" };
    Table {
        title: format!("{what}, MB/s: {} ({}){emulated}", configuration.name, configuration.shape),
        header: header(label, &threads),
        rows,
        notes: published.iter().map(|table| format!("[ ] published: {}. {}", table.title, table.source)).collect(),
    }
}

fn header(label: &str, threads: &[u32]) -> Vec<String> {
    std::iter::once(label.to_owned()).chain(threads.iter().map(u32::to_string)).collect()
}

fn bracketed(figure: f64) -> String {
    format!("[{figure:.0}]")
}

fn figure(cell: Option<&Cell>, kernel: usize) -> String {
    let Some(cell) = cell else { return NONE.to_owned() };
    match (cell.state, cell.kernels.get(kernel)) {
        (State::NotVerified, _) => "not verified".to_owned(),
        (State::Disturbed, Some(figures)) => format!("{:.0} ~", figures.best_mb_per_s),
        (State::Measured, Some(figures)) => format!("{:.0}", figures.best_mb_per_s),
        _ => NONE.to_owned(),
    }
}

/// Virtual divided by native, of measured figures and of published ones.
fn ratios(resolved: &Resolved, summary: &Summary) -> Option<Table> {
    let native = summary.configurations.iter().find(|configuration| configuration.native)?;
    let virtuals: Vec<&ConfigurationSummary> =
        summary.configurations.iter().filter(|configuration| !configuration.native).collect();
    let native_published = published_of(resolved, &native.name);
    let all_published: Vec<&Published> = resolved.experiment.published.iter().collect();
    let mut threads: Vec<u32> = virtuals.iter().flat_map(|other| thread_counts(other, &all_published)).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut rows = Vec::new();
    for configuration in &virtuals {
        for (kernel, name) in kernels::NAMES.iter().enumerate() {
            let label = if kernel == 0 { configuration.name.clone() } else { String::new() };
            let ratio = |&count: &u32| {
                let point = Point::Stream { threads: count };
                ratio(configuration.cell(point), native.cell(point), kernel)
                    .map_or(NONE.to_owned(), |ratio| format!("{ratio:.2}"))
            };
            let cells = [label, (*name).to_owned()].into_iter().chain(threads.iter().map(ratio)).collect();
            rows.push(Row::measured(cells));
            rows.extend(published_ratio(
                &native_published,
                &published_of(resolved, &configuration.name),
                kernel,
                &threads,
            ));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut header = header("Configuration", &threads);
    header.insert(1, "Kernel".to_owned());
    let notes = if summary.emulated {
        vec!["EMULATED (TCG): these ratios are those of software emulation, not of hardware virtualization.".to_owned()]
    } else {
        Vec::new()
    };
    Some(Table { title: "Virtual / native: 1.00 = as fast as native".to_owned(), header, rows, notes })
}

/// Virtual divided by native; `None` unless both have a figure.
pub(crate) fn ratio(configuration: Option<&Cell>, native: Option<&Cell>, kernel: usize) -> Option<f64> {
    let best = |cell: Option<&Cell>| cell?.kernels.get(kernel).map(|figures| figures.best_mb_per_s);
    Some(best(configuration)? / best(native)?)
}

fn published_ratio(native: &[&Published], other: &[&Published], kernel: usize, threads: &[u32]) -> Option<Row> {
    let (native, other) = (native.first()?, other.first()?);
    let ratio = |&count: &u32| {
        let ratio = other.figure(kernel, count).zip(native.figure(kernel, count));
        ratio.map_or(NONE.to_owned(), |(other, native)| format!("[{:.2}]", other / native))
    };
    let ratios: Vec<String> = threads.iter().map(ratio).collect();
    let cells = [String::new(), "  published".to_owned()].into_iter().chain(ratios.clone()).collect();
    ratios.iter().any(|ratio| ratio != NONE).then_some(Row { cells, published: true })
}

/// How good the measurement was.
fn quality(summary: &Summary) -> Table {
    let header = [
        "Configuration",
        "Point",
        "Counted",
        "Rejected",
        "Median/best",
        "Overlap",
        "Others' CPU",
        "Steal",
        "Memory at home",
    ];
    let rows = summary
        .configurations
        .iter()
        .flat_map(|configuration| configuration.cells.iter().map(|cell| quality_row(&configuration.name, cell)))
        .map(Row::measured)
        .collect();
    let cells = || summary.configurations.iter().flat_map(|configuration| &configuration.cells);
    let rejected: usize = cells().map(|cell| cell.rejected).sum();
    let counted: usize = cells().map(|cell| cell.counted).sum();
    let mut notes = vec![format!(
        "{rejected} repetitions were rejected because other processes used the CPUs; {counted} count. Median/best: of the worst kernel. \
         Overlap: share of the time in which all VMs ran the same kernel, median (worst)."
    )];
    if cells().any(|cell| cell.state == State::Disturbed) {
        notes.push("~ every repetition was disturbed: the figure is the best of the disturbed ones.".to_owned());
    }
    if cells().any(|cell| cell.state == State::NotVerified) {
        notes.push("not verified: a job's result was wrong, so it has no figure.".to_owned());
    }
    Table {
        title: "How well it was measured".to_owned(),
        header: header.iter().map(|&name| name.to_owned()).collect(),
        rows,
        notes,
    }
}

fn quality_row(configuration: &str, cell: &Cell) -> Vec<String> {
    let spread =
        cell.kernels.iter().map(|figures| figures.median_mb_per_s / figures.best_mb_per_s).min_by(f64::total_cmp);
    let text = |value: Option<String>| value.unwrap_or_else(|| NONE.to_owned());
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let has_figures = cell.counted > 0;
    vec![
        configuration.to_owned(),
        cell.point.to_string(),
        match cell.state {
            State::Missing => "missing".to_owned(),
            State::NotVerified => "not verified".to_owned(),
            State::Disturbed => format!("{} ~", cell.counted),
            State::Measured => cell.counted.to_string(),
        },
        cell.rejected.to_string(),
        text(spread.map(percent)),
        text(cell.overlap.map(|(median, worst)| format!("{:.0} % ({:.0} %)", 100.0 * median, 100.0 * worst))),
        text(has_figures.then(|| format!("{:.0} %", cell.other_cpu_percent))),
        text(has_figures.then(|| format!("{:.1} %", cell.steal_percent))),
        text(cell.local_share.map(percent)),
    ]
}
