//! `--accepted FILE`: findings that somebody decided to live with.
//!
//! **Problem.** A fleet has findings that are meant: a batch VM that floats, an appliance that
//! nobody may change. Among them a new one is not seen.
//!
//! **Rule.** An entry names a VM (with `*` and `?`) and a kind of finding, why that is accepted,
//! and until when. What it matches is no longer counted, shown as a paragraph or repaired. Past its
//! date it counts again, and that is said; so is an entry that matches nothing of a VM that was
//! looked at.
//!
//! **Example.** `vm = "batch-*"`, `finding = "floats"`, `reason = "nobody waits for it"`,
//! `until = 2027-06-30`.

use crate::failure::bad_input;
use crate::findings_view::add;
use crate::text::count;
use jiff::civil::Date;
use judge::{Accepted, Finding};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use topology::{TomlError, TomlText, input};

/// What a file of this kind has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    accepted: Vec<Entry>,
}

/// One decision.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The VM's name, or a pattern; none for findings of the host itself.
    #[serde(default)]
    vm: Option<String>,
    /// The kind of finding.
    finding: String,
    reason: String,
    until: Until,
}

/// A day as TOML has them, or as text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a day such as 2027-06-30")]
enum Until {
    Day(toml::value::Datetime),
    Text(String),
}

/// Decisions of a file.
#[derive(Debug)]
pub(crate) struct AcceptedFile {
    path: String,
    entries: Vec<(Entry, Date)>,
}

/// What became of the decisions.
#[derive(Debug, Serialize)]
pub(crate) struct AcceptedReport {
    /// The file.
    file: String,
    /// Findings that count no longer.
    findings: usize,
    /// Each decision, in the order of the file.
    entries: Vec<EntryReport>,
}

/// What became of a decision.
#[derive(Debug, Serialize)]
struct EntryReport {
    vm: Option<String>,
    finding: String,
    reason: String,
    until: String,
    state: EntryState,
    /// Findings that it matches.
    findings: usize,
    /// VMs that have these.
    vms: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum EntryState {
    /// What it matches counts no longer.
    Accepted,
    /// It is past its date: what it matches counts again.
    Past,
    /// It matches nothing.
    MatchesNothing,
    /// No such VM was looked at.
    NotLookedAt,
}

impl AcceptedFile {
    /// Reads the file.
    ///
    /// # Errors
    /// Bad input: it cannot be read, or says something that cannot be used.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = input::text(path, input::LONGEST_TEXT)
            .map_err(|error| bad_input(format!("--accepted {}: cannot be read: {error}", path.display())))?;
        Self::from_toml(&text, &path.display().to_string()).map_err(bad_input)
    }

    fn from_toml(text: &str, path: &str) -> Result<Self, TomlError> {
        let toml = TomlText::new(text, path);
        let written: Written = toml.read()?;
        let mut entries = Vec::new();
        for (index, entry) in written.accepted.into_iter().enumerate() {
            let fault =
                |field: &str, problem: &str| toml.fault(&format!("accepted[{index}].{field}"), problem.to_owned());
            let empty = |text: &str| text.trim().is_empty();
            if entry.vm.as_deref().is_some_and(empty) {
                return Err(fault("vm", "expected the name of a VM, or a pattern with `*` and `?`"));
            }
            if empty(&entry.finding) {
                return Err(fault("finding", "expected a kind of finding, as `--json` calls it (`what`): \"floats\""));
            }
            if empty(&entry.reason) {
                return Err(fault("reason", "expected why somebody decided so: whoever reads it later wants to know"));
            }
            let day = match &entry.until {
                Until::Day(day) if day.time.is_none() => day.to_string(),
                Until::Day(_) => return Err(fault("until", "expected a day without a time, such as 2027-06-30")),
                Until::Text(text) => text.clone(),
            };
            let day: Date = day.trim().parse().map_err(|_| fault("until", "expected a day such as 2027-06-30"))?;
            entries.push((entry, day));
        }
        Ok(Self { path: path.to_owned(), entries })
    }

    /// Marks what is accepted on a day. `looked_at`: names of all VMs that were judged.
    pub(crate) fn apply(&self, findings: &mut [Finding], looked_at: &[&str], today: Date) -> AcceptedReport {
        let mut accepted = 0;
        for finding in findings.iter_mut() {
            let counts = |(entry, until): &&(Entry, Date)| *until >= today && entry.matches(finding);
            let Some((entry, until)) = self.entries.iter().find(counts) else { continue };
            finding.accepted = Some(Accepted { reason: entry.reason.trim().to_owned(), until: until.to_string() });
            accepted += 1;
        }
        let report = |(entry, until): &(Entry, Date)| {
            let matched: Vec<&Finding> = findings.iter().filter(|finding| entry.matches(finding)).collect();
            let vms: BTreeSet<_> = matched.iter().map(|finding| (&finding.vm, finding.process)).collect();
            let seen = entry.vm.as_ref().is_none_or(|name| looked_at.iter().any(|vm| daemon::glob(name, vm)));
            let state = match (seen, matched.is_empty()) {
                (false, _) => EntryState::NotLookedAt,
                (true, true) => EntryState::MatchesNothing,
                (true, false) if *until < today => EntryState::Past,
                (true, false) => EntryState::Accepted,
            };
            EntryReport {
                vm: entry.vm.clone(),
                finding: entry.finding.clone(),
                reason: entry.reason.trim().to_owned(),
                until: until.to_string(),
                state,
                findings: matched.len(),
                vms: vms.len(),
            }
        };
        let entries = self.entries.iter().map(report).collect();
        AcceptedReport { file: self.path.clone(), findings: accepted, entries }
    }
}

