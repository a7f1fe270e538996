//! Published figures beside the modelled ones.

use super::Prediction;
use crate::experiment::Experiment;
use crate::figure::Figure;
use crate::published::Published;
use crate::validation::cell::ValidationCell;

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
    let (name, threads) = (&figure.quantity.name, figure.threads()?);
    let value = published.value(name, threads);
    if value.is_none() && !published.is_only_picture(name, threads) {
        return None;
    }
    Some(ValidationCell {
        experiment: experiment.name.clone(),
        group: published.group.clone().unwrap_or_else(|| experiment.name.clone()),
        configuration: figure.configuration.clone(),
        figure: name.clone(),
        threads: Some(threads),
        unit: figure.quantity.unit.clone(),
        published: value,
        modelled: figure.value,
        cross_check: figure.cross_check(),
        role: published.role(name, threads),
    })
}
