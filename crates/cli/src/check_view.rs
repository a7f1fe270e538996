//! What is wrong with a VM's shape, worst first, with the patches that cure it.

use crate::text::{WIDTH, count, wrapped};
use judge::{Finding, Severity, ShapedVm};
use serde::Serialize;
use std::fmt::Write;

/// What `--json` prints. A change that breaks readers raises `version`.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) machine: &'a str,
    pub(crate) vm: &'a str,
    /// A file, `NAME.xml` for a domain that libvirt has, `standard input`, or `process N`.
    pub(crate) source: &'a str,
    /// Findings that need doing: all but notes.
    pub(crate) wrong: usize,
    pub(crate) findings: &'a [Finding],
}

/// Places that are shown of each finding; `--json` has all.
const SHOWN_PLACES: usize = 3;

/// `1 problem, 2 notes`: how many there are of each severity, where there are any.
pub(crate) fn tally(findings: &[Finding]) -> String {
    let kinds = [(Severity::Problem, "problem"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let each = kinds.map(|(severity, one)| (of(severity), one)).into_iter().filter(|(number, _)| *number > 0);
    each.map(|(number, one)| count(number, one)).collect::<Vec<_>>().join(", ")
}

/// A paragraph a finding, then what it comes to.
pub(crate) fn text(vm: &ShapedVm, machine: &str, source: &str, findings: &[Finding]) -> String {
    let shape = match vm.vnuma {
        true => count(vm.nodes.len(), "virtual node"),
        false => "no vNUMA".to_owned(),
    };
    let cpus = count(vm.vcpus as usize, "vCPU");
    let mut text = format!("{} on {machine}: {cpus}, {}, {shape} ({source})\n", vm.name, vm.memory);
    for (index, finding) in findings.iter().enumerate() {
        text.push('\n');
        let earlier = findings[..index].iter().position(|other| same_patch(other, finding));
        one(&mut text, index + 1, finding, earlier.map(|index| index + 1));
    }
    // Writing to a string cannot fail.
    let _ = match findings.len() {
        0 => writeln!(text, "\nNothing is wrong."),
        _ => writeln!(text, "\n{}.", tally(findings)),
    };
    harmless(&text)
}

/// Names and XML are whatever somebody wrote: what would steer a terminal is shown as U+FFFD.
fn harmless(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let end = if line.ends_with("\r\n") { "\r\n" } else { "\n" };
        let (line, end) = line.strip_suffix(end).map_or((line, ""), |line| (line, end));
        line.replace(|letter: char| letter.is_control() && letter != '\t', "\u{fffd}") + end
    });
    lines.collect()
}

fn same_patch(one: &Finding, other: &Finding) -> bool {
    let cure = |finding: &Finding| (finding.cure.patch.clone(), finding.cure.commands.clone());
    let nothing = other.cure.patch.is_none() && other.cure.commands.is_empty();
    one.severity > Severity::Note && !nothing && cure(one) == cure(other)
}

fn one(text: &mut String, number: usize, finding: &Finding, earlier: Option<usize>) {
    let head = match finding.severity {
        Severity::Problem => "PROBLEM",
        Severity::Warning => "WARNING",
        Severity::Note => "NOTE   ",
    };
    add(text, &format!("{head} {number}  "), &finding.sentence);
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
        let restart = if cure.restart { " (the guest sees it when it is started again)" } else { "" };
        let as_above = earlier.map(|number| format!(", as in {number}")).unwrap_or_default();
        add(text, "  cure:   ", &format!("{}{restart}{as_above}", cure.advice));
    }
    // A note may well be meant: its patch is in --json.
    if earlier.is_some() || finding.severity == Severity::Note {
        return;
    }
    for line in cure.commands.iter().map(String::as_str).chain(cure.patch.iter().flat_map(|patch| patch.lines())) {
        let _ = writeln!(text, "    {line}");
    }
}

fn add(text: &mut String, head: &str, words: &str) {
    let blank = " ".repeat(head.len());
    for (index, line) in wrapped(words, WIDTH - head.len()).into_iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if index == 0 { head } else { &blank });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_domain_steers_a_terminal() {
        assert_eq!(
            harmless("a\u{9b}31m\rb\tc \u{e4}\r\n-\u{1b}\nend"),
            "a\u{fffd}31m\u{fffd}b\tc \u{e4}\r\n-\u{fffd}\nend"
        );
    }
}
