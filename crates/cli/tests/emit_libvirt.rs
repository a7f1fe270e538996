//! `homenode plan --emit libvirt` as a process.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Two sockets of 4 cores and 8 hardware threads, 24 GiB each.
const MACHINE: &str = "pack:2 [numa(memory=24GiB)] l3:1 core:4 pu:2";

const SPEC: &str = "name = \"disk\"\nvcpus = 8\nmemory = \"16 GiB\"\nboot.from = \"disk\"\n\
    [[disk]]\npath = \"root.qcow2\"\nformat = \"qcow2\"\n[console]\nto = \"file\"\npath = \"console.log\"\n";

fn plan(directory: &Path, machine: &str, spec: &str) -> Output {
    fs::write(directory.join("vm.toml"), spec).expect("a spec file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.current_dir(directory).args(["plan", "vm.toml", "--on", machine, "--emit", "libvirt"]);
    command.output().expect("homenode starts")
}

#[test]
fn a_plan_for_another_machine_is_a_domain_with_whole_paths() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = plan(directory.path(), MACHINE, SPEC);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let domain = stacks::domain::parse(&text, "the domain").expect("a domain");
    assert_eq!((domain.name.as_str(), domain.kind.as_str(), domain.cells.len()), ("disk", "kvm", 2));
    assert_eq!(domain.memory_nodes.len(), 2);
    let at = fs::canonicalize(directory.path()).expect("a path");
    for file in ["root.qcow2", "console.log"] {
        assert!(text.contains(&format!("file=\"{}\"", at.join(file).display())), "{text}");
    }
}

#[test]
fn what_no_xml_can_hold_is_bad_input() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = plan(directory.path(), MACHINE, &SPEC.replace("root.qcow2", "a\\nb.qcow2"));
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("vm.toml: disk[0].path") && error.contains("a line's end"), "{error}");
    assert!(output.stdout.is_empty());
}
