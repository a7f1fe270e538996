//! `homenode topology` as a process: every kind of machine that `--on` takes, JSON, capture, and
//! bad input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use topology::Machine;

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../topology/tests/golden").join(file)
}

fn topology(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode"))
        .env("LC_ALL", "C.UTF-8")
        .arg("topology")
        .args(arguments)
        .output()
        .expect("homenode starts")
}

fn printed(arguments: &[&str]) -> String {
    let output = topology(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The machine that `--json` prints.
fn machine(arguments: &[&str]) -> Machine {
    let mut all = arguments.to_vec();
    all.push("--json");
    let report: serde_json::Value = serde_json::from_str(&printed(&all)).expect("JSON");
    assert_eq!(report["format"], "homenode.topology");
    assert_eq!(report["version"], 1);
    serde_json::from_value(report["machine"].clone()).expect("a machine")
}

/// Standard error of a command that must be refused as bad input.
fn refused(arguments: &[&str]) -> String {
    let output = topology(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

#[test]
fn this_host_is_read() {
    let machine = machine(&[]);
    assert!(machine.usable_threads().count() > 0);
    assert_eq!(machine.distances.rows().len(), machine.nodes.len());
    assert!(printed(&[]).contains("socket"));
}

#[test]
fn every_kind_of_machine_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("mine.toml");
    fs::write(&file, "sockets = 2\ncores_per_llc = 2\nmemory_per_node = \"4 GiB\"\n").expect("written");
    let archive = golden("eight-sockets.tar.gz");
    let xml = golden("xml/two-llcs-a-node.xml");
    let text = |path: &Path| path.to_str().expect("a path").to_owned();
    // What it is, its nodes, its hardware threads.
    let cases = [
        ("hp-dl380-g6".to_owned(), 2, 16),
        ("epyc-7742-2s-nps4".to_owned(), 8, 256),
        (text(&file), 2, 4),
        (text(&archive), 8, 32),
        (text(&xml), 2, 32),
        ("pack:2 [numa] l3:2 core:4 pu:2".to_owned(), 2, 32),
    ];
    for (on, nodes, threads) in cases {
        let machine = machine(&["--on", &on]);
        assert_eq!((machine.nodes.len(), machine.threads.len()), (nodes, threads), "{on}");
    }
}

#[test]
fn a_captured_tree_is_read_as_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let cpu = directory.path().join("devices/system/cpu");
    fs::create_dir_all(cpu.join("cpu0/topology")).expect("created");
    fs::write(cpu.join("online"), "0\n").expect("written");
    fs::write(cpu.join("cpu0/topology/physical_package_id"), "3\n").expect("written");
    let machine = machine(&["--on", directory.path().to_str().expect("a path")]);
    assert_eq!(machine.threads[0].socket.0, 3);
}

#[test]
fn a_capture_replays_this_host() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("report.tar.gz");
    let path = file.to_str().expect("a path");
    assert!(printed(&["--capture", path]).contains(path));
    let (live, replayed) = (machine(&[]), machine(&["--on", path]));
    assert_eq!(replayed.name, "report");
    assert_eq!((replayed.threads, replayed.llcs), (live.threads, live.llcs));
}

/// Memory of a GPU is shown as what it is, and not counted; memory that is not told is not zero.
#[test]
fn memory_that_is_no_ram_or_unknown_is_shown_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("host.xml");
    let view = |memory: &str| {
        let cpu = "<object type='Package' os_index='0'><object type='Core'><object type='PU' \
            os_index='0'/></object></object>";
        let gpu = "<object type='NUMANode' os_index='1' subtype='GPUMemory' local_memory='103079215104'/>";
        let node = format!("<object type='NUMANode' os_index='0' cpuset='0x1' {memory}/>");
        let text = format!("<topology><object type='Machine'>{node}{gpu}{cpu}</object></topology>");
        fs::write(&file, text).expect("written");
        printed(&["--on", file.to_str().expect("a path")])
    };
    let known = view("local_memory='515396075520'");
    assert!(known.contains("1 hardware thread, 480 GiB\n") && known.contains("node 1: GPU 96 GiB"), "{known}");
    let unknown = view("");
    assert!(
        unknown.contains("1 hardware thread, memory unknown\n") && unknown.contains("node 0: unknown"),
        "{unknown}"
    );
}

#[test]
fn a_capture_is_not_written_over_another_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("report.tar.gz");
    fs::write(&file, "mine").expect("written");
    let path = file.to_str().expect("a path");
    let error = refused(&["--capture", path]);
    assert!(error.contains("it exists") && error.contains("--force"), "{error}");
    assert_eq!(fs::read(&file).expect("a file"), b"mine");
    printed(&["--capture", path, "--force"]);
    assert!(fs::read(&file).expect("a file").starts_with(&[0x1f, 0x8b]));
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1, "nothing else is left");
}

