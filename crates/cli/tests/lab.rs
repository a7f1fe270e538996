//! homenode on a machine of four NUMA nodes, with KVM: see scripts/lab.

use scheduler::balance::BalancePolicy;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What scripts/lab ends with where something that it needs is missing.
const CANNOT_RUN: i32 = 77;

/// A script for the lab, and what it needs there.
#[derive(Default)]
struct Lab<'a> {
    /// In this repository; `None`: the lab's own checks.
    script: Option<&'a str>,
    /// Programs beside homenode.
    programs: &'a [&'a Path],
    /// Files at their places.
    files: &'a [&'a Path],
    /// Its long form.
    long: bool,
    /// On a machine of another shape: `--nodes`, `--node-gib`.
    shape: &'a [&'a str],
    /// How many checks there are at least.
    least_checks: usize,
}

impl Lab<'_> {
    /// Each check passes. What the lab's kernel lacks is printed as skipped.
    fn passes(&self, test: &str) {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut lab = Command::new(repository.join("scripts/lab"));
        lab.args(["--homenode", env!("CARGO_BIN_EXE_homenode")]);
        if let Some(script) = self.script {
            lab.args(["--run", script]);
        }
        if self.long {
            lab.arg("--long");
        }
        lab.args(self.shape);
        for program in self.programs {
            lab.arg("--bring").arg(program);
        }
        for file in self.files {
            lab.arg("--with").arg(file);
        }
        let lab = lab.output().expect("scripts/lab");
        let (said, complained) = (String::from_utf8_lossy(&lab.stdout), String::from_utf8_lossy(&lab.stderr));
        if lab.status.code() == Some(CANNOT_RUN) {
            eprintln!("SKIPPED {test}: {}", complained.trim());
            return;
        }
        assert!(lab.status.success(), "{said}\n{complained}");
        said.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| eprintln!("{line}"));
        let passed = said.lines().filter(|line| line.starts_with("PASS")).count();
        assert!(passed >= self.least_checks, "{passed} of at least {} checks\n{said}", self.least_checks);
    }
}

/// A program of util-linux; busybox, which the lab has, has one that can do less.
fn program(test: &str, name: &str) -> Option<PathBuf> {
    let found =
        ["/usr/bin", "/bin"].map(|directory| Path::new(directory).join(name)).into_iter().find(|at| at.exists());
    if found.is_none() {
        eprintln!("SKIPPED {test}: no {name}");
    }
    found
}

/// setpriv under a name that busybox has not, in a directory that must live as long as it is used.
fn as_user(test: &str) -> Option<(PathBuf, tempfile::TempDir)> {
    let directory = tempfile::tempdir().expect("a directory");
    let link = directory.path().join("as-user");
    std::os::unix::fs::symlink(program(test, "setpriv")?, &link).expect("a link");
    Some((link, directory))
}

/// The linux crate's own tests, built last: those of them that need two nodes run in the lab.
fn tests_of_linux(test: &str) -> Option<PathBuf> {
    let is_it = |name: &str| {
        let hash = name.strip_prefix("linux-").unwrap_or_default();
        hash.len() == 16 && hash.chars().all(|digit| digit.is_ascii_hexdigit())
    };
    let entries = std::fs::read_dir(Path::new(env!("CARGO_BIN_EXE_homenode")).with_file_name("deps")).expect("deps");
    let built = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_it));
    let last = built.max_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok());
    if last.is_none() {
        eprintln!("SKIPPED {test}: the linux crate's tests were not built");
    }
    last.map(|entry| entry.path())
}

#[test]
fn vms_are_at_home_on_four_nodes_under_kvm() {
    Lab { least_checks: 20, ..Lab::default() }.passes("vms_are_at_home_on_four_nodes_under_kvm");
}

