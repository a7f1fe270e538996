//! `homenode check --cured-into` as a process: what is cured together fits together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Two nodes of 96 GiB, 16 cores and 32 hardware threads.
const HOST: &str = "pack:2 [numa(memory=96GiB)] l3:1 core:16 pu:2";
const NODES: [(&str, &str); 2] = [("0", "0-15,32-47"), ("1", "16-31,48-63")];

fn homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode")).args(arguments).output().expect("homenode starts")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// 40 domains of 4 GiB and 2 vCPUs in a directory: some float, some are all bound to node 0, some
/// have their memory on the other node than their vCPUs.
fn domains(directory: &Path) {
    fs::create_dir(directory).expect("a directory");
    for index in 0..40 {
        let pin = |node: usize| {
            format!(
                "<cputune><vcpupin vcpu='0' cpuset='{0}'/><vcpupin vcpu='1' cpuset='{0}'/></cputune>",
                NODES[node].1
            )
        };
        let bound = |node: usize| format!("<numatune><memory mode='strict' nodeset='{}'/></numatune>", NODES[node].0);
        let placed = match index % 4 {
            0 | 1 => String::new(),
            2 => pin(0) + &bound(0),
            _ => pin(0) + &bound(1),
        };
        let text = format!(
            "<domain type='kvm'>\n  <name>vm{index:02}</name>\n  <memory unit='GiB'>4</memory>\n  <vcpu>2</vcpu>\n  \
            {placed}\n  <os><type arch='x86_64' machine='q35'>hvm</type></os>\n  <cpu mode='host-passthrough'><topology \
            sockets='1' cores='2' threads='1'/></cpu>\n</domain>\n"
        );
        fs::write(directory.join(format!("vm{index:02}.xml")), text).expect("a domain");
    }
}

/// The problems of each VM of a directory, checked together.
fn problems(directory: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let output = homenode(&["check", &directory.display().to_string(), "--on", HOST, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut problems = BTreeMap::<String, BTreeSet<String>>::new();
    for finding in report["findings"].as_array().expect("findings") {
        if finding["severity"] == "problem" {
            let text = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
            problems.entry(text("vm")).or_default().insert(text("what"));
        }
    }
    problems
}

/// GiB that the domains of a directory bind to each node.
fn bound(directory: &Path) -> BTreeMap<String, u64> {
    let mut bound = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a domain");
        let node = text.split("nodeset='").nth(1).or_else(|| text.split("nodeset=\"").nth(1));
        let node = node.and_then(|rest| rest.split(['\'', '"']).next()).unwrap_or("none");
        *bound.entry(node.to_owned()).or_default() += 4;
    }
    bound
}

#[test]
fn forty_domains_that_are_cured_together_fit_together() {
    let place = tempfile::tempdir().expect("a directory");
    let (raw, cured) = (place.path().join("raw"), place.path().join("cured"));
    domains(&raw);
    let before = problems(&raw);
    let [raw_text, cured_text] = [&raw, &cured].map(|path| path.display().to_string());
    let output = homenode(&["check", &raw_text, "--on", HOST, "--cured-into", &cured_text]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("40 definitions, solved together for"), "{}", said(&output));
    // Each node is promised a part of what it has.
    let promised = bound(&cured);
    assert_eq!(promised.keys().collect::<Vec<_>>(), ["0", "1"], "{promised:?}");
    assert!(promised.values().all(|gib| *gib <= 96) && promised.values().sum::<u64>() == 160, "{promised:?}");
    let after = problems(&cured);
    assert!(!before.is_empty() && after.is_empty(), "{before:?}\n{after:?}");
    // A second cure changes nothing.
    let again = place.path().join("again");
    homenode(&["check", &cured_text, "--on", HOST, "--cured-into", &again.display().to_string()]);
    for entry in fs::read_dir(&cured).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        assert_eq!(fs::read_to_string(&path).ok(), fs::read_to_string(again.join(name)).ok(), "{name:?}");
    }
    // One by one they would all go to one node: that is said.
    let one = raw.join("vm00.xml").display().to_string();
    let output = homenode(&["check", &one, "--on", HOST, "--cured"]);
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(note.contains("39 definitions beside it were not looked at (vm01.xml, "), "{note}");
    assert!(note.contains("is taken to be empty") && note.contains("--cured-into DIRECTORY"), "{note}");
}

#[test]
fn nothing_is_written_over_and_nothing_where_one_is_bad() {
    let place = tempfile::tempdir().expect("a directory");
    let (raw, cured) = (place.path().join("raw"), place.path().join("cured"));
    domains(&raw);
    let [raw_text, cured_text] = [&raw, &cured].map(|path| path.display().to_string());
    let cure = || homenode(&["check", &raw_text, "--on", HOST, "--cured-into", &cured_text]);
    fs::write(raw.join("bad.xml"), "<domain><name>bad</name>").expect("a file");
    let output = cure();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("bad.xml") && !cured.exists(), "{}", said(&output));
    fs::remove_file(raw.join("bad.xml")).expect("removed");
    fs::create_dir(&cured).expect("a directory");
    fs::write(cured.join("kept"), "kept").expect("a file");
    let output = cure();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("there are files in it"), "{}", said(&output));
    assert_eq!(fs::read_dir(&cured).expect("a directory").count(), 1);
}

#[test]
fn a_vm_of_proxmox_gets_a_script() {
    let place = tempfile::tempdir().expect("a directory");
    let (raw, cured) = (place.path().join("raw"), place.path().join("cured"));
    fs::create_dir(&raw).expect("a directory");
    for id in [101, 102] {
        fs::write(raw.join(format!("{id}.conf")), "cores: 4\nmemory: 8192\nname: web\nsockets: 1\n").expect("a file");
    }
    let [raw, into] = [&raw, &cured].map(|path| path.display().to_string());
    homenode(&["check", &raw, "--on", HOST, "--cured-into", &into]);
    let text = |id: u32| fs::read_to_string(cured.join(format!("{id}.sh"))).expect("a script");
    for id in [101, 102] {
        let text = text(id);
        assert!(text.starts_with("#!/bin/sh\n") && text.contains(&format!("qm set {id} ")), "{text}");
        assert!(text.contains("together with 1 more"), "{text}");
    }
}
