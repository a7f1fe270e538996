//! How sure an answer is, in a sentence.

use super::counted;
use crate::modelled::Prediction;
use crate::summary::{Cell, State, Summary};
use crate::validation::cell::{Errors, Role};

/// Of what was measured: how many repetitions count, what disturbed them, and what that means.
pub(crate) fn of_measured(summary: &Summary) -> String {
    let cells = || summary.configurations.iter().flat_map(|one| &one.cells);
    let sum = |of: fn(&Cell) -> usize| cells().map(of).sum::<usize>();
    let (count, rejected) = (sum(|cell| cell.counted), sum(|cell| cell.rejected));
    let steadiness = cells().flat_map(|cell| &cell.figures);
    let steadiness = steadiness.map(|one| one.quantity.better.ratio(one.spread.median, one.best));
    let steadiness = steadiness.fold(f64::INFINITY, f64::min);
    let steady = if steadiness.is_finite() {
        format!("; the least steady figure's median is {:.0} % of its best", 100.0 * steadiness)
    } else {
        String::new()
    };
    let with = |state: State| cells().filter(|cell| cell.state == state).count();
    let unverified = cells().filter(|cell| !cell.figures.is_empty() && !cell.verified).count();
    let mut doubts = Vec::new();
    let mut doubt = |count: usize, what: &str| {
        if count > 0 {
            doubts.push(format!("{} {what}", counted(count, "cell", "cells")));
        }
    };
    doubt(with(State::Disturbed), "with disturbed repetitions only");
    doubt(with(State::Wrong), "with a wrong result");
    doubt(with(State::Missing), "without a measurement");
    doubt(unverified, "not verified");
    let doubts = if doubts.is_empty() { String::new() } else { format!("; {}", doubts.join(", ")) };
    let emulated = if summary.emulated && summary.configurations.iter().any(|one| !one.native) {
        "; VMs were EMULATED"
    } else {
        ""
    };
    format!(
        "How sure: {}, {rejected} were rejected because other processes used the CPUs{steady}{doubts}{emulated}.",
        counted(count, "repetition counts", "repetitions count")
    )
}

/// Of the model: how far it is off where figures were published.
pub(crate) fn of_modelled(prediction: &Prediction) -> String {
    let errors = |is_wanted: fn(Role) -> bool| {
        Errors::of(prediction.cells.iter().filter(|cell| is_wanted(cell.role)).filter_map(|cell| cell.error()))
    };
    let never_fitted = errors(|role| role != Role::Calibrated);
    let all = errors(|_| true);
    let (errors, which) = match (never_fitted.cells, all.cells) {
        (0, 0) => {
            return "How sure: nothing is published to compare these figures with; \
                    `homenode validate` says how far the model is off where something is."
                .to_owned();
        }
        (0, _) => (all, "published here, all of which it was fitted to"),
        _ => (never_fitted, "published here that it was not fitted to"),
    };
    format!(
        "How sure: of the {} {which}, the model is off by {:.1} % on average and {:.1} % at worst.",
        counted(errors.cells, "figure", "figures"),
        errors.mape_percent,
        errors.max_percent
    )
}
