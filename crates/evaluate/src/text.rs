//! Tables for a terminal.

use crate::columns::{self, Block};
use crate::compare::Comparison;
use crate::modelled::Prediction;
use crate::summary::Summary;
use crate::tables::{Row, Table};
use comfy_table::{CellAlignment, LineStyle, TableStyle};
use std::fmt::Write;

/// A line below the header and one below the last row, as a printed article has them.
const LINE: LineStyle = LineStyle::none().fill('─').junction('─');
const STYLE: TableStyle = TableStyle::new().top_border(LINE).header_separator(LINE).bottom_border(LINE);

/// Columns of words.
pub(crate) const LABELS: [&str; 7] = ["Kernel", "Figure", "Point", "On the model", "Modelled", "Expected", "Statement"];

/// All tables, with what a reader has to know above them; `width`: columns of the terminal, where
/// it is one.
pub fn render(summary: &Summary, tables: &[Table], width: Option<usize>) -> String {
    let mut text = format!("{}\n", summary.title);
    for workload in &summary.workloads {
        let _ = writeln!(text, "{workload}.");
    }
    text.push_str("Best of the repetitions after the first; MB = 10^6 bytes.\n");
    for note in &summary.notes {
        let _ = writeln!(text, "! {note}");
    }
    if !summary.complete {
        let _ = writeln!(text, "! This evaluation is not complete.");
    }
    for table in tables {
        let _ = write!(text, "\n{}", one(table, width));
    }
    text
}

/// Tables of a modelled experiment, with what a reader has to know above them; `width` as for
/// [`render`].
pub fn render_modelled(prediction: &Prediction, tables: &[Table], width: Option<usize>) -> String {
    let mut text = format!("{}\n", prediction.title);
    for note in &prediction.notes {
        let _ = writeln!(text, "! {note}");
    }
    for table in tables {
        let _ = write!(text, "\n{}", one(table, width));
    }
    text
}

/// Tables of measured runs side by side, with the name of each run above them; `width` as for
/// [`render`].
pub fn render_comparison(comparison: &Comparison, tables: &[Table], width: Option<usize>) -> String {
    let mut text = String::new();
    for (letter, run) in ('A'..).zip(&comparison.runs) {
        let _ = writeln!(text, "{letter}: {run}");
    }
    for table in tables {
        let _ = write!(text, "\n{}", one(table, width));
    }
    text
}

fn one(table: &Table, width: Option<usize>) -> String {
    let is_label = |index: usize| index == 0 || LABELS.contains(&table.header[index].as_str());
    let labels = (0..table.header.len()).take_while(|&index| is_label(index)).count();
    let rows: Vec<Vec<String>> =
        [table.header.clone()].into_iter().chain(table.rows.iter().map(|row: &Row| row.cells.clone())).collect();
    // Each line has a blank at either end.
    let blocks = columns::blocks(&rows, labels, width.map(|width| width.saturating_sub(2)));
    let drawn: Vec<String> = blocks.into_iter().map(|block| draw(block, is_label)).collect();
    let notes: String = table.notes.iter().map(|note| format!("  {note}\n")).collect();
    format!("{}\n{}\n{notes}", table.title, drawn.join("\n"))
}

fn draw(block: Block, is_label: impl Fn(usize) -> bool) -> String {
    let mut drawn = comfy_table::Table::new();
    let mut rows = block.rows.into_iter();
    drawn.load_style(STYLE).set_header(rows.next().unwrap_or_default());
    drawn.add_rows(rows);
    for (place, index) in block.columns.into_iter().enumerate() {
        if let (false, Some(column)) = (is_label(index), drawn.column_mut(place)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    drawn.trim_fmt()
}
