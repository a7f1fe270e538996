//! Series over sizes or loads: a chart of each with two logarithmic axes, as studies of networks
//! print them.

use super::{Chart, Over, curve_at, file_name, name};
use crate::evaluation::{Evaluation, Set, widths};
use crate::figure::{Figure, Origin};

/// A chart of each series, with a curve of each configuration, width and provenance.
pub(super) fn charts(evaluation: &Evaluation) -> Vec<Chart> {
    evaluation.series().iter().filter_map(|set| chart(evaluation, set)).collect()
}

fn chart(evaluation: &Evaluation, set: &Set) -> Option<Chart> {
    let is_own = |figure: &&Figure| figure.quantity.at.as_ref().is_some_and(|at| at.series == set.name);
    // A logarithmic axis has no place for zero.
    let figures: Vec<&Figure> = evaluation.figures.iter().filter(is_own).filter(|figure| figure.value > 0.0).collect();
    let sizes = set.values.iter().copied().filter(|&value| value > 0).collect::<Vec<u64>>();
    let place = |figure: &Figure| {
        let value = figure.quantity.at.as_ref()?.value;
        sizes.iter().position(|&size| size == value)
    };
    let all_widths = widths(figures.iter().map(|figure| &figure.point));
    let mut series = Vec::new();
    for (index, shown) in evaluation.configurations.iter().enumerate() {
        for (number, &width) in all_widths.iter().enumerate() {
            for origin in [Origin::Measured, Origin::Modelled, Origin::Published] {
                let is_here = |figure: &&Figure| {
                    figure.configuration == shown.name && figure.threads() == Some(width) && figure.origin() == origin
                };
                let own: Vec<&Figure> = figures.iter().copied().filter(is_here).collect();
                let threads = if all_widths.len() > 1 { format!(", {width} threads") } else { String::new() };
                let label = name(evaluation, shown, &own) + &threads;
                let colour = index + number * evaluation.configurations.len();
                series.extend(curve_at(&label, origin, colour, &own, place));
            }
        }
    }
    (!series.is_empty()).then(|| Chart {
        name: file_name(&set.name),
        title: format!("{} over {}", set.name, set.parameter),
        value: set.unit.clone(),
        reference: None,
        over: Over::Sizes { title: format!("{}, {}", set.parameter, set.parameter_unit), sizes },
        series,
    })
}
