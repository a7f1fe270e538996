//! Measured runs side by side.

use super::words::{self, NONE};
use super::{Kind, Row, Table};
use crate::compare::{Compared, Comparison, Difference};
use crate::figure::Figure;

const TOO_FEW: &str = "Where no interval stands, there are too few runs for one: it takes 4 rounds of each.";

/// What differs between the runs, and a table of each configuration.
pub(super) fn tables(comparison: &Comparison) -> Vec<Table> {
    let configurations = comparison.configurations();
    let of_one = |name: &str| configuration(comparison, name);
    differences(comparison).into_iter().chain(configurations.into_iter().map(of_one)).collect()
}

/// A run's letter: `A` is the first.
fn letter(index: usize) -> String {
    u32::try_from(index).ok().and_then(|index| char::from_u32('A' as u32 + index)).unwrap_or('?').to_string()
}

fn differences(comparison: &Comparison) -> Option<Table> {
    let letters = (0..comparison.runs.len()).map(letter);
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| NONE.to_owned());
    let row = |one: &Difference| Row {
        cells: std::iter::once(one.what.clone()).chain(one.values.iter().map(value)).collect(),
        kind: Kind::Measured,
    };
    (!comparison.differences.is_empty()).then(|| Table {
        title: "What differs".to_owned(),
        header: std::iter::once(String::new()).chain(letters).collect(),
        rows: comparison.differences.iter().map(row).collect(),
        notes: Vec::new(),
    })
}

fn configuration(comparison: &Comparison, name: &str) -> Table {
    let own = || comparison.figures.iter().filter(|row| row.configuration == name);
    let letters = (0..comparison.runs.len()).map(letter);
    let ratios = (1..comparison.runs.len()).map(|index| format!("{} / A", letter(index)));
    let overlaps = own().any(|row| overlap(row).any(|overlap| overlap));
    let is_some = |row: &&Compared| row.intervals.iter().skip(1).any(Option::is_some);
    let has_interval = own().any(|row| is_some(&row));
    let is_without = own().any(|row| {
        row.ratios.iter().zip(&row.intervals).skip(1).any(|(ratio, interval)| ratio.is_some() && interval.is_none())
    });
    let disturbed = own().any(|row| row.figures.iter().flatten().any(Figure::is_disturbed));
    let notes = [
        (
            overlaps,
            "= the two runs are not told apart: the interval holds 1, or, without one, their repetitions overlap.",
        ),
        (has_interval, "(low-high): where the ratio is, with a confidence of 95 %."),
        (is_without, TOO_FEW),
        (disturbed, "~ every repetition was disturbed: the figure is the best of the disturbed ones."),
    ];
    Table {
        title: format!("{name}: over 1.00 is better than A"),
        header: ["Figure".to_owned(), "Point".to_owned()].into_iter().chain(letters).chain(ratios).collect(),
        rows: own().map(row).collect(),
        notes: notes.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, note)| note.to_owned()).collect(),
    }
}

fn overlap(row: &Compared) -> impl Iterator<Item = bool> {
    row.ratios.iter().zip(&row.told_apart).skip(1).map(|(ratio, apart)| ratio.is_some() && !apart)
}

fn row(row: &Compared) -> Row {
    let none = || NONE.to_owned();
    let figures = row.figures.iter().map(|one| one.as_ref().map_or_else(none, |one| words::figure(one, &row.quantity)));
    let ratios =
        row.ratios.iter().zip(&row.intervals).skip(1).zip(overlap(row)).map(|((ratio, interval), overlaps)| {
            let interval = interval.map_or_else(String::new, |one| format!(" ({:.2}-{:.2})", one.low, one.high));
            let mark = if overlaps { " =" } else { "" };
            ratio.map_or_else(none, |ratio| format!("{ratio:.2}{interval}{mark}"))
        });
    let quantity = format!("{}, {}", row.quantity.name, row.quantity.unit);
    Row {
        cells: [quantity, row.point.to_string()].into_iter().chain(figures).chain(ratios).collect(),
        kind: Kind::Measured,
    }
}
