//! `homenode balance` as a user meets it, with QEMUs that it did not start. What takes several
//! nodes is in tests/lab/balance.sh. A program of its own: on a host with several nodes it would
//! bind the VMs that other tests start and look at.

#[allow(dead_code, reason = "this program uses a part")]
mod common;

use common::{PausedVm, homenode_in, lacks, said_in, within_seconds};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A period as short as the policy allows, so that the tests are.
const QUICK: &str = "[balance]\nperiod_ms = 100\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        std::fs::write(place.policy(), QUICK).expect("a policy");
        place
    }

    fn runtime(&self) -> std::path::PathBuf {
        self.0.path().join("runtime")
    }

    fn policy(&self) -> std::path::PathBuf {
        self.0.path().join("balance.toml")
    }

    fn state(&self) -> std::path::PathBuf {
        self.runtime().join("balance.json")
    }

    /// Balances with the quick policy.
    fn balance(&self, more: &[&str]) -> (Option<i32>, String, String) {
        said_in(&self.runtime(), &[&["balance", "--policy", text(&self.policy())], more].concat())
    }

    /// A balancer in the background that has said its first line.
    fn running(&self) -> Child {
        let mut command = homenode_in(&self.runtime(), &["balance", "--policy", text(&self.policy())]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("homenode");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut first = String::new();
        output.read_line(&mut first).expect("a line");
        assert!(first.contains("NUMA node"), "{first}");
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        child
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn signal(child: &Child, number: i32) {
    linux::sys::send_signal(child.id(), number).expect("a signal");
}

#[test]
fn a_dry_run_says_what_it_would_do_and_changes_nothing() {
    if lacks("a_dry_run_says_what_it_would_do_and_changes_nothing", "qemu-system-x86_64") {
        return;
    }
    let place = Place::new();
    let vm = PausedVm::start("cli-dry");
    let before = vm.affinities();
    let (code, said, complained) = place.balance(&["--once", "--dry-run"]);
    assert_eq!(code, Some(0), "{complained}");
    assert!(said.contains("NUMA node"), "{said}");
    assert_eq!(vm.affinities(), before);
    assert!(!place.state().exists());
}

#[test]
fn a_host_with_one_node_is_told_and_left_alone() {
    let test = "a_host_with_one_node_is_told_and_left_alone";
    if lacks(test, "qemu-system-x86_64") {
        return;
    }
    let nodes = topology::read::live().expect("this host").nodes.len();
    if nodes > 1 {
        return eprintln!("SKIPPED {test}: this host has {nodes} nodes");
    }
    let place = Place::new();
    let vm = PausedVm::start("cli-one");
    let before = vm.affinities();
    let (code, said, complained) = place.balance(&["--once"]);
    assert_eq!(code, Some(0), "{complained}");
    assert!(said.contains("one NUMA node") && said.contains("nothing to balance"), "{said}");
    assert_eq!(vm.affinities(), before);
    assert!(place.state().exists());
}

#[test]
fn the_second_balancer_is_refused_and_the_first_ends_without_a_trace_on_the_vm() {
    if lacks("the_second_balancer_is_refused", "qemu-system-x86_64") {
        return;
    }
    let place = Place::new();
    let vm = PausedVm::start("cli-two");
    let mut first = place.running();
    let after_start = vm.affinities();
    let (code, said, complained) = place.balance(&["--once"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(complained.contains(&format!("process {}", first.id())), "{complained}");
    let (code, _, complained) = said_in(&place.runtime(), &["balance", "--release"]);
    assert!(code == Some(1) && complained.contains("another balancer"), "{complained}");
    // Wherever it would keep its state.
    let elsewhere = place.0.path().join("elsewhere.json");
    let (code, _, complained) = place.balance(&["--once", "--state", text(&elsewhere)]);
    assert!(code == Some(1) && complained.contains(&format!("process {}", first.id())), "{complained}");
    assert!(!elsewhere.exists(), "one that is refused writes nothing");
    // One that only looks is not refused.
    assert_eq!(place.balance(&["--once", "--dry-run"]).0, Some(0));
    for number in [libc::SIGTERM, libc::SIGINT] {
        signal(&first, number);
        assert!(first.wait().expect("the end").success());
        assert_eq!(vm.affinities(), after_start);
        first = place.running();
    }
    signal(&first, libc::SIGKILL);
    first.wait().expect("the end");
    assert_eq!(place.balance(&["--once"]).0, Some(0));
}

#[test]
fn a_state_in_the_wrong_place_is_bad_input() {
    let place = Place::new();
    let (code, _, complained) = place.balance(&["--once", "--state", "/dev/null/x/balance.json"]);
    assert_eq!(code, Some(2), "{complained}");
    assert!(complained.contains("/dev/null/x: cannot be made"), "{complained}");
}

/// `--release` renamed such a file and said that there was nothing to release; `top` looked as if
/// no balancer had ever run.
#[test]
fn a_state_that_is_somebody_elses_is_bad_input_and_left_alone() {
    let place = Place::new();
    let directory = tempfile::tempdir().expect("a directory");
    let other = directory.path().join("notes.txt");
    std::fs::write(&other, "not a state").expect("a file");
    let file = other.to_str().expect("a path");
    for command in [["balance", "--release"], ["balance", "--once"], ["top", "--once"], ["doctor", "--json"]] {
        let (code, _, complained) = said_in(&place.runtime(), &[&command[..], &["--state", file]].concat());
        assert_eq!(code, Some(2), "{command:?}: {complained}");
        assert!(complained.contains("notes.txt: not a balancer's state"), "{command:?}: {complained}");
    }
    let names: Vec<_> =
        std::fs::read_dir(&directory).expect("the directory").map(|entry| entry.expect("a file").path()).collect();
    assert_eq!((names, std::fs::read_to_string(&other).expect("kept")), (vec![other], "not a state".to_owned()));
}

/// As root, `--state /dev/null` put a file in the place of the device.
#[test]
fn a_state_is_a_regular_file_of_somebody_who_is_believed() {
    let test = "a_state_is_a_regular_file_of_somebody_who_is_believed";
    let place = Place::new();
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let made = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    std::fs::create_dir(at("directory")).expect("a directory");
    std::fs::write(at("kept"), "").expect("a file");
    std::os::unix::fs::symlink(at("kept"), at("link")).expect("a link");
    assert!(made(Command::new("mkfifo").arg(at("pipe"))), "coreutils");
    let mut odd = vec![("directory", "a directory"), ("link", "a link"), ("pipe", "a pipe")];
    if linux::sys::effective_user_id() == 0 && made(Command::new("mknod").arg(at("null")).args(["c", "1", "3"])) {
        // A state of somebody who has invented affinities for root to undo.
        std::fs::write(at("theirs"), "{\"version\":1,\"boot\":\"x\"}").expect("a file");
        std::fs::create_dir(at("open")).expect("a directory");
        for name in ["theirs", "open"] {
            std::os::unix::fs::chown(at(name), Some(54_321), Some(54_321)).expect("another owner");
        }
        odd.extend([("null", "a device"), ("theirs", "belongs to user 54321"), ("open/new", "others than root may")]);
    } else {
        eprintln!("SKIPPED devices and files of others in {test}: they need root");
    }
    let names = || {
        let entries = std::fs::read_dir(&directory).expect("the directory");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("a file").file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    for (name, words) in odd {
        let file = at(name);
        for command in [["balance", "--once"], ["balance", "--release"], ["top", "--once"]] {
            let (code, _, complained) = said_in(&place.runtime(), &[&command[..], &["--state", text(&file)]].concat());
            assert_eq!(code, Some(2), "{command:?} {name}: {complained}");
            assert!(complained.contains(words), "{command:?} {name}: {complained}");
        }
        if !name.contains('/') {
            let record = ["--once", "--dry-run", "--record", text(&file)];
            let (code, _, complained) = place.balance(&record);
            assert_eq!(code, Some(2), "--record {name}: {complained}");
        }
        assert_eq!(names(), before, "{name}");
    }
    assert_eq!(std::fs::read(at("kept")).expect("kept"), b"");
}

#[test]
fn a_killed_balancer_goes_on_and_a_bad_state_is_kept_and_told() {
    let place = Place::new();
    let mut first = place.running();
    assert!(within_seconds(60, || place.state().exists()));
    signal(&first, libc::SIGKILL);
    first.wait().expect("the end");
    let (code, _, complained) = place.balance(&["--once"]);
    assert_eq!((code, complained.as_str()), (Some(0), ""));
    let state = std::fs::read_to_string(place.state()).expect("a state");
    std::fs::write(place.state(), &state[..state.len() / 2]).expect("a state");
    let (code, _, complained) = place.balance(&["--once"]);
    assert_eq!(code, Some(0));
    assert!(complained.contains("cannot be understood") && complained.contains("balance.json.bad"), "{complained}");
    let kept = std::fs::read_to_string(place.runtime().join("balance.json.bad")).expect("the bad state");
    assert_eq!(kept, state[..state.len() / 2]);
    serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(place.state()).expect("a state")).expect("JSON");
}

#[test]
fn a_bad_policy_is_bad_input_and_changes_nothing() {
    let place = Place::new();
    for (policy, parts) in [
        ("[balance]\nperiod_ms = 5\n", ["balance.toml:2", "balance.period_ms = 5", "100 to 60000"]),
        ("[balance]\nthrash = 5\n", ["balance.toml:2", "thrash", "unknown field"]),
        ("[[vm]]\nname = \"a\"\nnode_affinity = \"77\"\n", ["balance.toml:3", "vm[0].node_affinity = \"77\"", "nodes"]),
        ("[[vm]]\nuuid = \"1\"\n", ["balance.toml:2", "vm[0].uuid = \"1\"", "UUID"]),
        ("balance = 3\n", ["balance.toml:1", "balance = 3", "expected"]),
    ] {
        std::fs::write(place.policy(), policy).expect("a policy");
        let (code, said, complained) = place.balance(&["--once"]);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{complained}");
        for part in parts {
            assert!(complained.contains(part), "{part} in {complained}");
        }
        assert!(!place.runtime().exists());
    }
    let (code, _, complained) = said_in(&place.runtime(), &["balance", "--once", "--policy", "/no/such/file.toml"]);
    assert!(code == Some(2) && complained.contains("/no/such/file.toml"), "{complained}");
}

#[test]
fn a_recording_is_replayed_and_something_else_is_refused() {
    let place = Place::new();
    let recording = place.0.path().join("recording.jsonl");
    let (code, _, complained) = place.balance(&["--once", "--dry-run", "--record", text(&recording)]);
    assert_eq!(code, Some(0), "{complained}");
    let (code, said, complained) = said_in(&place.runtime(), &["balance", "--replay", text(&recording)]);
    assert_eq!(code, Some(0), "{complained}");
    assert!(said.contains("1 period replayed"), "{said}");
    let (code, said, _) = said_in(&place.runtime(), &["balance", "--replay", text(&recording), "--json"]);
    let period: serde_json::Value = serde_json::from_str(said.trim()).expect("one line of JSON");
    assert!(code == Some(0) && period["recorded"].is_array(), "{said}");
    let (code, _, complained) = said_in(&place.runtime(), &["balance", "--replay", text(&place.policy())]);
    assert!(code == Some(2) && complained.contains("balance.toml:1: not a recording"), "{complained}");
}

#[test]
fn nothing_to_release_is_no_failure() {
    let place = Place::new();
    let (code, said, complained) = said_in(&place.runtime(), &["balance", "--release"]);
    assert_eq!(code, Some(0), "{complained}");
    assert!(said.contains("nothing to release"), "{said}");
}

/// The words of a run of a trace on a modelled machine.
fn on<'a>(trace: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["balance", "--on", "hp-dl380-g6", "--trace", text(trace)], more].concat()
}

#[test]
fn a_trace_says_what_a_policy_would_have_done() {
    let place = Place::new();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/day.trace.toml");
    let (code, said, complained) = said_in(&place.runtime(), &on(&trace, &["--against", "numad,pins"]));
    assert_eq!(code, Some(0), "{complained}");
    for part in ["MODELLED", "VM web: gets a home", "homenode balance ", "Linux default ", "numad ", "static pins "] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let opt_out = place.0.path().join("out.toml");
    std::fs::write(&opt_out, "[[vm]]\nname = \"*\"\nopt_out = true\n").expect("a policy");
    let (code, said, _) = said_in(&place.runtime(), &on(&trace, &["--policy", text(&opt_out), "--json"]));
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, json["format"].as_str()), (Some(0), Some("homenode.balance.trace")));
    assert_eq!(json["decisions"].as_array().map(Vec::len), Some(0), "rules count on a modelled machine too: {json}");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(2));
    // Memory that the machine does not have is bad input, for those who only look too.
    let large = place.0.path().join("large.toml");
    let vm = |name: &str| format!("[[vm]]\nname = \"{name}\"\nvcpus = 2\nmemory = \"2 TiB\"\nbusy = 1\n");
    std::fs::write(&large, format!("seconds = 60\n{}{}", vm("a"), vm("b"))).expect("a trace");
    let looks = ["top", "--once", "--on", "hp-dl380-g6", "--trace", text(&large)];
    for arguments in [on(&large, &[]), looks.to_vec()] {
        let (code, _, complained) = said_in(&place.runtime(), &arguments);
        let is_named = complained.contains("VM a: its memory is 2 TiB") && complained.contains("has 48 GiB");
        assert!(code == Some(2) && is_named, "{arguments:?}: {complained}");
    }
    // The machine has no such policy, the trace no such field: exit code 2, and nothing done.
    let (code, _, complained) = said_in(&place.runtime(), &on(&trace, &["--against", "chance"]));
    assert!(code == Some(2) && complained.contains("numad-one-shot"), "{complained}");
    let bad = place.0.path().join("bad.toml");
    std::fs::write(&bad, "seconds = 60\n[[vm]]\nname = \"a\"\nvcpus = 2\nmemory = \"1 GiB\"\nbusy = 9\n")
        .expect("a trace");
    let (code, _, complained) = said_in(&place.runtime(), &on(&bad, &[]));
    assert!(code == Some(2) && complained.contains("bad.toml:6: vm[0].busy = 9"), "{complained}");
    assert!(!place.state().exists(), "neither looks at this host nor changes it");
}

#[test]
fn a_recording_is_a_trace() {
    let place = Place::new();
    if lacks("a_recording_is_a_trace", "qemu-system-x86_64") {
        return;
    }
    let _vm = PausedVm::start("cli-traced");
    let file = place.0.path().join("seen.jsonl");
    let mut first =
        homenode_in(&place.runtime(), &["balance", "--policy", text(&place.policy()), "--record", text(&file)]);
    let mut first = first.stdout(Stdio::null()).spawn().expect("homenode");
    let looks = || std::fs::read_to_string(&file).is_ok_and(|text| text.lines().count() > 12);
    assert!(within_seconds(60, looks));
    signal(&first, libc::SIGTERM);
    first.wait().expect("the end");
    let (code, said, complained) = said_in(&place.runtime(), &on(&file, &["--json"]));
    assert_eq!(code, Some(0), "{complained}");
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let decided = json["decisions"].as_array().expect("decisions").iter();
    assert!(decided.filter_map(|one| one["vm"].as_str()).any(|vm| vm.starts_with("cli-traced")), "{json}");
}
