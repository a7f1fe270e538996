//! Definitions and machines of others' kinds, each with the answer that an expert signs.
//!
//! **Problem.** A judge that its own authors test finds what they thought of. These definitions
//! came from public reports, in their smallest form, each with what is right by the stack's own
//! code or by a measurement; of 72 only 33 were once judged so.
//!
//! **Rule.** `cases/cases.toml` says for each definition and machine what `homenode check` must
//! find (problems and warnings exactly, notes as far as they are named), and what must not be said.
//!
//! **Properties**, of every case, with all cures applied as they are printed:
//! 1. the VM has the vCPUs and the memory that it had;
//! 2. no more problems, and no more findings, are left than there were, and none that says that it
//!    does not start, unless that was found before;
//! 3. curing once more changes nothing.

use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
}

/// A definition on a machine, and the right answer.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    definition: String,
    machine: String,
    /// Why this is right, for a reader.
    #[allow(dead_code, reason = "for whoever reads the file")]
    because: String,
    /// Findings that are problems, all of them.
    #[serde(default)]
    problems: Vec<String>,
    /// Findings that are warnings, all of them.
    #[serde(default)]
    warnings: Vec<String>,
    /// Notes that must be there.
    #[serde(default)]
    notes: Vec<String>,
    /// Findings that must not be there, whatever their severity.
    #[serde(default)]
    never: Vec<String>,
    /// Words that stand in the cures, all together.
    #[serde(default)]
    cure_has: Vec<String>,
    /// Words that stand in no cure.
    #[serde(default)]
    cure_has_not: Vec<String>,
    /// Findings that are left once all is cured: what the stack cannot do, or what no edit mends.
    #[serde(default)]
    left: Vec<String>,
    /// Words of `--cured`, where no cure makes a domain that libvirt takes: it prints none then.
    #[serde(default)]
    uncurable: Vec<String>,
    /// Words of the refusal, where it is no definition at all.
    refused: Option<Vec<String>>,
    vcpus: Option<u64>,
    memory_mib: Option<u64>,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn run_homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode")).env("LC_ALL", "C.UTF-8").args(arguments).output().expect("homenode")
}

impl Case {
    fn machine_argument(&self) -> String {
        let path = directory().join("machines").join(&self.machine);
        match self.machine.ends_with(".synthetic") {
            true => fs::read_to_string(&path).expect("a synthetic string").trim().to_owned(),
            false => path.to_str().expect("a path").to_owned(),
        }
    }

