//! `homenode machine list` and `homenode machine check`, as a process.

use std::path::Path;
use std::process::{Command, Output};

fn homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode")).arg("machine").args(arguments).output().expect("homenode runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The shipped machine with something written instead of something else, as a file.
fn changed(directory: &Path, old: &str, new: &str) -> String {
    let original = topology::read::shipped_text("hp-dl380-g6").expect("shipped");
    assert!(original.contains(old), "{old}");
    let file = directory.join("mine.toml");
    std::fs::write(&file, original.replacen(old, new, 1)).expect("written");
    file.display().to_string()
}

#[test]
fn the_catalogue_names_every_machine_and_how_much_of_it_is_assumed() {
    let output = homenode(&["list"]);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    for name in topology::read::shipped_names() {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    let json: serde_json::Value = serde_json::from_slice(&homenode(&["list", "--json"]).stdout).expect("JSON");
    let machines = json["machines"].as_array().expect("machines");
    let dl380 = machines.iter().find(|machine| machine["name"] == "hp-dl380-g6").expect("hp-dl380-g6");
    // Lines in flight, yield, latency, bandwidth, channels, their speed, one link, two ways of
    // messages; the speed is assumed, and all of the ways but the uplink's bandwidth.
    assert_eq!((&dl380["values"], &dl380["values_assumed"]), (&11.into(), &4.into()));
    assert!(machines.iter().all(|machine| machine["has_rates"] == true));
    // `check` counts as `list`, and says as much of each.
    for machine in machines {
        let name = machine["name"].as_str().expect("a name");
        let checked: serde_json::Value =
            serde_json::from_slice(&homenode(&["check", name, "--json"]).stdout).expect("JSON");
        let count = |of: &serde_json::Value| [of["values"].clone(), of["values_assumed"].clone()];
        assert_eq!(count(machine), count(&checked), "{name}");
        let findings = checked["findings"].as_array().expect("findings");
        let assumed = findings.iter().filter(|finding| finding["severity"] == "assumed").count();
        assert_eq!(checked["values_assumed"], assumed, "{name}");
        let text = text(&homenode(&["check", name]).stdout);
        assert!(text.contains(&format!("; {assumed} of {} values are assumed", checked["values"])), "{name}: {text}");
    }
}

#[test]
fn every_machine_that_comes_with_homenode_passes() {
    for name in topology::read::shipped_names() {
        let output = homenode(&["check", name]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("Nothing is missing or impossible"), "{name}");
    }
}

#[test]
fn what_is_wrong_is_said_worst_first_with_line_value_and_cure() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = changed(directory.path(), "value = 20.69", "value = 26");
    let output = homenode(&["check", &file]);
    assert_eq!(output.status.code(), Some(2));
    let shown = text(&output.stdout);
    let impossible = shown.find("impossible  rates.node_bandwidth_gb_per_s = 26 (line 19)").expect(&shown);
    let assumed = shown.find("assumed     rates.channel_mt_per_s = 1066 (line 21)").expect(&shown);
    assert!(impossible < assumed, "{shown}");
    // 3 channels of 1066 MT/s carry 3 x 1066 x 8 bytes.
    assert!(shown.contains("25.6 GB/s") && shown.contains("lower it"), "{shown}");
    assert!(text(&output.stderr).contains("cannot be modelled: 1 value missing or impossible"));
}

#[test]
fn all_missing_rates_are_said_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bare.toml");
    std::fs::write(&file, "sockets = 1\ncores_per_llc = 2\nmemory_per_node = \"4 GiB\"\n").expect("written");
    let output = homenode(&["check", &file.display().to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["can_be_modelled"], false);
    let fields: Vec<&str> =
        json["findings"].as_array().expect("findings").iter().filter_map(|one| one["field"].as_str()).collect();
    assert_eq!(fields, ["rates.lines_in_flight_per_core", "rates.local_latency_ns", "rates.node_bandwidth_gb_per_s"]);
}

#[test]
fn bad_input_says_what_would_be_valid_and_exits_with_2() {
    let directory = tempfile::tempdir().expect("a directory");
    let xml = directory.path().join("machine.xml");
    std::fs::write(&xml, "<topology/>").expect("written");
    let xml = xml.display().to_string();
    let typo = changed(directory.path(), "local_latency_ns =", "local_latency_n =");
    let cases = [
        ("no-such-machine", ["no-such-machine", "hp-dl380-g6"]),
        (xml.as_str(), ["machine.xml", "only a machine file (.toml)"]),
    ];
    for (machine, expected) in cases {
        let output = homenode(&["check", machine]);
        assert_eq!(output.status.code(), Some(2), "{machine}");
        let error = text(&output.stderr);
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
    let output = homenode(&["check", &typo]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("rates.local_latency_ns (line 15)"), "{}", text(&output.stdout));
    let kind = changed(directory.path(), "source = \"datasheet\"", "source = \"heard\"");
    let error = text(&homenode(&["check", &kind]).stderr);
    assert!(
        error.contains("mine.toml:16: rates.lines_in_flight_per_core.source") && error.contains("datasheet"),
        "{error}"
    );
}

#[test]
fn a_machine_without_rates_or_with_impossible_ones_is_not_modelled() {
    let directory = tempfile::tempdir().expect("a directory");
    let experiment = directory.path().join("tiny.toml");
    let content = "name = \"tiny\"\ntitle = \"Tiny\"\nworkload = \"stream\"\n[[configuration]]\nname = \
        \"native\"\nruns = \"native\"\n";
    std::fs::write(&experiment, content).expect("written");
    let evaluate = |machine: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        command.arg("evaluate").arg(&experiment).args(["--on", machine]).current_dir(directory.path());
        command.output().expect("homenode runs")
    };
    let impossible = changed(directory.path(), "gb_per_s = 12.8", "gb_per_s = -1");
    let cases = [
        ("pack:2 [numa] l3:1 core:4 pu:1", ["has no rates", "[rates]", "homenode calibrate"]),
        (impossible.as_str(), ["rates.link[0].gb_per_s = -1", "above 0", "homenode machine check"]),
    ];
    for (machine, parts) in cases {
        let output = evaluate(machine);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{machine}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}
