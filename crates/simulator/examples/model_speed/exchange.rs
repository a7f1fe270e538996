//! The same systems as text, for the driver of another solver, and its rates beside ours.

use crate::systems::{Event, System};
use simulator::{MaxMin, RateSolver};
use std::fmt::Write as _;
use std::time::Instant;

/// A system: `system MACHINE STATIONS GROUPS KINDS EVENTS`; of each group each kind as `BOUND N`
/// and N times `STATION WEIGHT`, the weight being that of all its actors; then each event as `GROUP
/// KIND`.
pub(crate) fn write(machine: &str, system: &System, events: &[Event]) -> String {
    let kinds = system.kinds[0].len();
    let mut text = String::new();
    let (stations, groups) = (system.stations, system.kinds.len());
    writeln!(text, "system {machine} {stations} {groups} {kinds} {}", events.len()).expect("a string takes all");
    for kind in system.kinds.iter().flatten() {
        write!(text, "{:e} {}", kind.bound(), kind.demands.len()).expect("a string takes all");
        for (station, ns) in &kind.demands {
            write!(text, " {} {:e}", station.index(), kind.actors * ns).expect("a string takes all");
        }
        text.push('\n');
    }
    for event in events {
        writeln!(text, "{} {}", event.group, event.kind).expect("a string takes all");
    }
    text
}

/// Microseconds of our solve after an event (the change of the group included), median, and all
/// rates.
pub(crate) fn ours(system: &System, events: &[Event]) -> (f64, Vec<Vec<f64>>) {
    let mut active = system.start();
    let mut solver = MaxMin::default();
    let mut rates = Vec::new();
    solver.rates(&system.classes, &active, &mut rates).expect("rates");
    let mut all = Vec::with_capacity(events.len());
    let mut seconds = Vec::with_capacity(events.len());
    for &event in events {
        let start = Instant::now();
        system.apply(event, &mut active);
        solver.rates(&system.classes, &active, &mut rates).expect("rates");
        seconds.push(start.elapsed().as_secs_f64());
        all.push(rates.clone());
    }
    (crate::median(seconds) * 1e6, all)
}
