//! Tables, figures and pictures of a results directory as files for other programs.
//!
//! **Rule.** `figures.csv` has a row for each figure, in plain numbers; the other CSV files are the
//! tables as they are printed, one file each, with their marks.

use crate::charts;
use crate::evaluation;
use crate::figure::{Figure, Origin, Provenance};
use crate::machine_picture;
use crate::modelled::beside::MeasuredRun;
use crate::results::held::Held;
use crate::summary::Cell;
use crate::tables::Table;
use serde::Serialize;

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFile {
    /// Its name, without a directory.
    pub name: String,
    /// All of it.
    pub content: String,
}

/// What cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A table cannot be written.
    #[error("{table}: cannot be written as CSV: {source}")]
    Csv {
        /// Its title.
        table: String,
        /// Why.
        source: csv::Error,
    },
    /// A table is not text.
    #[error("{table}: cannot be written as CSV: it is not UTF-8")]
    NoText {
        /// Its title.
        table: String,
    },
}

/// One figure in plain numbers: a row of `figures.csv`.
#[derive(Debug, Serialize)]
struct FigureRow<'a> {
    configuration: &'a str,
    workload: &'a str,
    threads: u32,
    cpu_node: Option<u32>,
    memory_node: Option<u32>,
    quantity: &'a str,
    unit: &'a str,
    provenance: &'static str,
    value: f64,
    median: Option<f64>,
    mean: Option<f64>,
    standard_deviation: Option<f64>,
    repetitions: Option<usize>,
    rejected: Option<usize>,
    rounds: Option<usize>,
    ratio_to_native: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    verified: Option<bool>,
    disturbed: Option<bool>,
    emulated: Option<bool>,
    cpus_used: Option<f64>,
    others_cpu_percent: Option<f64>,
    steal_percent: Option<f64>,
    memory_at_home_share: Option<f64>,
    large_page_share: Option<f64>,
}

impl Held {
    /// Every figure, of every provenance, and how many times as good each is as the native one.
    fn figures(&self) -> (Vec<Figure>, Vec<Figure>) {
        match self {
            Self::Measured(run) => (run.summary.figures(), run.summary.ratios.clone()),
            Self::Modelled(one) => {
                let beside = one.prediction.beside.iter().flat_map(|beside| &beside.figures);
                let figures: Vec<Figure> = one.prediction.figures.iter().chain(beside).cloned().collect();
                let native = one.prediction.configurations.iter().find(|configuration| configuration.native);
                let ratios = native.map(|native| evaluation::ratios_to(&native.name, &figures));
                (figures, ratios.unwrap_or_default())
            }
        }
    }

    fn cell(&self, figure: &Figure) -> Option<&Cell> {
        let Self::Measured(run) = self else { return None };
        let run: &MeasuredRun = run;
        let own = run.summary.configurations.iter().find(|one| one.name == figure.configuration)?;
        own.cells.iter().find(|cell| cell.point == figure.point)
    }
}

/// A CSV file of each table, and `figures.csv`.
///
/// # Errors
/// One cannot be written.
pub fn csv(held: &Held) -> Result<Vec<ExportFile>, ExportError> {
    let tables = held.tables();
    let numbered = tables.iter().zip(1..).map(|(table, number)| {
        Ok(ExportFile { name: format!("{number:02}-{}.csv", file_name(&table.title)), content: of_table(table)? })
    });
    let mut files = numbered.collect::<Result<Vec<_>, ExportError>>()?;
    files.push(ExportFile { name: "figures.csv".to_owned(), content: of_figures(held)? });
    Ok(files)
}

/// All charts of the report, and of what was modelled a picture of each configuration's machine
/// under load.
pub fn svg(held: &Held) -> Vec<ExportFile> {
    let (charts, pictures) = match held {
        Held::Measured(run) => (charts::measured(&run.resolved, &run.summary), Vec::new()),
        Held::Modelled(one) => (
            charts::modelled(&one.experiment, &one.prediction),
            machine_picture::pictures(&one.prediction, &one.machines),
        ),
    };
    let file = |((heading, content), number): ((String, String), usize)| ExportFile {
        name: format!("machine-{number:02}-{}.svg", file_name(&heading)),
        content,
    };
    let charts = charts::files(&charts).into_iter().map(|(name, content)| ExportFile { name, content });
    charts.chain(pictures.into_iter().zip(1..).map(file)).collect()
}

