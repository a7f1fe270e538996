//! Processes of other users that say they are somebody's domain: libvirt moves nothing for them,
//! and no socket of theirs is spoken to.

use crate::affinity::{PATIENCE, asked, start, uuid};
use crate::libvirtd::Libvirtd;
use libvirt::LocalLibvirt;
use linux::host::{AffinityManager, Managed};
use linux::sys::effective_user_id;
use linux::vm::RunningVm;
use linux::{Root, process};
use scheduler::VmKey;
use std::fs::{Permissions, create_dir_all, set_permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use topology::CpuSet;
use vm::{Manager, Origin};

/// A user that no machine has, neither root nor whom the test's libvirt runs as.
const STRANGER: u32 = 65_533;
const OTHER_DOMAIN: &str = "other";

/// A directory that looks like libvirt's own, of the stranger's where we are root.
fn directory(test: &str) -> tempfile::TempDir {
    let directory = tempfile::Builder::new().prefix("hnattack").tempdir().expect("a directory");
    for part in ["", "libvirt", "libvirt/qemu", "libvirt/qemu/run"] {
        let path = directory.path().join(part);
        create_dir_all(&path).expect("a directory");
        if effective_user_id() == 0 {
            chown(&path, Some(STRANGER), Some(STRANGER)).expect("an owner");
        }
    }
    if effective_user_id() != 0 {
        eprintln!("SKIPPED {test}: not root, so that the attacker is the same user");
    }
    directory
}

/// A program with `directory/libvirt/qemu/run/NAME.pid` open, which holds its number: it ends with
/// the value.
struct Impostor(Child);

impl Impostor {
    fn start(directory: &Path, name: &str, program: &[&str]) -> Self {
        let mut command = Command::new(if effective_user_id() == 0 { "setpriv" } else { "env" });
        if effective_user_id() == 0 {
            command.args([&format!("--reuid={STRANGER}"), &format!("--regid={STRANGER}"), "--clear-groups", "--"]);
        }
        command.args(["sh", "-c", "exec 5>\"$0\"; echo $$ >&5; exec \"$@\""]);
        command.arg(pid_file(directory, name)).args(program);
        Self(command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("setpriv"))
    }

    /// Waits until it is the program, and not the shell.
    fn is(&self, program: &str) {
        wait(|| process::command_line(self.0.id()).ok()?.first()?.ends_with(program).then_some(()));
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pid_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("libvirt/qemu/run/{name}.pid"))
}

fn wait<T>(found: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that says that it is a VM of libvirt's.
fn claimant(name: &str, pid: u32) -> RunningVm {
    RunningVm {
        key: VmKey { name: name.to_owned(), pid, started: 1 },
        uuid: Some(uuid("4")),
        origin: Origin { manager: Manager::Libvirt, ..Origin::default() },
        ..RunningVm::default()
    }
}

fn refused(manager: &AffinityManager, vm: &RunningVm, cpus: &CpuSet) -> String {
    manager(vm, Managed::Vcpus(&[0, 1]), cpus)
        .expect("it says that it is libvirt's")
        .expect_err("it is not")
        .to_string()
}

#[test]
fn another_users_process_moves_nobodys_domain() {
    let test = "another_users_process_moves_nobodys_domain";
    let Some(libvirtd) = Libvirtd::start(test) else { return };
    let name = format!("victim-{}", std::process::id());
    let victim_uuid = uuid("2");
    start(&libvirtd, &name, &victim_uuid);
    let victim = libvirt::local_process(&victim_uuid).expect("/proc").expect("the victim's QEMU");
    let affinity = || {
        let of = |vcpu: &linux::vm::VcpuThread| linux::sys::affinity(vcpu.thread_id).expect("an affinity");
        victim.threads.vcpus.iter().map(of).collect::<Vec<CpuSet>>()
    };
    let all = affinity();
    let one: CpuSet = all[0].iter().take(1).collect();

    let directory = directory(test);
    symlink(libvirtd.socket(), directory.path().join("libvirt/libvirt-sock")).expect("a link");
    let named = format!("guest={name},debug-threads=on");
    let monitor = format!("socket,id=charmonitor,path={},server=on,wait=off", directory.path().join("m").display());
    let qemu = ["qemu-system-x86_64", "-S", "-nodefaults", "-no-user-config", "-display", "none", "-smp", "2"];
    let says = ["-m", "32", "-accel", "tcg", "-name", &named, "-uuid", &victim_uuid, "-chardev", &monitor];
    let impostor = Impostor::start(directory.path(), &name, &[&qemu[..], &says[..]].concat());
    let seen = wait(|| {
        let vm = RunningVm::examine(&Root::default(), impostor.0.id()).ok().flatten()?;
        (vm.threads.vcpus.len() == 2).then_some(vm)
    });
    assert!(seen.origin.manager.is_libvirt() && seen.uuid == victim.uuid && seen.key.name == victim.key.name);
    let why = refused(&libvirt::affinity_manager(), &seen, &one);
    assert_eq!(affinity(), all, "{why}");

    // The same where the libvirt that is asked is the victim's.
    let manager = libvirt::affinity_manager_of(asked(&libvirtd), PATIENCE);
    let why = refused(&manager, &seen, &one);
    assert!(why.contains(&format!("{name}.pid holds another process's number")), "{why}");
    assert!(libvirt::pins_of(&asked(&libvirtd), [&seen]).is_empty());
    let found = libvirt::local_process_of(&asked(&libvirtd), &victim_uuid).expect("/proc");
    assert_eq!(found.expect("the victim's QEMU").key, victim.key);
    // A QEMU of libvirt's that was taken over can say that it is another domain.
    let other = uuid("3");
    let xml = format!(
        "<domain type='qemu'><name>{OTHER_DOMAIN}</name><uuid>{other}</uuid><memory>4096</memory>\
         <os><type arch='x86_64'>hvm</type></os></domain>"
    );
    libvirt::Connection::new(Some(&libvirtd.uri())).define(&xml).expect("a definition");
    let taken_over = RunningVm { uuid: Some(other), ..victim.clone() };
    let why = refused(&manager, &taken_over, &one);
    assert!(why.ends_with(&format!("says that its UUID is that of {OTHER_DOMAIN}")), "{why}");
    assert!(libvirt::pins_of(&asked(&libvirtd), [&taken_over]).is_empty());
    assert_eq!(affinity(), all);
    // The victim itself is bound.
    manager(&victim, Managed::Vcpus(&[0, 1]), &one).expect("it is libvirt's").expect("libvirt binds it");
    assert_eq!(affinity(), [one.clone(), one]);
}

#[test]
fn sockets_of_others_are_not_spoken_to() {
    let test = "sockets_of_others_are_not_spoken_to";
    let manager = libvirt::affinity_manager();
    let cpus: CpuSet = "0".parse().expect("a CPU");
    let programs = tempfile::tempdir().expect("a directory");
    set_permissions(programs.path(), Permissions::from_mode(0o755)).expect("permissions");
    let setuid = setuid_shell(programs.path());
    let mut listeners = Vec::new();
    let begun = Instant::now();
    for number in 0..4 {
        let directory = directory(test);
        let name = format!("silent-{number}-{}", std::process::id());
        let listener = UnixListener::bind(directory.path().join("libvirt/libvirt-sock")).expect("a socket");
        listener.set_nonblocking(true).expect("a socket that does not block");
        // A setuid program that the stranger starts through a link counts as root's by its file.
        let program = if number == 0 { setuid.as_path() } else { Path::new("/bin/sh") };
        let link = directory.path().join("qemu-system-x86_64");
        symlink(program, &link).expect("a link");
        let link = link.to_str().expect("UTF-8");
        let impostor = Impostor::start(directory.path(), &name, &[link, "-p", "-c", "read wait"]);
        impostor.is("qemu-system-x86_64");
        if number == 0 && effective_user(impostor.0.id()) != Some(0) {
            eprintln!("SKIPPED a part of {test}: no setuid program here (not root, or mounted without)");
        }
        let why = refused(&manager, &claimant(&name, impostor.0.id()), &cpus);
        assert!(why.starts_with("no libvirt that is asked says that it has this process"), "{why}");
        let connected = listener.accept().expect_err("nobody may come");
        assert_eq!(connected.kind(), ErrorKind::WouldBlock);
        listeners.push((directory, listener, impostor));
    }
    // One silent libvirt that was waited for would have taken 10 s.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

fn effective_user(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

/// Set where this program runs as the stranger, to the directory that is closed to him.
const CLOSED: &str = "HOMENODE_TEST_CLOSED";

#[test]
fn what_cannot_be_read_is_a_no() {
    let test = "what_cannot_be_read_is_a_no";
    if let Some(pid_files) = std::env::var_os(CLOSED) {
        let closed = LocalLibvirt { uri: "test:///default".to_owned(), pid_files: pid_files.into(), user: 0 };
        let manager = libvirt::affinity_manager_of(vec![closed], PATIENCE);
        let why = refused(&manager, &claimant("web", std::process::id()), &"0".parse().expect("a CPU"));
        assert!(why.contains("web.pid: Permission denied"), "{why}");
        return;
    }
    if effective_user_id() != 0 {
        return eprintln!("SKIPPED {test}: not root");
    }
    let directory = tempfile::tempdir().expect("a directory");
    set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("permissions");
    let program = directory.path().join("program");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    let closed = directory.path().join("closed");
    create_dir_all(closed.join("qemu")).expect("a directory");
    set_permissions(&closed, Permissions::from_mode(0o700)).expect("permissions");
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={STRANGER}"), &format!("--regid={STRANGER}"), "--clear-groups", "--"]);
    command.arg(program).args(["--exact", "attack::what_cannot_be_read_is_a_no"]);
    let output = command.env(CLOSED, closed.join("qemu")).output().expect("setpriv");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// A shell with root's user as its own, where we are root; else any.
fn setuid_shell(directory: &Path) -> PathBuf {
    let copy = directory.join("shell");
    std::fs::copy("/bin/sh", &copy).expect("a copy");
    set_permissions(&copy, Permissions::from_mode(0o4755)).expect("permissions");
    copy
}
