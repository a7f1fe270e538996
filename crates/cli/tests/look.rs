//! `homenode top`, `why` and `doctor` as a user meets them, with QEMUs that homenode did not start.

use crate::common::{PausedVm, homenode_in, lacks, no_qemu, said_in};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use topology::CpuSet;

fn runtime() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn top_shows_a_vm_and_its_node() {
    if no_qemu("top_shows_a_vm_and_its_node") {
        return;
    }
    let (place, vm) = (runtime(), PausedVm::start("cli-top"));
    let (code, said, complained) = said_in(place.path(), &["top", "--json", "--interval", "0.2"]);
    assert_eq!(code, Some(0), "{complained}");
    let view: Value = serde_json::from_str(&said).expect("JSON");
    let row = view["vms"].as_array().expect("VMs").iter().find(|row| row["name"] == vm.name.as_str());
    let row = row.expect("the VM's row");
    assert_eq!((row["pid"].as_u64(), row["vcpus"].as_u64()), (Some(vm.pid().into()), Some(2)), "{row}");
    assert_eq!(row["memory_size"].as_u64(), Some(64 << 20));
    // It is paused: its vCPUs use nothing, and there was a second look to know it.
    assert!(row["cpu_used"].as_f64().is_some_and(|cpus| cpus < 0.5), "{row}");
    let node = &view["nodes"][0];
    assert!(node["memory_free"].as_u64() > Some(0) && node["cpu_used"].as_f64().is_some(), "{node}");
    if view["nodes"].as_array().is_some_and(|nodes| nodes.len() == 1) {
        assert_eq!(row["home"].as_str(), node["node"].as_u64().map(|node| node.to_string()).as_deref());
        assert!(node["clients"].as_u64() >= Some(1), "{node}");
    }
    let (code, said, _) = said_in(place.path(), &["top", "--interval", "0.2"]);
    assert_eq!(code, Some(0));
    let line = said.lines().find(|line| line.starts_with(&vm.name)).expect("the VM's line");
    assert!(line.contains("64 MiB"), "{line}");
    assert!(!said.contains('\x1b'), "no terminal, no drawing");
}

