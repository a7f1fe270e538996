//! What a VM's shape is worth: each configuration against native, at the most threads that both
//! ran with.

use super::{Found, counted, ends, headline, list, plain, ratio_text};
use crate::charts::{Chart, Mark, Over, Series, quantities};
use crate::evaluation::{Evaluation, Shown};
use crate::figure::{Figure, Origin};
use crate::point::Point;
use crate::tables::words;
use workloads::workload::Quantity;

/// A configuration against the base.
struct Compared<'a> {
    shown: &'a Shown,
    /// One of each provenance, those of the evaluation's own first.
    ratios: Vec<Ratio>,
}

/// Modelled ratios that are nearer to each other than this are the same: the model is off by more.
const SAME: f64 = 1.005;

struct Ratio {
    origin: Origin,
    value: f64,
    interval: Option<(f64, f64)>,
}

pub(super) fn found(evaluation: &Evaluation) -> Option<Found> {
    let quantities = quantities(evaluation);
    let quantity = headline(&quantities)?;
    let has = |shown: &&Shown| shown.points.iter().any(|point| own(evaluation, shown, point, quantity).is_some());
    let base = evaluation.native().filter(has).or_else(|| evaluation.configurations.iter().find(has))?;
    // On another machine a ratio would compare machines.
    let is_other = |shown: &&Shown| shown.name != base.name && shown.machine == base.machine;
    let others: Vec<&Shown> = evaluation.configurations.iter().filter(is_other).filter(has).collect();
    let point = base.points.iter().filter(|point| {
        let is_there = |shown: &&Shown| own(evaluation, shown, point, quantity).is_some();
        point.width().is_some() && is_there(&base) && (others.is_empty() || others.iter().any(is_there))
    });
    let point = point.max_by_key(|point| point.width())?;
    if others.is_empty() {
        return Some(alone(evaluation, base, point, quantity));
    }
    let compared: Vec<Compared> = others
        .iter()
        .map(|shown| Compared { shown, ratios: ratios(evaluation, shown, base, point, quantity) })
        .filter(|one| !one.ratios.is_empty())
        .collect();
    let names: Vec<&str> = compared.iter().map(|one| one.shown.name.as_str()).collect();
    let better = match quantity.better {
        workloads::workload::Better::More => "more is better",
        workloads::workload::Better::Less => "less is better",
    };
    Some(Found {
        compared: format!(
            "Compared with {}: {} ({}, {better}) in {}, at {point}.",
            base.name,
            quantity.name,
            quantity.unit,
            list(&names, "configurations")
        ),
        answer: answer(&compared, base),
        picture: Some(picture(evaluation, &compared, base, point, quantity)),
    })
}

/// Its figure of the evaluation's own provenance.
fn own<'a>(
    evaluation: &'a Evaluation,
    shown: &'a Shown,
    point: &'a Point,
    quantity: &'a Quantity,
) -> Option<&'a Figure> {
    evaluation.at(&shown.name, point, &quantity.name).find(|figure| figure.origin() == evaluation.origin)
}

fn ratios(evaluation: &Evaluation, shown: &Shown, base: &Shown, point: &Point, quantity: &Quantity) -> Vec<Ratio> {
    let at = |shown: &Shown, origin: Origin| {
        evaluation.at(&shown.name, point, &quantity.name).find(|figure| figure.origin() == origin).cloned()
    };
    let ratio = |origin: Origin| {
        let (own, other) = at(shown, origin).zip(at(base, origin))?;
        let ratio = own.ratio(&other);
        Some(Ratio { origin, value: ratio.value, interval: ends(&ratio) })
    };
    let mut all: Vec<Ratio> =
        [Origin::Measured, Origin::Modelled, Origin::Published].into_iter().filter_map(ratio).collect();
    all.sort_by_key(|ratio| ratio.origin != evaluation.origin);
    all
}

