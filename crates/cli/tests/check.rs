//! `homenode check`: exit codes, what it says of bad input, domains that libvirt itself takes, and
//! a QEMU that runs.

use crate::common;
use crate::common::libvirtd;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const MACHINE: &str = "hp-dl380-g6";

fn homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode")).env("LC_ALL", "C.UTF-8").args(arguments).output().expect("homenode")
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../stacks/tests/check-domains")
}

fn domain(name: &str) -> String {
    corpus().join(format!("{name}.xml")).to_str().expect("a path").to_owned()
}

fn standard_output(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether it is bad input, with nothing on standard output and `words` on standard error.
fn refuses(arguments: &[&str], words: &[&str]) {
    let output = homenode(arguments);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: {word:?} is missing in: {said}");
    }
}

#[test]
fn problems_are_exit_code_1_and_notes_are_none() {
    let output = homenode(&["check", &domain("memory-away"), "--on", MACHINE]);
    assert_eq!(output.status.code(), Some(1));
    let shown = standard_output(&output).replace(corpus().to_str().expect("a path"), "DOMAINS");
    insta::assert_snapshot!("memory_away", shown);
    assert!(errors(&output).contains("memory-away.xml: 1 problem"), "{}", errors(&output));
    let output = homenode(&["check", &domain("right"), "--on", MACHINE]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(standard_output(&output).ends_with("\nNothing is wrong.\n"), "{}", standard_output(&output));
    let output = homenode(&["check", &domain("ccx"), "--on", "epyc-7742-2s-nps1"]);
    assert_eq!(output.status.code(), Some(0), "a note is no problem: {}", errors(&output));
    assert!(standard_output(&output).ends_with("\n1 note.\n"));
}

#[test]
fn json_has_every_finding_with_its_patch() {
    let output = homenode(&["check", &domain("auto-with-memnode"), "--on", MACHINE, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["format"], "homenode.check");
    assert_eq!(report["version"], 1);
    assert_eq!(report["vms"][0]["vm"], "auto1");
    let findings = report["findings"].as_array().expect("findings");
    assert_eq!(report["wrong"], findings.iter().filter(|finding| finding["severity"] != "note").count());
    assert_eq!(findings[0]["what"], "automatic_with_memnode");
    assert_eq!(findings[0]["harm"], "refused");
    assert_eq!(findings[0]["spots"][1]["line"], 6);
    let patch = findings[0]["cure"]["patch"].as_str().expect("a patch");
    assert!(patch.contains("-    <memory mode='strict' placement='auto'/>\n"), "{patch}");
}

/// 16 vCPUs in two cells on the 8 hardware threads of a node.
#[test]
fn all_vcpus_that_are_bound_to_a_set_of_cpus_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("two-cells.xml");
    let pins: String = (0..16).map(|vcpu| format!("<vcpupin vcpu='{vcpu}' cpuset='0-3,8-11'/>")).collect();
    let cells = "<cell id='0' cpus='0-7' memory='4' unit='GiB'/><cell id='1' cpus='8-15' memory='4' unit='GiB'/>";
    let memory = "<memnode cellid='0' mode='strict' nodeset='0'/><memnode cellid='1' mode='strict' nodeset='0'/>";
    let topology = "<topology sockets='2' cores='8' threads='1'/>";
    let text = format!(
        "<domain><name>x</name><vcpu>16</vcpu><cputune>{pins}<emulatorpin cpuset='0-3,8-11'/></cputune>\
         <numatune>{memory}</numatune><cpu>{topology}<numa>{cells}</numa></cpu></domain>"
    );
    fs::write(&file, text).expect("a file");
    let output = homenode(&["check", file.to_str().expect("a path"), "--on", MACHINE, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    let crowded = findings.iter().find(|found| found["what"] == "shared_hardware_thread").expect("the finding");
    assert_eq!((&crowded["severity"], &crowded["cost"]["factor"]), (&"problem".into(), &2.0.into()), "{crowded}");
}

/// 3 copies of a domain of 12 GiB bound to node 0, which has 24.
#[test]
fn domains_of_a_directory_are_solved_together() {
    let directory = tempfile::tempdir().expect("a directory");
    for copy in ["a", "b", "c"] {
        let text = fs::read_to_string(domain("memory-away")).expect("a domain").replace("cache2", copy);
        fs::write(directory.path().join(format!("{copy}.xml")), text.replace("nodeset='0'", "nodeset='1'"))
            .expect("a file");
    }
    let output = homenode(&["check", directory.path().to_str().expect("a path"), "--on", MACHINE, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let homes: Vec<&serde_json::Value> = report["vms"].as_array().expect("VMs").iter().map(|vm| &vm["homes"]).collect();
    assert_eq!(homes.iter().filter(|home| **home == "0").count(), 1, "{homes:?}");
    let full: Vec<&str> =
        report["findings"].as_array().expect("findings").iter().filter_map(|found| found["what"].as_str()).collect();
    assert_eq!(full, ["no_room_beside_others"], "{report}");
    assert_eq!(report["nodes"][1]["memory"], report["nodes"][0]["memory"]);
    let said = standard_output(&homenode(&["check", directory.path().to_str().expect("a path"), "--on", MACHINE]));
    assert!(
        said.contains("assumed:\n  nodes 0-1: 4 cores, 8 hardware threads, 24 GiB each; no VM runs there"),
        "{said}"
    );
    assert!(said.contains("Worst finding") && said.contains("Home"), "{said}");
}

#[test]
fn a_patch_applies_and_the_cured_domain_has_no_problem() {
    if common::lacks("a_patch_applies_and_the_cured_domain_has_no_problem", "patch") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("build7.xml");
    fs::copy(domain("one-socket-two-cells"), &file).expect("a copy");
    let file = file.to_str().expect("a path");
    let report = homenode(&["check", file, "--on", MACHINE, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    // Notes have patches too, which are nobody's cure.
    for finding in report["findings"].as_array().expect("findings").iter().filter(|found| found["severity"] != "note") {
        let patch = finding["cure"]["patch"].as_str().expect("a patch");
        let mut program = Command::new("patch")
            .args(["-p1", "--quiet"])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("patch");
        program.stdin.take().expect("a pipe").write_all(patch.as_bytes()).expect("written");
        assert!(program.wait().expect("an end").success(), "{patch}");
    }
    let output = homenode(&["check", file, "--on", MACHINE]);
    assert_eq!(output.status.code(), Some(0), "{}{}", standard_output(&output), errors(&output));
    // The patches together are what --cured prints.
    let cured = homenode(&["check", &domain("one-socket-two-cells"), "--on", MACHINE, "--cured"]);
    assert_eq!(standard_output(&cured), fs::read_to_string(file).expect("the file"));
}

#[test]
fn standard_input_is_read_and_what_cannot_be_cured_is_said() {
    let run = |name: &str| {
        let input = fs::File::open(domain(name)).expect("a domain");
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        command.args(["check", "-", "--on", MACHINE, "--cured"]).stdin(input).output().expect("homenode")
    };
    let output = run("memory-away");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_ne!(standard_output(&output), fs::read_to_string(domain("memory-away")).expect("a domain"));
    // Somebody chose that.
    let output = run("interleaved");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(standard_output(&output), fs::read_to_string(domain("interleaved")).expect("a domain"));
    let output = run("wide-without-cells"); // 96 GiB, the machine has 48
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("it has 96 GiB of memory, and hp-dl380-g6 has 48 GiB"), "{}", errors(&output));
}

#[test]
fn bad_input_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("a path").to_owned()
    };
    let check = |what: &str, words: &[&str]| refuses(&["check", what, "--on", MACHINE], words);
    check(directory.path().to_str().expect("a path"), &["is a directory without definitions", "*.xml"]);
    check("/does/not/exist.xml", &["/does/not/exist.xml", "cannot be read"]);
    check("not-there.xml", &["not-there.xml", "cannot be read", "virsh dumpxml"]);
    check(&write("empty.xml", b" \n"), &["empty.xml: is empty"]);
    check(&write("binary.xml", &[0xff, 0xfe, 0]), &["binary.xml: is no text"]);
    check(&write("network.xml", b"<network><name>n</name></network>"), &["<network>", "<domain>"]);
    check(&write("cut.xml", b"<domain><name>x</name>"), &["cut.xml", "not XML"]);
    let bomb = br#"<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><domain><name>&b;</name></domain>"#;
    check(&write("bomb.xml", bomb), &["document type"]);
    let large = format!("<domain><name>{}</name></domain>", "x".repeat(5 << 20));
    check(&write("large.xml", large.as_bytes()), &["large.xml: cannot be read: more than"]);
    let pin =
        b"<domain><memory>1048576</memory><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='a'/></cputune></domain>";
    check(&write("pin.xml", pin), &["line 1", "vcpupin", "cpuset"]);
    refuses(&["check", &domain("right"), "--on", "no-such-machine"], &["no-such-machine"]);
}

#[test]
fn a_name_that_is_neither_says_what_runs() {
    refuses(&["check", "no-such-vm-anywhere"], &["no-such-vm-anywhere", "no VM of this name", "that do not run: "]);
    refuses(&["check", "4000000000"], &["Proxmox VE has no /etc/pve/qemu-server/4000000000.conf here"]);
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("domain"), "<domain/>").expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    let output = command.args(["check", "domain"]).current_dir(directory.path()).output().expect("homenode");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("give it as ./domain"), "{}", errors(&output));
}

/// libvirt's own parser and schema take every cured domain. Its test driver needs no daemon; it
/// takes domains of type `test` only.
#[test]
fn libvirt_takes_every_cured_domain() {
    const TEST: &str = "libvirt_takes_every_cured_domain";
    if common::lacks(TEST, "virsh") || common::lacks(TEST, "virt-xml-validate") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for entry in fs::read_dir(corpus()).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let cured = homenode(&["check", path.to_str().expect("a path"), "--on", "hp-dl980-g7", "--cured"]);
        assert_eq!(cured.status.code(), Some(0), "{}: {}", path.display(), errors(&cured));
        let mut text = standard_output(&cured).replace("firmware='efi'", "");
        text = text
            .replace("<domain type='kvm'", "<domain type='test'")
            .replace("<domain type=\"kvm\"", "<domain type='test'");
        if !text.contains("<os") {
            text = text.replace("</domain>", "<os><type>hvm</type></os></domain>");
        }
        let file = directory.path().join("cured.xml");
        fs::write(&file, &text).expect("a file");
        let mut command = Command::new("virsh");
        command.args(["--quiet", "--connect", "test:///default", "define", "--validate"]).arg(&file);
        let defined =
            command.env("XDG_RUNTIME_DIR", directory.path()).env("HOME", directory.path()).output().expect("virsh");
        assert!(defined.status.success(), "{}: {}\n{text}", path.display(), errors(&defined));
    }
}

/// libvirt's test driver has one domain, `test`, which has no process.
#[test]
fn a_domain_that_does_not_run_is_asked_of_libvirt() {
    if common::lacks("a_domain_that_does_not_run_is_asked_of_libvirt", "virsh") {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.args(["check", "test", "--on", MACHINE, "--json"]).env("LIBVIRT_DEFAULT_URI", "test:///default");
    let output = command.env("XDG_RUNTIME_DIR", place.path()).env("HOME", place.path()).output().expect("homenode");
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let vm = &report["vms"][0];
    assert_eq!((&vm["vm"], &vm["source"]), (&"test".into(), &"test.xml".into()));
    assert_eq!(report["findings"][0]["what"], "floats");
}

/// One virtual socket over two virtual nodes, in a domain that runs.
#[test]
fn a_domain_that_runs_is_judged_by_its_xml_and_without_libvirt_by_its_process() {
    let test = "a_domain_that_runs_is_judged_by_its_xml_and_without_libvirt_by_its_process";
    let Some(libvirtd) = libvirtd::Libvirtd::start(test) else { return };
    let name = format!("check-libvirt-{}", std::process::id());
    libvirtd.create(&format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>128</memory><vcpu>2</vcpu>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os><cpu mode='custom'><model>qemu64</model>\
         <topology sockets='1' cores='2' threads='1'/><numa><cell id='0' cpus='0' memory='64' unit='MiB'/>\
         <cell id='1' cpus='1' memory='64' unit='MiB'/></numa></cpu></domain>"
    ));
    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        command.args(["check", &name, "--json"]).env("LIBVIRT_DEFAULT_URI", libvirtd.uri());
        let output = command.output().expect("homenode");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let found = report["findings"].as_array().expect("findings").clone();
        let crossing = found.iter().find(|finding| finding["what"] == "cache_over_nodes").cloned();
        (report["vms"][0]["source"].clone(), crossing.expect("the finding"), errors(&output))
    };
    let (source, crossing, _) = check();
    assert_eq!(source, format!("{name}.xml"));
    assert_eq!(crossing["spots"][0]["at"], "cpu/topology");
    libvirtd.stop_daemon();
    let (source, crossing, said) = check();
    assert!(source.as_str().is_some_and(|source| source.starts_with("process ")), "{source}");
    assert!(
        crossing["spots"].as_array().is_some_and(|spots| spots.iter().any(|spot| spot["at"] == "-smp")),
        "{crossing}"
    );
    assert!(said.contains("judged by its process"), "{said}");
}

