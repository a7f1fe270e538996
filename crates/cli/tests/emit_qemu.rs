//! `homenode plan --emit` as a process: each kind for this host and for others, what is refused,
//! and the QEMU text really run by `sh`.

use crate::common::{lacks, tiny_guest, within_seconds};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use topology::CpuSet;

const KINDS: [&str; 7] = ["qemu", "libvirt", "proxmox", "nova", "kubevirt", "cloud-hypervisor", "systemd"];
const MACHINES: [&str; 3] = ["hp-dl380-g6", "epyc-7742-2s-nps4", "xeon-8480-2s"];

fn homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode")).args(arguments).output().expect("homenode")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A VM that boots a disk, in a directory with that disk.
fn disk_vm() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("disk.img"), vec![0; 1 << 20]).expect("a disk");
    let spec = directory.path().join("vm.toml");
    let disk = "boot.from = \"disk\"\n[[disk]]\npath = \"disk.img\"\nformat = \"raw\"\n";
    std::fs::write(&spec, format!("name = \"emitted\"\nvcpus = 1\nmemory = \"64 MiB\"\n{disk}")).expect("a spec");
    (directory, spec)
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn every_kind_prints_for_this_host_and_for_others() {
    let (_directory, spec) = disk_vm();
    for kind in KINDS {
        let mut texts = vec![homenode(&["plan", shown(&spec), "--emit", kind])];
        texts.extend(MACHINES.map(|machine| homenode(&["plan", shown(&spec), "--emit", kind, "--on", machine])));
        for output in texts {
            let said = text(&output.stderr);
            assert!(output.status.success() && output.stdout.ends_with(b"\n"), "{kind}: {said}");
            assert!(text(&output.stdout).contains("emitted"), "{kind}: {}", text(&output.stdout));
        }
    }
}

