//! homenode on a machine of four NUMA nodes, with KVM: see scripts/lab.

use std::path::Path;
use std::process::Command;

/// What scripts/lab ends with where something that it needs is missing.
const CANNOT_RUN: i32 = 77;

#[test]
fn vms_are_at_home_on_four_nodes_under_kvm() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/lab");
    let lab = Command::new(script).args(["--homenode", env!("CARGO_BIN_EXE_homenode")]).output().expect("scripts/lab");
    let (said, complained) = (String::from_utf8_lossy(&lab.stdout), String::from_utf8_lossy(&lab.stderr));
    if lab.status.code() == Some(CANNOT_RUN) {
        eprintln!("SKIPPED vms_are_at_home_on_four_nodes_under_kvm: {}", complained.trim());
        return;
    }
    assert!(lab.status.success(), "{said}\n{complained}");
    assert!(said.lines().filter(|line| line.starts_with("PASS")).count() >= 16, "{said}");
}
