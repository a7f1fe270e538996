//! How much farther remote memory is: what was run at pairs of nodes.

use super::{Found, list};
use crate::charts::{Chart, Mark, Over, Series};
use crate::evaluation::{Evaluation, Shown, unique};
use crate::figure::{Figure, NS, Origin};
use crate::tables::words;
use workloads::workload::{Better, Quantity};

/// Figures of a configuration, to the node's own memory and to that of others.
struct Pairs<'a> {
    shown: &'a Shown,
    local: Vec<Figure>,
    remote: Vec<Figure>,
}

pub(super) fn found(evaluation: &Evaluation) -> Option<Found> {
    let of_one = |shown: &Shown| evaluation.quantities(shown, |point| point.pair().is_some());
    let all: Vec<Quantity> = evaluation.configurations.iter().flat_map(of_one).collect();
    // Latency, where there is one: the last of the quantities, as in the tables.
    let quantity = all.iter().find(|quantity| quantity.unit == NS).or(all.last())?;
    let pairs: Vec<Pairs> = evaluation
        .configurations
        .iter()
        .map(|shown| pairs(evaluation, shown, quantity))
        .filter(|pairs| !pairs.local.is_empty())
        .collect();
    let names: Vec<&str> = pairs.iter().map(|pairs| pairs.shown.name.as_str()).collect();
    let units = unique(all.iter().map(|quantity| quantity.unit.as_str()));
    let first = pairs.first()?;
    Some(Found {
        compared: format!(
            "Compared: {} from the CPUs of each node to the memory of each node, in {}.",
            units.into_iter().map(|unit| what(unit, &all)).collect::<Vec<_>>().join(" and "),
            list(&names, "configurations")
        ),
        answer: answer(first, &pairs, quantity),
        picture: Some(picture(&pairs, quantity)),
    })
}

fn what(unit: &str, all: &[Quantity]) -> String {
    let last = all.iter().rfind(|quantity| quantity.unit == unit);
    last.map_or_else(String::new, |quantity| format!("{} ({unit})", quantity.name))
}

fn pairs<'a>(evaluation: &Evaluation, shown: &'a Shown, quantity: &Quantity) -> Pairs<'a> {
    let is_own = |figure: &&Figure| {
        figure.configuration == shown.name && figure.is_of(&quantity.name) && figure.origin() == evaluation.origin
    };
    let own = || evaluation.figures.iter().filter(is_own);
    let of = |is_local: bool| {
        let is_wanted = |figure: &&Figure| figure.point.pair().is_some_and(|(from, to)| (from == to) == is_local);
        own().filter(is_wanted).cloned().collect()
    };
    Pairs { shown, local: of(true), remote: of(false) }
}

fn mean(figures: &[Figure]) -> f64 {
    figures.iter().map(|figure| figure.value).sum::<f64>() / figures.len() as f64
}

fn text(value: f64, like: &Figure, quantity: &Quantity) -> String {
    let mark = if like.origin() == Origin::Modelled { "≈\u{a0}" } else { "" };
    format!("{mark}{}", words::number(value, quantity))
}

fn answer(first: &Pairs, all: &[Pairs], quantity: &Quantity) -> String {
    let Some(like) = first.local.first() else { return String::new() };
    let local = mean(&first.local);
    let unit = &quantity.unit;
    let beside: Vec<String> = all
        .iter()
        .skip(1)
        .map(|pairs| {
            format!(
                "{}: {:.2} times as good as {}",
                pairs.shown.name,
                quantity.better.ratio(mean(&pairs.local), local),
                first.shown.name
            )
        })
        .collect();
    let beside = if beside.is_empty() { String::new() } else { format!(" To local memory, {}.", beside.join("; ")) };
    if first.remote.is_empty() {
        let one = "there is one node, so that no memory is remote";
        return format!("{}: {} {unit}; {one}.{beside}", first.shown.name, text(local, like, quantity));
    }
    let ratios = first.remote.iter().map(|figure| quantity.better.ratio(local, figure.value));
    let worst = ratios.fold(0.0, f64::max);
    let remote = mean(&first.remote);
    let times = match quantity.better {
        Better::Less => "times as much",
        Better::More => "times less",
    };
    format!(
        "{}: {} {unit} to a node's own memory, {} {unit} to that of others: {:.2} {times} in the mean, \
         {worst:.2} at worst.{beside}",
        first.shown.name,
        text(local, like, quantity),
        text(remote, like, quantity),
        quantity.better.ratio(local, remote),
    )
}

/// A row of each configuration's local and of its remote pairs, a mark of each pair.
fn picture(pairs: &[Pairs], quantity: &Quantity) -> Chart {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    for (colour, one) in pairs.iter().enumerate() {
        let mut marks = Vec::new();
        for (name, figures) in [("own memory", &one.local), ("memory of other nodes", &one.remote)] {
            let Some(like) = figures.first() else { continue };
            let value = text(mean(figures), like, quantity);
            let many = if figures.len() > 1 { " in the mean" } else { "" };
            rows.push(format!("{}, {name}: {value} {}{many}", one.shown.name, quantity.unit));
            marks.extend(figures.iter().map(|figure| Mark {
                place: rows.len() - 1,
                value: figure.value,
                spread: None,
                says: format!("{}: {} {}", figure.point, words::figure(figure, quantity), quantity.unit),
            }));
        }
        let origin = one.local.first().map_or(Origin::Measured, Figure::origin);
        let (name, repetitions, rejected) = (String::new(), Vec::new(), Vec::new());
        series.push(Series { name, origin, colour, marks, repetitions, rejected });
    }
    let modelled = series.iter().any(|series| series.origin == Origin::Modelled);
    Chart {
        name: "answer".to_owned(),
        title: format!("Each pair of nodes: {}{}", quantity.name, if modelled { ", MODELLED" } else { "" }),
        value: quantity.unit.clone(),
        reference: None,
        over: Over::Rows(rows),
        series,
    }
}
