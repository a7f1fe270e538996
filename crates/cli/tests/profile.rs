//! `homenode profile`, as a process: from a measured run on this host to advice on another machine.

use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_homenode");

fn homenode(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).env("LC_ALL", "C.UTF-8").current_dir(directory).args(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A machine file of this host's name. Its rates are those of a shipped machine: what is fitted
/// here is not looked at.
fn machine_file(directory: &Path, name: &str) {
    let machine = include_str!("../../../machines/hp-dl380-g6.toml");
    std::fs::write(directory.join("host.toml"), format!("name = {name:?}\n{machine}")).expect("written");
}

const SCAN: &str = r#"
name = "scan"
title = "A scan"
workload = "multigrid"
threads = [1, 2]
rounds = 1
repetitions = 3
pinning = "scatter"
[multigrid]
class = "S"
[limits]
quiet_seconds = 0
repeat_disturbed = 0
[[configuration]]
name = "native"
runs = "native"
[[configuration]]
name = "vNUMA"
runs = "vms"
vcpus = 2
memory = "1 GiB"
modelled = { only = true }
"#;

#[test]
fn a_measured_run_becomes_a_profile_that_advise_and_evaluate_take() {
    let beside = Path::new(PROGRAM).with_file_name("homenode-guest").is_file();
    if !(beside || qemu::TinyGuest::locate(None).is_ok()) {
        eprintln!("SKIPPED a_measured_run_becomes_a_profile_that_advise_and_evaluate_take: no homenode-guest");
        return;
    }
    let host = topology::read::live().expect("this host");
    if host.usable_threads().count() < 2 {
        eprintln!("SKIPPED a_measured_run_becomes_a_profile_that_advise_and_evaluate_take: one CPU");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    std::fs::write(here.join("scan.toml"), SCAN).expect("written");
    let measured = homenode(here, &["evaluate", "scan.toml"]);
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let results = std::fs::read_dir(here.join("results")).expect("results").next().expect("one").expect("one");
    let results = results.path().display().to_string();

    let refused = homenode(here, &["profile", &results]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("homenode calibrate"), "{}", text(&refused.stderr));
    let refused = homenode(here, &["profile", &results, "--on", "hp-dl380-g6"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains(&host.name), "{}", text(&refused.stderr));

    machine_file(here, &host.name);
    // Two threads may be measured slower than one: then only the one has a program that can be.
    let fit = ["profile", &results, "--on", "host.toml", "--class", "bandwidth", "--fit-threads", "1"];
    let refused = homenode(here, &[&fit[..], &["--output", "mine.txt"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let profiled = homenode(here, &[&fit[..], &["--output", "mine.toml"]].concat());
    let shown = text(&profiled.stdout);
    assert!(profiled.status.success(), "{}", text(&profiled.stderr));
    for words in ["The scan", "fitted", "test", "class bandwidth", "Written: mine.toml", "no hardware counter"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let again = homenode(here, &[&fit[..], &["--output", "mine.toml"]].concat());
    assert!(again.status.code() == Some(2) && text(&again.stderr).contains("--force"), "{}", text(&again.stderr));
    let json = homenode(here, &[&fit[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["format"], "homenode.profile");
    assert!(json["residuals"][0]["error_percent"].as_f64().is_some_and(|error| error.abs() < 0.1), "{json}");

    std::fs::write(here.join("vm.toml"), "name = \"wide\"\nvcpus = 32\nmemory = \"16 GiB\"\n").expect("written");
    let advice = homenode(here, &["advise", "vm.toml", "--on", "dell-r910", "--workload", "mine.toml"]);
    let shown = text(&advice.stdout);
    assert!(advice.status.success() && shown.contains("one VM, no vNUMA"), "{shown}{}", text(&advice.stderr));
    let predicted = homenode(here, &["evaluate", "scan.toml", "--on", "dell-r910", "--profile", "mine.toml"]);
    let shown = text(&predicted.stdout);
    assert!(predicted.status.success() && shown.contains("≈"), "{shown}{}", text(&predicted.stderr));
    let refused = homenode(here, &["evaluate", "scan.toml", "--profile", "mine.toml"]);
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("--on MACHINE"));
}
