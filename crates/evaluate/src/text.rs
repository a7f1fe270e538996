//! Tables for a terminal.

use crate::modelled::Prediction;
use crate::summary::Summary;
use crate::tables::{Row, Table};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};
use std::fmt::Write;

/// A line below the header and one below the last row, as a printed article has them.
const LINE: LineStyle = LineStyle::none().fill('─').junction('─');
const STYLE: TableStyle = TableStyle::new().top_border(LINE).header_separator(LINE).bottom_border(LINE);

/// Columns of words.
const LABELS: [&str; 6] = ["Kernel", "Point", "On the model", "Modelled", "Expected", "Statement"];

/// All tables, with what a reader has to know above them; `width`: columns of the terminal, where it is one.
pub fn render(summary: &Summary, tables: &[Table], width: Option<usize>) -> String {
    let mut text = format!("{}\n", summary.title);
    let _ = writeln!(
        text,
        "Arrays of {} elements, best of the repetitions after the first, MB = 10^6 bytes.",
        summary.elements
    );
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

/// Tables of a modelled experiment, with what a reader has to know above them; `width` as for [`render`].
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

fn one(table: &Table, width: Option<usize>) -> String {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(STYLE);
    if let Some(width) = width {
        drawn.set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
    }
    drawn.set_header(table.header.clone());
    drawn.add_rows(table.rows.iter().map(|row: &Row| row.cells.clone()));
    for index in 0..table.header.len() {
        let is_label = index == 0 || LABELS.contains(&table.header[index].as_str());
        if let (false, Some(column)) = (is_label, drawn.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let notes: String = table.notes.iter().map(|note| format!("  {note}\n")).collect();
    format!("{}\n{}\n{notes}", table.title, drawn.trim_fmt())
}