#[test]
fn what_others_call_their_vms_steers_no_terminal_and_forges_no_line() {
    if no_qemu("what_others_call_their_vms_steers_no_terminal_and_forges_no_line") {
        return;
    }
    let forged = PausedVm::start("forged\nPROBLEM 1 VM x\x1b[2J\u{9b}31m\u{202e}");
    let long = PausedVm::start(&"long".repeat(25_000));
    let (place, pids) = (runtime(), [forged.pid(), long.pid()].map(|pid| pid.to_string()));
    let looks: [&[&str]; 6] = [
        &["top", "--interval", "0.2"],
        &["top", "--json", "--interval", "0.2"],
        &["top", "--batch", "--count", "1", "--interval", "0.2"],
        &["doctor", &pids[0]],
        &["why", &pids[0]],
        &["why", &pids[1], "--json"],
    ];
    for arguments in looks {
        let (_, said, complained) = said_in(place.path(), arguments);
        let text = said + &complained;
        let named = text.contains("forged") || text.contains("longlong") || arguments[0] == "doctor";
        assert!(named, "{arguments:?}: {text}");
        let harmful = text.chars().find(|letter| *letter != '\n' && topology::input::is_harmful(*letter));
        assert_eq!(harmful, None, "{arguments:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("PROBLEM 1 VM x")), "{arguments:?}: {text}");
        assert!(!text.contains(&"long".repeat(100)), "{arguments:?}: {text}");
    }
}

#[test]
fn top_leaves_the_terminal_as_it_was() {
    let test = "top_leaves_the_terminal_as_it_was";
    if lacks(test, "script") || lacks(test, "timeout") {
        return;
    }
    let place = runtime();
    let program = format!("{} top --interval 0.2", env!("CARGO_BIN_EXE_homenode"));
    let mut command = Command::new("timeout");
    command.args(["60", "script", "-qec", &program, "/dev/null"]).env("HOMENODE_RUNTIME_DIR", place.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script");
    let mut keyboard = child.stdin.take().expect("a pipe");
    std::thread::sleep(std::time::Duration::from_millis(1000));
    keyboard.write_all(b"xq").expect("keys");
    let output = child.wait_with_output().expect("the end");
    drop(keyboard);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let (entered, left) = (said.find("\x1b[?1049h"), said.rfind("\x1b[?1049l"));
    assert!(entered.is_some() && left > entered && said.contains("leaves") && said.contains("\x1b[?25h"), "{said:?}");
}

#[test]
fn top_in_batches_is_csv_and_ends_after_its_looks() {
    if no_qemu("top_in_batches_is_csv_and_ends_after_its_looks") {
        return;
    }
    let (place, vm) = (runtime(), PausedVm::start("cli-batch"));
    let arguments = ["top", "--batch", "--count", "2", "--interval", "0.2"];
    let (code, said, complained) = said_in(place.path(), &arguments);
    assert_eq!(code, Some(0), "{complained}");
    let mut csv = csv::Reader::from_reader(said.as_bytes());
    let header = csv.headers().expect("a header").clone();
    let place_of = |key: &str| header.iter().position(|one| one == key).expect("a column");
    let rows: Vec<csv::StringRecord> = csv.records().map(|row| row.expect("as many cells as columns")).collect();
    let ours: Vec<_> = rows.iter().filter(|row| &row[place_of("vm")] == vm.name.as_str()).collect();
    assert_eq!(ours.len(), 2, "{said}");
    assert_eq!((&ours[0][place_of("memory_bytes")], &ours[0][place_of("vcpus")]), ("67108864", "2"));
    assert!(!ours[0][place_of("cpu_used")].is_empty(), "the first row has rates already: {said}");
}

#[test]
fn help_explains_commands_and_words() {
    let place = runtime();
    let said = |arguments: &[&str]| said_in(place.path(), arguments);
    let (code, words, _) = said(&["help", "words"]);
    assert!(code == Some(0) && words.contains("\nclient: ") && words.lines().all(|line| line.len() <= 100), "{words}");
    assert!(said(&["help", "vm", "list"]).1.contains("Usage: homenode vm list"));
    let (code, _, complained) = said(&["help", "word"]);
    assert!(code == Some(2) && complained.contains("doctor, help, completions, words"), "{complained}");
}

#[test]
fn why_finds_a_vm_by_each_of_its_names_and_lists_them_otherwise() {
    if no_qemu("why_finds_a_vm_by_each_of_its_names_and_lists_them_otherwise") {
        return;
    }
    let (place, vm) = (runtime(), PausedVm::start("cli-why"));
    for choice in [vm.name.clone(), vm.pid().to_string()] {
        let (code, said, complained) = said_in(place.path(), &["why", &choice, "--interval", "0.2", "--json"]);
        assert_eq!(code, Some(0), "{complained}");
        let view: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(view["vm"]["name"], vm.name.as_str());
        assert!(view["clients"][0]["candidates"].as_array().is_some_and(|nodes| !nodes.is_empty()), "{said}");
    }
    let (code, said, _) = said_in(place.path(), &["why", &vm.name, "--interval", "0.2"]);
    assert!(code == Some(0) && said.starts_with(&format!("VM {}, process {}", vm.name, vm.pid())), "{said}");
    let (code, said, complained) = said_in(place.path(), &["why", "no-such-vm", "--interval", "0.2"]);
    assert_eq!((code, said.as_str()), (Some(2), ""));
    assert!(complained.contains(&format!("{} (process {} of user ", vm.name, vm.pid())), "{complained}");
}

#[test]
fn doctor_finds_vcpus_that_share_a_cpu_and_mends_it() {
    let test = "doctor_finds_vcpus_that_share_a_cpu_and_mends_it";
    if no_qemu(test) {
        return;
    }
    let (place, vm) = (runtime(), PausedVm::start("cli-doctor"));
    let machine = topology::read::live().expect("this host");
    let Some(node) = machine.node_ids().iter().find(|&node| machine.usable_cpus(node).len() > 1) else {
        return eprintln!("SKIPPED {test}: no node with two CPUs");
    };
    let (code, said, complained) = said_in(place.path(), &["doctor", &vm.name]);
    assert!(code == Some(0) || machine.nodes.len() > 1, "{said}{complained}");
    let one: CpuSet = machine.usable_cpus(node).first().into_iter().collect::<CpuSet>();
    vm.bind(&one);
    let (code, said, _) = said_in(place.path(), &["doctor", &vm.name]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("PROBLEM") && said.contains("vCPUs 0-1 have only CPU") && said.contains("cure:"), "{said}");
    assert_eq!(vm.affinities(), [one.clone(), one], "it only looked");
    // A VM of another test may be bound to the other CPU, and keeps it as long as it runs.
    let mended = || {
        let (_, said, complained) = said_in(place.path(), &["doctor", &vm.name, "--fix", "--json"]);
        let view: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{complained}"));
        (view, said)
    };
    let (mut view, mut said) = mended();
    for _ in 0..60 {
        if !said.contains("no free CPU of their kind") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
        (view, said) = mended();
    }
    assert_eq!(view["repairs"][0]["finding"]["what"], "shared_hardware_thread", "{said}");
    assert!(view["repairs"][0]["error"].is_null(), "{said}");
    // Somebody bound each vCPU to one CPU: each has one still, of its own.
    let [first, second] = &vm.affinities()[..] else { panic!("two vCPUs: {said}") };
    assert!(first.len() == 1 && second.len() == 1 && first != second, "{first} and {second}: {said}");
    let still =
        view["findings"].as_array().expect("findings").iter().any(|found| found["what"] == "shared_hardware_thread");
    assert!(!still, "{said}");
}

#[test]
fn a_vm_that_is_not_there_and_a_bad_interval_are_bad_input() {
    let place = runtime();
    let (code, _, complained) = said_in(place.path(), &["doctor", "no-such-vm"]);
    assert!(code == Some(2) && complained.contains("no-such-vm"), "{complained}");
    for interval in ["0", "-1", "x", "4000"] {
        let output = homenode_in(place.path(), &["top", &format!("--interval={interval}")]).output().expect("homenode");
        assert_eq!(output.status.code(), Some(2), "{interval}");
    }
}

#[test]
fn every_command_that_looks_takes_a_modelled_host() {
    let place = runtime();
    let trace = format!("{}/../../examples/day.trace.toml", env!("CARGO_MANIFEST_DIR"));
    let said = |arguments: &[&str]| {
        said_in(place.path(), &[arguments, &["--on", "hp-dl380-g6", "--trace", &trace, "--json"]].concat())
    };
    let (code, top, complained) = said(&["top"]);
    assert_eq!(code, Some(0), "{complained}");
    let top: Value = serde_json::from_str(&top).expect("JSON");
    let name = top["vms"][0]["name"].as_str().expect("a VM").to_owned();
    assert!(top["since_start_seconds"].as_f64() > Some(0.0) && top["balancer"].is_null(), "{top}");
    let why: Value = serde_json::from_str(&said(&["why", &name]).1).expect("JSON");
    assert_eq!(why["vm"]["name"], name.as_str());
    let (_, doctor, complained) = said(&["doctor"]);
    let doctor: Value = serde_json::from_str(&doctor).unwrap_or_else(|error| panic!("{error}: {complained}"));
    assert_eq!(
        (&doctor["format"], doctor["vms"].as_u64()),
        (&"homenode.doctor".into(), Some(top["vms"].as_array().expect("VMs").len() as u64))
    );
    let (code, _, complained) = said(&["doctor", "--fix"]);
    assert!(code == Some(2) && complained.contains("--fix"), "another host is only looked at: {complained}");
}

/// What another user than root gets to see; `None` where that cannot be tried.
fn of_another_user(test: &str, place: &tempfile::TempDir, arguments: &[&str]) -> Option<std::process::Output> {
    if lacks(test, "setpriv") {
        return None;
    }
    if linux::sys::effective_user_id() != 0 {
        eprintln!("SKIPPED {test}: only root can become another user");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_homenode")]).args(arguments);
    command.current_dir("/").env("HOMENODE_RUNTIME_DIR", place.path()).stdin(Stdio::null());
    let output = command.output().expect("setpriv");
    if matches!(output.status.code(), Some(126 | 127)) {
        eprintln!("SKIPPED {test}: the program lies where another user may not start it");
        return None;
    }
    Some(output)
}

/// Another user may not see where the memory of root's VM is.
#[test]
fn doctor_of_another_user_says_what_it_could_not_look_at() {
    let test = "doctor_of_another_user_says_what_it_could_not_look_at";
    if no_qemu(test) {
        return;
    }
    let (place, vm) = (runtime(), PausedVm::start("cli-unprivileged"));
    let Some(output) = of_another_user(test, &place, &["doctor", &vm.name, "--json"]) else { return };
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{complained}");
    let view: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let unseen = view["unseen"].as_array().expect("sentences").iter().filter_map(Value::as_str);
    let memory = unseen.filter(|sentence| sentence.contains("where the memory of")).collect::<String>();
    assert!(memory.contains(&vm.name) && memory.contains("CAP_SYS_PTRACE"), "{view}");
    let output = of_another_user(test, &place, &["doctor", &vm.name]).expect("as before");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("NOT SEEN "), "{output:?}");
}

/// Homes that a command names for the clients of a VM, from its JSON.
fn named(view: &Value) -> Vec<(u64, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned).expect("nodes");
    let of = |client: &Value, home: &Value| (client.as_u64().expect("a client"), text(home));
    if let Some(clients) = view["clients"].as_array() {
        return clients.iter().map(|client| of(&client["client"], &client["should"])).collect();
    }
    let repairs = view["findings"].as_array().expect("findings").iter();
    let repairs = repairs.flat_map(|finding| finding["cure"]["repairs"].as_array().expect("repairs"));
    let binds = repairs.filter(|repair| repair["action"] == "bind");
    binds.map(|repair| of(&repair["client"], &repair["home"])).collect()
}

#[test]
fn doctor_and_why_name_the_same_homes() {
    // Both virtual nodes of db were sent to node 2 by doctor, and to nodes 3 and 2 by why.
    let place = runtime();
    let trace = format!("{}/../../examples/day.trace.toml", env!("CARGO_MANIFEST_DIR"));
    for vm in ["db", "web"] {
        let ask = |command: &str| {
            let arguments = [command, vm, "--on", "dell-r910", "--trace", &trace, "--json"];
            let (_, said, complained) = said_in(place.path(), &arguments);
            named(&serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said} {complained}")))
        };
        let doctor = ask("doctor");
        assert!(!doctor.is_empty(), "it floats");
        assert_eq!(doctor, ask("why"), "{vm}");
    }
}

#[test]
fn top_and_why_of_another_user_say_what_they_could_not_look_at() {
    let test = "top_and_why_of_another_user_say_what_they_could_not_look_at";
    if no_qemu(test) {
        return;
    }
    let (place, vm) = (runtime(), PausedVm::start("cli-unseen"));
    let Some(output) = of_another_user(test, &place, &["top", "--json", "--interval", "0.2"]) else { return };
    let top: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let said = |list: &Value| {
        list.as_array()
            .expect("sentences")
            .iter()
            .any(|one| one.as_str().is_some_and(|one| one.contains("where the memory of") && one.contains(&vm.name)))
    };
    assert!(said(&top["unseen"]), "{top}");
    let output = of_another_user(test, &place, &["top", "--interval", "0.2"]).expect("as before");
    let text = String::from_utf8_lossy(&output.stdout);
    let facts = text.split_once("\n\n").expect("a table below").0;
    assert!(facts.contains("not seen: where the memory of"), "{text}");
    assert!(facts.lines().all(|line| line.chars().count() <= 100), "{text}");
    let output = of_another_user(test, &place, &["why", &vm.name, "--interval", "0.2"]).expect("as before");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Not seen: where the memory of"), "{output:?}");
}

/// VMs of a model, of a recording or of another host are repaired there, if at all.
#[test]
fn doctor_offers_a_repair_only_where_it_can_make_it() {
    let place = runtime();
    let trace = format!("{}/../../examples/day.trace.toml", env!("CARGO_MANIFEST_DIR"));
    let arguments = ["doctor", "--on", "dell-r910", "--trace", &trace];
    let (code, said, complained) = said_in(place.path(), &arguments);
    assert!(code == Some(1) && said.contains("WARNING 1"), "{said}{complained}");
    assert!(!said.contains("--fix") && !said.contains("taskset"), "{said}");
    // What would bring them home is said all the same.
    assert!(said.contains("  there:  bind vCPUs of 2 VMs"), "{said}");
    let (_, said, _) = said_in(place.path(), &[&arguments[..], &["--json"]].concat());
    assert!(!said.contains("doctor db --fix"), "{said}");
}

/// The balancer of another user records what it sees, and what it does not.
#[test]
fn a_recording_says_what_was_not_seen() {
    let test = "a_recording_says_what_was_not_seen";
    if no_qemu(test) {
        return;
    }
    let (place, vm) = (runtime(), PausedVm::start("cli-recorded"));
    let path = place.path().join("recording.jsonl").display().to_string();
    let record = ["balance", "--dry-run", "--once", "--record", &path];
    let (code, _, complained) = said_in(place.path(), &record);
    assert_eq!(code, Some(0), "{complained}");
    let (code, said, complained) = said_in(place.path(), &["doctor", &vm.name, "--replay", &path]);
    assert_eq!(code, Some(3), "{said}{complained}");
    assert!(said.contains("NOT SEEN  a recording does not hold what the kernel is set to do"), "{said}");
    // As a recording of somebody without rights has it.
    let text = std::fs::read_to_string(&path).expect("the recording");
    std::fs::write(&path, text.lines().map(|line| with_unseen(line, &vm.name) + "\n").collect::<String>())
        .expect("a file");
    for command in [&["top"][..], &["why", &vm.name], &["doctor", &vm.name]] {
        let (_, said, complained) = said_in(place.path(), &[command, &["--replay", &path]].concat());
        assert!(said.to_lowercase().contains("where its memory is"), "{command:?}: {said}{complained}");
    }
}

/// A line of a recording, with something that was not seen of a VM.
fn with_unseen(line: &str, name: &str) -> String {
    let mut value: Value = serde_json::from_str(line).expect("JSON");
    let Some(observation) = value.pointer_mut("/observed/observation") else { return line.to_owned() };
    let vms = observation["vms"].as_array().expect("VMs");
    let vm = vms.iter().map(|seen| seen["vm"].clone()).find(|vm| vm["name"] == name).expect("the VM");
    let unseen = serde_json::json!({"vms": [vm], "what": "where its memory is"});
    observation["unseen"].as_array_mut().expect("what was not seen").push(unseen);
    value.to_string()
}
