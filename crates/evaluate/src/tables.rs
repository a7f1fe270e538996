//! The tables of an evaluation, as text cells: laid out like Tables 1 and 2 of the ESX 4.1 STREAM
//! article. [`crate::text`] and [`crate::report`] draw them.

use crate::experiment::Published;
use crate::matrix;
use crate::resolve::Resolved;
use crate::summary::{Cell, ConfigurationSummary, Reduced, State, Summary};
use workloads::workload::Quantity;

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
    let mut tables = over_threads(resolved, summary);
    tables.extend(matrix::tables(summary));
    tables.push(quality(summary));
    tables
}

/// What has points at numbers of threads.
fn over_threads(resolved: &Resolved, summary: &Summary) -> Vec<Table> {
    let has_widths = |one: &&ConfigurationSummary| one.cells.iter().any(|cell| cell.point.width().is_some());
    let mut tables: Vec<Table> = summary
        .configurations
        .iter()
        .filter(has_widths)
        .map(|configuration| by_width(configuration, &published_of(resolved, &configuration.name), summary))
        .collect();
    tables.extend(ratios(resolved, summary));
    tables
}

fn published_of<'a>(resolved: &'a Resolved, configuration: &str) -> Vec<&'a Published> {
    resolved.experiment.published.iter().filter(|published| published.configuration == configuration).collect()
}

