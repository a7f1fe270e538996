//! Real QEMUs whose files are called otherwise, and other programs whose files are called QEMU.

use crate::real_vms::Paused;
use linux::HostOptions;
use linux::LinuxHost;
use linux::vm::RunningVm;
use scheduler::Observe;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use topology::Bytes;

/// Where this host's QEMU is; says without one that `test` is skipped.
fn qemu(test: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|path| path.join("qemu-system-x86_64")).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("SKIPPED {test}: no qemu-system-x86_64");
    }
    found
}

/// Copied by another process: a file that this one had open to write may be so in a child that
/// another test starts meanwhile, and such a file cannot be run.
fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().expect("cp").success());
}

/// Where Debian's QEMU looks for its parts; a copy of it elsewhere does not find them.
const MODULES: &str = "/usr/lib/x86_64-linux-gnu/qemu";
const FIRMWARE: [&str; 4] = ["-L", "/usr/share/qemu", "-L", "/usr/share/seabios"];

/// A VM whose threads have no names, by this program with these first words.
fn start(program: &Path, first: &[&str], memory: &str) -> Paused {
    let mut command = Command::new(program);
    command.args(first).args(["-S", "-display", "none", "-nodefaults", "-no-user-config", "-accel", "tcg"]);
    if Path::new(MODULES).is_dir() {
        command.env("QEMU_MODULE_DIR", MODULES).args(FIRMWARE);
    }
    command.args(["-m", memory, "-smp", "2", "-monitor", "none", "-serial", "none"]);
    Paused(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program"))
}

#[test]
fn a_qemu_is_seen_whatever_its_file_is_called() {
    let Some(qemu) = qemu("a_qemu_is_seen_whatever_its_file_is_called") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let copy = place.path().join(".qemu-system-x86_64-wrapped");
    copy_program(&qemu, &copy);
    let named = |name: &str| {
        let path = place.path().join(name);
        std::fs::hard_link(&copy, &path).expect("a name");
        path
    };
    let (web, upgraded) = (named("web"), named("qemu-kvm"));
    let first = upgraded.to_str().expect("UTF-8");
    let vms = [
        ("wrapped", start(&copy, &["-name", "a"], "33M")),
        ("copied", start(&web, &["-name", "a"], "34M")),
        ("upgraded", start(&upgraded, &["-name", "a"], "35M")),
        ("loaded", start(Path::new("/lib64/ld-linux-x86-64.so.2"), &[first, "-name", "a"], "36M")),
    ];
    for (what, vm) in &vms {
        vm.seen(|vm, _| vm.clients[0].memory_unknown_because.is_none());
        if *what == "upgraded" {
            std::fs::remove_file(&upgraded).expect("an upgrade");
        }
        let seen = vm.seen(|_, _| true).0;
        let seen = seen.vms().find(|one| one.key.pid == vm.pid()).expect("seen").clone();
        assert_eq!((seen.key.name.as_str(), seen.unverified, seen.clients[0].vcpus.len()), ("a", false, 2), "{what}");
        assert!((33..37).map(Bytes::from_mib).any(|memory| seen.clients[0].fixed_memory == memory), "{what}");
    }
}

#[test]
fn other_programs_are_no_vms_whatever_their_files_are_called() {
    let place = tempfile::tempdir().expect("a directory");
    let named = place.path().join("qemu-system-x86_64");
    copy_program(Path::new("/bin/sleep"), &named);
    let run = |program: &Path, arguments: &[&str]| {
        Paused(Command::new(program).args(arguments).stdin(Stdio::null()).spawn().expect("a program"))
    };
    let processes = [
        run(&named, &["600"]),
        run(Path::new("tail"), &["-f", named.to_str().expect("UTF-8")]),
        run(Path::new("sh"), &["-c", "sleep 600; true", "-accel", "tcg", "-m", "64", "-smp", "2"]),
        run(Path::new("/lib64/ld-linux-x86-64.so.2"), &["/bin/sleep", "600"]),
    ];
    std::thread::sleep(Duration::from_millis(100));
    let mut host = LinuxHost::new(HostOptions::default()).expect("a machine");
    for _ in 0..4 {
        host.observe().expect("/proc");
    }
    for process in &processes {
        assert!(!host.vms().any(|vm: &RunningVm| vm.key.pid == process.pid()), "{process:?}");
    }
    // The shell's own child.
    for child in linux::process::descendants(processes[2].pid()).expect("/proc") {
        linux::sys::send_signal(child, 9).expect("ended");
    }
}
