//! Published figures beside the modelled ones.

use super::{Figure, Prediction};
use crate::experiment::{Experiment, Published};
use crate::validation::cell::{Role, ValidationCell};
use std::collections::BTreeMap;

/// A cell for each published figure that has a modelled one, and for each modelled one that the
/// source shows only as a picture. None for configurations that ran on another machine than that of
/// the published figures.
pub(crate) fn cells(experiment: &Experiment, prediction: &Prediction) -> Vec<ValidationCell> {
    let comparable = |published: &&Published| {
        let mut configurations = prediction.configurations.iter();
        configurations.any(|other| other.name == published.configuration && other.is_published_machine)
    };
    let of_table = |published: &Published| -> Vec<ValidationCell> {
        let figures = prediction.figures.iter().filter(|figure| figure.configuration == published.configuration);
        figures.filter_map(|figure| cell(experiment, published, figure)).collect()
    };
    experiment.published.iter().filter(comparable).flat_map(of_table).collect()
}

fn cell(experiment: &Experiment, published: &Published, figure: &Figure) -> Option<ValidationCell> {
    let threads = figure.threads?;
    let value = published.by_name(&figure.figure, threads);
    let lists = |list: &BTreeMap<String, Vec<u32>>| Published::counts(list, &figure.figure).contains(&threads);
    if value.is_none() && !lists(&published.only_pictures) {
        return None;
    }
    let role = match (lists(&published.calibrated), published.reported) {
        (true, _) => Role::Calibrated,
        (false, true) => Role::Reported,
        (false, false) => Role::HeldOut,
    };
    Some(ValidationCell {
        experiment: experiment.name.clone(),
        group: published.group.clone().unwrap_or_else(|| experiment.name.clone()),
        configuration: figure.configuration.clone(),
        figure: figure.figure.clone(),
        threads: Some(threads),
        unit: figure.unit,
        published: value,
        modelled: figure.modelled,
        cross_check: figure.cross_check,
        role,
    })
}

/// Kernels are `copy` in files and `Copy` in tables.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}
