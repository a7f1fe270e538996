//! `homenode machine`: the catalogue, and what is wrong with a machine file.

use crate::args::MachineCommandArguments;
use crate::args_model::MachineCommand;
use crate::failure::bad_input;
use crate::machine_choice;
use crate::output;
use crate::text::{count, lines, table, width, wrapped};
use serde::Serialize;
use simulator::machine_check::{self, Finding, Severity};
use topology::rates::Source;
use topology::read::{self, Described};
use topology::{TomlError, TomlText};

/// Column at which what is said of a finding begins.
const INDENT: usize = 12;

/// Runs the command.
pub(crate) fn run(arguments: &MachineCommandArguments) -> anyhow::Result<()> {
    match &arguments.command {
        MachineCommand::List { json } => list(*json),
        MachineCommand::Check { machine, json } => check(machine, *json),
    }
}

/// A machine of the catalogue.
#[derive(Serialize)]
struct Entry {
    name: &'static str,
    cpu_model: Option<String>,
    nodes: usize,
    hardware_threads: usize,
    has_rates: bool,
    values: usize,
    values_assumed: usize,
}

fn entry(name: &'static str, described: &Described) -> Entry {
    let sources = described.rates.as_ref().map(topology::rates::Rates::sources).unwrap_or_default();
    Entry {
        name,
        cpu_model: described.machine.cpu_model.clone(),
        nodes: described.machine.nodes.len(),
        hardware_threads: described.machine.threads.len(),
        has_rates: described.rates.is_some(),
        values: sources.len(),
        values_assumed: assumed(&sources),
    }
}

/// How many of these values rest on no figure: what `list` and `check` say.
fn assumed(sources: &[Source]) -> usize {
    sources.iter().filter(|&&source| source == Source::Assumed).count()
}

fn list(json: bool) -> anyhow::Result<()> {
    let mut entries = Vec::new();
    for name in read::shipped_names() {
        if let Some(described) = read::shipped_described(name) {
            entries.push(entry(name, &described.map_err(bad_input)?));
        }
    }
    if json {
        return output::json("machine.list", &serde_json::json!({ "machines": entries }));
    }
    let mut rows = table(["name", "CPU", "nodes", "threads", "rates", "assumed"], &[2, 3, 5]);
    for entry in &entries {
        rows.add_row([
            entry.name.to_owned(),
            entry.cpu_model.clone().unwrap_or_else(|| "-".to_owned()),
            entry.nodes.to_string(),
            entry.hardware_threads.to_string(),
            if entry.has_rates { "yes" } else { "no" }.to_owned(),
            format!("{} of {}", entry.values_assumed, entry.values),
        ]);
    }
    output::line(lines(&rows))?;
    output::line(
        "Use a name as --on NAME. `homenode machine check NAME` says what is assumed; a machine file of your own works \
        the same.",
    )?;
    Ok(())
}

/// A finding and where it is.
#[derive(Serialize)]
struct Located {
    #[serde(flatten)]
    finding: Finding,
    /// Line in the file, from 1; of the table where the field itself is not written.
    line: Option<usize>,
}

fn check(choice: &str, json: bool) -> anyhow::Result<()> {
    let text = machine_choice::machine_file(choice)?;
    let missing: Vec<Located> = read::missing_rates(&text, choice).into_iter().map(missing).collect();
    let (title, values, found) =
        if missing.is_empty() { examine(&text, choice)? } else { (choice.to_owned(), Vec::new(), missing) };
    let refused = found.iter().filter(|located| located.finding.refuses()).count();
    if json {
        let report = serde_json::json!({
            "machine": choice, "can_be_modelled": refused == 0, "values": values.len(),
            "values_assumed": assumed(&values), "findings": found,
        });
        output::json("machine.check", &report)?;
    } else {
        output::print(view(&title, &values, &found))?;
    }
    if refused == 0 {
        return Ok(());
    }
    Err(bad_input(format!("{choice}: cannot be modelled: {} missing or impossible", count(refused, "value"))))
}

fn missing(error: TomlError) -> Located {
    let (problem, cure) = error.problem.split_once(". ").unwrap_or((&error.problem, ""));
    let (problem, cure) = (problem.to_owned(), cure.to_owned());
    let finding = Finding { severity: Severity::Missing, field: error.field, value: None, problem, cure };
    Located { finding, line: error.line }
}

/// Title, where each value comes from, and what is found.
fn examine(text: &str, choice: &str) -> anyhow::Result<(String, Vec<Source>, Vec<Located>)> {
    let Described { machine, rates } = read::described(text, choice).map_err(bad_input)?;
    let Some(rates) = rates else { return Ok((choice.to_owned(), Vec::new(), Vec::new())) };
    let toml = TomlText::new(text, choice);
    let located = |finding: Finding| Located { line: line_of(&toml, &finding.field), finding };
    let found = machine_check::check(&machine, &rates).into_iter().map(located).collect();
    let title = format!(
        "{choice}: {}, {}, {}",
        count(machine.nodes.len(), "node"),
        count(machine.threads.len(), "hardware thread"),
        count(rates.links.len(), "link")
    );
    Ok((title, rates.sources(), found))
}

/// Line of the field, or of the nearest table above it that is written.
fn line_of(toml: &TomlText<'_>, field: &str) -> Option<usize> {
    let above = field.rsplit_once(['.', '[']).map(|(above, _)| above);
    toml.line_of(field).or_else(|| line_of(toml, above?))
}

fn view(title: &str, values: &[Source], found: &[Located]) -> String {
    let of = |severity| found.iter().filter(|located| located.finding.severity == severity).count();
    let mut text = format!("{title}\n");
    let refused = of(Severity::Impossible) + of(Severity::Missing);
    if refused == 0 {
        let (assumed, all) = (assumed(values), count(values.len(), "value"));
        text += &format!("Nothing is missing or impossible; {assumed} of {all} are assumed.\n");
    }
    for same in found.chunk_by(|one, other| is_same(&one.finding, &other.finding)) {
        text.push('\n');
        text += &paragraph(same);
    }
    text
}

/// Whether two findings say the same of two fields of a kind, such as links.
fn is_same(one: &Finding, other: &Finding) -> bool {
    let kind = |finding: &Finding| finding.field.split('[').next().unwrap_or_default().to_owned();
    one.severity == Severity::Assumed
        && other.severity == Severity::Assumed
        && one.problem == other.problem
        && kind(one) == kind(other)
}

fn paragraph(same: &[Located]) -> String {
    let (Some(first), Some(last)) = (same.first(), same.last()) else { return String::new() };
    let Finding { severity, field, value, problem, cure } = &first.finding;
    let mut head = field.clone();
    if same.len() > 1 {
        head += &format!(" to {}", last.finding.field.trim_start_matches("rates."));
    } else if let Some(value) = value {
        head += &format!(" = {value}");
    }
    if let Some(line) = first.line {
        head += &format!(" (line {line})");
    }
    let mut text = format!("{severity:<INDENT$}{head}\n");
    // That a measured value would be better need not be said of each.
    let said = if *severity == Severity::Assumed { problem.clone() } else { format!("{problem}; {cure}") };
    for line in wrapped(&said, width() - INDENT) {
        text += &format!("{:INDENT$}{line}\n", "");
    }
    text
}
