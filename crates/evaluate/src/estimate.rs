//! How long an evaluation will take, roughly: for `--dry-run` and the first minutes of the progress
//! bar.

use crate::progress::Expectation;
use crate::resolve::Resolved;
use crate::schedule::{self, Visit};
use crate::until;

/// First touch and verification, in repetitions.
const PREPARATION: f64 = 3.0;

/// Seconds that a visit takes.
pub fn visit_seconds(resolved: &Resolved, visit: &Visit) -> f64 {
    let configuration = &resolved.configurations[visit.configuration];
    let emulated = resolved.emulated && !configuration.vms.is_empty();
    let workload = resolved.workload(&visit.point.workload);
    let repetition = workload.map_or(0.0, |workload| workload.seconds(visit.point.threads, emulated));
    repetition * (f64::from(resolved.experiment.repetitions) + PREPARATION) + 0.3
}

/// Seconds that the participants of a configuration take to start.
pub fn start_seconds(resolved: &Resolved, configuration: usize) -> f64 {
    match (resolved.configurations[configuration].vms.len(), resolved.emulated) {
        (0, _) => 0.1,
        (vms, true) => 8.0 + 4.0 * vms as f64,
        (vms, false) => 2.0 + 0.5 * vms as f64,
    }
}

/// Seconds of everything.
pub fn total_seconds(resolved: &Resolved, visits: &[Visit]) -> f64 {
    let starts: f64 = if resolved.keep_running {
        let used: std::collections::BTreeSet<usize> = visits.iter().map(|visit| visit.configuration).collect();
        used.into_iter().map(|configuration| start_seconds(resolved, configuration)).sum()
    } else {
        let changes = visits.chunk_by(|a, b| a.configuration == b.configuration);
        changes.map(|run| start_seconds(resolved, run[0].configuration)).sum()
    };
    starts + visits.iter().map(|visit| visit_seconds(resolved, visit)).sum::<f64>()
}

/// How many seconds visits take and how well that is known. Where it is not, the seconds are
/// weights, by which the time left follows from the time that the first visits took.
pub fn expected(resolved: &Resolved, visits: &[Visit]) -> (f64, Expectation) {
    let is_known = resolved.workloads.iter().all(|workload| workload.section.is_time_known());
    match (&resolved.experiment.until, is_known) {
        (Some(until), _) => (60.0 * until.at_most_minutes, Expectation::AtMost),
        (None, true) => (total_seconds(resolved, visits), Expectation::About),
        (None, false) => (total_seconds(resolved, visits), Expectation::Unknown),
    }
}

/// All visits of an evaluation in their order; with `[until]`, those of its fewest rounds.
pub fn visits(resolved: &Resolved) -> Vec<Visit> {
    let points: Vec<_> = resolved.configurations.iter().map(|configuration| configuration.points.clone()).collect();
    let rounds = match resolved.experiment.until {
        Some(_) => until::fewest_rounds(resolved),
        None => resolved.experiment.rounds,
    };
    schedule::interleaved(&points, rounds)
}
