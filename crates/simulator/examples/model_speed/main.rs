//! How fast the model is: rate solves and events in a second, each solver against the prototype's,
//! interleaved in one run.
//!
//! `cargo run --release -p simulator --example model_speed`. Prints; asserts nothing. With
//! `--systems FILE` it writes what it would solve, for another solver; with `--compare OUTPUT
//! RATES` it prints that one's times and rates beside ours (see `bench/simgrid`).
#![allow(clippy::disallowed_methods, reason = "this program measures time")]

mod events;
mod exchange;
#[path = "../../tests/reference/mod.rs"]
mod reference;
mod systems;

use reference::Dense;
use simulator::{Amva, Group, MaxMin, RateSolver};
use std::time::Instant;
use systems::{Event, System};

/// What the prototype was measured with.
const TOLERANCE: f64 = 1e-4;
const ROUNDS: usize = 9;
/// Machine, groups, and thousand solves in a second that the prototype's dense solvers gave on
/// another machine: queueing, max-min.
type Case = (&'static str, usize, Option<(f64, f64)>);
const CASES: [Case; 8] = [
    ("hp-dl380-g6", 2, Some((380.0, 5000.0))),
    ("hp-dl380-g6", 16, Some((29.0, 460.0))),
    ("dell-r910", 4, Some((65.0, 3000.0))),
    ("dell-r910", 32, None),
    ("hp-dl980-g7", 8, Some((11.0, 1100.0))),
    ("hp-dl980-g7", 64, Some((2.8, 150.0))),
    ("hp-dl980-g7", 128, Some((2.1, 115.0))),
    ("epyc-7742-2s-nps4", 64, None),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => tables(),
        ["--systems", file] => std::fs::write(file, all_systems()).expect("a file to write"),
        ["--compare", times, rates] => compare(times, rates),
        _ => panic!("arguments: none, --systems FILE, or --compare TIMES RATES"),
    }
}

/// Events of a case in the comparison with another solver.
const COMPARED_EVENTS: usize = 2000;

fn all_systems() -> String {
    let of_case = |(machine, groups, _): Case| {
        let system = System::new(machine, groups);
        exchange::write(machine, &system, &system.events(COMPARED_EVENTS))
    };
    CASES.into_iter().map(of_case).collect()
}

/// `times` holds a line for each case: machine, groups, microseconds with the change, microseconds
/// of the solve alone. `rates` holds the rates after each event, a line each.
fn compare(times: &str, rates: &str) {
    let times = std::fs::read_to_string(times).expect("times");
    let rates = std::fs::read_to_string(rates).expect("rates");
    let mut rates = rates.lines();
    println!(
        "{:<20}{:>7}{:>10}{:>10}{:>14}{:>7}{:>14}{:>18}",
        "machine", "groups", "ours us", "SimGrid us", "solve alone us", "ratio", "alone: ratio", "largest difference"
    );
    for ((machine, groups, _), line) in CASES.into_iter().zip(times.lines()) {
        let theirs: Vec<f64> = line.split(' ').skip(2).map(|word| word.parse().expect("a number")).collect();
        let system = System::new(machine, groups);
        let (us, ours) = exchange::ours(&system, &system.events(COMPARED_EVENTS));
        let mut apart: f64 = 0.0;
        for ours in &ours {
            let theirs = rates.next().expect("a line for each event").split_whitespace();
            for (ours, theirs) in ours.iter().zip(theirs) {
                apart = apart.max((ours / theirs.parse::<f64>().expect("a number") - 1.0).abs());
            }
        }
        println!(
            "{machine:<20}{groups:>7}{us:>10.2}{:>10.2}{:>14.2}{:>7.1}{:>14.1}{apart:>18.1e}",
            theirs[0],
            theirs[1],
            theirs[0] / us,
            theirs[1] / us
        );
    }
}

