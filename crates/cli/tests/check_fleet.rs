//! `homenode check` of many definitions: what stands first, what stands once, and what one bad file
//! hides.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const MACHINE: &str = "epyc-7742-2s-nps4";

fn check(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.env("LC_ALL", "C.UTF-8").current_dir(directory).args(["check", "vms", "--on", MACHINE]).args(arguments);
    command.output().expect("homenode")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", errors(output)))
}

/// A domain of 24 GiB, with this between its vCPUs and its devices.
fn domain(name: &str, inside: &str) -> String {
    format!("<domain type='kvm'><name>{name}</name><memory unit='GiB'>24</memory><vcpu>4</vcpu>{inside}</domain>")
}

const ON_NODE_7: &str = "<numatune><memory mode='strict' nodeset='7'/></numatune>";

/// A directory `vms` with these definitions.
fn fleet(vms: &[(String, String)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("vms")).expect("a directory");
    for (name, text) in vms {
        fs::write(directory.path().join("vms").join(format!("{name}.xml")), text).expect("a file");
    }
    directory
}

/// 40 VMs of which each says the same of itself.
fn forty() -> tempfile::TempDir {
    let vm = |number: u32| {
        let name = format!("web{number:02}");
        (name.clone(), domain(&name, ON_NODE_7))
    };
    fleet(&(0..40).map(vm).collect::<Vec<_>>())
}

#[test]
fn forty_vms_have_a_table_first_and_say_the_same_once() {
    let directory = forty();
    let output = check(directory.path(), &[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    // It was 1,305 lines; the rows of the table are 40 of them.
    assert!(text.lines().count() < 100, "{}: {text}", text.lines().count());
    let too_much = "TOO MUCH  these 40 VMs want 960 GiB of memory that is bound to node 7; it has 128 GiB: 832 GiB";
    assert!(text.lines().nth(3).is_some_and(|line| line.starts_with(too_much)), "{text}");
    assert_eq!(text.matches("TOO MUCH").count(), 1, "{text}");
    assert_eq!(text.matches("memory that is bound and does not fit is not taken elsewhere").count(), 1, "{text}");
    let table = text.find("Worst finding").expect("a table");
    assert!(table < text.find("PROBLEM 1").expect("a paragraph"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let summary = said(&check(directory.path(), &["--summary"]));
    assert!(summary.contains("TOO MUCH") && summary.contains("web39") && !summary.contains("why:"), "{summary}");
    // Programs get each finding of each VM as before.
    let report = json(&check(directory.path(), &["--json"]));
    let findings = report["findings"].as_array().expect("findings");
    assert!(findings.len() >= 40 && report["overcommitted"][0]["nodes"] == "7", "{report}");
    assert_eq!(report["overcommitted"][0]["vms"].as_array().map(Vec::len), Some(40));
}

#[test]
fn one_bad_file_hides_no_other() {
    let mut vms: Vec<(String, String)> = (0..5).map(|n| (format!("db{n}"), domain(&format!("db{n}"), ""))).collect();
    vms.push(("broken".to_owned(), "<domain><name>x</name>".to_owned()));
    vms.push(("empty".to_owned(), " ".to_owned()));
    let directory = fleet(&vms);
    let output = check(directory.path(), &[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    for named in ["5 VMs on", "NOT READ  vms/broken.xml: not XML", "NOT READ  vms/empty.xml: is empty", "db4", "floats"]
    {
        assert!(text.contains(named), "{named}: {text}");
    }
    assert!(errors(&output).contains("2 of 7 were not judged; 5 VMs: "), "{}", errors(&output));
    let report = json(&check(directory.path(), &["--json"]));
    assert_eq!(report["vms"].as_array().map(Vec::len), Some(5), "{report}");
    assert_eq!(report["unread"][0]["source"], "vms/broken.xml", "{report}");
    // Alone it is bad input as ever: nothing is printed.
    let alone = fleet(&vms[5..6]);
    let output = check(alone.path(), &[]);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{}", said(&output));
    assert!(errors(&output).contains("broken.xml"), "{}", errors(&output));
}

#[test]
fn what_somebody_accepted_is_marked_and_does_not_count() {
    let vms: Vec<(String, String)> =
        ["batch1", "batch2", "db"].map(|name| (name.to_owned(), domain(name, ""))).into_iter().collect();
    let directory = fleet(&vms);
    let decide = |text: &str| fs::write(directory.path().join("accepted.toml"), text).expect("a file");
    let entry = |vm: &str, finding: &str, until: &str| {
        format!("[[accepted]]\nvm = \"{vm}\"\nfinding = \"{finding}\"\nreason = \"nobody waits\"\nuntil = {until}\n")
    };
    let with = |more: &[&str]| check(directory.path(), &[&["--accepted", "accepted.toml"], more].concat());
    decide(&(entry("batch*", "floats", "2999-01-01") + &entry("db", "no_cache", "2999-01-01")));
    let output = with(&[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(text.contains("ACCEPTED  floats of batch* (2 VMs), until 2999-01-01: nobody waits"), "{text}");
    assert!(text.contains("NOTHING   no_cache of db") && text.contains("WARNING 1  VM db: "), "{text}");
    assert!(text.contains("1 warning") && text.contains("(2 accepted)"), "{text}");
    let report = json(&with(&["--json"]));
    let marked = |vm: &str| {
        let all = report["findings"].as_array().expect("findings");
        all.iter().find(|one| one["vm"] == vm && one["what"] == "floats").expect("it floats")["accepted"].clone()
    };
    assert_eq!((&marked("batch1")["reason"], &marked("db")), (&"nobody waits".into(), &serde_json::Value::Null));
    assert_eq!((&report["wrong"], &report["accepted"]["findings"]), (&1.into(), &2.into()), "{report}");
    // All of it accepted, nothing is left; past its date, it counts again.
    decide(&entry("*", "floats", "2999-01-01"));
    assert_eq!(with(&[]).status.code(), Some(0));
    decide(&entry("*", "floats", "2020-01-01"));
    let output = with(&[]);
    assert!(output.status.code() == Some(1) && said(&output).contains("PAST      floats of *"), "{}", said(&output));
    decide("[[accepted]]\nvm = \"db\"\n");
    let output = with(&[]);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{}", said(&output));
    assert!(errors(&output).starts_with("homenode: accepted.toml:"), "{}", errors(&output));
}

#[test]
fn two_definitions_of_one_name_are_two_vms() {
    let vms: Vec<(String, String)> = ["a", "b"].map(|file| (file.to_owned(), domain("same", ""))).into_iter().collect();
    let directory = fleet(&vms);
    let text = said(&check(directory.path(), &[]));
    assert!(text.contains("same (vms/a.xml)") && text.contains("same (vms/b.xml)"), "{text}");
}
