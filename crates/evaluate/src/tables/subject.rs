//! The rows of one subject: a quantity of a configuration at several points.
//!
//! **Rule.** Its own figures come first. Below them stand figures of another provenance, each with
//! the error of the model against it, where the two are of one machine.
//!
//! **Example.** `Copy` of a modelled experiment with a measured run beside it has the rows `Copy`,
//! `  measured`, `  error`, `  published`, `  error`.

use super::words::{self, NONE};
use super::{Kind, Row};
use crate::evaluation::unique;
use crate::figure::{Figure, Origin, Provenance};
use workloads::workload::Quantity;

/// A quantity at several points.
pub(super) struct Subject<'a> {
    /// Whose figures stand first.
    pub(super) origin: Origin,
    /// The first cells of its first row; the last of them names the rows below.
    pub(super) labels: Vec<String>,
    /// How its figures are printed.
    pub(super) quantity: &'a Quantity,
    /// The figures at each point, of every provenance.
    pub(super) columns: Vec<Vec<Figure>>,
    /// What stands at each point without a figure of its own.
    pub(super) empty: Vec<String>,
    /// What stands at each point without a published figure, where others have one.
    pub(super) unpublished: Vec<String>,
    /// Whether errors against published figures mean something.
    pub(super) compares_published: bool,
    /// Whether errors against measured figures do.
    pub(super) compares_measured: bool,
}

impl Subject<'_> {
    /// All its rows.
    pub(super) fn rows(&self) -> Vec<Row> {
        let own = |index: usize| self.own(index).map_or_else(|| self.empty[index].clone(), |one| self.text(one));
        let kind = if self.origin == Origin::Modelled { Kind::Modelled } else { Kind::Measured };
        let mut rows = vec![self.row(&self.labels, kind, own)];
        rows.extend(self.intervals(|index| self.own(index)));
        if self.origin != Origin::Measured {
            rows.extend(self.measured());
        }
        rows.extend(self.published());
        rows
    }

    fn own(&self, index: usize) -> Option<&Figure> {
        self.columns[index].iter().find(|figure| figure.origin() == self.origin)
    }

    fn text(&self, figure: &Figure) -> String {
        words::figure(figure, self.quantity)
    }

    fn all(&self, origin: Origin) -> impl Iterator<Item = &Figure> {
        self.columns.iter().flatten().filter(move |figure| figure.origin() == origin)
    }

    fn measured(&self) -> Vec<Row> {
        let Some(first) = self.all(Origin::Measured).next() else { return Vec::new() };
        let label = if first.is_emulated() { "  measured, EMULATED" } else { "  measured" };
        let find = |index: usize| self.columns[index].iter().find(|figure| figure.origin() == Origin::Measured);
        let text = |index| find(index).map_or_else(|| NONE.to_owned(), |figure| self.text(figure));
        let mut rows = vec![self.below(label, Kind::Measured, text)];
        rows.extend(self.intervals(find));
        if self.compares_measured {
            rows.extend(self.errors(|index| find(index).filter(|figure| !figure.is_emulated())));
        }
        rows
    }

    /// Where ratios are, if it is known of any.
    fn intervals<'a>(&'a self, of: impl Fn(usize) -> Option<&'a Figure>) -> Option<Row> {
        let text = |index: usize| of(index).and_then(|one| words::interval(one, self.quantity));
        let all: Vec<Option<String>> = (0..self.columns.len()).map(text).collect();
        let text = |index: usize| all[index].clone().unwrap_or_else(|| NONE.to_owned());
        all.iter().any(Option::is_some).then(|| self.below("  95 %", Kind::Measured, text))
    }

    /// A row for each table that it was published in.
    fn published(&self) -> Vec<Row> {
        let title = |figure: &Figure| match &figure.provenance {
            Provenance::Published { title, .. } => Some(title.clone()),
            _ => None,
        };
        let of_title = |wanted: &String| {
            let find = |index: usize| {
                self.columns[index].iter().find(|figure| title(figure).as_ref() == Some(wanted)).cloned()
            };
            let text =
                |index: usize| find(index).map_or_else(|| self.unpublished[index].clone(), |one| self.text(&one));
            self.below("  published", Kind::Published, text)
        };
        let titles = unique(self.all(Origin::Published).filter_map(title));
        let mut rows: Vec<Row> = titles.iter().map(of_title).collect();
        if self.compares_published {
            let find = |index: usize| self.columns[index].iter().find(|one| one.origin() == Origin::Published);
            rows.extend(self.errors(find));
        }
        rows
    }

    /// The errors of its own figures, if there is any.
    fn errors<'a>(&'a self, other: impl Fn(usize) -> Option<&'a Figure>) -> Option<Row> {
        let error = |index: usize| self.own(index).zip(other(index)).map(|(own, other)| words::error(own, other));
        let all: Vec<Option<String>> = (0..self.columns.len()).map(error).collect();
        let text = |index: usize| all[index].clone().unwrap_or_else(|| NONE.to_owned());
        all.iter().any(Option::is_some).then(|| self.below("  error", Kind::Error, text))
    }

    /// A row below the first: its label stands where that of the first row ends.
    fn below(&self, label: &str, kind: Kind, text: impl Fn(usize) -> String) -> Row {
        let mut labels = vec![String::new(); self.labels.len()];
        if let Some(last) = labels.last_mut() {
            *last = label.to_owned();
        }
        self.row(&labels, kind, text)
    }

    fn row(&self, labels: &[String], kind: Kind, text: impl Fn(usize) -> String) -> Row {
        Row { cells: labels.iter().cloned().chain((0..self.columns.len()).map(text)).collect(), kind }
    }
}
