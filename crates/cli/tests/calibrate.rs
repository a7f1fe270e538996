//! `homenode calibrate`, as a process: what it measures here is rough, what it leaves is not.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_homenode");

fn homenode(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("homenode runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether this host cannot be calibrated here; says so.
fn is_skipped(test: &str) -> bool {
    let beside = Path::new(PROGRAM).with_file_name("homenode-guest").is_file();
    if !(beside || qemu::TinyGuest::locate(None).is_ok()) {
        eprintln!("SKIPPED {test}: no homenode-guest; `scripts/guest-image` makes it");
        return true;
    }
    let host = topology::read::live().expect("this host");
    if let Err(reason) = evaluate::calibrate::regular::Regular::of(&host) {
        eprintln!("SKIPPED {test}: this host is not regular: {reason}");
        return true;
    }
    false
}

fn names(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).expect("a directory").filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[test]
fn this_host_gets_a_machine_file_that_passes_the_check_and_is_never_overwritten() {
    if is_skipped("this_host_gets_a_machine_file_that_passes_the_check_and_is_never_overwritten") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("here.toml");
    let out = file.display().to_string();
    let output = homenode(&["calibrate", "--quick", "--json", "--out", &out]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["format"], "homenode.calibrate");
    assert!(json["rates"]["local_latency_ns"]["value"].as_f64().is_some_and(|ns| ns > 0.0));
    let first = &json["residuals"][0];
    assert!(first["measured"].as_f64().is_some_and(|rate| rate > 0.0) && first["error_percent"].is_number(), "{first}");
    assert_eq!(names(directory.path()), [file.as_path()]);
    let check = homenode(&["machine", "check", &out]);
    assert!(check.status.success(), "{}{}", text(&check.stdout), text(&check.stderr));
    let shown = homenode(&["topology", "--on", &out, "--json"]);
    let seen: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(seen["machine"]["nodes"].as_array().map(Vec::len), json["machine"]["nodes"].as_array().map(Vec::len));

    let before = std::fs::read(&file).expect("the file");
    let again = homenode(&["calibrate", "--quick", "--out", &out]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--force"), "{}", text(&again.stderr));
    assert_eq!(std::fs::read(&file).expect("the file"), before);
}

#[test]
fn an_interrupted_calibration_writes_nothing() {
    if is_skipped("an_interrupted_calibration_writes_nothing") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(PROGRAM);
    command.args(["calibrate", "--out", "here.toml"]).current_dir(directory.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("homenode runs");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let begun = said.find(|line| line.starts_with("native is up"));
    assert!(begun.is_some());
    linux::sys::send_signal(child.id(), libc::SIGINT).expect("a signal");
    let last: Vec<String> = said.collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "{last:?}");
    assert!(last.iter().any(|line| line.contains("interrupted; nothing is written")), "{last:?}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_target_that_cannot_be_is_refused_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::create_dir(path("folder.toml")).expect("a directory");
    let cases = [
        ("here.txt", "ends in .toml"),
        ("none/here.toml", "there is no directory"),
        ("folder.toml", "it is a directory"),
    ];
    let nowhere = ("/proc/here.toml".to_owned(), "no file can be made there");
    let cases = cases.map(|(name, expected)| (path(name), expected)).into_iter().chain([nowhere]);
    for (name, expected) in cases {
        let output = homenode(&["calibrate", "--quick", "--out", &name]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}
