//! Ratios of modelled times, beside the published ones.

use super::section::{Comparison, RatioTable, Section, Shows};
use crate::evaluation::unique;
use crate::experiment::Experiment;
use crate::figure::{Figure, Origin, RATIO, SECONDS};
use crate::validation::cell::{Role, ValidationCell};

/// More ratios than these are shown as a range.
const MOST_SHOWN: usize = 8;

/// A ratio of two modelled times.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio<'a> {
    /// Where it stands.
    pub table: &'a RatioTable,
    /// The application.
    pub figure: &'a str,
    /// Processes: the column.
    pub processes: u32,
    /// By the closed queueing network.
    pub modelled: f64,
    /// By max-min fairness.
    pub cross_check: Option<f64>,
    /// The published ratio and what it was used for; `None`: not published in text.
    pub published: Option<(f64, Role)>,
}

impl Ratio<'_> {
    /// Relative error: 0.02 is 2 % too much.
    pub fn error(&self) -> Option<f64> {
        self.published.map(|(published, _)| self.modelled / published - 1.0)
    }
}

impl Shows {
    /// A ratio from how it is printed.
    pub fn ratio(self, printed: f64) -> f64 {
        match self {
            Self::Gain => 1.0 + printed / 100.0,
            Self::Ratio => printed,
        }
    }

    /// A ratio as it is printed.
    pub fn text(self, ratio: f64) -> String {
        match self {
            Self::Gain => format!("{:.1} %", 100.0 * (ratio - 1.0)),
            Self::Ratio => format!("{ratio:.2}"),
        }
    }
}

/// All ratios of an experiment, by table, application and processes. Where a configuration does not
/// run with a number of processes, there is none.
pub fn ratios<'a>(section: &'a Section, figures: &'a [Figure]) -> Vec<Ratio<'a>> {
    let modelled = figures.iter().filter(|figure| figure.origin() == Origin::Modelled);
    let times = modelled.filter(|figure| figure.quantity.unit == SECONDS);
    let names = unique(times.map(|figure| figure.quantity.name.as_str()));
    let mut all = Vec::new();
    for table in &section.ratios {
        let shown = |name: &&&str| table.figures.is_empty() || table.figures.iter().any(|wanted| wanted == *name);
        for &name in names.iter().filter(shown) {
            all.extend(table.processes.iter().filter_map(|&processes| ratio(table, figures, name, processes)));
        }
    }
    all
}

fn ratio<'a>(table: &'a RatioTable, figures: &'a [Figure], name: &'a str, processes: u32) -> Option<Ratio<'a>> {
    let (over, of) = times(table, figures, Origin::Modelled, name, processes)?;
    let published = table.published.iter().find(|known| known.figure == name && known.processes == processes);
    Some(Ratio {
        table,
        figure: name,
        processes,
        modelled: over.value / of.value,
        cross_check: over.cross_check().zip(of.cross_check()).map(|(over, of)| over / of),
        published: published.map(|known| (table.shows.ratio(known.value), known.role)),
    })
}

/// The times of which a ratio is made: of the first configurations that run with the number of
/// processes, or with the base of a table of scaling.
pub(crate) fn times<'a>(
    table: &RatioTable,
    figures: &'a [Figure],
    origin: Origin,
    name: &str,
    processes: u32,
) -> Option<(&'a Figure, &'a Figure)> {
    let time = |configurations: &[String], processes: u32| {
        configurations.iter().find_map(|configuration| {
            let mut own =
                figures.iter().filter(|figure| figure.origin() == origin && figure.configuration == *configuration);
            own.find(|figure| figure.quantity.name == name && figure.threads() == Some(processes))
        })
    };
    time(&table.time_of, table.base.unwrap_or(processes)).zip(time(&table.divided_by, processes))
}

