//! Which charts an evaluation has. [`chart`] says what a chart is, [`draw`] makes SVG of it.
//!
//! **Rule.** First stands the picture of the answer (`answer`); then each quantity over the numbers
//! of threads, with a curve of each configuration and provenance; then, where several numbers of
//! threads were measured, the headline's ratio to native over them. Series over sizes or loads have
//! charts with two logarithmic axes (`sizes`).

mod chart;
mod draw;
mod sizes;
mod words;

pub(crate) use chart::file_name;
pub use chart::{Chart, Mark, Over, Series};
pub(crate) use draw::FONT;

use crate::answer;
use crate::applications::Section;
use crate::evaluation::{Evaluation, Shown, unique, widths};
use crate::experiment::Experiment;
use crate::figure::{Figure, Origin, Provenance};
use crate::modelled::Prediction;
use crate::resolve::Resolved;
use crate::summary::Summary;
use crate::tables::{self, words as marks};
use workloads::workload::Quantity;

/// Of what was measured.
pub fn measured(resolved: &Resolved, summary: &Summary) -> Vec<Chart> {
    all(&Evaluation::measured(resolved, summary), resolved.experiment.application.as_ref())
}

/// Of a prediction.
pub fn modelled(experiment: &Experiment, prediction: &Prediction) -> Vec<Chart> {
    all(&Evaluation::modelled(experiment, prediction), experiment.application.as_ref())
}

/// Each chart as a file: its name, which ends in `.svg`, and its text.
pub fn files(charts: &[Chart]) -> Vec<(String, String)> {
    charts.iter().map(|chart| (format!("{}.svg", chart.name), chart.svg())).collect()
}

/// All charts of an evaluation, the picture of its answer first; `application`: its section of the
/// experiment, where it has one.
pub(crate) fn all(evaluation: &Evaluation, application: Option<&Section>) -> Vec<Chart> {
    let mut charts: Vec<Chart> = answer::picture(evaluation, application).into_iter().collect();
    if application.is_none_or(|section| section.shows_seconds) {
        let quantities = quantities(evaluation);
        charts.extend(quantities.iter().filter_map(|quantity| scan(evaluation, quantity)));
        charts.extend(sizes::charts(evaluation));
        charts.extend(answer::headline(&quantities).and_then(|quantity| ratios(evaluation, quantity)));
    }
    for index in 1..charts.len() {
        if charts[..index].iter().any(|other| other.name == charts[index].name) {
            charts[index].name = format!("{}-{index}", charts[index].name);
        }
    }
    charts
}

/// What was run at several numbers of threads, each quantity once; without those of a series.
pub(crate) fn quantities(evaluation: &Evaluation) -> Vec<Quantity> {
    let of_one = |shown: &Shown| evaluation.quantities(shown, |point| point.width().is_some());
    let mut quantities: Vec<Quantity> = Vec::new();
    let all = evaluation.configurations.iter().flat_map(of_one).filter(|quantity| quantity.at.is_none());
    for quantity in all {
        if !quantities.iter().any(|known| known.name == quantity.name) {
            quantities.push(quantity);
        }
    }
    quantities
}

/// A quantity against the number of threads: a curve of each configuration and provenance.
fn scan(evaluation: &Evaluation, quantity: &Quantity) -> Option<Chart> {
    let is_shown = |figure: &&Figure| figure.is_of(&quantity.name) && figure.threads().is_some();
    let figures: Vec<&Figure> = evaluation.figures.iter().filter(is_shown).collect();
    let counts = widths(figures.iter().map(|figure| &figure.point));
    let mut series = Vec::new();
    for (colour, shown) in evaluation.configurations.iter().enumerate() {
        for origin in [Origin::Measured, Origin::Modelled] {
            let is_own = |figure: &&Figure| figure.configuration == shown.name && figure.origin() == origin;
            let own: Vec<&Figure> = figures.iter().copied().filter(is_own).collect();
            series.extend(curve(&name(evaluation, shown, &own), origin, colour, &own, &counts));
        }
    }
    for (configuration, title) in unique(evaluation.published.iter().map(|one| (&one.configuration, &one.title))) {
        let is_in = |figure: &&Figure| {
            figure.configuration == *configuration
                && matches!(&figure.provenance, Provenance::Published { title: of, .. } if of == title)
        };
        let own: Vec<&Figure> = figures.iter().copied().filter(is_in).collect();
        series.extend(curve(&format!("PUBLISHED: {title}"), Origin::Published, 0, &own, &counts));
    }
    let is_application = figures.iter().any(|figure| figure.point.workload == crate::experiment::APPLICATION);
    let title = match (evaluation.origin, figures.iter().any(|figure| figure.origin() == Origin::Measured)) {
        (Origin::Modelled, true) => format!("{}, MODELLED and measured", quantity.name),
        (Origin::Modelled, false) => format!("{}, MODELLED", quantity.name),
        _ => quantity.name.clone(),
    };
    (!series.is_empty()).then(|| Chart {
        name: file_name(&quantity.name),
        title,
        value: quantity.unit.clone(),
        reference: None,
        over: Over::Counts {
            title: if is_application { "processes over all VMs" } else { "threads over all VMs" }.to_owned(),
            counts,
        },
        series,
    })
}

