//! What is wrong with VMs that run, and what would mend it, worst first.

use crate::accepted_file::AcceptedReport;
use crate::findings_groups::{groups, of, verdicts};
use crate::findings_view::{Reach, add, done, paragraphs, tally, whose};
use crate::text::count;
use judge::{Finding, Mending, Severity, Tried};
use scheduler::{Observation, TrafficMeter, VmKey};
use serde::Serialize;
use std::collections::BTreeSet;

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
    /// What became of the decisions of `--accepted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accepted: Option<AcceptedReport>,
    /// Findings that need doing: all but notes and what was accepted.
    pub(crate) wrong: usize,
    /// What is wrong, after the repairs; worst first.
    pub(crate) findings: Vec<Finding>,
}

impl View {
    /// What is found in an observation; of one VM, or of all.
    pub(crate) fn new(
        seen: &Observation,
        findings: Vec<Finding>,
        accepted: Option<AcceptedReport>,
        mending: Mending,
        only: Option<&VmKey>,
    ) -> Self {
        Self {
            accepted,
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

/// What is shown of the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The table only.
    Summary,
    /// What needs doing; notes are counted.
    NeedsDoing,
    /// Notes too: one VM was asked for.
    Notes,
}

/// A paragraph a finding, or a table and each kind once where several VMs have some. Notes are
/// counted, and shown where one VM was asked for.
pub(crate) fn text(view: &View, detail: Detail, reach: Reach) -> String {
    let mut text = String::new();
    for tried in &view.repairs {
        add(&mut text, "REPAIR   ", &format!("{}: {}", whose(&tried.finding), result(tried)));
    }
    if let Some(worse) = &view.worse {
        add(&mut text, "STOPPED  ", worse);
    }
    let with_notes = detail == Detail::Notes;
    let shown = |finding: &&Finding| with_notes || finding.severity > Severity::Note;
    let mut findings: Vec<Finding> = view.findings.iter().filter(shown).cloned().collect();
    // What all want together comes first: much of the rest follows from it.
    findings.sort_by_key(|finding| finding.what != "memory_overcommitted");
    let whole: BTreeSet<_> = findings.iter().filter(|finding| finding.accepted.is_none()).map(of).collect();
    match whole.len() {
        0 | 1 if detail != Detail::Summary => text += paragraphs(&findings, reach).trim_start_matches('\n'),
        _ => {
            text += &verdicts(&findings, None);
            if detail != Detail::Summary {
                text += &groups(&findings, reach, steps(reach));
            }
        }
    }
    for sentence in &view.unseen {
        add(&mut text, "NOT SEEN  ", sentence);
    }
    if with_notes {
        let meter = view.traffic_meter.iter().flat_map(TrafficMeter::sentences);
        meter.for_each(|sentence| add(&mut text, "NOTE     ", &sentence));
    }
    if let Some(accepted) = &view.accepted {
        text += &accepted.text();
    }
    text + &conclusion(view, with_notes)
}

/// Where the commands of one VM stand.
fn steps(reach: Reach) -> &'static str {
    match reach {
        Reach::Here => {
            "`homenode doctor VM` prints the commands of one VM; `homenode doctor --fix` does what a program can."
        }
        Reach::There => "`homenode doctor VM`, with the same arguments beside it, prints the commands of one VM.",
    }
}

fn conclusion(view: &View, with_notes: bool) -> String {
    let vms = count(view.vms, "VM");
    let accepted = view.accepted.as_ref().map(AcceptedReport::tally).unwrap_or_default();
    let of_notes = |finding: &&Finding| finding.severity == Severity::Note && finding.accepted.is_none();
    let notes = view.findings.iter().filter(of_notes).count();
    let hidden = if notes > 0 && !with_notes { " (`homenode doctor VM` shows notes)" } else { "" };
    let seen = if view.unseen.is_empty() { "" } else { " as far as could be seen" };
    match (view.vms, view.wrong) {
        (0, 0) => "No VM runs that this user can see.\n".to_owned(),
        (_, 0) if notes == 0 => format!("Looked at {vms}: nothing is wrong{seen}{accepted}.\n"),
        (_, 0) => format!("Looked at {vms}: nothing is wrong{seen}; {}{hidden}{accepted}.\n", count(notes, "note")),
        _ => format!("Looked at {vms}: {}{hidden}{accepted}.\n", tally(&view.findings)),
    }
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
