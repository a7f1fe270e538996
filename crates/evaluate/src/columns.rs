//! Tables where the terminal is narrower than they are.
//!
//! **Rule.** A table that does not fit gets lines that are broken between words, and after the
//! commas of a list; never in a word, in a number, or between a number and its unit. If that is not
//! enough, columns of which nothing is known (`-` in every row) are left out. If it still does not
//! fit, it becomes several blocks, one below the other, each with the columns that name the row.
//!
//! **Example.** `Node Memory CPUs` with `0 24 GiB 0-3,8-11` needs 26 columns. In 20, the list of
//! CPUs has two lines; in 12 there are two blocks, `Node Memory` and `Node CPUs`.

/// Between two columns.
const GAP: usize = 2;
/// What stays with the number before it.
const UNITS: [&str; 10] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "%", "s", "ms", "x"];

/// Columns that stand side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Their indices in the table.
    pub columns: Vec<usize>,
    /// The header and the rows, with line breaks.
    pub rows: Vec<Vec<String>>,
}

/// The blocks of a table of which the header is the first row, each at most `width` wide (as far as
/// its words allow). The first `labels` columns name a row. `None`: as wide as it is.
pub fn blocks(rows: &[Vec<String>], labels: usize, width: Option<usize>) -> Vec<Block> {
    let count = rows.first().map_or(0, Vec::len);
    let all: Vec<usize> = (0..count).collect();
    let of = |columns: &[usize], widths: Option<&[usize]>| Block {
        columns: columns.to_vec(),
        rows: rows.iter().map(|row| cells(row, columns, widths)).collect(),
    };
    let natural = |&column: &usize| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    let Some(width) = width.filter(|&width| total(&all.iter().map(natural).collect::<Vec<_>>()) > width) else {
        return vec![of(&all, None)];
    };
    let least =
        |&column: &usize| rows.iter().flat_map(|row| pieces(&row[column])).map(|(piece, _)| length(&piece)).max();
    let least: Vec<usize> = all.iter().map(|column| least(column).unwrap_or(0)).collect();
    let leasts = |columns: &[usize]| columns.iter().map(|&column| least[column]).collect::<Vec<_>>();
    let mut left = all;
    if total(&leasts(&left)) > width {
        left.retain(|&column| !is_unknown(rows, column));
    }
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let (names, figures) = left.split_at(labels.min(left.len()));
    let mut block = names.to_vec();
    for &column in figures {
        let wider = [&block[..], &[column]].concat();
        if block.len() > names.len() && total(&leasts(&wider)) > width {
            blocks.push(std::mem::replace(&mut block, [names, &[column]].concat()));
        } else {
            block = wider;
        }
    }
    blocks.push(block);
    let fitted = |columns: &Vec<usize>| {
        let spare = width.saturating_sub(total(&leasts(columns)));
        of(columns, Some(&widths(columns, &least, natural, spare)))
    };
    blocks.iter().map(fitted).collect()
}

/// What each column gets: what it needs at least, and as many as can be their natural width, those
/// that lack little first.
fn widths(columns: &[usize], least: &[usize], natural: impl Fn(&usize) -> usize, mut spare: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = columns.iter().map(|&column| least[column]).collect();
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|&index| natural(&columns[index]) - widths[index]);
    for index in order {
        let more = (natural(&columns[index]) - widths[index]).min(spare);
        widths[index] += more;
        spare -= more;
    }
    widths
}

fn is_unknown(rows: &[Vec<String>], column: usize) -> bool {
    rows.len() > 1 && rows[1..].iter().all(|row| matches!(row[column].as_str(), "-" | ""))
}

fn cells(row: &[String], columns: &[usize], widths: Option<&[usize]>) -> Vec<String> {
    let cell = |(place, &column): (usize, &usize)| match widths {
        Some(widths) => broken(&row[column], widths[place]),
        None => row[column].clone(),
    };
    columns.iter().enumerate().map(cell).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// `text` in lines of at most `width`, broken between words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    filled(words(text).into_iter().map(|word| (word, true)), width)
}

/// Words, and amounts with their units.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = UNITS.contains(&word.trim_end_matches([',', '.', ';', ':', ')']));
        let amount = |before: &&mut String| before.ends_with(|letter: char| letter.is_ascii_digit());
        match words.last_mut().filter(amount).filter(|_| unit) {
            Some(before) => before.extend([" ", word]),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// What of a cell may stand on a line of its own, each with whether a blank is before it: words,
/// and the items of lists.
fn pieces(text: &str) -> Vec<(String, bool)> {
    let items = |word: String| {
        let items: Vec<String> = word.split_inclusive(',').map(str::to_owned).collect();
        items.into_iter().enumerate().map(|(index, item)| (item, index == 0))
    };
    words(text).into_iter().flat_map(items).collect()
}

fn broken(text: &str, width: usize) -> String {
    filled(pieces(text), width).join("\n")
}

fn filled(pieces: impl IntoIterator<Item = (String, bool)>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (piece, blank) in pieces {
        match lines.last_mut() {
            Some(line) if length(line) + usize::from(blank) + length(&piece) <= width => {
                line.push_str(if blank { " " } else { "" });
                line.push_str(&piece);
            }
            _ => lines.push(piece),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<Vec<String>> {
        let rows =
            [["Node", "Memory", "Free", "CPUs"], ["0", "24 GiB", "-", "0-3,8-11"], ["1", "24 GiB", "-", "4-7,12-15"]];
        rows.map(|row| row.map(str::to_owned).to_vec()).to_vec()
    }

    /// The widest line of a block: its columns, with two blanks between them.
    fn widest(block: &Block) -> usize {
        let of =
            |column: usize| block.rows.iter().flat_map(|row| row[column].split('\n')).map(length).max().unwrap_or(0);
        (0..block.columns.len()).map(of).sum::<usize>() + GAP * (block.columns.len() - 1)
    }

    #[test]
    fn words_and_numbers_stay_whole_however_narrow_it_is() {
        let whole = blocks(&table(), 1, None);
        assert_eq!((whole.len(), widest(&whole[0])), (1, 4 + 2 + 6 + 2 + 4 + 2 + 9));
        for width in 12..40 {
            let blocks = blocks(&table(), 1, Some(width));
            for block in &blocks {
                assert!(widest(block) <= width, "{width}: {block:?}");
                for line in block.rows.iter().flatten().flat_map(|cell| cell.split('\n')) {
                    let known = ["Node", "Memory", "Free", "CPUs", "0", "1", "24 GiB", "-"];
                    let list = ["0-3,8-11", "4-7,12-15"].iter().any(|list| list.contains(line));
                    let whole = !line.starts_with(',') && !line.starts_with('-') || line == "-";
                    assert!(known.contains(&line) || list && whole, "{width}: {line:?}");
                }
            }
        }
    }

    #[test]
    fn unknown_columns_go_before_it_is_cut_into_blocks_that_repeat_the_label() {
        // 4 + 6 + 6 and two gaps: with the lists in two lines, and without `Free`.
        let narrow = blocks(&table(), 1, Some(20));
        assert_eq!(narrow.len(), 1);
        assert_eq!(narrow[0].columns, [0, 1, 3]);
        assert_eq!(narrow[0].rows[2], ["1", "24 GiB", "4-7,\n12-15"]);
        let cut: Vec<Vec<usize>> = blocks(&table(), 1, Some(12)).into_iter().map(|block| block.columns).collect();
        assert_eq!(cut, [vec![0, 1], vec![0, 3]]);
    }
}
