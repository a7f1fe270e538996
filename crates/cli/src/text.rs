//! Tables and words that every view shares.

use comfy_table::{CellAlignment, presets};
use evaluate::columns::Block;
pub(crate) use evaluate::columns::wrapped;
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

/// A table without lines, its columns parted by two spaces.
pub(crate) struct Table {
    /// The header first.
    rows: Vec<Vec<String>>,
    /// Columns that are aligned to the right.
    right: Vec<usize>,
}

impl Table {
    /// A row: a cell for each column.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines where `width` columns are left for them.
    fn shown(&self, width: Option<usize>) -> String {
        let blocks = evaluate::columns::blocks(&self.rows, 1, width);
        blocks.into_iter().map(|block| self.block(block)).collect::<Vec<_>>().join("\n\n")
    }

    fn block(&self, block: Block) -> String {
        let mut rows = block.rows.into_iter();
        let mut drawn = comfy_table::Table::new();
        drawn.load_style(presets::NOTHING).set_header(rows.next().unwrap_or_default());
        drawn.add_rows(rows);
        for (place, index) in block.columns.iter().enumerate() {
            let Some(column) = drawn.column_mut(place) else { continue };
            column.set_padding((0, 2));
            if self.right.contains(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        drawn.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

/// A table; the columns at the indices `right` are aligned to the right.
pub(crate) fn table<const COLUMNS: usize>(header: [&str; COLUMNS], right: &[usize]) -> Table {
    table_of(header.map(str::to_owned).to_vec(), right)
}

/// As [`table`], for a header that is made at run time.
pub(crate) fn table_of(header: Vec<String>, right: &[usize]) -> Table {
    Table { rows: vec![header], right: right.to_vec() }
}

/// The lines of a table, as wide as the terminal, without blanks at their ends.
pub(crate) fn lines(table: &Table) -> String {
    table.shown(terminal_width())
}
