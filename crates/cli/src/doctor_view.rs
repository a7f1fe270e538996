//! What is wrong with VMs that run, and what would mend it, worst first.

use crate::findings_view::{Reach, add, done, paragraphs, tally, whose};
use crate::text::count;
use judge::{Finding, Mending, Severity, Tried};
use scheduler::{Observation, TrafficMeter, VmKey};
use serde::Serialize;
use std::fmt::Write;

/// Everything that is shown.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    /// VMs that were looked at.
    pub(crate) vms: usize,
    /// What was tried, with `--fix`.
    pub(crate) repairs: Vec<Tried>,
    /// Why repairing was stopped: more memory is remote than before.
    pub(crate) worse: Option<String>,
    /// What could not be looked at, each as a sentence.
    pub(crate) unseen: Vec<String>,
    /// What counts memory traffic; absent where nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic_meter: Option<TrafficMeter>,
    /// Findings that need doing: all but notes.
    pub(crate) wrong: usize,
    /// What is wrong, after the repairs; worst first.
    pub(crate) findings: Vec<Finding>,
}

impl View {
    /// What is found in an observation; of one VM, or of all.
    pub(crate) fn new(seen: &Observation, findings: Vec<Finding>, mending: Mending, only: Option<&VmKey>) -> Self {
        Self {
            vms: if only.is_some() { 1 } else { seen.vms.len() },
            repairs: mending.tried,
            worse: mending.worse,
            unseen: seen.unseen_of(only),
            traffic_meter: seen.traffic_meter.clone(),
            wrong: judge::wrong(&findings),
            findings,
        }
    }
}

/// A paragraph a finding. Notes are counted, and shown where one VM was asked for.
pub(crate) fn text(view: &View, with_notes: bool, reach: Reach) -> String {
    let mut text = String::new();
    for tried in &view.repairs {
        add(&mut text, "REPAIR   ", &format!("{}: {}", whose(&tried.finding), result(tried)));
    }
    if let Some(worse) = &view.worse {
        add(&mut text, "STOPPED  ", worse);
    }
    let shown = |finding: &&Finding| with_notes || finding.severity > Severity::Note;
    let findings: Vec<Finding> = view.findings.iter().filter(shown).cloned().collect();
    text += paragraphs(&findings, reach).trim_start_matches('\n');
    for sentence in &view.unseen {
        add(&mut text, "NOT SEEN  ", sentence);
    }
    if with_notes {
        let meter = view.traffic_meter.iter().flat_map(TrafficMeter::sentences);
        meter.for_each(|sentence| add(&mut text, "NOTE     ", &sentence));
    }
    let vms = count(view.vms, "VM");
    let notes = view.findings.len() - view.wrong;
    let hidden = if notes > 0 && !with_notes { " (`homenode doctor VM` shows notes)" } else { "" };
    let seen = if view.unseen.is_empty() { "" } else { " as far as could be seen" };
    // Writing to a string cannot fail.
    let _ = match (view.vms, view.wrong) {
        (0, 0) => writeln!(text, "No VM runs that this user can see."),
        (_, 0) if notes == 0 => writeln!(text, "Looked at {vms}: nothing is wrong{seen}."),
        (_, 0) => writeln!(text, "Looked at {vms}: nothing is wrong{seen}; {}{hidden}.", count(notes, "note")),
        _ => writeln!(text, "Looked at {vms}: {}{hidden}.", tally(&view.findings)),
    };
    text
}

fn result(tried: &Tried) -> String {
    if let Some(why) = &tried.skipped {
        return format!("not done: {}: {why}", done(&tried.repair));
    }
    let Some(what) = &tried.done else {
        return tried.error.as_ref().map_or_else(String::new, |error| format!("not repaired: {error}"));
    };
    let left = match &what.because {
        Some(why) if what.left.0 > 0 => format!("; {} were left: {why}", what.left),
        None if what.left.0 > 0 => format!("; {} were left", what.left),
        Some(said) => format!("; {said}"),
        _ => String::new(),
    };
    let moved = if what.moved.0 > 0 { format!(": {} moved", what.moved) } else { String::new() };
    format!("{}{moved}{left}", done(&tried.repair))
}