/// Thread counts that a configuration or a table beside it has.
fn thread_counts(configuration: &ConfigurationSummary, published: &[&Published]) -> Vec<u32> {
    let measured = configuration.cells.iter().filter_map(|cell| cell.point.width());
    let mut counts: Vec<u32> =
        measured.chain(published.iter().flat_map(|published| published.threads.clone())).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn by_width(configuration: &ConfigurationSummary, published: &[&Published], summary: &Summary) -> Table {
    let threads = thread_counts(configuration, published);
    let label = if configuration.native { "Threads" } else { "Total threads" };
    let mut rows = Vec::new();
    let quantities = quantities(configuration);
    for quantity in &quantities {
        let figures = threads.iter().map(|&count| figure(at(configuration, count), quantity));
        rows.push(Row::measured(std::iter::once(labelled(quantity, &quantities)).chain(figures).collect()));
        for table in published {
            let figure = |&count: &u32| table.by_name(&quantity.name, count).map(|value| bracketed(value, quantity));
            if threads.iter().any(|count| figure(count).is_some()) {
                let figures = threads.iter().map(|count| figure(count).unwrap_or_else(|| NONE.to_owned()));
                let cells = std::iter::once("  published".to_owned()).chain(figures).collect();
                rows.push(Row { cells, published: true });
            }
        }
    }
    let emulated = if summary.emulated && !configuration.native { ", EMULATED (TCG)" } else { "" };
    Table {
        title: format!(
            "{}: {} ({}){emulated}",
            what(configuration, &quantities),
            configuration.name,
            configuration.shape
        ),
        header: header(label, &threads),
        rows,
        notes: published.iter().map(|table| format!("[ ] published: {}. {}", table.title, table.source)).collect(),
    }
}

/// What a configuration measured, each quantity once, in order.
pub(crate) fn quantities(configuration: &ConfigurationSummary) -> Vec<Quantity> {
    let mut all: Vec<Quantity> = Vec::new();
    for figures in configuration.cells.iter().flat_map(|cell| &cell.figures) {
        if all.iter().all(|quantity| quantity.name != figures.quantity.name) {
            all.push(figures.quantity.clone());
        }
    }
    all
}

/// The cell at a number of threads.
pub(crate) fn at(configuration: &ConfigurationSummary, threads: u32) -> Option<&Cell> {
    configuration.cells.iter().find(|cell| cell.point.width() == Some(threads))
}

fn what(configuration: &ConfigurationSummary, quantities: &[Quantity]) -> String {
    let bandwidth = quantities.iter().all(|quantity| quantity.unit == "MB/s");
    match (bandwidth, configuration.native) {
        (true, true) => "Native memory bandwidth, MB/s".to_owned(),
        (true, false) => "Virtualized total memory bandwidth, MB/s".to_owned(),
        (false, true) => "Native".to_owned(),
        (false, false) => "Virtualized".to_owned(),
    }
}

/// A quantity, with its unit where not all of the table have the same.
fn labelled(quantity: &Quantity, all: &[Quantity]) -> String {
    if all.iter().all(|other| other.unit == "MB/s") {
        return quantity.name.clone();
    }
    format!("{}, {}", quantity.name, quantity.unit)
}

fn header(label: &str, threads: &[u32]) -> Vec<String> {
    std::iter::once(label.to_owned()).chain(threads.iter().map(u32::to_string)).collect()
}

fn bracketed(figure: f64, quantity: &Quantity) -> String {
    format!("[{figure:.*}]", quantity.decimals)
}

/// The figure of a quantity, with what there is to say about it.
pub(crate) fn figure(cell: Option<&Cell>, quantity: &Quantity) -> String {
    let Some(cell) = cell else { return NONE.to_owned() };
    let Some(figures) = cell.of(&quantity.name) else {
        return if cell.state == State::Wrong { "wrong".to_owned() } else { NONE.to_owned() };
    };
    let disturbed = if cell.state == State::Disturbed { " ~" } else { "" };
    let checked = if cell.verified { "" } else { " ?" };
    format!("{:.*}{disturbed}{checked}", quantity.decimals, figures.best)
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
        for (index, quantity) in quantities(native).iter().enumerate() {
            let label = if index == 0 { configuration.name.clone() } else { String::new() };
            let ratio = |&count: &u32| {
                ratio(at(configuration, count), at(native, count), &quantity.name)
                    .map_or(NONE.to_owned(), |ratio| format!("{ratio:.2}"))
            };
            let cells = [label, quantity.name.clone()].into_iter().chain(threads.iter().map(ratio)).collect();
            rows.push(Row::measured(cells));
            rows.extend(published_ratio(
                &native_published,
                &published_of(resolved, &configuration.name),
                quantity,
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

/// How many times as good a quantity is as natively: 2 is twice the bandwidth, or half the time.
/// `None` unless both have a figure.
pub(crate) fn ratio(configuration: Option<&Cell>, native: Option<&Cell>, quantity: &str) -> Option<f64> {
    let (own, native) = (configuration?.of(quantity)?, native?.of(quantity)?);
    Some(own.quantity.better.ratio(own.best, native.best))
}

fn published_ratio(native: &[&Published], other: &[&Published], quantity: &Quantity, threads: &[u32]) -> Option<Row> {
    let (native, other) = (native.first()?, other.first()?);
    let ratio = |&count: &u32| {
        let both = other.by_name(&quantity.name, count).zip(native.by_name(&quantity.name, count));
        both.map_or(NONE.to_owned(), |(other, native)| format!("[{:.2}]", quantity.better.ratio(other, native)))
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
    if cells().any(|cell| cell.state == State::Wrong) {
        notes.push("wrong: a job's result was wrong, so it has no figure.".to_owned());
        // The reasons of the first few: the others mostly say the same.
        let of = |one: &ConfigurationSummary| one.cells.iter().filter_map(|cell| cell.wrong.clone()).next();
        let reasons =
            summary.configurations.iter().filter_map(|one| of(one).map(|why| format!("{}: {why}.", one.name)));
        notes.extend(reasons.take(4));
    }
    if cells().any(|cell| !cell.figures.is_empty() && !cell.verified) {
        notes.push("? not verified: nobody said how to check that the result is right.".to_owned());
    }
    Table {
        title: "How well it was measured".to_owned(),
        header: header.iter().map(|&name| name.to_owned()).collect(),
        rows,
        notes,
    }
}

fn quality_row(configuration: &str, cell: &Cell) -> Vec<String> {
    let share = |figures: &Reduced| figures.quantity.better.ratio(figures.median, figures.best);
    let spread = cell.figures.iter().map(share).min_by(f64::total_cmp);
    let text = |value: Option<String>| value.unwrap_or_else(|| NONE.to_owned());
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let has_figures = cell.counted > 0;
    vec![
        configuration.to_owned(),
        cell.point.to_string(),
        match cell.state {
            State::Missing => "missing".to_owned(),
            State::Wrong => "wrong".to_owned(),
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
