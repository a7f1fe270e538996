//! Findings as paragraphs: the same for a definition (`check`) and for a VM that runs (`doctor`).

use crate::text::{count, width, wrapped};
use judge::{Finding, Repair, Severity};
use scheduler::Action;
use std::collections::BTreeMap;
use std::fmt::Write;
use topology::CpuSet;
use topology::words::named;

/// Places that are shown of each finding; `--json` has all.
const SHOWN_PLACES: usize = 3;

/// `1 problem, 2 notes`: how many there are of each severity, where there are any; what was
/// accepted does not count.
pub(crate) fn tally(findings: &[Finding]) -> String {
    let kinds = [(Severity::Problem, "problem"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    let counts = || findings.iter().filter(|finding| finding.accepted.is_none());
    let of = |severity| counts().filter(|finding| finding.severity == severity).count();
    let each = kinds.map(|(severity, one)| (of(severity), one)).into_iter().filter(|(number, _)| *number > 0);
    each.map(|(number, one)| count(number, one)).collect::<Vec<_>>().join(", ")
}

/// Where a repair would be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Here: `homenode doctor --fix` makes it.
    Here,
    /// On the host that is only looked at from here.
    There,
}

impl Reach {
    /// What stands before a repair.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Here => "  --fix:  ",
            Self::There => "  there:  ",
        }
    }
}

/// A paragraph for each finding that nobody accepted.
pub(crate) fn paragraphs(findings: &[Finding], reach: Reach) -> String {
    let shown: Vec<&Finding> = findings.iter().filter(|finding| finding.accepted.is_none()).collect();
    let mut text = String::new();
    for (index, finding) in shown.iter().enumerate() {
        text.push('\n');
        paragraph(&mut text, index + 1, finding, cured_above(&shown[..index], finding).map(|index| index + 1), reach);
    }
    text
}

/// Which of the findings that were shown has the same cure.
pub(crate) fn cured_above(shown: &[&Finding], finding: &Finding) -> Option<usize> {
    shown.iter().position(|other| same_cure(other, finding))
}

fn same_cure(one: &Finding, other: &Finding) -> bool {
    let cure = |finding: &Finding| {
        let cure = &finding.cure;
        (finding.vm.clone(), finding.process, cure.patch.clone(), cure.commands.clone(), cure.repairs.clone())
    };
    let nothing = other.cure.patch.is_none() && other.cure.commands.is_empty() && other.cure.repairs.is_empty();
    one.severity > Severity::Note && !nothing && cure(one) == cure(other)
}

/// The word that a finding begins with, as wide as the others.
pub(crate) fn head(severity: Severity) -> &'static str {
    match severity {
        Severity::Problem => "PROBLEM",
        Severity::Warning => "WARNING",
        Severity::Note => "NOTE   ",
    }
}

/// One finding, whole. `earlier`: the number of the one whose cure is the same.
pub(crate) fn paragraph(text: &mut String, number: usize, finding: &Finding, earlier: Option<usize>, reach: Reach) {
    let head = head(finding.severity);
    add(text, &format!("{head} {number}  "), &format!("{}: {}", whose(finding), finding.sentence));
    if !finding.seen.is_empty() {
        add(text, "  seen:   ", &finding.seen);
    }
    let places: Vec<String> = finding.spots.iter().take(SHOWN_PLACES).map(ToString::to_string).collect();
    if !places.is_empty() {
        let more = finding.spots.len() - places.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        add(text, "  where:  ", &(places.join(", ") + &more));
    }
    if let Some(cost) = &finding.cost {
        add(text, "  costs:  ", &cost.to_string());
    }
    add(text, "  why:    ", finding.because);
    let cure = &finding.cure;
    if !cure.advice.is_empty() {
        let as_above = earlier.map(|number| format!(", as in {number}")).unwrap_or_default();
        add(text, "  cure:   ", &format!("{}{as_above}", advice(finding)));
    }
    // A note may well be meant: what would change it is in --json.
    if earlier.is_some() || finding.severity == Severity::Note {
        return;
    }
    for repair in &cure.repairs {
        add(text, reach.label(), &planned(repair));
    }
    for line in cure.commands.iter().map(String::as_str).chain(cure.patch.iter().flat_map(|patch| patch.lines())) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {line}");
    }
}

/// The cure in words.
pub(crate) fn advice(finding: &Finding) -> String {
    let restart = if finding.cure.restart { " (the guest sees it when it is started again)" } else { "" };
    format!("{}{restart}", finding.cure.advice)
}

/// `VM web`, `this host`.
pub(crate) fn whose(finding: &Finding) -> String {
    finding.vm.as_ref().map_or_else(|| "this host".to_owned(), |name| format!("VM {name}"))
}

/// What a repair is going to do.
fn planned(repair: &Repair) -> String {
    match repair {
        Repair::Act { action: Action::Bind { home, cpus, .. } } => {
            format!("bind vCPUs to CPUs {cpus} of {}", named("node", home))
        }
        Repair::Act { action: Action::MoveMemory { from, to, at_most, .. } } => {
            format!("move up to {at_most} from node {from} to node {to}")
        }
        Repair::BindOthers { threads, .. } => format!("bind {}", others(threads)),
        Repair::Confine { nodes: set, .. } => format!("write {set} to the cpuset.mems of its own cgroup"),
    }
}

/// `3 threads without a vCPU to CPUs 4-7`.
fn others(threads: &BTreeMap<u32, CpuSet>) -> String {
    let cpus = threads.values().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let threads = count(threads.len(), "thread");
    format!("{threads} without a vCPU to {}", named("CPU", &cpus))
}

/// What a repair did.
pub(crate) fn done(repair: &Repair) -> String {
    match repair {
        Repair::Act { action: Action::Bind { home, cpus, .. } } => {
            format!("bound to CPUs {cpus} of {}", named("node", home))
        }
        Repair::Act { action: Action::MoveMemory { from, to, .. } } => format!("memory: node {from} -> node {to}"),
        Repair::BindOthers { threads, .. } => format!("bound: {}", others(threads)),
        Repair::Confine { nodes: set, .. } => format!("confined to the memory of {}", named("node", set)),
    }
}

/// A line with a head, wrapped.
pub(crate) fn add(text: &mut String, head: &str, words: &str) {
    let blank = " ".repeat(head.chars().count());
    for (index, line) in wrapped(words, width().saturating_sub(head.chars().count()).max(20)).into_iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if index == 0 { head } else { &blank });
    }
}
