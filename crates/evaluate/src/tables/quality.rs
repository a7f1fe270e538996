//! How good the measurement was.

use super::words::NONE;
use super::{Kind, Row, Table};
use crate::summary::{Cell, ConfigurationSummary, Reduced, State, Summary};

/// A row of each configuration at each point.
pub(super) fn table(summary: &Summary) -> Table {
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
        .flat_map(|configuration| configuration.cells.iter().map(|cell| row(&configuration.name, cell)))
        .map(|cells| Row { cells, kind: Kind::Measured })
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

fn row(configuration: &str, cell: &Cell) -> Vec<String> {
    let share = |figures: &Reduced| figures.quantity.better.ratio(figures.spread.median, figures.best);
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