/// A core of 8192 hardware threads, and one more than any machine has.
#[test]
fn the_widest_machine_is_drawn_and_a_wider_one_refused() {
    let view = printed(&["--on", "core:1 pu:8192"]);
    assert!(view.contains("1 core x 8192 threads"), "{view}");
    assert!(view.lines().all(|line| line.chars().count() <= 100));
    assert!(refused(&["--on", "core:1 pu:20000"]).contains("20000 hardware threads are more than the 8192"));
}

/// What never ends, is far too long, or would spoil a terminal.
#[test]
fn what_is_read_and_what_is_quoted_have_limits() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("long.toml");
    fs::write(&file, format!("name = \"{}", "a".repeat(900_000))).expect("written");
    let long = file.to_str().expect("a path");
    let escapes = directory.path().join("escapes.toml");
    fs::write(&escapes, "name = \"\u{1b}]0;owned\u{7}\n").expect("written");
    let escapes = escapes.to_str().expect("a path");
    let commands: [&[&str]; 9] = [
        &["topology", "--on", "/dev/zero"],
        &["topology", "--on", long],
        &["topology", "--on", escapes],
        &["plan", "/dev/zero"],
        &["plan", long],
        &["plan", escapes],
        &["evaluate", "/dev/zero", "--on", "hp-dl380-g6"],
        &["balance", "--replay", "/dev/zero"],
        &["check", "/dev/zero"],
    ];
    for command in commands {
        let output = Command::new(env!("CARGO_BIN_EXE_homenode")).args(command).output().expect("homenode runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {error}");
        assert!(
            error.len() < 1500 && error.contains(command[command.len() - 1].trim_end_matches("hp-dl380-g6")),
            "{command:?}: {error}"
        );
        assert!(!error.contains(['\u{1b}', '\u{7}']), "{command:?}: {error:?}");
    }
}

#[test]
fn a_capture_that_cannot_be_written_says_where() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("missing/report.tar.gz");
    let output = topology(&["--capture", file.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("missing/report.tar.gz"));
    // Nobody reads it: this waited for ever, with --force too.
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for force in [&[][..], &["--force"]] {
        let error = refused(&[&["--capture", pipe.to_str().expect("a path")], force].concat());
        assert!(error.contains("it is a pipe"), "{error}");
    }
    let full = Path::new("/dev/full");
    if full.exists() {
        let output = topology(&["--capture", "/dev/full"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(full.exists(), "a device is never removed");
    }
}

#[test]
fn views_of_machines_large_and_odd() {
    let odd = golden("cpuless-and-memory-only.tar.gz");
    let part = golden("cgroup-allows-part.tar.gz");
    let llc = golden("snc2-llc-over-two-nodes.tar.gz");
    let machines = [
        ("hp-dl380-g6", "hp-dl380-g6"),
        ("epyc-7742-2s-nps4", "epyc-7742-2s-nps4"),
        ("pack:16 [numa(memory=64GiB)] l3:8 core:2 pu:2", "large"),
        (odd.to_str().expect("a path"), "cpuless-and-memory-only"),
        (part.to_str().expect("a path"), "cgroup-allows-part"),
        (llc.to_str().expect("a path"), "snc2-llc-over-two-nodes"),
    ];
    for (on, name) in machines {
        let view = printed(&["--on", on]);
        assert!(view.lines().all(|line| line.chars().count() <= 100), "{name}: a line is over 100 columns");
        insta::assert_snapshot!(name, view);
    }
}

#[test]
fn bad_input_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &[u8]| {
        let file = directory.path().join(name);
        fs::write(&file, text).expect("written");
        file.to_str().expect("a path").to_owned()
    };
    let unknown = write("unknown.toml", b"sokets = 2\n");
    let negative = write("negative.toml", b"sockets = -2\ncores_per_llc = 1\nmemory_per_node = \"1 GiB\"\n");
    let unit = write("unit.toml", b"sockets = 2\ncores_per_llc = 1\nmemory_per_node = \"1 GB\"\n");
    let html = write("page.xml", b"<html></html>");
    let zip = write("broken.tar.gz", b"\x1f\x8b broken");
    let binary = write("binary", &[0xff, 0xfe, 0x00]);
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).expect("created");
    // What is given, and what the message must name.
    let cases: [(&str, &[&str]); 11] = [
        ("no-such-machine", &["no-such-machine", "hp-dl380-g6", "synthetic"]),
        ("./missing.toml", &["./missing.toml", "no such"]),
        (&unknown, &["unknown.toml", "sokets", "sockets"]),
        (&negative, &["negative.toml", "sockets", "-2"]),
        (&unit, &["unit.toml", "memory_per_node", "1 GB", "1 GiB"]),
        (&html, &["page.xml", "<html>", "<topology>"]),
        (&zip, &["broken", "--capture"]),
        (&binary, &["binary", "neither text"]),
        (empty.to_str().expect("a path"), &["empty", "sys/devices/system/cpu"]),
        ("pack:2 nmua:2 pu:1", &["`nmua:2` at character 8", "numa"]),
        ("pack:99999 core:99999 pu:2", &["hardware threads", "8192"]),
    ];
    for (on, named) in cases {
        let error = refused(&["--on", on]);
        for part in named {
            assert!(error.contains(part), "--on {on}: `{part}` is missing in: {error}");
        }
    }
}

