//! Tables of modelled figures, laid out like those of measured ones. A modelled figure carries `≈`,
//! a published one stands in `[ ]`, and between them stands the error with what the published
//! figure was used for.

use super::measured;
use super::{Figure, PredictedConfiguration, Prediction, REMOTE_SHARE, Unit};
use crate::applications;
use crate::experiment::{APPLICATION, Experiment, NUMA_MATRIX};
use crate::tables::{NONE, Row, Table};
use crate::validation::cell::{Role, ValidationCell};

/// What a source shows only as a picture.
const NOT_IN_TEXT: &str = "not published in text";

/// All tables, in the order in which they are read.
pub fn tables(experiment: &Experiment, prediction: &Prediction) -> Vec<Table> {
    let mut tables = match experiment.workload.as_str() {
        NUMA_MATRIX => prediction.configurations.iter().flat_map(|one| matrix(prediction, one)).collect(),
        APPLICATION => applications::tables(experiment, prediction),
        _ => {
            let configurations = prediction.configurations.iter();
            let mut tables: Vec<Table> = configurations.map(|one| bandwidth(experiment, prediction, one)).collect();
            tables.extend(ratios(prediction));
            tables
        }
    };
    tables.extend(statements(prediction));
    tables
}

/// Thread counts of a configuration, modelled or measured.
fn counts(prediction: &Prediction, configuration: &PredictedConfiguration, figures: &[&Figure]) -> Vec<u32> {
    let mut counts = threads(figures);
    let measured = prediction.beside.iter().flat_map(|beside| &beside.figures);
    counts.extend(measured.filter(|figure| figure.configuration == configuration.name).filter_map(|one| one.threads));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Figures of a configuration.
fn of<'a>(prediction: &'a Prediction, configuration: &str) -> Vec<&'a Figure> {
    prediction.figures.iter().filter(|figure| figure.configuration == configuration).collect()
}

/// Names of figures in their order, each once; without the share of remote accesses.
fn names<'a>(figures: &[&'a Figure]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for figure in figures.iter().filter(|figure| figure.figure != REMOTE_SHARE) {
        if !names.contains(&figure.figure.as_str()) {
            names.push(&figure.figure);
        }
    }
    names
}

fn threads(figures: &[&Figure]) -> Vec<u32> {
    let mut threads: Vec<u32> = figures.iter().filter_map(|figure| figure.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

fn value(figures: &[&Figure], name: &str, threads: u32) -> Option<f64> {
    let mut all = figures.iter();
    all.find(|figure| figure.figure == name && figure.threads == Some(threads)).map(|figure| figure.modelled)
}

fn row(label: &str, cells: impl Iterator<Item = String>) -> Row {
    Row::measured(std::iter::once(label.to_owned()).chain(cells).collect())
}

fn bandwidth(experiment: &Experiment, prediction: &Prediction, configuration: &PredictedConfiguration) -> Table {
    let figures = of(prediction, &configuration.name);
    let counts = counts(prediction, configuration, &figures);
    let published: Vec<_> = experiment.published.iter().filter(|one| one.configuration == configuration.name).collect();
    let (mut rows, mut unpublished) = (Vec::new(), Vec::new());
    for name in names(&figures) {
        let modelled = |count: &u32| value(&figures, name, *count).map_or(NONE.to_owned(), |mb| format!("≈ {mb:.0}"));
        rows.push(row(name, counts.iter().map(modelled)));
        let points: Vec<Option<u32>> = counts.iter().copied().map(Some).collect();
        rows.extend(measured::rows(prediction, &configuration.name, &points, |_| name.to_owned(), 0));
        for table in &published {
            let figure = |count: &u32| table.by_name(name, *count).map(|figure| format!("[{figure:.0}]"));
            if counts.iter().any(|count| figure(count).is_some()) {
                let cells = counts.iter().map(|count| figure(count).unwrap_or_else(|| NONE.to_owned()));
                rows.push(Row { published: true, ..row("  published", cells) });
            }
        }
        let cells: Vec<Option<&ValidationCell>> =
            counts.iter().map(|&count| cell(prediction, &configuration.name, name, count)).collect();
        let known: Vec<&ValidationCell> = cells.iter().flatten().copied().collect();
        if known.iter().any(|cell| cell.published.is_some()) {
            rows.push(row("  error", cells.into_iter().map(error_text)));
        } else if !known.is_empty() {
            unpublished.push(name);
        }
    }
    let remote = |count: &u32| value(&figures, REMOTE_SHARE, *count);
    if counts.iter().filter_map(remote).any(|share| share > 0.0) {
        let cells = counts
            .iter()
            .map(|count| remote(count).map_or(NONE.to_owned(), |share| format!("≈ {:.0} %", 100.0 * share)));
        rows.push(row("Remote accesses", cells));
    }
    let sources = published.iter().map(|table| format!("[ ] published: {}. {}", table.title, table.source));
    let missing = (!unpublished.is_empty()).then(|| format!("[ ] {}: {NOT_IN_TEXT}.", unpublished.join(", ")));
    Table {
        title: format!("MODELLED memory bandwidth, MB/s: {}", about(configuration)),
        header: header("Threads", &counts),
        rows,
        notes: sources.chain(missing).collect(),
    }
}

fn about(configuration: &PredictedConfiguration) -> String {
    format!("{} ({}) on {}", configuration.name, configuration.shape, configuration.machine)
}

fn header(label: &str, counts: &[u32]) -> Vec<String> {
    std::iter::once(label.to_owned()).chain(counts.iter().map(u32::to_string)).collect()
}

fn cell<'a>(prediction: &'a Prediction, configuration: &str, name: &str, threads: u32) -> Option<&'a ValidationCell> {
    let is_it = |cell: &&ValidationCell| {
        cell.configuration == configuration && cell.figure == name && cell.threads == Some(threads)
    };
    prediction.cells.iter().find(is_it)
}

