//! `homenode evaluate` as a user runs it: real processes, and a real VM where the tiny guest is
//! there.

use crate::common::unique;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_homenode");

/// Nothing is rejected: these tests run beside others on the same CPUs.
const NATIVE: &str = r#"
name = "tiny"
title = "Tiny"
workload = "stream"
threads = [1]
repetitions = 4
rounds = 2
[stream]
elements = 1_000_000
[limits]
other_cpu_percent = 10000
[[configuration]]
name = "native"
runs = "native"
"#;
const VM: &str = "[[configuration]]\nname = \"1 VM\"\nruns = \"vms\"\nvcpus = 1\n";

/// The experiment `tiny` with a name that no other run of the tests has: its VMs are named after
/// it.
fn named(experiment: &str) -> String {
    experiment.replacen("name = \"tiny\"", &format!("name = \"{}\"", unique("tiny")), 1)
}

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new(experiment: &str) -> Self {
        let experiment = named(experiment);
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("tiny.toml"), experiment).expect("written");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("evaluate").arg(self.path("tiny.toml")).arg("--results").arg(self.path("results"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The one results directory.
    fn results(&self) -> Option<PathBuf> {
        fs::read_dir(self.path("results")).ok()?.next()?.ok().map(|entry| entry.path())
    }

    fn records(&self) -> Vec<Value> {
        let Some(results) = self.results() else { return Vec::new() };
        let text = fs::read_to_string(results.join("records.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn resume(&self) -> Output {
        let results = self.results().expect("results");
        Command::new(PROGRAM).arg("evaluate").arg("--resume").arg(results).output().expect("homenode runs")
    }

    /// Waits until a record is there; fails after a minute.
    fn wait_for(&self, what: &str, child: &mut Child, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(record) = self.records().into_iter().find(&wanted) {
                return record;
            }
            if Instant::now() > deadline || child.try_wait().expect("a child").is_some() {
                let _ = child.kill();
                panic!("{what} never came: {:?}", self.records());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn visits(records: &[Value]) -> usize {
    records.iter().filter(|record| record["record"] == "visit").count()
}

/// The agent and, for VMs, the guest: `None` says that the test was skipped.
pub(crate) fn guest_files(test: &str, needs_vm: bool) -> Option<()> {
    let beside = Path::new(PROGRAM).with_file_name("homenode-guest").is_file();
    let has_guest = qemu::TinyGuest::locate(None).is_ok() || in_build_tree();
    let has_qemu = qemu::locate_qemu("test").is_ok();
    if needs_vm && !(has_guest && has_qemu) {
        eprintln!("SKIPPED {test}: no QEMU, or no tiny guest; `scripts/guest-image` makes it");
        return None;
    }
    if !(has_guest || beside) {
        eprintln!("SKIPPED {test}: no homenode-guest; `scripts/guest-image` makes it");
        return None;
    }
    Some(())
}

/// Where the program that is tested looks, which is not where this test's own executable lies.
fn in_build_tree() -> bool {
    let target = Path::new(PROGRAM).parent().and_then(Path::parent);
    target.is_some_and(|target| target.join("guest/vmlinux").is_file() && target.join("guest/homenode-guest").is_file())
}

fn wait_until_gone(pid: &Value) {
    let path = PathBuf::from(format!("/proc/{pid}"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while path.exists() && !is_zombie(&path) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_zombie(process: &Path) -> bool {
    fs::read_to_string(process.join("stat")).is_ok_and(|stat| stat.contains(") Z "))
}

fn signal(pid: u32, signal: i32) {
    linux::sys::send_signal(pid, signal).expect("a signal");
}

#[test]
fn a_bad_experiment_is_named_and_leaves_nothing() {
    let place = Place::new(&NATIVE.replace("workload = \"stream\"", "workload = \"strem\""));
    let output = place.command().output().expect("homenode runs");
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    for part in ["tiny.toml", "strem", "numa_matrix"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!place.path("results").exists());
    let missing = Command::new(PROGRAM).args(["evaluate", "/no/such.toml"]).output().expect("homenode runs");
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/no/such.toml"));
    let foreign = Command::new(PROGRAM).args(["evaluate", "--resume", "/proc"]).output().expect("homenode runs");
    assert_eq!(foreign.status.code(), Some(2));
    assert!(text(&foreign.stderr).contains("resolved.json"));
}

#[test]
fn a_vm_that_is_impossible_is_bad_input_wherever_it_would_run() {
    let head = "name = \"tiny\"\ntitle = \"Tiny\"\nworkload = \"stream\"\n";
    for (line, parts) in [
        ("memory = \"0 GiB\"", ["memory", "0 B is too little"]),
        ("memory = 1048577", ["memory", "whole number of MiB"]),
        ("vcpus = 5000", ["vcpus", "1 to 4096"]),
        ("vms = 4294967295", ["configuration[0].vms = 4294967295", "1 to 1024"]),
        ("vms = \"per_node\"\nmin_vms = 4294967295", ["configuration[0].min_vms", "1 to 1024"]),
        ("vcpus = 4\npolicy.cores_per_socket = 0", ["policy.cores_per_socket", "1, 2, 4 are valid"]),
        ("vcpus = 4\npolicy.cores_per_socket = 3", ["policy.cores_per_socket", "1, 2, 4 are valid"]),
        ("policy.max_vcpus_per_node = 0", ["policy.max_vcpus_per_node", "at least 1"]),
        ("policy.node_affinity = \"\"", ["policy.node_affinity", "allows no node"]),
        ("policy.virtual_nodes = []", ["policy.virtual_nodes", "1 to 128"]),
        ("vcpus = 2\npolicy.virtual_nodes = [{ vcpus = 1, memory = \"1 GiB\" }]", ["virtual_nodes", "add up to 1"]),
    ] {
        let place = Place::new(&format!("{head}[[configuration]]\nname = \"odd\"\nruns = \"vms\"\n{line}\n"));
        for more in [&["--dry-run"][..], &["--on", "hp-dl380-g6"]] {
            let output = place.command().args(more).output().expect("homenode");
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{line}: {said}");
            for part in parts.iter().chain(&["tiny.toml"]) {
                assert!(said.contains(part), "{line}: {part} in {said}");
            }
            assert!(place.results().is_none());
        }
    }
}

#[test]
fn vms_that_share_a_node_are_said_to_lack_threads_there() {
    let vms = "[[configuration]]\nname = \"3 VMs\"\nruns = \"vms\"\nvms = 3\nvcpus = 8\n";
    let place = Place::new(&format!(
        "name = \"tiny\"\ntitle = \"Tiny\"\nworkload = \"stream\"\nthreads = [24]\n{vms}policy.node_affinity = \"0\"\n"
    ));
    let output = place.command().args(["--on", "hp-dl380-g6"]).output().expect("homenode");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let why = "threads = 24 puts 24 threads on node 0 of hp-dl380-g6, where 8 hardware threads are";
    assert!(said.contains(why) && said.contains("\"3 VMs\""), "{said}");
}

#[test]
fn arguments_of_the_model_are_refused_without_it() {
    let place = Place::new(NATIVE);
    for arguments in [["--seed", "3"], ["--beside", "results"]] {
        let output = place.command().args(arguments).arg("--dry-run").output().expect("homenode");
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.contains(arguments[0]) && said.contains("--on MACHINE"), "{said}");
    }
}

#[test]
fn more_memory_than_the_host_has_is_bad_input() {
    let place = Place::new(&NATIVE.replace("1_000_000", "900_000_000_000"));
    let output = place.command().output().expect("homenode runs");
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("900000000000") && message.contains("available"), "{message}");
}

#[test]
fn a_dry_run_measures_nothing() {
    let place = Place::new(NATIVE);
    let output = place.command().arg("--dry-run").output().expect("homenode runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("2 visits of 4 repetitions"), "{}", text(&output.stdout));
    assert!(!place.path("results").exists());
}

#[test]
fn numbers_of_the_command_line_stand_in_place_of_the_files() {
    let place = Place::new(NATIVE);
    let asked = ["--threads", "64,1,2,1", "--rounds", "3", "--repetitions", "5"];
    let output = place.command().args(asked).args(["--dry-run", "--json"]).output().expect("homenode");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let experiment = &said["resolved"]["experiment"];
    assert_eq!(experiment["threads"], serde_json::json!([1, 2, 64]));
    // Three numbers of threads in each of three rounds.
    assert_eq!((said["visits"].as_array().map(Vec::len), &experiment["repetitions"]), (Some(9), &5.into()));
    for wrong in [["--threads", "1,0"], ["--threads", "8193"], ["--rounds", "0"], ["--repetitions", "1"]] {
        let output = place.command().args(wrong).output().expect("homenode");
        let (said, value) = (text(&output.stderr), wrong[1].trim_start_matches("1,"));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {said}");
        assert!(said.contains(wrong[0]) && said.contains(value) && said.contains(".."), "{wrong:?}: {said}");
    }
    let output = place.command().args(["--rounds", "3", "--on", "hp-dl380-g6"]).output().expect("homenode");
    assert_eq!(output.status.code(), Some(2), "the model has no rounds");
    assert!(!place.path("results").exists());
}

#[test]
fn a_native_experiment_keeps_raw_figures_and_writes_a_report() {
    let Some(()) = guest_files("a_native_experiment", false) else { return };
    let place = Place::new(NATIVE);
    let output = place.command().arg("--json").output().expect("homenode runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cell = &tables["configurations"][0]["cells"][0];
    assert_eq!((cell["state"].as_str(), cell["counted"].as_u64()), (Some("measured"), Some(6)));
    let best = cell["figures"][3]["best"].as_f64().expect("a figure");
    // The figure is what the raw repetitions say: 24 bytes x 10^6 elements in the shortest time but
    // for firsts of jobs.
    let records = place.records();
    let seconds = records
        .iter()
        .filter(|record| record["record"] == "repetition" && record["repetition"] != 0)
        .filter_map(|record| record["participants"][0]["phases"][3].as_f64())
        .fold(f64::INFINITY, f64::min);
    assert!((best - 24.0 / seconds).abs() < 1e-6 * best, "{best} {seconds}");
    let results = place.results().expect("results");
    let report = fs::read_to_string(results.join("report.html")).expect("a report");
    for kernel in ["Copy", "Scale", "Add", "Triad"] {
        assert!(report.contains(&format!("aria-label=\"{kernel}\"")), "a chart of {kernel}");
    }
    assert!(report.contains("Only native has figures") && report.contains("6 repetitions count"), "an answer");
    assert!(report.len() < 200_000, "{} bytes", report.len());
    assert!(!report.contains("<script src="), "the report needs no network");
    let copy = fs::read_to_string(results.join("experiment.toml")).expect("a copy");
    assert_eq!(copy, named(NATIVE));
    let environment: Value =
        serde_json::from_slice(&fs::read(results.join("environment.json")).expect("environment")).expect("JSON");
    assert!(environment["kernel"].as_str().is_some_and(|kernel| kernel.contains("Linux")));
}

#[test]
fn a_killed_evaluation_leaves_no_process_and_is_continued() {
    let Some(()) = guest_files("a_killed_evaluation", false) else { return };
    let place = Place::new(&NATIVE.replace("rounds = 2", "rounds = 40"));
    let mut child = place.command().spawn().expect("homenode starts");
    let start = place.wait_for("a start", &mut child, |record| record["record"] == "start");
    place.wait_for("a visit", &mut child, |record| record["record"] == "visit");
    child.kill().expect("killed");
    child.wait().expect("ended");
    wait_until_gone(&start["pid"]);
    let before = visits(&place.records());
    assert!((1..40).contains(&before), "killed in the middle: {before}");
    let path = place.results().expect("results").join("records.jsonl");
    let mut half = fs::read(&path).expect("records");
    half.extend_from_slice(b"{\"schema\":1,\"record\":\"visi");
    fs::write(&path, half).expect("written");

    let output = place.resume();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("half written"), "{}", text(&output.stderr));
    let records = place.records();
    assert_eq!(visits(&records), 40, "no visit twice");
    assert_eq!(records.iter().filter(|record| record["record"] == "session").count(), 2);
}

#[test]
fn a_full_disk_is_said_and_what_was_kept_is_continued() {
    let Some(()) = guest_files("a_full_disk", false) else { return };
    let place = Place::new(&NATIVE.replace("rounds = 2", "rounds = 20"));
    // A limit on file sizes gives the same kind of error as a full disk: 16 blocks of 512 bytes.
    let script = format!(
        "trap '' XFSZ; ulimit -f 16; exec {PROGRAM} evaluate {} --results {}",
        place.path("tiny.toml").display(),
        place.path("results").display()
    );
    let output = Command::new("sh").arg("-c").arg(script).output().expect("sh runs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let message = text(&output.stderr);
    assert!(message.contains("records.jsonl") && message.contains("--resume"), "{message}");
    let output = place.resume();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(visits(&place.records()), 20);
}

#[test]
fn an_interrupt_stops_cleanly() {
    let Some(()) = guest_files("an_interrupt", false) else { return };
    let place = Place::new(&NATIVE.replace("rounds = 2", "rounds = 100"));
    let mut child = place.command().spawn().expect("homenode starts");
    let start = place.wait_for("a start", &mut child, |record| record["record"] == "start");
    place.wait_for("a visit", &mut child, |record| record["record"] == "visit");
    signal(child.id(), libc::SIGINT);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("interrupted") && message.contains("--resume"), "{message}");
    wait_until_gone(&start["pid"]);
    assert!(place.results().expect("results").join("report.html").is_file());
    assert!(text(&output.stdout).contains("not complete"));
}

#[test]
fn a_killed_vm_is_reported_and_the_evaluation_is_continued() {
    let Some(()) = guest_files("a_killed_vm", true) else { return };
    let place = Place::new(&format!("{}{VM}", NATIVE.replace("rounds = 2", "rounds = 6")));
    let mut child = place.command().spawn().expect("homenode starts");
    let of_vm = |record: &Value, kind: &str| record["record"] == kind && record["configuration"] == "1 VM";
    let start = place.wait_for("the VM", &mut child, |record| of_vm(record, "start"));
    assert_eq!(start["residence"]["vcpus"].as_array().map(Vec::len), Some(1), "{start}");
    place.wait_for("a repetition", &mut child, |record| of_vm(record, "repetition"));
    signal(start["pid"].as_u64().expect("a process") as u32, libc::SIGKILL);
    let output = child.wait_with_output().expect("ended");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(&format!("{}-1-0", unique("tiny"))) && message.contains("--resume"), "{message}");
    wait_until_gone(&start["pid"]);

    let output = place.resume();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let records = place.records();
    assert_eq!(visits(&records), 12);
    let done = records.iter().filter(|record| of_vm(record, "done"));
    assert!(done.clone().count() >= 6);
    for record in done {
        assert_eq!(record["verification"]["is"], "verified", "{record}");
    }
    assert!(text(&output.stdout).contains("Virtual / native"), "{}", text(&output.stdout));
    for pid in records.iter().filter(|record| record["record"] == "start").map(|record| &record["pid"]) {
        wait_until_gone(pid);
    }
}

#[test]
fn a_killed_homenode_leaves_no_vm() {
    let Some(()) = guest_files("a_killed_homenode", true) else { return };
    let place = Place::new(&format!("{}{VM}", NATIVE.replace("rounds = 2", "rounds = 100")));
    let mut child = place.command().spawn().expect("homenode starts");
    let start =
        place.wait_for("the VM", &mut child, |record| record["record"] == "start" && record["configuration"] == "1 VM");
    child.kill().expect("killed");
    child.wait().expect("ended");
    wait_until_gone(&start["pid"]);
}

#[test]
fn a_vm_that_does_not_boot_in_time_is_ended_with_its_last_lines() {
    let Some(()) = guest_files("a_vm_that_does_not_boot_in_time", true) else { return };
    if qemu::accelerator(1).is_hardware() {
        eprintln!("SKIPPED a_vm_that_does_not_boot_in_time: with KVM the guest is up within the shortest time-out");
        return;
    }
    let place = Place::new(&format!("{}{VM}", NATIVE.replace("[limits]", "[limits]\nboot_seconds = 1")));
    let output = place.command().output().expect("homenode runs");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains(&format!("{}-1-0: no first line within 1 s", unique("tiny"))) && message.contains("--resume"),
        "{message}"
    );
    assert!(visits(&place.records()) > 0, "native figures are kept");
}