#[test]
fn vms_of_others_are_brought_home_and_kept_there() {
    let lab = Lab { script: Some("crates/cli/tests/lab/balance.sh"), least_checks: 35, ..Lab::default() };
    lab.passes("vms_of_others_are_brought_home_and_kept_there");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_balancer_that_is_killed_at_any_moment_stopped_or_fought_leaves_nothing_behind() {
    let script = Some("crates/cli/tests/lab/balance_trouble.sh");
    let lab = Lab { script, long: true, least_checks: 34, ..Lab::default() };
    lab.passes("a_balancer_that_is_killed_at_any_moment_stopped_or_fought_leaves_nothing_behind");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn doctor_finds_what_is_wrong_with_real_vms_and_makes_none_worse_that_a_cpuset_holds() {
    let test = "doctor_finds_what_is_wrong_with_real_vms_and_makes_none_worse_that_a_cpuset_holds";
    let Some(chrt) = program(test, "chrt") else { return };
    let programs: &[&Path] = &[&chrt];
    let script = Some("crates/cli/tests/lab/doctor.sh");
    Lab { script, programs, least_checks: 52, ..Lab::default() }.passes(test);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn other_users_claim_nothing_and_see_what_the_service_decided() {
    let test = "other_users_claim_nothing_and_see_what_the_service_decided";
    let Some((as_user, _directory)) = as_user(test) else { return };
    let programs: &[&Path] = &[&as_user];
    Lab { script: Some("crates/cli/tests/lab/users.sh"), programs, least_checks: 26, ..Lab::default() }.passes(test);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn what_somebody_chose_stays_and_all_threads_go_where_the_vcpus_go() {
    let test = "what_somebody_chose_stays_and_all_threads_go_where_the_vcpus_go";
    let directory = tempfile::tempdir().expect("a directory");
    let Some(policy) = compiled(test, "policy", directory.path()) else { return };
    let programs: &[&Path] = &[&policy];
    Lab { script: Some("crates/cli/tests/lab/chosen.sh"), programs, least_checks: 30, ..Lab::default() }.passes(test);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_vm_that_prefers_hardware_threads_stays_on_its_core() {
    let shape: &[&str] = &["--nodes", "2", "--threads-per-core", "2"];
    let script = Some("crates/cli/tests/lab/prefer_ht.sh");
    let lab = Lab { script, shape, least_checks: 6, ..Lab::default() };
    lab.passes("a_vm_that_prefers_hardware_threads_stays_on_its_core");
}

/// A program of this directory's, without libraries.
fn compiled(test: &str, name: &str, into: &Path) -> Option<PathBuf> {
    let program = into.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab").join(name).with_extension("c");
    let compiled = Command::new("gcc").args(["-static", "-O1", "-o"]).arg(&program).arg(source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED {test}: gcc makes no static program: install gcc and libc6-dev");
        return None;
    }
    Some(program)
}

/// What a small systemd needs: itself, its journal, and the units that others are ordered by.
const SYSTEMD: [&str; 11] = [
    "/lib/systemd/systemd",
    "/lib/systemd/systemd-journald",
    "/lib/systemd/system/basic.target",
    "/lib/systemd/system/exit.target",
    "/lib/systemd/system/local-fs.target",
    "/lib/systemd/system/shutdown.target",
    "/lib/systemd/system/sockets.target",
    "/lib/systemd/system/sysinit.target",
    "/lib/systemd/system/systemd-journald.service",
    "/lib/systemd/system/systemd-journald.socket",
    "/lib/systemd/system/systemd-journald-dev-log.socket",
];
/// Where it is a program of its own (since systemd 255).
const EXECUTOR: &str = "/lib/systemd/systemd-executor";

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn the_unit_keeps_vms_at_home_under_a_real_systemd() {
    let test = "the_unit_keeps_vms_at_home_under_a_real_systemd";
    let Some((as_user, directory)) = as_user(test) else { return };
    if let Some(missing) = SYSTEMD.iter().find(|file| !Path::new(file).exists()) {
        return eprintln!("SKIPPED {test}: no {missing}: install systemd");
    }
    let Some(reach) = compiled(test, "reach", directory.path()) else { return };
    let mut programs = vec![as_user, reach];
    for name in ["systemctl", "journalctl", "systemd-sysusers"] {
        let Some(program) = program(test, name) else { return };
        programs.push(program);
    }
    let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
    let executor = Path::new(EXECUTOR).exists().then_some(EXECUTOR);
    let files: Vec<&Path> = SYSTEMD.into_iter().chain(executor).map(Path::new).collect();
    let script = Some("crates/cli/tests/lab/service.sh");
    Lab { script, programs: &programs, files: &files, least_checks: 40, ..Lab::default() }.passes(test);
}

/// The example of the linux crate that binds and moves, if it was built.
fn linux_host(test: &str) -> Option<PathBuf> {
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
    let programs: &[&Path] = &[&program];
    Lab { script: Some("crates/linux/tests/lab/shapes.sh"), programs, least_checks: 12, ..Lab::default() }.passes(test);
}

#[test]
fn memory_and_threads_of_others_vms_are_moved() {
    let test = "memory_and_threads_of_others_vms_are_moved";
    let (Some(program), Some(tests)) = (linux_host(test), tests_of_linux(test)) else { return };
    let programs: &[&Path] = &[&program, &tests];
    Lab { script: Some("crates/linux/tests/lab/quick.sh"), programs, least_checks: 12, ..Lab::default() }.passes(test);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn memory_and_threads_of_others_vms_are_moved_in_every_way() {
    let test = "memory_and_threads_of_others_vms_are_moved_in_every_way";
    let (Some(program), Some(tests)) = (linux_host(test), tests_of_linux(test)) else { return };
    let Some((as_user, _directory)) = as_user(test) else { return };
    let programs: &[&Path] = &[&program, &tests, &as_user];
    Lab { script: Some("crates/linux/tests/lab/moving.sh"), programs, least_checks: 40, ..Lab::default() }.passes(test);
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
    let Some((as_user, _directory)) = as_user(test) else { return };
    let (programs, files): (&[&Path], &[&Path]) = (&[&daemon, &virsh, &as_user], &[&driver, &models]);
    let script = Some("crates/cli/tests/lab/libvirt.sh");
    Lab { script, programs, files, least_checks: 45, ..Lab::default() }.passes(test);
}

const LIFE: Lab = Lab {
    script: Some("crates/cli/tests/lab/life.sh"),
    programs: &[],
    files: &[],
    long: false,
    shape: &[],
    least_checks: 33,
};

#[test]
fn a_guest_that_grows_sleeps_and_travels_loses_no_word_of_its_memory() {
    LIFE.passes("a_guest_that_grows_sleeps_and_travels_loses_no_word_of_its_memory");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_guest_that_travels_twenty_times_between_hosts_of_four_and_two_nodes_loses_no_word_of_its_memory() {
    let lab = Lab { long: true, shape: &["--nodes", "8"], least_checks: 177, ..LIFE };
    lab.passes("a_guest_that_travels_twenty_times_between_hosts_of_four_and_two_nodes_loses_no_word_of_its_memory");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn huge_pages_overcommitted_memory_and_one_cpu_each_are_what_the_kernel_says() {
    let lab = Lab { script: Some("crates/cli/tests/lab/memory.sh"), least_checks: 49, ..Lab::default() };
    lab.passes("huge_pages_overcommitted_memory_and_one_cpu_each_are_what_the_kernel_says");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn isolated_cpus_are_for_vcpus_that_are_bound_alone() {
    let script = Some("crates/cli/tests/lab/isolated.sh");
    let shape = &["--nodes", "2", "--cpus-per-cache", "4", "--isolated", "2-3"];
    let lab = Lab { script, shape, least_checks: 13, ..Lab::default() };
    lab.passes("isolated_cpus_are_for_vcpus_that_are_bound_alone");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn groups_of_vcpus_keep_to_one_last_level_cache_each() {
    let script = Some("crates/cli/tests/lab/caches.sh");
    let lab = Lab { script, shape: &["--nodes", "2", "--caches", "2"], least_checks: 28, ..Lab::default() };
    lab.passes("groups_of_vcpus_keep_to_one_last_level_cache_each");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn two_guests_talk_over_a_switch_and_the_kernels_threads_that_move_it_follow_them() {
    let test = "two_guests_talk_over_a_switch_and_the_kernels_threads_that_move_it_follow_them";
    let found = |name: &str| {
        let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|directory| Path::new(directory).join(name));
        places.into_iter().find(|at| at.exists())
    };
    let (Some(ip), Some(tc)) = (found("ip"), found("tc")) else {
        return eprintln!("SKIPPED {test}: no ip or no tc (package iproute2)");
    };
    let script = Some("crates/cli/tests/lab/vhost.sh");
    Lab { script, programs: &[&ip, &tc], least_checks: 28, ..Lab::default() }.passes(test);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn pages_of_1_gib_are_those_of_the_nodes_pools() {
    let script = Some("crates/cli/tests/lab/memory_1g.sh");
    let lab = Lab { script, shape: &["--nodes", "3", "--node-gib", "3"], least_checks: 9, ..Lab::default() };
    lab.passes("pages_of_1_gib_are_those_of_the_nodes_pools");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn memory_lies_on_a_node_without_cpus_by_bandwidth_and_never_by_accident() {
    let script = Some("crates/cli/tests/lab/far.sh");
    let lab = Lab { script, shape: &["--nodes", "2", "--expander-mib", "512"], least_checks: 13, ..Lab::default() };
    lab.passes("memory_lies_on_a_node_without_cpus_by_bandwidth_and_never_by_accident");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn twenty_vms_that_start_at_once_end_even() {
    let lab = Lab {
        script: Some("crates/cli/tests/lab/storm.sh"),
        shape: &["--nodes", "8"],
        long: true,
        least_checks: 6,
        ..Lab::default()
    };
    lab.passes("twenty_vms_that_start_at_once_end_even");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn printed_plans_make_vms_that_are_at_home() {
    let lab = Lab { script: Some("crates/cli/tests/lab/emit.sh"), least_checks: 10, ..Lab::default() };
    lab.passes("printed_plans_make_vms_that_are_at_home");
}

/// LAMMPS's guest, small enough for the lab: what scripts/lab-image makes of the guest that
/// `lammps_gives_its_check_value_natively_and_in_a_guest` boots too.
fn lammps_guest(test: &str) -> Option<tempfile::TempDir> {
    for tool in ["mmdebstrap", "fakeroot", "mke2fs", "apt-get"] {
        let found = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].iter().any(|at| Path::new(at).join(tool).exists());
        if !found {
            eprintln!("SKIPPED {test}: no {tool}");
            return None;
        }
    }
    if linux::sys::effective_user_id() != 0 {
        eprintln!("SKIPPED {test}: scripts/lab-image needs root");
        return None;
    }
    let mut build = Command::new(env!("CARGO_BIN_EXE_homenode"));
    build.args(["guest", "build", "--packages", "lammps,openmpi-bin"]);
    build.env("HOMENODE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests"));
    let built = build.output().expect("homenode");
    let (said, complained) = (String::from_utf8_lossy(&built.stdout), String::from_utf8_lossy(&built.stderr));
    assert!(built.status.success(), "{complained}");
    let root = said.split_whitespace().find(|word| word.ends_with("/root.ext4")).expect("its root file system");
    let directory = tempfile::tempdir().expect("a directory");
    let mut image = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/lab-image"));
    image.arg(Path::new(root).with_file_name("")).arg(directory.path().join("cache"));
    let image = image.output().expect("scripts/lab-image");
    assert!(image.status.success(), "{}", String::from_utf8_lossy(&image.stderr));
    Some(directory)
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn lammps_gives_its_check_value_under_kvm_on_two_nodes() {
    let test = "lammps_gives_its_check_value_under_kvm_on_two_nodes";
    let Some(guest) = lammps_guest(test) else { return };
    let cache = guest.path().join("cache");
    let lab = Lab {
        script: Some("crates/cli/tests/lab/lammps.sh"),
        files: &[&cache],
        shape: &["--nodes", "2", "--node-gib", "2"],
        least_checks: 7,
        ..Lab::default()
    };
    lab.passes(test);
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
