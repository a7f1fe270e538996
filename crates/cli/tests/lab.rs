//! homenode on a machine of four NUMA nodes, with KVM: see scripts/lab.

use scheduler::balance::BalancePolicy;
use std::path::Path;
use std::process::Command;

/// What scripts/lab ends with where something that it needs is missing.
const CANNOT_RUN: i32 = 77;

/// Runs a script in the lab with programs beside homenode and files at their places, or the lab's own checks: each check passes, and there
/// are at least so many.
fn passes(test: &str, script: Option<&str>, programs: &[&Path], files: &[&Path], least_checks: usize) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut lab = Command::new(repository.join("scripts/lab"));
    lab.args(["--homenode", env!("CARGO_BIN_EXE_homenode")]);
    if let Some(script) = script {
        lab.args(["--run", script]);
    }
    for program in programs {
        lab.arg("--bring").arg(program);
    }
    for file in files {
        lab.arg("--with").arg(file);
    }
    let lab = lab.output().expect("scripts/lab");
    let (said, complained) = (String::from_utf8_lossy(&lab.stdout), String::from_utf8_lossy(&lab.stderr));
    if lab.status.code() == Some(CANNOT_RUN) {
        eprintln!("SKIPPED {test}: {}", complained.trim());
        return;
    }
    assert!(lab.status.success(), "{said}\n{complained}");
    let passed = said.lines().filter(|line| line.starts_with("PASS")).count();
    assert!(passed >= least_checks, "{passed} of at least {least_checks} checks\n{said}");
}

#[test]
fn vms_are_at_home_on_four_nodes_under_kvm() {
    passes("vms_are_at_home_on_four_nodes_under_kvm", None, &[], &[], 20);
}

#[test]
fn vms_of_others_are_brought_home_and_kept_there() {
    passes("vms_of_others_are_brought_home_and_kept_there", Some("crates/cli/tests/lab/balance.sh"), &[], &[], 35);
}

#[test]
fn a_balancer_that_is_killed_stopped_or_fought_leaves_nothing_behind() {
    let test = "a_balancer_that_is_killed_stopped_or_fought_leaves_nothing_behind";
    passes(test, Some("crates/cli/tests/lab/balance_trouble.sh"), &[], &[], 23);
}

/// The example of the linux crate that binds and moves, if it was built.
fn linux_host(test: &str) -> Option<std::path::PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_homenode")).with_file_name("examples/linux_host");
    if !program.exists() {
        eprintln!("SKIPPED {test}: no {}: cargo build -p linux --example linux_host", program.display());
        return None;
    }
    Some(program)
}

#[test]
fn vms_of_odd_shapes_are_seen_bound_and_followed() {
    let test = "vms_of_odd_shapes_are_seen_bound_and_followed";
    let Some(program) = linux_host(test) else { return };
    passes(test, Some("crates/linux/tests/lab/shapes.sh"), &[&program], &[], 7);
}

#[test]
fn memory_and_threads_of_others_vms_are_moved() {
    let test = "memory_and_threads_of_others_vms_are_moved";
    let Some(program) = linux_host(test) else { return };
    passes(test, Some("crates/linux/tests/lab/quick.sh"), &[&program], &[], 10);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn domains_are_bound_through_libvirt() {
    let test = "domains_are_bound_through_libvirt";
    let there = |directories: &[&str], name: &str| {
        let found = directories.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.exists());
        if found.is_none() {
            eprintln!("SKIPPED {test}: no {name} in {}", directories.join(", "));
        }
        found
    };
    let Some(daemon) = there(&["/usr/sbin", "/usr/bin"], "libvirtd") else { return };
    let Some(virsh) = there(&["/usr/bin"], "virsh") else { return };
    let drivers = ["/usr/lib/x86_64-linux-gnu/libvirt/connection-driver", "/usr/lib64/libvirt/connection-driver"];
    let Some(driver) = there(&drivers, "libvirt_driver_qemu.so") else { return };
    let Some(models) = there(&["/usr/share/libvirt"], "cpu_map") else { return };
    passes(test, Some("crates/cli/tests/lab/libvirt.sh"), &[&daemon, &virsh], &[&driver, &models], 42);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn printed_plans_make_vms_that_are_at_home() {
    passes("printed_plans_make_vms_that_are_at_home", Some("crates/cli/tests/lab/emit.sh"), &[], &[], 10);
}

/// bench/compare-in-lab runs the balancer under this file and calls it ESXi's defaults.
#[test]
fn the_policy_file_of_esxis_defaults_is_what_the_balancer_calls_so() {
    #[derive(serde::Deserialize)]
    struct PolicyFile {
        balance: BalancePolicy,
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/esxi-defaults.toml");
    let file: PolicyFile = toml::from_str(&std::fs::read_to_string(path).expect("the file")).expect("a policy");
    assert_eq!(file.balance, BalancePolicy::esxi_defaults());
}