fn tables() {
    println!(
        "One group of cores changes what it does at each event; no state is looked up. Thousand solves a second, \
        median of {ROUNDS}."
    );
    println!(
        "dense: the prototype's way (every group against every station, damped steps, from the last result), on this \
        machine."
    );
    println!("published: the prototype's own figures, from another machine.\n");
    println!(
        "{:<20}{:>6}{:>9}{:>8} |{:>9}{:>9}{:>7}{:>11}{:>7}{:>10} |{:>9}{:>9}{:>7}{:>11}{:>7}",
        "machine",
        "nodes",
        "stations",
        "groups",
        "queueing",
        "dense",
        "ratio",
        "published",
        "ratio",
        "largest",
        "max-min",
        "plain",
        "ratio",
        "published",
        "ratio"
    );
    for (machine, groups, published) in CASES {
        line(machine, &System::new(machine, groups), published);
    }
    events::table();
}

fn line(machine: &str, system: &System, published: Option<(f64, f64)>) {
    let events = system.events(if system.kinds.len() > 8 { 100 } else { 1000 });
    let (mut queueing, mut dense, mut max_min, mut plain) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut apart: f64 = 0.0;
    for _ in 0..ROUNDS {
        let (seconds, found) = fast(system, &mut Amva::new(TOLERANCE, 10_000), &events);
        queueing.push(seconds);
        let (seconds, known) = by_dense(system, &events);
        dense.push(seconds);
        apart = found.iter().zip(&known).map(|(found, known)| (found / known - 1.0).abs()).fold(apart, f64::max);
        max_min.push(fast(system, &mut MaxMin::default(), &events).0);
        plain.push(by_plain(system, &events));
    }
    let per_second = |times: Vec<f64>| events.len() as f64 / median(times) / 1000.0;
    let (queueing, dense, max_min, plain) =
        (per_second(queueing), per_second(dense), per_second(max_min), per_second(plain));
    let against = |ours: f64, theirs: Option<f64>| match theirs {
        Some(theirs) => format!("{theirs:>11.1}{:>7.1}", ours / theirs),
        None => format!("{:>11}{:>7}", "-", "-"),
    };
    println!(
        "{machine:<20}{:>6}{:>9}{:>8} |{queueing:>9.1}{dense:>9.1}{:>7.1}{}{:>9.3}% \
        |{max_min:>9.1}{plain:>9.1}{:>7.1}{}",
        system.nodes,
        system.stations,
        system.kinds.len(),
        queueing / dense,
        against(queueing, published.map(|(queueing, _)| queueing)),
        apart * 100.0,
        max_min / plain,
        against(max_min, published.map(|(_, max_min)| max_min)),
    );
}

/// Seconds for all events, and the sum of the rates after each.
fn fast(system: &System, solver: &mut dyn RateSolver, events: &[Event]) -> (f64, Vec<f64>) {
    let mut active = system.start();
    let mut rates = Vec::new();
    let mut sums = Vec::with_capacity(events.len());
    solver.rates(&system.classes, &active, &mut rates).expect("rates");
    let start = Instant::now();
    for &event in events {
        system.apply(event, &mut active);
        solver.rates(&system.classes, &active, &mut rates).expect("rates");
        sums.push(rates.iter().sum());
    }
    (start.elapsed().as_secs_f64(), sums)
}

fn by_dense(system: &System, events: &[Event]) -> (f64, Vec<f64>) {
    let mut groups: Vec<Group> = system.kinds.iter().map(|kinds| kinds[0].clone()).collect();
    let mut dense = Dense::default();
    dense.solve(system.stations, &groups, TOLERANCE, 10_000).expect("rates");
    let mut sums = Vec::with_capacity(events.len());
    let start = Instant::now();
    for event in events {
        groups[event.group].clone_from(&system.kinds[event.group][event.kind]);
        dense.change(event.group, &groups[event.group]);
        sums.push(dense.again(&groups, TOLERANCE, 10_000).expect("rates").iter().sum());
    }
    (start.elapsed().as_secs_f64(), sums)
}

fn by_plain(system: &System, events: &[Event]) -> f64 {
    let mut groups: Vec<Group> = system.kinds.iter().map(|kinds| kinds[0].clone()).collect();
    let start = Instant::now();
    for event in events {
        groups[event.group].clone_from(&system.kinds[event.group][event.kind]);
        std::hint::black_box(reference::max_min(system.stations, &groups));
    }
    start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