    fn check_file(&self, file: &Path) -> Result<Value, String> {
        let output =
            run_homenode(&["check", file.to_str().expect("a path"), "--on", &self.machine_argument(), "--json"]);
        match output.status.code() {
            Some(0 | 1) => serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()),
            code => Err(format!("exit code {code:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// All that is wrong with the answer, as sentences.
    fn differences(&self) -> Vec<String> {
        let file = directory().join("definitions").join(&self.definition);
        let report = match (self.check_file(&file), &self.refused) {
            (Ok(_), Some(_)) => return vec!["it is judged, and is no definition of a VM".to_owned()],
            (Err(said), Some(words)) => {
                let missing = words.iter().filter(|word| !said.contains(*word));
                return missing.map(|word| format!("{word:?} is missing in: {said}")).collect();
            }
            (Err(said), None) => return vec![said],
            (Ok(report), None) => report,
        };
        let mut wrong = self.differences_of_findings(&report);
        let (vcpus, memory) = size_of(&report);
        if let Some(right) = self.vcpus.filter(|right| *right != vcpus) {
            wrong.push(format!("{vcpus} vCPUs, right is {right}"));
        }
        if let Some(right) = self.memory_mib.filter(|right| *right << 20 != memory) {
            wrong.push(format!("{} MiB, right is {right}", memory >> 20));
        }
        wrong.extend(self.differences_of_cured(&file, &report));
        wrong
    }

    fn differences_of_findings(&self, report: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        for (severity, right) in [("problem", &self.problems), ("warning", &self.warnings)] {
            let found = names_of(report, severity);
            if found != sorted(right) {
                wrong.push(format!("{severity}s {found:?}, right is {right:?}"));
            }
        }
        let notes = names_of(report, "note");
        wrong.extend(
            self.notes.iter().filter(|note| !notes.contains(note)).map(|note| format!("no note {note}: {notes:?}")),
        );
        let all = findings_of(report).iter().map(|finding| text_of(&finding["what"])).collect::<Vec<_>>();
        wrong.extend(self.never.iter().filter(|what| all.contains(what)).map(|what| format!("{what} is found")));
        let cures: String = findings_of(report).iter().map(|finding| finding["cure"].to_string()).collect();
        let missing = self.cure_has.iter().filter(|words| !cures.contains(*words));
        wrong.extend(missing.map(|words| format!("no cure has {words:?}")));
        let there = self.cure_has_not.iter().filter(|words| cures.contains(*words));
        wrong.extend(there.map(|words| format!("a cure has {words:?}")));
        wrong
    }

    /// Applies all cures as they are printed, and judges what has come of it.
    fn differences_of_cured(&self, file: &Path, before: &Value) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let cured_file = directory.path().join(&self.definition);
        let cured = match self.cured_text(file, before) {
            Ok(text) => text,
            Err(why) if self.uncurable.is_empty() => return vec![why],
            Err(why) => {
                let missing = self.uncurable.iter().filter(|words| !why.contains(*words));
                return missing.map(|words| format!("{words:?} is missing in: {why}")).collect();
            }
        };
        fs::write(&cured_file, &cured).expect("written");
        let after = match self.check_file(&cured_file) {
            Ok(after) => after,
            Err(said) => return vec![format!("cured: {said}")],
        };
        let mut wrong = Vec::new();
        let had = match self.size_at_next_start(file, before) {
            Ok(had) => had,
            Err(said) => return vec![said],
        };
        if had != size_of(&after) {
            wrong.push(format!("cured it has {:?} vCPUs and bytes, and had {had:?}", size_of(&after)));
        }
        let left = [names_of(&after, "problem"), names_of(&after, "warning")].concat();
        if left != self.left {
            wrong.push(format!("cured: {left:?} are left, right is {:?}", self.left));
        }
        for severity in ["problem", "warning"] {
            let (was, is) = (names_of(before, severity).len(), names_of(&after, severity).len());
            if severity == "problem" && is > was {
                wrong.push(format!("cured it has {is} problems, and had {was}"));
            }
        }
        let refuses = |report: &Value| -> Vec<String> {
            let refused = findings_of(report).into_iter().filter(|finding| finding["harm"] == "refused");
            refused.map(|finding| text_of(&finding["what"])).collect()
        };
        let before_refused = refuses(before);
        let new = refuses(&after).into_iter().filter(|what| !before_refused.contains(what));
        wrong.extend(new.map(|what| format!("cured it does not start: {what}")));
        match self.cured_text(&cured_file, &after) {
            Ok(twice) if twice == cured => {}
            Ok(_) => wrong.push("a second cure changes it again".to_owned()),
            Err(why) => wrong.push(format!("cured twice: {why}")),
        }
        wrong
    }

    /// vCPUs and bytes of memory with which it starts next.
    fn size_at_next_start(&self, file: &Path, report: &Value) -> Result<(u64, u64), String> {
        let text = fs::read_to_string(file).expect("read");
        if !self.definition.ends_with(".conf") || !text.contains("[PENDING]") {
            return Ok(size_of(report));
        }
        let directory = tempfile::tempdir().expect("a directory");
        let next = directory.path().join(&self.definition);
        fs::write(&next, at_next_start(&text)).expect("written");
        self.check_file(&next).map(|report| size_of(&report))
    }

    fn cured_text(&self, file: &Path, report: &Value) -> Result<String, String> {
        let text = fs::read_to_string(file).expect("read");
        if self.definition.ends_with(".conf") {
            return Ok(findings_of(report)
                .iter()
                .filter(|finding| finding["severity"] != "note")
                .flat_map(|finding| finding["cure"]["commands"].as_array().cloned().unwrap_or_default())
                .fold(at_next_start(&text), |text, command| {
                    with_command_of_qm(&text, command.as_str().expect("a command"))
                }));
        }
        let output =
            run_homenode(&["check", file.to_str().expect("a path"), "--on", &self.machine_argument(), "--cured"]);
        match output.status.code() {
            Some(0 | 1) if !output.stdout.is_empty() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            code => Err(format!("--cured: exit code {code:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

/// A configuration of Proxmox VE at its next start, at which what is pending takes effect.
fn at_next_start(text: &str) -> String {
    let mut sections = vec![(String::new(), Vec::<String>::new())];
    for line in text.lines() {
        match line.starts_with('[') {
            true => sections.push((line.to_owned(), Vec::new())),
            false => sections.last_mut().expect("a section").1.push(line.to_owned()),
        }
    }
    let pending = sections.iter().find(|(head, _)| head == "[PENDING]").map(|(_, lines)| lines.clone());
    sections.retain(|(head, _)| head != "[PENDING]");
    for waits in pending.into_iter().flatten().filter(|line| !line.is_empty()) {
        let own = &mut sections[0].1;
        own.retain(|line| key_of(line) != key_of(&waits));
        own.push(waits);
    }
    let lines = sections.into_iter().flat_map(|(head, lines)| std::iter::once(head).chain(lines));
    lines.filter(|line| !line.is_empty()).map(|line| line + "\n").collect()
}

fn key_of(line: &str) -> Option<&str> {
    line.split_once(':').map(|(key, _)| key.trim())
}

/// A configuration after `qm set ID --KEY VALUE ... --delete KEY`: qm writes above the sections.
fn with_command_of_qm(text: &str, command: &str) -> String {
    if !command.starts_with("qm set ") {
        return text.to_owned();
    }
    let words = words_of_shell(command);
    let (own, sections) = match text.find("\n[") {
        Some(at) => text.split_at(at + 1),
        None => (text, ""),
    };
    let mut lines: Vec<String> = own.lines().map(str::to_owned).collect();
    for pair in words[3..].chunks(2) {
        let [option, value] = pair else { panic!("{command}: a word is over") };
        let key = option.strip_prefix("--").unwrap_or_else(|| panic!("{command}: {option}"));
        let gone: Vec<&str> = if key == "delete" { value.split(',').collect() } else { vec![key] };
        lines.retain(|line| key_of(line).is_none_or(|key| !gone.contains(&key)));
        if key != "delete" {
            lines.push(format!("{key}: {value}"));
        }
    }
    lines.into_iter().map(|line| line + "\n").collect::<String>() + sections
}

/// The words of a command, as `sh` takes it apart.
fn words_of_shell(command: &str) -> Vec<String> {
    let output = Command::new("sh").args(["-c", &format!("printf '%s\\0' {command}")]).output().expect("sh");
    let text = String::from_utf8(output.stdout).expect("words");
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn findings_of(report: &Value) -> Vec<Value> {
    report["findings"].as_array().cloned().unwrap_or_default()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn names_of(report: &Value, severity: &str) -> Vec<String> {
    let of = findings_of(report).into_iter().filter(|finding| finding["severity"] == severity);
    sorted(&of.map(|finding| text_of(&finding["what"])).collect::<Vec<_>>())
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    names
}

fn size_of(report: &Value) -> (u64, u64) {
    let vm = &report["vms"][0];
    (vm["vcpus"].as_u64().unwrap_or_default(), vm["memory"].as_u64().unwrap_or_default())
}

fn cases() -> Vec<Case> {
    let text = fs::read_to_string(directory().join("cases.toml")).expect("the cases");
    toml::from_str::<Cases>(&text).expect("cases").case
}

#[test]
fn every_definition_gets_the_answer_that_an_expert_signs() {
    let cases = cases();
    let half = cases.len() / 2;
    let wrong_of = |cases: &[Case]| -> Vec<String> {
        let lines = |case: &Case| {
            let name = format!("{} on {}", case.definition, case.machine);
            case.differences().into_iter().map(move |line| format!("{name}: {line}")).collect::<Vec<_>>()
        };
        cases.iter().flat_map(lines).collect()
    };
    let wrong = std::thread::scope(|scope| {
        let other = scope.spawn(|| wrong_of(&cases[half..]));
        [wrong_of(&cases[..half]), other.join().expect("judged")].concat()
    });
    assert!(wrong.is_empty(), "{} differences in {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// A definition that nobody judges is a mistake of ours.
#[test]
fn every_definition_of_the_directory_is_a_case() {
    let named: Vec<String> = cases().into_iter().map(|case| case.definition).collect();
    let files = fs::read_dir(directory().join("definitions")).expect("definitions");
    for file in files.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")) {
        assert!(named.contains(&file), "{file} is in no case of cases.toml");
    }
}