/// The name of a curve.
fn name(evaluation: &Evaluation, shown: &Shown, figures: &[&Figure]) -> String {
    let emulated = if figures.iter().any(|figure| figure.is_emulated()) { ", EMULATED" } else { "" };
    match (evaluation.origin, figures.first().map(|figure| figure.origin())) {
        (_, Some(Origin::Published)) => format!("PUBLISHED: {}", shown.name),
        (_, Some(Origin::Modelled)) => format!("MODELLED: {}", shown.name),
        (Origin::Modelled, _) => format!("MEASURED: {}{emulated}", shown.name),
        _ => format!("{}{emulated}", shown.name),
    }
}

fn curve(name: &str, origin: Origin, colour: usize, figures: &[&Figure], counts: &[u32]) -> Option<Series> {
    let place = |figure: &Figure| counts.iter().position(|&count| figure.threads() == Some(count));
    curve_at(name, origin, colour, figures, place)
}

/// The same, with any place of a figure.
fn curve_at(
    name: &str,
    origin: Origin,
    colour: usize,
    figures: &[&Figure],
    place: impl Fn(&Figure) -> Option<usize>,
) -> Option<Series> {
    let mark = |figure: &&Figure| {
        Some(Mark { place: place(figure)?, value: figure.value, spread: None, says: says(name, figure) })
    };
    let mut marks: Vec<Mark> = figures.iter().filter_map(mark).collect();
    marks.sort_by_key(|mark| mark.place);
    let each = |of: fn(&crate::figure::Spread) -> &Vec<f64>| -> Vec<(usize, f64)> {
        let spreads = figures.iter().filter_map(|figure| Some((place(figure)?, figure.spread.as_ref()?)));
        spreads.flat_map(|(place, spread)| of(spread).iter().map(move |&value| (place, value))).collect()
    };
    (!marks.is_empty()).then(|| Series {
        name: name.to_owned(),
        origin,
        colour,
        repetitions: each(|spread| &spread.repetitions),
        rejected: each(|spread| &spread.rejected),
        marks,
    })
}

/// What a mouse shows: `native, 4 threads: 19800 MB/s; median 19650 of 18 repetitions`.
fn says(name: &str, figure: &Figure) -> String {
    let value = marks::figure(figure, &figure.quantity);
    let repetitions = figure.spread.as_ref().map_or_else(String::new, |spread| {
        let median = marks::number(spread.median, &figure.quantity);
        format!("; median {median} of {} repetitions", spread.repetitions.len())
    });
    let at =
        figure.quantity.at.as_ref().map_or_else(|| figure.point.to_string(), |at| format!("{} {}", at.value, at.unit));
    format!("{name}, {at}: {value} {}{repetitions}", figure.quantity.unit).replace(" ;", ";")
}

/// The ratio of a quantity to native over the numbers of threads, where there are several.
fn ratios(evaluation: &Evaluation, quantity: &Quantity) -> Option<Chart> {
    let native = evaluation.native()?;
    let mut series = Vec::new();
    let counts = widths(&native.points);
    let is_shown = |shown: &Shown| !shown.native && shown.machine == native.machine;
    for (colour, shown) in evaluation.configurations.iter().enumerate().filter(|(_, shown)| is_shown(shown)) {
        let all = shown.points.iter().flat_map(|point| tables::ratios_at(evaluation, shown, point, quantity));
        let own: Vec<Figure> = all.filter(|ratio| ratio.origin() == evaluation.origin).collect();
        let own: Vec<&Figure> = own.iter().collect();
        series.extend(curve(&name(evaluation, shown, &own), evaluation.origin, colour, &own, &counts));
    }
    let most = series.iter().map(|series| series.marks.len()).max()?;
    let modelled = if evaluation.origin == Origin::Modelled { ", MODELLED" } else { "" };
    (most > 1).then(|| Chart {
        name: file_name(&format!("{} to native", quantity.name)),
        title: format!("{}: virtual / native{modelled}", quantity.name),
        value: "virtual / native".to_owned(),
        reference: Some(1.0),
        over: Over::Counts { title: "threads over all VMs".to_owned(), counts },
        series,
    })
}

#[cfg(test)]
mod tests;