#[test]
fn a_running_qemu_is_judged_by_its_process() {
    if common::lacks("a_running_qemu_is_judged_by_its_process", "qemu-system-x86_64") {
        return;
    }
    let machine = topology::read::live().expect("this host");
    let cpus: topology::CpuSet = machine.usable_threads().map(|thread| thread.id).collect();
    let vm = common::PausedVm::start("check");
    let output = homenode(&["check", &vm.name]);
    assert!(standard_output(&output).contains("2 vCPUs, 64 MiB, no vNUMA"), "{}", errors(&output));
    refuses(&["check", &vm.name, "--cured"], &["libvirt does not manage", &format!("process {}", vm.pid())]);
    if cpus.len() < 2 {
        eprintln!("SKIPPED part of a_running_qemu_is_judged_by_its_process: one CPU");
        return;
    }
    let one: topology::CpuSet = cpus.first().into_iter().collect();
    vm.bind(&one);
    let output = homenode(&["check", &vm.pid().to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = report["findings"].as_array().expect("findings");
    let crowded = found.iter().find(|finding| finding["what"] == "shared_hardware_thread").expect("the finding");
    assert_eq!(crowded["cost"]["factor"], 2.0);
    match crowded["cure"]["commands"][0].as_str() {
        Some(command) => {
            assert!(command.starts_with(&format!("homenode doctor {} --fix", vm.name)), "{command}");
            assert_eq!(crowded["cure"]["repairs"][0]["action"], "bind", "{crowded}");
        }
        // VMs of other tests are bound to the other CPUs, and keep them.
        None => {
            let advice = crowded["cure"]["advice"].as_str().unwrap_or_default();
            assert!(advice.contains("no free CPU of their kind"), "{crowded}");
        }
    }
    // One judge: the same finding of the same severity.
    let doctor = homenode(&["doctor", &vm.pid().to_string(), "--json"]);
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let same = doctor["findings"].as_array().expect("findings").iter().find(|found| found["what"] == crowded["what"]);
    for part in ["severity", "harm", "cost", "sentence"] {
        assert_eq!(same.map(|same| &same[part]), Some(&crowded[part]), "{part}");
    }
}
