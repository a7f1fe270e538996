//! Tables and words that every view shares.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use std::sync::OnceLock;
pub(crate) use topology::words::count;

/// Widest text that reads well, in a terminal and in a file.
pub(crate) const WIDTH: usize = 100;
/// Narrower terminals get lines that are cut by the terminal.
const NARROWEST: usize = 40;

/// Columns of the terminal that standard output is; `None` for a file or a pipe.
pub(crate) fn terminal_width() -> Option<usize> {
    static COLUMNS: OnceLock<Option<usize>> = OnceLock::new();
    *COLUMNS.get_or_init(|| {
        let terminal = console::Term::stdout();
        let size = terminal.is_term().then(|| terminal.size_checked()).flatten();
        size.map(|(_, columns)| usize::from(columns).max(NARROWEST))
    })
}

/// How wide sentences are: the terminal, but not wider than what reads well.
pub(crate) fn width() -> usize {
    terminal_width().map_or(WIDTH, |columns| columns.min(WIDTH))
}

/// A table without lines, its columns parted by two spaces; the columns at the indices `right` are aligned to the right.
pub(crate) fn table<const COLUMNS: usize>(header: [&str; COLUMNS], right: &[usize]) -> Table {
    table_of(header.map(str::to_owned).to_vec(), right)
}

/// As [`table`], for a header that is made at run time.
pub(crate) fn table_of(header: Vec<String>, right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    if let Some(columns) = terminal_width() {
        // Cells of tables that are too wide get several lines.
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns as u16);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The lines of a table, without blanks at their ends.
pub(crate) fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// `text` in lines of at most `width` characters, broken at spaces.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
