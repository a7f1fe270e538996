//! What is missing or impossible in a machine's rates. The one place that decides:
//! [`MachineModel::new`](crate::MachineModel::new) refuses what this refuses, and `homenode machine
//! check` prints all of it.

mod latencies;
mod links;
mod values;

use crate::routes::Routes;
use serde::Serialize;
use std::fmt;
use topology::Machine;
use topology::rates::{Rates, Source, Vertex};
use topology::ways::Fault;

/// How bad a finding is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// No machine can be so: there is no model.
    Impossible,
    /// The model needs it: there is none.
    Missing,
    /// Possible, but it contradicts something else in the file.
    Doubtful,
    /// A value that nobody measured or published: the model rests on it.
    Assumed,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Impossible => "impossible",
            Self::Missing => "missing",
            Self::Doubtful => "doubtful",
            Self::Assumed => "assumed",
        })
    }
}

/// One thing that is wrong with a machine's rates, or that a reader has to know of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The field, for example `rates.link[1].gb_per_s`.
    pub field: String,
    /// What it holds; `None` where it is not there.
    pub value: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub cure: String,
}

impl Finding {
    /// Whether there is no model of such a machine.
    pub fn refuses(&self) -> bool {
        self.severity <= Severity::Missing
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        write!(f, ": {}; {}", self.problem, self.cure)
    }
}

/// What is found, as it is found.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, field: &str, value: Option<String>, problem: String, cure: &str) {
        self.0.push(Finding { severity, field: field.to_owned(), value, problem, cure: cure.to_owned() });
    }

    fn impossible(&mut self, field: &str, value: impl fmt::Display, problem: impl Into<String>, cure: &str) {
        self.add(Severity::Impossible, field, Some(value.to_string()), problem.into(), cure);
    }

    fn missing(&mut self, field: &str, problem: impl Into<String>, cure: &str) {
        self.add(Severity::Missing, field, None, problem.into(), cure);
    }

    fn doubtful(&mut self, field: &str, value: impl fmt::Display, problem: impl Into<String>, cure: &str) {
        self.add(Severity::Doubtful, field, Some(value.to_string()), problem.into(), cure);
    }

    fn source(&mut self, field: &str, value: impl fmt::Display, source: Source, from: &str) {
        if from.trim().is_empty() {
            let problem = format!("its source is `{source:?}`, and `from` does not say which").to_lowercase();
            self.missing(
                &format!("{field}.from"),
                problem,
                "name the document, part, measurement or figure; for an assumption, why it is plausible",
            );
        } else if source == Source::Assumed {
            self.add(
                Severity::Assumed,
                field,
                Some(value.to_string()),
                from.to_owned(),
                "a figure, measured or published, would be better",
            );
        }
    }

    fn refuses(&self) -> bool {
        self.0.iter().any(Finding::refuses)
    }
}

/// Everything that is missing, impossible, doubtful or assumed in `rates`, worst first; within
/// that, in the order of the fields.
pub fn check(machine: &Machine, rates: &Rates) -> Vec<Finding> {
    let mut findings = Findings::default();
    values::check(machine, rates, &mut findings);
    links::check(machine, rates, &mut findings);
    latencies::check_table(machine, rates, &mut findings);
    // Routes over impossible links would only repeat what is known.
    if !findings.refuses() {
        match Routes::new(machine, rates, 0) {
            Ok(routes) => latencies::check_distances(machine, &routes.latency_ns, &mut findings),
            Err(faults) => findings.0.extend(faults.iter().map(finding_of)),
        }
    }
    findings.0.sort_by_key(|finding| finding.severity);
    findings.0
}

/// Why a machine has no routes.
pub(crate) fn no_routes(faults: &[Fault]) -> Finding {
    let unknown = || Finding {
        severity: Severity::Impossible,
        field: "rates.link".to_owned(),
        value: None,
        problem: "they give no routes".to_owned(),
        cure: "join all nodes".to_owned(),
    };
    faults.first().map_or_else(unknown, finding_of)
}

fn finding_of(fault: &Fault) -> Finding {
    match fault {
        Fault::NoWay { from, to } => Finding {
            severity: Severity::Missing,
            field: "rates.link".to_owned(),
            value: None,
            problem: format!("no link leads from node {from} to node {to}, not even over others"),
            cure: format!("add a [[rates.link]] that joins node {to} with the rest"),
        },
        Fault::NoLink { route, from, to } => Finding {
            severity: Severity::Impossible,
            field: format!("rates.route[{route}].path"),
            value: Some(format!("[.., {}, {}, ..]", quoted(from), quoted(to))),
            problem: format!("no link joins {} and {}", quoted(from), quoted(to)),
            cure: "add that [[rates.link]], or lead the route over links that are there".to_owned(),
        },
    }
}

/// A vertex as it is written in the file.
fn quoted(vertex: &Vertex) -> String {
    match vertex {
        Vertex::Node(node) => node.to_string(),
        Vertex::Switch(name) => format!("\"{name}\""),
    }
}

#[cfg(test)]
mod tests;
