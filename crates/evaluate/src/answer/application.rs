//! What the ratios of programs' times come to: the first table of ratios that the sources print.

use super::{Found, ends, ratio_text};
use crate::applications::{RatioTable, Section, times};
use crate::charts::{Chart, Mark, Over, Series};
use crate::evaluation::{Evaluation, unique};
use crate::figure::{Origin, SECONDS};

/// What is printed as no difference.
const SAME: f64 = 0.005;

/// Where a ratio comes from, its value, and its interval.
type Ratio = (Origin, f64, Option<(f64, f64)>);

/// A program's ratios at the most processes.
struct Program {
    name: String,
    processes: u32,
    ratios: Vec<Ratio>,
}

pub(super) fn found(evaluation: &Evaluation, section: &Section) -> Option<Found> {
    let table = section.ratios.iter().find(|table| table.base.is_none()).or(section.ratios.first())?;
    let programs = programs(evaluation, table);
    let own = |program: &Program| program.ratios.first().map_or(1.0, |ratio| ratio.1);
    let by_ratio = |one: &&Program, other: &&Program| own(one).total_cmp(&own(other));
    let (most, least) = programs.iter().max_by(by_ratio).zip(programs.iter().min_by(by_ratio))?;
    let text = |program: &Program| {
        let all: Vec<String> = program.ratios.iter().map(|&(origin, value, _)| ratio_text(value, origin)).collect();
        format!("{}, {} processes: {}", program.name, program.processes, all.join("  "))
    };
    let (over, of) = (table.time_of.join(" or "), table.divided_by.join(" or "));
    let faster = programs.iter().filter(|program| own(program) > 1.0 + SAME).count();
    let geometric = (programs.iter().map(|program| own(program).ln()).sum::<f64>() / programs.len() as f64).exp();
    let ratio = |value: f64| ratio_text(value, evaluation.origin);
    let answer = if programs.len() == 1 {
        format!("{} is {} times as fast with {of} as with {over}.", most.name, ratio(own(most)))
    } else {
        format!(
            "With {of} {faster} of {} programs are faster than with {over}, {} times in the geometric mean: \
             from {} ({}) to {} ({}).",
            programs.len(),
            ratio(geometric),
            ratio(own(least)),
            least.name,
            ratio(own(most)),
            most.name
        )
    };
    Some(Found {
        compared: format!(
            "Compared: the times of {} with {over} and with {of}, at the most processes of each ({}).",
            super::counted(programs.len(), "program", "programs"),
            table.title
        ),
        answer,
        picture: Some(picture(evaluation, table, &programs, &text)),
    })
}

fn programs(evaluation: &Evaluation, table: &RatioTable) -> Vec<Program> {
    let of_seconds = evaluation.figures.iter().filter(|figure| figure.quantity.unit == SECONDS);
    let names = unique(of_seconds.map(|figure| figure.quantity.name.clone()));
    let wanted = |name: &String| table.figures.is_empty() || table.figures.contains(name);
    let program = |name: String| {
        let at = |origin: Origin, processes: u32| times(table, &evaluation.figures, origin, &name, processes);
        // The model has every count; where it does not, the next lower one.
        let mut counts: Vec<u32> = evaluation.figures.iter().filter_map(|figure| figure.threads()).collect();
        counts.retain(|count| evaluation.origin == Origin::Measured || table.processes.contains(count));
        counts.sort_unstable();
        let processes = counts.into_iter().rev().find(|&count| at(evaluation.origin, count).is_some())?;
        let ratio = |origin: Origin| {
            let (over, of) = at(origin, processes)?;
            let ratio = of.ratio(over);
            Some((origin, ratio.value, ends(&ratio)))
        };
        let published = table.published.iter().find(|one| one.figure == name && one.processes == processes);
        let published = published.filter(|_| evaluation.configurations.iter().all(|shown| shown.compares_published));
        let mut ratios: Vec<_> = [Origin::Measured, Origin::Modelled].into_iter().filter_map(ratio).collect();
        ratios.sort_by_key(|ratio| ratio.0 != evaluation.origin);
        ratios.extend(published.map(|one| (Origin::Published, table.shows.ratio(one.value), None)));
        Some(Program { name, processes, ratios })
    };
    names.into_iter().filter(wanted).filter_map(program).collect()
}

fn picture(
    evaluation: &Evaluation,
    table: &RatioTable,
    programs: &[Program],
    text: &dyn Fn(&Program) -> String,
) -> Chart {
    let series = |(origin, name): (Origin, &str)| {
        let mark = |(place, program): (usize, &Program)| {
            let &(_, value, spread) = program.ratios.iter().find(|ratio| ratio.0 == origin)?;
            let says = format!("{} at {} processes, {name}: {value:.3}", program.name, program.processes);
            Some(Mark { place, value, spread, says })
        };
        let marks: Vec<Mark> = programs.iter().enumerate().filter_map(mark).collect();
        let (repetitions, rejected) = (Vec::new(), Vec::new());
        (!marks.is_empty()).then(|| Series { name: name.to_owned(), origin, colour: 0, marks, repetitions, rejected })
    };
    let names =
        [(Origin::Measured, "measured"), (Origin::Modelled, "MODELLED"), (Origin::Published, "published by others")];
    let modelled = if evaluation.origin == Origin::Modelled { ", MODELLED" } else { "" };
    Chart {
        name: "answer".to_owned(),
        title: format!("{}{modelled}", table.title),
        value: format!("times as fast as {}", table.time_of.join(" or ")),
        reference: Some(1.0),
        over: Over::Rows(programs.iter().map(text).collect()),
        series: names.into_iter().filter_map(series).collect(),
    }
}
