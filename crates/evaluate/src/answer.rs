//! The answer to an experiment's question: one picture and three sentences, the first screen of
//! its report.
//!
//! **Rule.** The first sentence says what was compared, the second the answer with its ratio and
//! its interval, the third how sure it is. Three kinds of experiments have three questions:
//! what a VM's shape is worth at most threads (`scan`), what the sources' ratios of times come to
//! (`application`), and how much farther remote memory is (`matrix`).
//!
//! **Example.** "Compared: Triad in 1 VM, vNUMA and 1 VM per node with native, at 8 threads."
//! "1 VM, vNUMA is 0.98 times as good as native (0.97 to 0.99 ...)." "36 repetitions count ..."

mod application;
mod certainty;
mod matrix;
mod scan;

use crate::applications::Section;
use crate::charts::Chart;
use crate::evaluation::Evaluation;
use crate::figure::{Figure, Origin};
use workloads::workload::Quantity;

pub(crate) use certainty::{of_measured, of_modelled};

/// More names than these are counted, not listed.
const MOST_NAMES: usize = 4;

/// What was compared and what came of it, without how sure that is.
pub(crate) struct Found {
    compared: String,
    answer: String,
    picture: Option<Chart>,
}

/// The sentences; `certainty` is the last of them.
pub(crate) fn sentences(evaluation: &Evaluation, application: Option<&Section>, certainty: String) -> Vec<String> {
    let found = found(evaluation, application);
    found.map_or_else(Vec::new, |found| vec![found.compared, found.answer, certainty])
}

/// The picture.
pub(crate) fn picture(evaluation: &Evaluation, application: Option<&Section>) -> Option<Chart> {
    found(evaluation, application)?.picture
}

fn found(evaluation: &Evaluation, application: Option<&Section>) -> Option<Found> {
    let ratios = application.and_then(|section| application::found(evaluation, section));
    ratios.or_else(|| scan::found(evaluation)).or_else(|| matrix::found(evaluation))
}

/// The quantity that stands for all: STREAM's Triad, else the first.
pub(crate) fn headline(quantities: &[Quantity]) -> Option<&Quantity> {
    quantities.iter().find(|quantity| quantity.name == "Triad").or(quantities.first())
}

/// `a; b; and c`, since names have commas in them; how many, of many.
fn list(names: &[&str], what: &str) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        many if many.len() > MOST_NAMES => format!("{} {what}", many.len()),
        [one, two] => format!("{one} and {two}"),
        [first @ .., last] => format!("{}; and {last}", first.join("; ")),
    }
}

/// `1 thread`, `8 threads`.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A ratio with its mark, which no line ends between.
fn ratio_text(value: f64, origin: Origin) -> String {
    let value = plain(value);
    match origin {
        Origin::Measured => value,
        Origin::Modelled => format!("≈\u{a0}{value}"),
        Origin::Published => format!("[{value}]"),
    }
}

/// A ratio: two digits behind the point, more where those would be zeros.
fn plain(value: f64) -> String {
    if value < 0.095 { format!("{value:.4}") } else { format!("{value:.2}") }
}

/// The ends of a ratio's interval.
fn ends(ratio: &Figure) -> Option<(f64, f64)> {
    ratio.interval().map(|interval| (interval.low, interval.high))
}
