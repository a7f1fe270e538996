//! How many lines each actor moves when all of them share the stations.

use crate::{Active, Classes, Group, SolveError, merge};

/// Rates at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solution {
    /// Of each group, in their order: lines that one actor moves in a nanosecond.
    pub lines_per_ns: Vec<f64>,
    /// Of each station: the share of time that it serves, 0 to 1.
    pub utilisation: Vec<f64>,
}

/// A way to compute the rates.
pub trait RateSolver {
    /// The rates of `active`, one for each, into `lines_per_ns`. What it found last is where it
    /// starts; nothing is allocated once its buffers have grown. This is what a run calls for each
    /// of its events; [`RateSolver::solve`] is for one question.
    ///
    /// # Errors
    /// It does not converge. `lines_per_ns` holds nothing then.
    fn rates(&mut self, classes: &Classes, active: &[Active], lines_per_ns: &mut Vec<f64>) -> Result<(), SolveError>;

    /// Forgets what it found last, so that the next result depends on its input alone.
    fn forget(&mut self);

    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// The rates of `groups` on `stations` stations. The result depends on nothing else, and not on
    /// the order of the groups.
    ///
    /// # Errors
    /// A group holds an impossible value, or the solver does not converge. It never gives a number
    /// then.
    fn solve(&mut self, stations: usize, groups: &[Group]) -> Result<Solution, SolveError> {
        let (classes, active, place) = merge(stations, groups)?;
        let mut rates = Vec::with_capacity(active.len());
        self.forget();
        self.rates(&classes, &active, &mut rates)?;
        let utilisation = classes.utilisation(&active, &rates);
        Ok(Solution { lines_per_ns: place.iter().map(|&place| rates[place]).collect(), utilisation })
    }
}

/// Refuses what no solver can take; `index` names the group in the message.
pub(crate) fn check(index: usize, group: &Group, stations: usize) -> Result<(), SolveError> {
    let wrong = |field, value, valid| Err(SolveError::Group { group: index, field, value, valid });
    let fields = [
        ("actors", group.actors, group.actors > 0.0, "a number above 0"),
        ("lines_in_flight", group.lines_in_flight, group.lines_in_flight >= 1.0, "a number from 1"),
        ("latency_ns", group.latency_ns, group.latency_ns > 0.0, "a time above 0"),
        ("core_ns", group.core_ns, group.core_ns >= 0.0, "a time from 0"),
    ];
    for (field, value, is_valid, valid) in fields {
        if !is_valid || !value.is_finite() {
            return wrong(field, value, valid);
        }
    }
    if let Some(&(_, value)) = group.demands.iter().find(|(_, ns)| !ns.is_finite() || *ns < 0.0) {
        return wrong("demands", value, "times from 0");
    }
    if let Some((station, _)) = group.demands.iter().find(|(station, _)| station.index() >= stations) {
        return wrong("demands", f64::from(station.0), "stations that the machine has");
    }
    let service: f64 = group.demands.iter().map(|(_, ns)| ns).sum();
    if service > group.latency_ns * (1.0 + 1e-9) {
        return wrong("latency_ns", group.latency_ns, "at least the sum of the demands, which is part of it");
    }
    Ok(())
}
