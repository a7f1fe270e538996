//! What in an experiment's `[application]` cannot be used.

use super::section::{Comparison, RatioTable, Section};
use crate::experiment::Experiment;
use crate::figure::SECONDS;
use workloads::command;
use workloads::kernel::Programs;

/// Field, value, what would be valid.
type Fault = Option<(String, String, String)>;

/// The first thing in an experiment's section that cannot be used.
pub(crate) fn first_fault(experiment: &Experiment, section: &Section) -> Fault {
    if section.profiles.is_empty() {
        let valid = "at least one name of a workload profile, or a file that ends in .toml";
        return Some(("application.profiles".to_owned(), "[]".to_owned(), valid.to_owned()));
    }
    let command = experiment.parameters::<command::Section>();
    if let Some(fault) = of_command(section, &command) {
        return Some(fault);
    }
    let kernels = experiment.parameters::<Programs>();
    let unknown_program = figures(section, "kernels.programs".to_owned(), kernels.programs.iter().map(|one| &one.name));
    if unknown_program.is_some() {
        return unknown_program;
    }
    let mut ratios = section.ratios.iter().enumerate();
    let mut comparisons = section.comparisons.iter().enumerate();
    ratios
        .find_map(|(index, table)| of_ratio(experiment, section, index, table))
        .or_else(|| comparisons.find_map(|(index, comparison)| of_comparison(section, index, comparison)))
}

/// Of a program that runs in the place of an application's, times stand for those.
fn of_command(section: &Section, command: &command::Section) -> Fault {
    let is_time = |figure: &&command::Figure| figure.unit == SECONDS && section.profiles.contains(&figure.name);
    if *command == command::Section::default() || command.figures().iter().any(|figure| is_time(&figure)) {
        return None;
    }
    let names: Vec<&str> = command.figures.iter().map(|figure| figure.name.as_str()).collect();
    let valid = format!("one with unit = \"s\" and the name of a profile: {}", section.profiles.join(", "));
    Some(("command.figure".to_owned(), format!("{names:?}"), valid))
}

fn of_ratio(experiment: &Experiment, section: &Section, index: usize, table: &RatioTable) -> Fault {
    let field = |name: &str| format!("application.ratio[{index}].{name}");
    let configurations: Vec<&str> = experiment.configurations.iter().map(|known| known.name.as_str()).collect();
    let lists = [("time_of", &table.time_of), ("divided_by", &table.divided_by)];
    let empty = || lists.iter().find(|(_, list)| list.is_empty());
    if let Some((name, _)) = empty() {
        return Some((field(name), "[]".to_owned(), "at least one configuration".to_owned()));
    }
    let processes = table.processes.iter().chain(&table.base);
    if table.processes.is_empty() || processes.clone().any(|&count| count == 0) {
        return Some((field("processes"), format!("{:?}", table.processes), "at least one number from 1".to_owned()));
    }
    let published = table.published.iter().map(|known| &known.figure);
    lists
        .iter()
        .find_map(|(name, list)| unknown(field(name), list.iter(), &configurations))
        .or_else(|| figures(section, field("figures"), table.figures.iter()))
        .or_else(|| figures(section, field("published"), published))
}

fn of_comparison(section: &Section, index: usize, comparison: &Comparison) -> Fault {
    let field = |name: &str| format!("application.comparison[{index}].{name}");
    let titles: Vec<&str> = section.ratios.iter().map(|table| table.title.as_str()).collect();
    let bounds = comparison.above.is_some() || comparison.below.is_some() || !comparison.below_figures.is_empty();
    unknown(field("ratio"), std::iter::once(&comparison.ratio), &titles)
        .or_else(|| figures(section, field("figures"), comparison.figures.iter()))
        .or_else(|| figures(section, field("below_figures"), comparison.below_figures.iter()))
        .or_else(|| {
            let valid = "with one of above, below and below_figures: what would the ratios be compared with?";
            (!bounds).then(|| (field("id"), format!("{:?}", comparison.id), valid.to_owned()))
        })
}

/// A figure is the name of a profile; what files hold is not known yet.
fn figures<'a>(section: &Section, field: String, names: impl Iterator<Item = &'a String>) -> Fault {
    let known: Vec<&str> = section.profiles.iter().map(String::as_str).collect();
    let has_files = known.iter().any(|profile| profile.to_ascii_lowercase().ends_with(".toml"));
    if has_files { None } else { unknown(field, names, &known) }
}

fn unknown<'a>(field: String, mut names: impl Iterator<Item = &'a String>, known: &[&str]) -> Fault {
    let name = names.find(|name| !known.contains(&name.as_str()))?;
    Some((field, format!("{name:?}"), format!("one of {}", known.join(", "))))
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::path::Path;

    #[test]
    fn an_error_names_field_value_and_what_is_valid() {
        let text = include_str!("../../../../experiments/spec-omp.toml");
        let first = |from: &str, to: &str| text.replacen(from, to, 1);
        let cases = [
            (first("profiles = [", "profiles = []\nx = ["), "unknown field", "profiles"),
            (
                first("divided_by = [\"vNUMA\"]", "divided_by = [\"vnuma\"]"),
                "ratio[0].divided_by = \"vnuma\"",
                "Default, vNUMA",
            ),
            (first("time_of = [\"Default\"]", "time_of = []"), "ratio[0].time_of = []", "at least one"),
            (first("processes = [16, 32, 64]", "processes = [0]"), "ratio[0].processes = [0]", "from 1"),
            (first("figure = \"swim\"", "figure = \"swimm\""), "ratio[0].published = \"swimm\"", "swim, art"),
            (first("ratio = \"16 threads", "ratio = \"17 threads"), "comparison[0].ratio", "16 threads with vNUMA"),
            (first("\nbelow = 1.0", ""), "comparison[0].id = \"V2\"", "above, below"),
            (first("below_figures = [\"art\"", "below_figures = [\"artt\""), "below_figures = \"artt\"", "swim, art"),
            (first("workload = \"application\"", "workload = \"stream\""), "application", "workload = \"application\""),
        ];
        assert!(parse::parse(text, Path::new("e.toml")).is_ok());
        for (text, field, valid) in cases {
            let error = parse::parse(&text, Path::new("e.toml")).expect_err(field).to_string();
            assert!(error.starts_with("e.toml") && error.contains(field) && error.contains(valid), "{error}");
        }
    }
}