/// `+2.9 % (held out)`.
fn error_text(cell: Option<&ValidationCell>) -> String {
    let Some(cell) = cell else { return NONE.to_owned() };
    let used_for = match cell.role {
        Role::Calibrated => "calibrated",
        Role::HeldOut => "held out",
        Role::Reported => "reported",
    };
    cell.error().map_or(NOT_IN_TEXT.to_owned(), |error| format!("{:+.1} % ({used_for})", 100.0 * error))
}

/// Virtual divided by native, on the model.
fn ratios(prediction: &Prediction) -> Option<Table> {
    let native = prediction.configurations.iter().find(|configuration| configuration.native)?;
    let native_name = native.name.clone();
    let native = of(prediction, &native.name);
    let counts = threads(&native);
    let mut rows = Vec::new();
    for configuration in prediction.configurations.iter().filter(|configuration| !configuration.native) {
        let figures = of(prediction, &configuration.name);
        for (index, name) in names(&figures).into_iter().enumerate() {
            let label = if index == 0 { configuration.name.as_str() } else { "" };
            let ratio = |count: &u32| {
                let both = value(&figures, name, *count).zip(value(&native, name, *count));
                both.map_or(NONE.to_owned(), |(own, native)| format!("≈ {:.2}", own / native))
            };
            rows.push(row(label, std::iter::once(name.to_owned()).chain(counts.iter().map(ratio))));
            rows.extend(measured::ratios(prediction, &configuration.name, &native_name, name, &counts));
        }
    }
    let mut header = header("Configuration", &counts);
    header.insert(1, "Kernel".to_owned());
    let title = "MODELLED virtual / native: 1.00 = as fast as native".to_owned();
    (!rows.is_empty()).then_some(Table { title, header, rows, notes: Vec::new() })
}

/// Latency and bandwidth, from each CPU node (rows) to each memory node (columns).
fn matrix(prediction: &Prediction, configuration: &PredictedConfiguration) -> Vec<Table> {
    let figures = of(prediction, &configuration.name);
    let table = |kind: &str, what: &str, unit: Unit, digits: usize| {
        let pair = |figure: &&&Figure| figure.unit == unit;
        let place = |figure: &Figure| -> Option<(u32, u32)> {
            let (from, to) = figure.figure.strip_prefix(kind)?.trim().split_once(" to ")?;
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        let all: Vec<((u32, u32), f64)> =
            figures.iter().filter(pair).filter_map(|figure| Some((place(figure)?, figure.modelled))).collect();
        let unique = |of: fn(&(u32, u32)) -> u32| {
            let mut nodes: Vec<u32> = all.iter().map(|(pair, _)| of(pair)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        };
        let (rows, columns) = (unique(|pair| pair.0), unique(|pair| pair.1));
        let figure = |from: u32, to: u32| {
            let known = all.iter().find(|(pair, _)| *pair == (from, to));
            known.map_or(NONE.to_owned(), |(_, value)| format!("≈ {value:.digits$}"))
        };
        let lines = |&from: &u32| {
            let named = |to: usize| format!("{kind} {from} to {}", columns[to]);
            let points = vec![None; columns.len()];
            let modelled = row(&format!("CPUs of {from}"), columns.iter().map(|&to| figure(from, to)));
            std::iter::once(modelled)
                .chain(measured::rows(prediction, &configuration.name, &points, named, digits))
                .collect::<Vec<_>>()
        };
        Table {
            title: format!("MODELLED {what}: {}", about(configuration)),
            header: std::iter::once("Node".to_owned()).chain(columns.iter().map(|to| format!("memory {to}"))).collect(),
            rows: rows.iter().flat_map(lines).collect(),
            notes: Vec::new(),
        }
    };
    vec![
        table("latency", "latency of a dependent load, ns", Unit::Ns, 1),
        table("bandwidth", "bandwidth of all CPUs of a node, MB/s", Unit::MbPerS, 0),
    ]
}

/// What the sources say, and whether the model agrees.
fn statements(prediction: &Prediction) -> Option<Table> {
    let text = |value: &f64| if *value < 10.0 { format!("≈ {value:.2}") } else { format!("≈ {value:.0}") };
    let row = |one: &crate::validation::outcome::StatementOutcome| {
        let modelled: Vec<String> = one.modelled.iter().map(text).collect();
        let verdict = match (one.holds, one.role) {
            (true, _) => "holds",
            (false, Role::HeldOut) => "FAILS",
            (false, _) => "fails",
        };
        let cells = [&one.id, verdict, &modelled.join(", "), &one.expected, &one.text];
        Row::measured(cells.map(str::to_owned).to_vec())
    };
    let rows: Vec<Row> = prediction.statements.iter().map(row).collect();
    let header = ["", "On the model", "Modelled", "Expected", "Statement"].map(str::to_owned).to_vec();
    let title = "What the source says, MODELLED".to_owned();
    (!rows.is_empty()).then_some(Table { title, header, rows, notes: Vec::new() })
}