/// Ratios as cells of the validation.
pub fn cells(experiment: &Experiment, figures: &[Figure]) -> Vec<ValidationCell> {
    let Some(section) = &experiment.application else { return Vec::new() };
    let cell = |ratio: Ratio| ValidationCell {
        experiment: experiment.name.clone(),
        group: ratio.table.group.clone(),
        configuration: format!("{} / {}", ratio.table.time_of.join(", "), ratio.table.divided_by.join(", ")),
        figure: ratio.figure.to_owned(),
        threads: Some(ratio.processes),
        unit: RATIO.to_owned(),
        published: ratio.published.map(|(value, _)| value),
        modelled: ratio.modelled,
        cross_check: ratio.cross_check,
        role: ratio.published.map_or(Role::Reported, |(_, role)| role),
    };
    ratios(section, figures).into_iter().map(cell).collect()
}

/// What became of a [`Comparison`].
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<'a> {
    /// The statement.
    pub comparison: &'a Comparison,
    /// Whether the modelled ratios do what the source says.
    pub holds: bool,
    /// What the source says of them, as bounds.
    pub expected: String,
    /// The ratios that decide, with their applications and processes.
    pub because: String,
}

/// Whether the ratios do what the sources say of them together.
pub fn outcomes<'a>(section: &'a Section, figures: &[Figure]) -> Vec<Outcome<'a>> {
    let all = ratios(section, figures);
    section.comparisons.iter().map(|comparison| outcome(comparison, &all)).collect()
}

fn outcome<'a>(comparison: &'a Comparison, all: &[Ratio]) -> Outcome<'a> {
    let in_columns = |ratio: &&Ratio| {
        ratio.table.title == comparison.ratio
            && (comparison.processes.is_empty() || comparison.processes.contains(&ratio.processes))
    };
    let of = |figures: &[String]| -> Vec<&Ratio> {
        let named = |ratio: &&Ratio| figures.iter().any(|figure| figure == ratio.figure);
        all.iter().filter(in_columns).filter(named).collect()
    };
    let subjects: Vec<&Ratio> =
        if comparison.figures.is_empty() { all.iter().filter(in_columns).collect() } else { of(&comparison.figures) };
    let others = of(&comparison.below_figures);
    let fulfils = |ratio: &&&Ratio| {
        let same_column = others.iter().filter(|other| other.processes == ratio.processes);
        comparison.above.is_none_or(|bound| ratio.modelled > bound)
            && comparison.below.is_none_or(|bound| ratio.modelled < bound)
            && same_column.clone().all(|other| ratio.modelled < other.modelled)
    };
    let fulfilling = subjects.iter().filter(fulfils).count();
    let holds = !subjects.is_empty() && fulfilling == comparison.count.unwrap_or(subjects.len());
    // Where it fails, the ratios that break it; a count needs all to be seen.
    let deciding: Vec<&Ratio> = match comparison.count {
        None if !holds => subjects.iter().filter(|ratio| !fulfils(ratio)).chain(&others).copied().collect(),
        _ => subjects.iter().chain(&others).copied().collect(),
    };
    Outcome { comparison, holds, expected: expected(comparison), because: because(&deciding) }
}

fn expected(comparison: &Comparison) -> String {
    let figures = &comparison.below_figures;
    let parts = [
        comparison.count.map(|count| format!("{count} of them")),
        comparison.above.map(|bound| format!("above {bound}")),
        comparison.below.map(|bound| format!("below {bound}")),
        (!figures.is_empty()).then(|| format!("below {}", figures.join(", "))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The ratios with their applications, or, where they are many, their range.
fn because(ratios: &[&Ratio]) -> String {
    let text = |ratio: &Ratio| ratio.table.shows.text(ratio.modelled);
    if ratios.len() <= MOST_SHOWN {
        let named = ratios.iter().map(|ratio| format!("{} at {}: {}", ratio.figure, ratio.processes, text(ratio)));
        return named.collect::<Vec<_>>().join("; ");
    }
    let by_size = |one: &&&Ratio, other: &&&Ratio| one.modelled.total_cmp(&other.modelled);
    let ends = ratios.iter().min_by(by_size).zip(ratios.iter().max_by(by_size));
    ends.map_or(String::new(), |(least, most)| format!("{} ratios, {} to {}", ratios.len(), text(least), text(most)))
}

#[cfg(test)]
mod tests;