fn of_table(table: &Table) -> Result<String, ExportError> {
    let failed = |source| ExportError::Csv { table: table.title.clone(), source };
    let mut writer = csv::Writer::from_writer(Vec::new());
    let rows = std::iter::once(&table.header).chain(table.rows.iter().map(|row| &row.cells));
    for row in rows {
        writer.write_record(row.iter().map(|cell| cell.trim())).map_err(failed)?;
    }
    text(writer, &table.title)
}

fn of_figures(held: &Held) -> Result<String, ExportError> {
    const TITLE: &str = "figures";
    let (figures, ratios) = held.figures();
    let mut writer = csv::Writer::from_writer(Vec::new());
    for figure in &figures {
        let ratio = ratios.iter().find(|ratio| ratio.is_beside(figure) && ratio.origin() == figure.origin());
        let row = figure_row(figure, ratio, held.cell(figure));
        writer.serialize(row).map_err(|source| ExportError::Csv { table: TITLE.to_owned(), source })?;
    }
    text(writer, TITLE)
}

fn figure_row<'a>(figure: &'a Figure, ratio: Option<&Figure>, cell: Option<&Cell>) -> FigureRow<'a> {
    let spread = figure.spread.as_ref();
    let measured = match figure.provenance {
        Provenance::Measured { disturbed, verified, emulated } => Some((disturbed, verified, emulated)),
        _ => None,
    };
    let interval = ratio.and_then(Figure::interval);
    FigureRow {
        configuration: &figure.configuration,
        workload: &figure.point.workload,
        threads: figure.point.threads,
        cpu_node: figure.point.cpu_node,
        memory_node: figure.point.memory_node,
        quantity: &figure.quantity.name,
        unit: &figure.quantity.unit,
        provenance: match figure.origin() {
            Origin::Measured => "measured",
            Origin::Modelled => "modelled",
            Origin::Published => "published",
        },
        value: figure.value,
        median: spread.map(|spread| spread.median),
        mean: spread.map(|spread| spread.mean),
        standard_deviation: spread.and_then(|spread| spread.standard_deviation),
        repetitions: spread.map(|spread| spread.repetitions.len()),
        rejected: spread.map(|spread| spread.rejected.len()),
        rounds: spread.map(|spread| spread.rounds.len()),
        ratio_to_native: ratio.map(|ratio| ratio.value),
        ratio_low: interval.map(|interval| interval.low),
        ratio_high: interval.map(|interval| interval.high),
        verified: measured.map(|(_, verified, _)| verified),
        disturbed: measured.map(|(disturbed, _, _)| disturbed),
        emulated: measured.map(|(_, _, emulated)| emulated),
        cpus_used: cell.and_then(|cell| cell.own_cpu_percent).map(|percent| percent / 100.0),
        others_cpu_percent: cell.map(|cell| cell.other_cpu_percent),
        steal_percent: cell.map(|cell| cell.steal_percent),
        memory_at_home_share: cell.and_then(|cell| cell.local_share),
        large_page_share: cell.and_then(|cell| cell.large_page_share),
    }
}

fn text(writer: csv::Writer<Vec<u8>>, table: &str) -> Result<String, ExportError> {
    let none = || ExportError::NoText { table: table.to_owned() };
    String::from_utf8(writer.into_inner().map_err(|_| none())?).map_err(|_| none())
}

/// Words as a file's name: `Virtual / native: 1.00` is `virtual-native-1-00`.
fn file_name(words: &str) -> String {
    let letters =
        words.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { ' ' });
    let letters: String = letters.collect();
    let name = letters.split_whitespace().collect::<Vec<_>>().join("-");
    name.chars().take(60).collect::<String>().trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Kind, Row};

    #[test]
    fn a_table_is_quoted_where_it_must_be_and_named_after_its_title() {
        let row = Row { cells: vec!["  95 %".to_owned(), "a \"b\", c".to_owned()], kind: Kind::Measured };
        let header = vec!["Figure".to_owned(), "2".to_owned()];
        let table = Table { title: "Virtual / native: 1.00".to_owned(), header, rows: vec![row], notes: Vec::new() };
        assert_eq!(of_table(&table).expect("text"), "Figure,2\n95 %,\"a \"\"b\"\", c\"\n");
        assert_eq!(file_name(&table.title), "virtual-native-1-00");
        assert_eq!(file_name(&"ab/".repeat(100)).len(), 59);
    }
}