impl Entry {
    fn matches(&self, finding: &Finding) -> bool {
        let of_vm = match (&self.vm, &finding.vm) {
            (Some(pattern), Some(name)) => daemon::glob(pattern, name),
            (None, None) => true,
            _ => false,
        };
        of_vm && self.finding == finding.what
    }
}

impl AcceptedReport {
    /// What is to be known of it, a line or two for each decision.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let of = |state| self.entries.iter().filter(move |entry| entry.state == state);
        for entry in of(EntryState::Past) {
            let words = format!("{}, until {}: it counts again. It was: {}", entry.called(), entry.until, entry.reason);
            add(&mut text, "PAST      ", &words);
        }
        for entry in of(EntryState::MatchesNothing) {
            let words = format!("{}: nothing of this kind was found; the entry can go", entry.called());
            add(&mut text, "NOTHING   ", &words);
        }
        for entry in of(EntryState::Accepted) {
            let vms = if entry.vms > 1 { format!(" ({})", count(entry.vms, "VM")) } else { String::new() };
            let words = format!("{}{vms}, until {}: {}", entry.called(), entry.until, entry.reason);
            add(&mut text, "ACCEPTED  ", &words);
        }
        let elsewhere = of(EntryState::NotLookedAt).count();
        if elsewhere > 0 {
            let words = match elsewhere {
                1 => "1 entry is of a VM that was not looked at".to_owned(),
                several => format!("{several} entries are of VMs that were not looked at"),
            };
            add(&mut text, "          ", &words);
        }
        if text.is_empty() { text } else { format!("{}:\n{text}", self.file) }
    }

    /// ` (3 accepted)`; nothing where none is.
    pub(crate) fn tally(&self) -> String {
        if self.findings == 0 { String::new() } else { format!(" ({} accepted)", self.findings) }
    }
}

impl EntryReport {
    fn called(&self) -> String {
        match &self.vm {
            Some(vm) => format!("{} of {vm}", self.finding),
            None => format!("{} of this host", self.finding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::Occupancy;

    /// The findings of two VMs that float.
    fn findings() -> Vec<Finding> {
        let machine = topology::read::from_synthetic("numa:2(memory=8GiB) core:4 pu:1").expect("a machine");
        let of = |name: &str| {
            let text = format!("<domain><name>{name}</name><memory unit='GiB'>2</memory><vcpu>2</vcpu></domain>");
            let definition = stacks::check::Definition::read(text, format!("{name}.xml")).expect("a domain");
            definition.check(&machine, &Occupancy::default()).expect("findings")
        };
        ["batch-1", "db"].into_iter().flat_map(of).collect()
    }

    const DECIDED: &str = "[[accepted]]\nvm = \"batch-*\"\nfinding = \"floats\"\nreason = \"nobody waits\"\nuntil = \
        2027-06-30\n[[accepted]]\nvm = \"db\"\nfinding = \"floats\"\nreason = \"later\"\nuntil = \"2026-01-31\"\n\
        [[accepted]]\nvm = \"db\"\nfinding = \"memory_away\"\nreason = \"r\"\nuntil = 2027-01-01\n\
        [[accepted]]\nvm = \"gone\"\nfinding = \"floats\"\nreason = \"r\"\nuntil = 2027-01-01\n";

    #[test]
    fn what_somebody_decided_counts_until_its_day() {
        let file = AcceptedFile::from_toml(DECIDED, "accepted.toml").expect("a file");
        let mut found = findings();
        let floating = |found: &[Finding]| found.iter().filter(|one| one.what == "floats" && one.needs_doing()).count();
        assert_eq!(floating(&found), 2);
        let report = file.apply(&mut found, &["batch-1", "db"], "2026-11-25".parse().unwrap());
        assert_eq!((floating(&found), report.findings), (1, 1));
        let expected = "accepted.toml:\n\
            PAST      floats of db, until 2026-01-31: it counts again. It was: later\n\
            NOTHING   memory_away of db: nothing of this kind was found; the entry can go\n\
            ACCEPTED  floats of batch-*, until 2027-06-30: nobody waits\n\
            \u{20}         1 entry is of a VM that was not looked at\n";
        assert_eq!(report.text(), expected);
        // On its last day it still counts, and on the next one no longer.
        for (day, left) in [("2027-06-30", 1), ("2027-07-01", 2)] {
            let mut found = findings();
            file.apply(&mut found, &["batch-1", "db"], day.parse().unwrap());
            assert_eq!(floating(&found), left, "{day}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let with = |from: &str, to: &str| {
            let text = DECIDED.replacen(from, to, 1);
            AcceptedFile::from_toml(&text, "accepted.toml").expect_err(to).to_string()
        };
        let cases = [
            ("until = 2027-06-30", "until = 30", "a day such as 2027-06-30"),
            ("until = 2027-06-30", "until = \"soon\"", "accepted[0].until = \"soon\""),
            ("until = 2027-06-30", "until = 2027-06-30T10:00:00", "without a time"),
            ("until = 2027-06-30", "", "until"),
            ("reason = \"nobody waits\"", "reason = \" \"", "accepted[0].reason"),
            ("finding = \"floats\"", "finding = \"\"", "accepted[0].finding"),
            ("vm = \"batch-*\"", "vms = \"batch-*\"", "vms"),
        ];
        for (from, to, named) in cases {
            let said = with(from, to);
            assert!(said.starts_with("accepted.toml") && said.contains(named), "{to}: {said}");
        }
    }
}