#[test]
fn json_and_unknown_kinds_are_refused() {
    let (_directory, spec) = disk_vm();
    for arguments in [["--emit", "qemu", "--json"].as_slice(), &["--emit", "xen"], &["--emit"]] {
        let output = homenode(&[["plan", shown(&spec)].as_slice(), arguments].concat());
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn files_are_looked_for_on_the_host_that_has_them() {
    let (directory, spec) = disk_vm();
    std::fs::remove_file(directory.path().join("disk.img")).expect("it was there");
    let here = homenode(&["plan", shown(&spec), "--emit", "qemu"]);
    let said = text(&here.stderr);
    assert_eq!((here.status.code(), here.stdout.len()), (Some(2), 0), "{said}");
    assert!(said.contains("vm.toml") && said.contains("disk[0].path") && said.contains("disk.img"), "{said}");
    let elsewhere = homenode(&["plan", shown(&spec), "--emit", "qemu", "--on", MACHINES[0]]);
    assert!(elsewhere.status.success(), "{}", text(&elsewhere.stderr));
}

#[test]
fn what_a_stack_cannot_be_told_names_file_field_and_value() {
    let (_directory, spec) = disk_vm();
    let with = |from: &str, to: &str| {
        let changed = std::fs::read_to_string(&spec).expect("the spec").replace(from, to);
        std::fs::write(&spec, changed).expect("a spec");
    };
    let refused = |kind: &str, expected: &str| {
        let output = homenode(&["plan", shown(&spec), "--emit", kind, "--on", MACHINES[0]]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains("vm.toml: ") && said.contains(expected), "{said}");
    };
    with("format = \"raw\"\n", "format = \"raw\"\nsnapshot = true\n");
    refused("cloud-hypervisor", "disk[0].snapshot = true");
    with("disk.img", "disk\\nargs: -S.img");
    for kind in ["qemu", "proxmox"] {
        refused(kind, "disk[0].path = ");
    }
    with("vcpus = 1\n", "vcpus = 17\n");
    refused("proxmox", "disk[0].path = ");
    with("disk\\nargs: -S.img", "disk.img");
    refused("proxmox", "vcpus = 17: "); // the machine has 16 CPUs
}

/// What another user laid in the directory for temporary files neither is written nor is booted.
#[test]
fn nothing_is_written_for_a_text_that_boots_the_tiny_guest() {
    let test = "nothing_is_written_for_a_text_that_boots_the_tiny_guest";
    if tiny_guest(test).is_none() {
        return;
    }
    let (directory, temporary) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (victim, planted) = (directory.path().join("victim"), temporary.path().join("homenode-linked.cpio"));
    std::fs::write(&victim, "kept").expect("a file");
    std::os::unix::fs::symlink(&victim, &planted).expect("a link");
    std::fs::write(temporary.path().join("homenode-made.cpio"), "another's guest").expect("a file");
    for name in ["linked", "made"] {
        let spec = directory.path().join("vm.toml");
        std::fs::write(&spec, format!("name = \"{name}\"\nvcpus = 1\nmemory = \"64 MiB\"\n")).expect("a spec");
        let spec = shown(&spec);
        let asked =
            [&["run", spec, "--dry-run"][..], &["plan", spec, "--emit", "qemu"], &["plan", spec, "--emit", "libvirt"]];
        for arguments in asked {
            let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
            let output = command.args(arguments).env("TMPDIR", temporary.path()).output().expect("homenode");
            let printed = text(&output.stdout);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(printed.contains("/initramfs") && !printed.contains(shown(temporary.path())), "{printed}");
        }
    }
    assert_eq!(std::fs::read_to_string(&victim).expect("a file"), "kept");
    assert_eq!(std::fs::read_dir(temporary.path()).expect("a directory").count(), 2);
}

/// `sh` with a text; all that it started ends with the value.
struct Shell {
    child: Child,
    /// What was printed so far.
    output: Arc<Mutex<String>>,
}

impl Shell {
    fn start(text: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", text]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("sh");
        let mut from = child.stdout.take().expect("a pipe");
        let output = Arc::new(Mutex::new(String::new()));
        let to = output.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                to.lock().expect("the output").push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, output }
    }

    fn printed(&self) -> String {
        self.output.lock().expect("the output").clone()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Its group is its own. A shell's kill, because the program of that name is not everywhere.
        let _ = Command::new("sh").arg("-c").arg(format!("kill -9 -{} 2>/dev/null", self.child.id())).status();
        let _ = self.child.wait();
    }
}

#[test]
fn the_printed_text_starts_qemu_at_home_and_the_guest_sees_its_nodes() {
    let test = "the_printed_text_starts_qemu_at_home_and_the_guest_sees_its_nodes";
    if lacks(test, "qemu-system-x86_64") || lacks(test, "taskset") {
        return;
    }
    if tiny_guest(test).is_none() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (spec, name) = (directory.path().join("vm.toml"), format!("emitted-{}", std::process::id()));
    let nodes = "[{ vcpus = 1, memory = \"192 MiB\" }, { vcpus = 1, memory = \"128 MiB\" }]";
    let head = format!("name = \"{name}\"\nvcpus = 2\nmemory = \"320 MiB\"\npolicy.virtual_nodes = {nodes}\n");
    std::fs::write(&spec, head).expect("a spec");
    let plan: serde_json::Value =
        serde_json::from_slice(&homenode(&["plan", shown(&spec), "--json"]).stdout).expect("a plan");
    let clients: Vec<vm::Client> =
        serde_json::from_value(plan["plan"]["placement"]["clients"].clone()).expect("clients");
    let emitted = homenode(&["plan", shown(&spec), "--emit", "qemu"]);
    assert!(emitted.status.success(), "{}", text(&emitted.stderr));

    let mut shell = Shell::start(&text(&emitted.stdout));
    // The guest's init prints what its kernel sees, then waits for a command.
    let booted = within_seconds(180, || shell.printed().contains("commands: "));
    assert!(booted, "{}\n{}", text(&emitted.stdout), shell.printed());
    let seen = shell.printed();
    assert!(seen.contains("node 0: CPUs 0, ") && seen.contains("node 1: CPUs 1, "), "{seen}");

    let running = linux::examine_this_host().expect("/proc");
    let vm = running.vms.iter().find(|vm| vm.vm.name == name).expect("a QEMU of this name");
    check_threads(vm.vm.pid, &clients);
    check_memory(test, vm.vm.pid, &clients);

    shell.child.stdin.take().expect("a pipe").write_all(b"poweroff\n").expect("the console");
    let ended = within_seconds(120, || shell.child.try_wait().expect("sh").is_some());
    assert!(ended && shell.child.wait().expect("sh").success(), "{}", shell.printed());
}

/// vCPU n is the only one of virtual node n.
fn check_threads(pid: u32, clients: &[vm::Client]) {
    let affinity = |vcpu: usize| -> CpuSet {
        let threads = linux::process::threads(pid).expect("its threads");
        let mine = |name: &str| name.starts_with(&format!("CPU {vcpu}/"));
        let thread = threads.iter().find(|thread| mine(&thread.name)).unwrap_or_else(|| panic!("{threads:?}"));
        linux::sys::affinity(thread.id).expect("an affinity")
    };
    for vcpu in 0..2 {
        let client = clients.iter().find(|client| client.virtual_nodes.contains(&(vcpu as u32))).expect("its client");
        assert!(within_seconds(60, || affinity(vcpu) == client.cpus), "vCPU {vcpu}: {}", affinity(vcpu));
    }
}

/// All memory of the VM is bound, filled, and at home, by the kernel's own words.
fn check_memory(test: &str, pid: u32, clients: &[vm::Client]) {
    let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/numa_maps")) else {
        return eprintln!("{test}: this kernel has no numa_maps: where the memory is was not seen");
    };
    let homes: topology::NodeSet = clients.iter().flat_map(|client| client.home.iter()).collect();
    let mut pages_of_4_kib = 0;
    for mapping in maps.lines().filter(|line| line.contains(" bind:")) {
        for (node, pages) in mapping.split(' ').filter_map(|word| word.strip_prefix('N')?.split_once('=')) {
            assert!(homes.contains(topology::NodeId(node.parse().expect("a node"))), "{mapping}");
            pages_of_4_kib += pages.parse::<u64>().expect("a number");
        }
    }
    assert_eq!(pages_of_4_kib, 320 * 256, "320 MiB are not all bound and filled: {maps}");
}