#[test]
fn a_locale_without_utf8_gets_ascii_of_the_same_width() {
    let said = |locale: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        command.args(["topology", "--on", "hp-dl380-g6"]).env("LC_ALL", locale);
        String::from_utf8(command.output().expect("homenode starts").stdout).expect("text")
    };
    let (plain, drawn) = (said("C"), said("C.UTF-8"));
    assert!(plain.is_ascii() && !drawn.is_ascii(), "{plain}");
    let widths = |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
    assert_eq!(widths(&plain), widths(&drawn));
}

/// In a terminal of 60 and of 40 columns. What a line may end with is a blank or the comma of a
/// list.
#[test]
fn a_narrow_terminal_breaks_no_word_and_no_number() {
    let test = "a_narrow_terminal_breaks_no_word_and_no_number";
    if crate::common::lacks(test, "script") || crate::common::lacks(test, "stty") {
        return;
    }
    let program = env!("CARGO_BIN_EXE_homenode");
    let on = |columns: u32| {
        let command = format!("stty cols {columns} rows 40; exec {program} topology --on xeon-8480-2s-snc4");
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).stdin(std::process::Stdio::null());
        String::from_utf8(script.output().expect("script").stdout).expect("UTF-8").replace('\r', "")
    };
    // Distances and the picture are others where there is less room.
    let tables = |text: &str| text.split_once("\nDistance").expect("distances").0.to_owned();
    let wide = tables(&on(200));
    let whole: Vec<&str> = wide.split_whitespace().collect();
    for columns in [60, 40] {
        let narrow = on(columns);
        assert!(narrow.lines().all(|line| line.chars().count() <= columns as usize), "{narrow}");
        for word in tables(&narrow).split_whitespace() {
            let item = |known: &&str| {
                known.split_inclusive(',').any(|item| item == word) || known.contains(word) && word.ends_with(',')
            };
            assert!(whole.iter().any(|known| *known == word || item(known)), "{columns}: {word:?}: {narrow}");
        }
    }
}

#[test]
fn what_was_measured_of_this_host_is_known_and_the_file_of_another_machine_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("machine.toml");
    let asked = |sockets: usize| {
        let text = format!(
            "sockets = {sockets}\ncores_per_llc = 1\nmemory_per_node = \"4 GiB\"\n[rates]\n\
            lines_in_flight_per_core = {{ value = 10, source = \"measured\", from = \"here\" }}\n\
            local_latency_ns = {{ value = 90, source = \"measured\", from = \"here\" }}\n\
            node_bandwidth_gb_per_s = {{ value = 20.5, source = \"measured\", from = \"here\" }}\n"
        );
        fs::write(&file, text).expect("written");
        let mut homenode = Command::new(env!("CARGO_BIN_EXE_homenode"));
        homenode.args(["topology", "--json"]).env("HOMENODE_MACHINE_FILE", &file).output().expect("homenode starts")
    };
    let here = machine(&[]).node_ids();
    if here != (0..here.len() as u32).map(topology::NodeId).collect() {
        return eprintln!("SKIPPED what_was_measured_of_this_host_is_known: its nodes {here} are not 0 to n");
    }
    let known = asked(here.len());
    let report: serde_json::Value = serde_json::from_slice(&known.stdout).expect("JSON");
    for node in here.iter() {
        assert_eq!(report["machine"]["bandwidth"]["memory"][node.to_string()], 20_500_000_000_u64, "{report}");
    }
    let other = asked(here.len() + 1);
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2), "{error}");
    assert!(error.contains("machine.toml") && error.contains("of another machine"), "{error}");
}
