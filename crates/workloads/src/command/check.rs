//! Whether a section can be used, beyond what its types say.

use super::hearing::Hearing;
use super::section::{Figure, Phase, Section, Taken, Value};
use super::variables::{Variables, nearly};
use super::{check_unit, lines};
use crate::workload::ParameterFault;
use std::collections::BTreeSet;
use std::path::Path;

fn fault<T>(
    field: impl Into<String>,
    value: impl Into<String>,
    problem: impl Into<String>,
) -> Result<T, ParameterFault> {
    Err(ParameterFault { field: field.into(), value: value.into(), problem: problem.into() })
}

impl Section {
    /// Whether it can be used.
    ///
    /// # Errors
    /// The first value that cannot.
    pub(super) fn first_fault(&self) -> Result<(), ParameterFault> {
        self.check_programs()?;
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return fault("environment", name, "a name without = and a value without a zero byte");
            }
            check_variables("environment", value)?;
        }
        let mut names = BTreeSet::new();
        for file in &self.files {
            let Some(name) = file.file_name() else {
                return fault("files", file.display().to_string(), "it names no file");
            };
            if !names.insert(name) {
                return fault(
                    "files",
                    file.display().to_string(),
                    "another file has this last name; all are copied to one directory",
                );
            }
        }
        if self.threads_per_rank == Some(0) {
            return fault("threads_per_rank", "0", "a number from 1");
        }
        if self.time_limit_seconds > 7 * 86_400 {
            return fault("time_limit_seconds", self.time_limit_seconds.to_string(), "1 to 604800, a week");
        }
        if self.warm_up > 100 {
            return fault("warm_up", self.warm_up.to_string(), "0 to 100");
        }
        self.check_figures()?;
        self.check_verification()?;
        self.check_problems()
    }

    fn check_programs(&self) -> Result<(), ParameterFault> {
        if self.phases.is_empty() {
            return check_program("", self.argv.as_deref(), self.shell.as_deref());
        }
        if self.argv.is_some() || self.shell.is_some() {
            return fault(
                "phase",
                format!("{} phases", self.phases.len()),
                "either [[command.phase]], or argv or shell",
            );
        }
        let mut names = BTreeSet::new();
        for (index, Phase { name, argv, shell }) in self.phases.iter().enumerate() {
            if name.trim().is_empty() || !names.insert(name) {
                return fault(format!("phase[{index}].name"), name, "a name that no other phase has");
            }
            check_program(&format!("phase[{index}]."), argv.as_deref(), shell.as_deref())?;
        }
        Ok(())
    }

    fn check_figures(&self) -> Result<(), ParameterFault> {
        let phases = self.programs_in_order();
        let mut names = BTreeSet::new();
        for (index, figure) in self.figures.iter().enumerate() {
            let field = |name: &str| format!("figure[{index}].{name}");
            if figure.name.trim().is_empty() || figure.name.len() > 60 || figure.name.chars().any(char::is_control) {
                return fault(field("name"), &figure.name, "1 to 60 letters on one line");
            }
            if !names.insert(&figure.name) {
                return fault(field("name"), &figure.name, "another figure has this name");
            }
            if let Err(unknown) = check_unit(&figure.unit) {
                return fault(field("unit"), &figure.unit, unknown.to_string());
            }
            if let Some(phase) = figure.phase.as_ref().filter(|phase| !phases.iter().any(|known| known.name == **phase))
            {
                let known: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
                return fault(field("phase"), phase, format!("one of the phases: {}", known.join(", ")));
            }
            check_where(figure, &field)?;
            figure.check_series(&field)?;
            let kernels_unit = figure.taken.map(Taken::unit);
            if let Some(unit) = kernels_unit.filter(|unit| *unit != figure.unit) {
                return fault(field("unit"), &figure.unit, format!("\"{unit}\": what the kernel says has this unit"));
            }
            if figure.decimals > 12 {
                return fault(field("decimals"), figure.decimals.to_string(), "0 to 12");
            }
            if let Err(error) = Hearing::of(figure.each(), None) {
                return fault(field("regex"), figure.regex.clone().unwrap_or_default(), error.to_string());
            }
        }
        Ok(())
    }

    fn check_verification(&self) -> Result<(), ParameterFault> {
        if let Some(pattern) = &self.verify.pattern
            && let Err(error) = lines::pattern(pattern)
        {
            return fault("verify.pattern", pattern, error.to_string());
        }
        self.check_values("verify.values", &self.verify.values)
    }

    /// Figures whose values are known.
    fn check_values(&self, at: &str, values: &[Value]) -> Result<(), ParameterFault> {
        let figures = self.figures();
        for (index, value) in values.iter().enumerate() {
            let field = |name: &str| format!("{at}[{index}].{name}");
            if !figures.iter().any(|figure| figure.name == value.figure) {
                let known: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
                return fault(field("figure"), &value.figure, format!("one of the figures: {}", known.join(", ")));
            }
            if !value.expected.is_finite() {
                return fault(field("expected"), value.expected.to_string(), "a number");
            }
            if !(value.tolerance >= 0.0 && value.tolerance.is_finite()) {
                return fault(field("tolerance"), value.tolerance.to_string(), "a number from 0: the largest distance");
            }
        }
        Ok(())
    }
}

