//! `workload = "command"` and `homenode evaluate -- COMMAND` as a user runs them: natively, and in
//! a guest that has no program of its own.

use crate::common::unique;
use crate::evaluate::guest_files;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_homenode");

const FIGURE: &str =
    "[[command.figure]]\nname = 'rate'\nunit = '{step}/s'\nbetter = 'more'\nregex = '^rate ([0-9.]+)'\n";
const NATIVE: &str = "[[configuration]]\nname = 'native'\nruns = 'native'\n";
const VM: &str = "[[configuration]]\nname = '1 VM'\nruns = 'vms'\nvcpus = 1\nmemory = '256 MiB'\n";

struct Place(tempfile::TempDir);

impl Place {
    /// With an experiment whose `[command]` begins with `command`, and what stands behind it.
    fn new(command: &str, rest: &str) -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        let text = format!(
            "name = '{}'\ntitle = 'A command'\nworkload = 'command'\nthreads = [1]\npinning = 'none'\nrepetitions = \
            2\nrounds = 1\n\
             [limits]\nother_cpu_percent = 10000\n[command]\n{command}\n{rest}",
            unique("cmd")
        );
        fs::write(place.path("cmd.toml"), text).expect("written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn evaluate(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("evaluate").arg("--results").arg(self.path("results")).args(arguments);
        command.current_dir(self.0.path()).output().expect("homenode runs")
    }

    fn cells(&self) -> (Output, Vec<Value>) {
        let output = self.evaluate(&["--json", "cmd.toml"]);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let configurations = said["configurations"].as_array().cloned().unwrap_or_default();
        (output, configurations.into_iter().map(|one| one["cells"][0].clone()).collect())
    }
}

fn best(cell: &Value, quantity: &str) -> f64 {
    let figures = cell["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["quantity"]["name"] == quantity);
    found.and_then(|figure| figure["best"].as_f64()).unwrap_or_else(|| panic!("{quantity}: {cell}"))
}

#[test]
fn the_same_program_runs_natively_and_in_a_guest_that_has_none() {
    let Some(()) = guest_files("the_same_program_runs_natively_and_in_a_guest", true) else { return };
    let place = Place::new(
        "shell = 'sed s/of/rate/ in.txt; sha256sum /bin/sh > sum; uname -n >&2'\nfiles = ['in.txt']\nneeds = ['sed', \
        'sha256sum', 'uname']",
        &format!("{FIGURE}[command.verify]\npattern = '^rate 12.5$'\n{NATIVE}{VM}"),
    );
    fs::write(place.path("in.txt"), "of 12.5\n").expect("written");
    let (output, cells) = place.cells();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(cells.len(), 2);
    for cell in &cells {
        assert_eq!((best(cell, "rate"), cell["verified"].as_bool()), (12.5, Some(true)), "{cell}");
        assert!(best(cell, "wall time") > 0.0 && best(cell, "peak memory") > 0.1, "{cell}");
    }
}

#[test]
fn a_wrong_check_value_leaves_no_figure_and_no_check_says_so() {
    let Some(()) = guest_files("a_wrong_check_value_leaves_no_figure", false) else { return };
    let wrong = "[command.verify]\nvalues = [{ figure = 'rate', expected = 5.0, tolerance = 0.1 }]\n";
    for (verify, part) in [(wrong, "native: rate is 7, and must be 5 within 0.1."), ("", "7.000 ?")] {
        let place = Place::new("shell = 'echo rate 7'", &format!("{FIGURE}{verify}{NATIVE}"));
        let output = place.evaluate(&["cmd.toml"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains(part), "{part}: {said}");
        assert_eq!(said.contains("7.000"), verify.is_empty(), "{said}");
    }
}

#[test]
fn a_command_that_fails_ends_with_its_last_lines_and_what_was_measured_is_kept() {
    let Some(()) = guest_files("a_command_that_fails", false) else { return };
    let place = Place::new("shell = 'echo no such atom type >&2; exit 3'", &format!("{FIGURE}{NATIVE}"));
    let output = place.evaluate(&["cmd.toml"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["exit status 3", "no such atom type", "--resume"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(fs::read_dir(place.path("results")).expect("results").next().is_some());
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_is_made() {
    let Some(()) = guest_files("what_cannot_be_used_is_refused", false) else { return };
    let shell = "shell = 'echo rate 7'";
    for (command, rest, parts) in [
        (shell, FIGURE.replace("([0-9.]+)", "(["), ["cmd.toml:", "command.figure[0].regex", "unclosed"]),
        (shell, FIGURE.replace("{step}/s", "furlongs"), ["command.figure[0].unit", "furlongs", "{step}/s"]),
        ("", String::new(), ["command.argv", "nothing", "shell"]),
        ("argv = ['a']\nfiles = ['absent.txt']", String::new(), ["command.files", "absent.txt", "No such file"]),
    ] {
        let place = Place::new(command, &format!("{rest}{NATIVE}"));
        let output = place.evaluate(&["cmd.toml"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!place.path("results").exists(), "{said}");
    }
}

#[test]
fn a_command_without_a_file_is_planned_in_four_configurations() {
    let place = Place::new("", "");
    fs::write(place.path("in.lj"), "x").expect("written");
    let output = place.evaluate(&["--dry-run", "--json", "--", "cat", "in.lj", "{ranks}"]);
    let said: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let experiment = &said["resolved"]["experiment"];
    let names: Vec<&str> = experiment["configuration"]
        .as_array()
        .expect("configurations")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names[..3], ["native", "1 VM, vNUMA", "1 VM, no vNUMA"]);
    let absolute = place.path("in.lj").canonicalize().expect("a path").display().to_string();
    assert!(said["resolved"]["workloads"].to_string().contains(&absolute), "{said}");
    let output = place.evaluate(&["--", "no-such-solver"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && error.contains("no-such-solver"), "{error}");
}

#[test]
fn how_long_an_unknown_command_takes_is_not_made_up() {
    let place = Place::new("argv = ['true']", &format!("{FIGURE}{NATIVE}"));
    let said = |arguments: &[&str]| String::from_utf8_lossy(&place.evaluate(arguments).stdout).into_owned();
    let text = said(&["--dry-run", "cmd.toml"]);
    assert!(text.contains("known when the command has run") && !text.contains("takes about"), "{text}");
    let json: Value = serde_json::from_str(&said(&["--dry-run", "--json", "cmd.toml"])).expect("JSON");
    assert!(json["estimated_seconds"].is_null() && json["visits"].is_array(), "{json}");
}