fn alone(evaluation: &Evaluation, shown: &Shown, point: &Point, quantity: &Quantity) -> Found {
    let figure = own(evaluation, shown, point, quantity);
    let value = figure.map_or_else(String::new, |figure| words::figure(figure, quantity));
    let widths = shown.points.iter().filter(|point| point.width().is_some()).count();
    let spread = figure
        .and_then(|figure| figure.spread.as_ref())
        .map(|spread| format!("; the median of its repetitions is {}", words::number(spread.median, quantity)));
    Found {
        compared: format!(
            "Only {} has figures, at {}: there is nothing to compare it with.",
            shown.name,
            counted(widths, "number of threads", "numbers of threads"),
        ),
        answer: format!("At {point}, {} is {value} {}{}.", quantity.name, quantity.unit, spread.unwrap_or_default()),
        picture: None,
    }
}

/// Why the best and the worst may be the same, if they may.
fn doubt(ends: Option<(&Ratio, &Ratio)>) -> &'static str {
    let Some((best, worst)) = ends else { return "" };
    match (best.interval, worst.interval) {
        (Some(one), Some(other)) if best.value > worst.value && one.0 <= other.1 => {
            "; their intervals overlap, so that these two are not told apart"
        }
        (Some(_), Some(_)) => "",
        _ if best.origin == Origin::Measured => "; too few rounds for an interval",
        _ if best.value > worst.value && best.value / worst.value < SAME => "; the two are as good as the same",
        _ => "",
    }
}

fn answer(compared: &[Compared], base: &Shown) -> String {
    let value = |one: &&Compared| one.ratios.first().map_or(0.0, |ratio| ratio.value);
    let text = |one: &Compared| {
        let Some(ratio) = one.ratios.first() else { return String::new() };
        let interval =
            ratio.interval.map_or_else(String::new, |(least, most)| format!(" ({} to {})", plain(least), plain(most)));
        format!("{}{interval}", ratio_text(ratio.value, ratio.origin))
    };
    let by_value = |one: &&Compared, other: &&Compared| value(one).total_cmp(&value(other));
    let Some((best, worst)) = compared.iter().max_by(by_value).zip(compared.iter().min_by(by_value)) else {
        return String::new();
    };
    let doubt = doubt(best.ratios.first().zip(worst.ratios.first()));
    if compared.len() == 1 {
        return format!("{} reaches {} times {}{doubt}.", best.shown.name, text(best), base.name);
    }
    format!(
        "{} comes out best, with {} times {}; {} worst, with {}{doubt}.",
        best.shown.name,
        text(best),
        base.name,
        worst.shown.name,
        text(worst)
    )
}

fn picture(evaluation: &Evaluation, compared: &[Compared], base: &Shown, point: &Point, quantity: &Quantity) -> Chart {
    let row = |one: &Compared| {
        let texts: Vec<String> = one.ratios.iter().map(|ratio| ratio_text(ratio.value, ratio.origin)).collect();
        format!("{}: {}", one.shown.name, texts.join("  "))
    };
    let rows: Vec<String> = compared.iter().map(row).collect();
    let series = |(origin, name): (Origin, &str)| {
        let mark = |(place, one): (usize, &Compared)| {
            let ratio = one.ratios.iter().find(|ratio| ratio.origin == origin)?;
            let interval = ratio
                .interval
                .map_or_else(String::new, |(least, most)| format!(" ({} to {})", plain(least), plain(most)));
            let says = format!("{}, {name}: {:.3} times {}{interval}", one.shown.name, ratio.value, base.name);
            Some(Mark { place, value: ratio.value, spread: ratio.interval, says })
        };
        let marks: Vec<Mark> = compared.iter().enumerate().filter_map(mark).collect();
        let (repetitions, rejected) = (Vec::new(), Vec::new());
        (!marks.is_empty()).then(|| Series { name: name.to_owned(), origin, colour: 0, marks, repetitions, rejected })
    };
    let names =
        [(Origin::Measured, "measured"), (Origin::Modelled, "MODELLED"), (Origin::Published, "published by others")];
    let is_emulated = evaluation.origin == Origin::Measured && compared.iter().any(|one| one.shown.emulated);
    let emulated = if is_emulated { ", EMULATED (TCG)" } else { "" };
    let modelled = if evaluation.origin == Origin::Modelled { ", MODELLED" } else { "" };
    Chart {
        name: "answer".to_owned(),
        title: format!("{} at {point}, against {}{modelled}{emulated}", quantity.name, base.name),
        value: format!("times {}: over 1 is better", base.name),
        reference: Some(1.0),
        over: Over::Rows(rows),
        series: names.into_iter().filter_map(series).collect(),
    }
}