impl Section {
    /// Problems: each has another name, the same variables, and values of figures that are there.
    fn check_problems(&self) -> Result<(), ParameterFault> {
        let mut names = BTreeSet::new();
        let first: Vec<&String> = self.problems.first().into_iter().flat_map(|one| one.variables.keys()).collect();
        for (index, problem) in self.problems.iter().enumerate() {
            let field = |name: &str| format!("problem[{index}].{name}");
            if problem.name.trim().is_empty() || !names.insert(&problem.name) {
                return fault(field("name"), &problem.name, "a name that no other problem has");
            }
            if problem.from_threads == 0 {
                return fault(field("from_threads"), "0", "a number from 1: hardware threads of the host");
            }
            for name in problem.variables.keys() {
                let is_word =
                    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
                if !is_word || Variables::NAMES.contains(&name.as_str()) {
                    let valid = format!("a word of a to z and _, and none of {}", Variables::NAMES.join(", "));
                    return fault(field("variables"), name, valid);
                }
            }
            if problem.variables.keys().collect::<Vec<_>>() != first {
                let named: Vec<&str> = problem.variables.keys().map(String::as_str).collect();
                return fault(field("variables"), named.join(", "), "the same names in each problem");
            }
            self.check_values(&field("values"), &problem.values)?;
        }
        let Some(size) = self.size.as_ref().filter(|size| !names.contains(size)) else { return Ok(()) };
        let known: Vec<&str> = self.problems.iter().map(|problem| problem.name.as_str()).collect();
        let valid = match known.as_slice() {
            [] => "nothing: there is no [[command.problem]] that it could name".to_owned(),
            known => format!("the name of a [[command.problem]]: {}", known.join(", ")),
        };
        fault("size", size, valid)
    }
}

fn check_program(at: &str, argv: Option<&[String]>, shell: Option<&str>) -> Result<(), ParameterFault> {
    let texts: Vec<&str> = match (argv, shell) {
        (Some(argv), None) if argv.first().is_some_and(|program| !program.is_empty()) => {
            argv.iter().map(String::as_str).collect()
        }
        (None, Some(shell)) if !shell.trim().is_empty() => vec![shell],
        (Some(argv), None) => return fault(format!("{at}argv"), format!("{argv:?}"), "a program and its arguments"),
        (Some(_), Some(_)) => return fault(format!("{at}shell"), "beside argv", "one of argv and shell"),
        (None, _) => return fault(format!("{at}argv"), "nothing", "argv = [\"PROGRAM\", ...], or shell = \"...\""),
    };
    let field = if shell.is_some() { "shell" } else { "argv" };
    for text in texts {
        if text.contains('\0') {
            return fault(format!("{at}{field}"), text.replace('\0', "\\0"), "no zero byte");
        }
        check_variables(&format!("{at}{field}"), text)?;
    }
    Ok(())
}

fn check_variables(field: &str, text: &str) -> Result<(), ParameterFault> {
    match nearly(text) {
        None => Ok(()),
        Some(word) => fault(
            field,
            text,
            format!("{word} is no variable; the variables are {{threads}}, {{ranks}} and {{memory_mib}}"),
        ),
    }
}

/// Where a figure is: one way, and only what belongs to it.
fn check_where(figure: &Figure, field: &dyn Fn(&str) -> String) -> Result<(), ParameterFault> {
    let ways =
        [figure.regex.is_some(), figure.json_pointer.is_some(), figure.csv_column.is_some(), figure.taken.is_some()];
    if ways.iter().filter(|way| **way).count() != 1 {
        let valid = "one of regex, json_pointer, csv_column, taken = \"wall_time\", \"cpu_time\" or \"peak_memory\"";
        return fault(field("regex"), format!("of figure \"{}\"", figure.name), valid);
    }
    if let Some(pointer) =
        figure.json_pointer.as_ref().filter(|pointer| !pointer.is_empty() && !pointer.starts_with('/'))
    {
        return fault(field("json_pointer"), pointer, "it begins with /, for example /jobs/0/read/bw (RFC 6901)");
    }
    if figure.row == Some(0) {
        return fault(field("row"), "0", "a number from 1: the first row below the header");
    }
    if figure.group.is_some() && figure.regex.is_none() {
        return fault(field("group"), "without regex", "group belongs to regex");
    }
    if figure.row.is_some() && figure.csv_column.is_none() {
        return fault(field("row"), "without csv_column", "row belongs to csv_column");
    }
    let Some(file) = &figure.file else { return Ok(()) };
    if figure.taken.is_some() {
        return fault(field("file"), file.display().to_string(), "taken needs no file: the kernel says it");
    }
    let is_inside = |path: &Path| {
        path.components().all(|part| matches!(part, std::path::Component::Normal(_))) && path.file_name().is_some()
    };
    if is_inside(file) {
        Ok(())
    } else {
        fault(field("file"), file.display().to_string(), "a file in the directory in which the command runs")
    }
}

#[cfg(test)]
mod tests;
