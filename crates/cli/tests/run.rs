//! `homenode run` and `homenode vm` as a user meets them, with a real QEMU. The firmware finds
//! nothing to boot, and waits.

use crate::common::{Place, left_in, no_qemu, qemu_of, within_seconds};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

impl Place {
    /// A spec of a VM that boots an empty disk, with `more` lines.
    fn spec(&self, vm: &str, more: &str) -> PathBuf {
        let path = self.path(&format!("{vm}.toml"));
        let text = format!(
            "name = \"{vm}\"\nvcpus = 2\nmemory = \"64 MiB\"\nboot.from = \"disk\"\nconsole = \
            {{ to = \"file\", path = \"{vm}.log\" }}\n{more}\n[[disk]]\npath = \"disk.img\"\nformat = \
            \"raw\"\nread_only = true\n"
        );
        std::fs::write(&path, text).expect("a spec");
        path
    }

    fn homenode(&self, arguments: &[&str]) -> Command {
        crate::common::homenode_in(&self.runtime(), arguments)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.homenode(arguments).output().expect("homenode")
    }
}

/// A name that no other run of these tests has.
fn vm(label: &str) -> String {
    format!("cli-{label}-{}", std::process::id())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An attached VM, running and at home.
fn attached(place: &Place, vm: &str) -> (Child, u32) {
    let spec = place.spec(vm, "");
    let mut child = place.homenode(&["run", text(&spec)]).stderr(Stdio::piped()).spawn().expect("homenode");
    let mut errors = child.stderr.take().expect("a pipe");
    let mut said = String::new();
    let mut chunk = [0u8; 512];
    // The table is the last thing that it says before it waits.
    while !said.contains("read back") {
        let count = std::io::Read::read(&mut errors, &mut chunk).expect("standard error");
        assert!(count > 0, "homenode ended: {said}");
        said.push_str(&String::from_utf8_lossy(&chunk[..count]));
    }
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    let pid = qemu_of(vm).expect("a QEMU of this name");
    (child, pid)
}

fn signal(child: &Child, signal: i32) {
    linux::sys::send_signal(child.id(), signal).expect("a signal");
}

#[test]
fn a_killed_homenode_leaves_nothing() {
    if no_qemu("a_killed_homenode_leaves_nothing") {
        return;
    }
    let place = Place::new();
    let (mut child, _) = attached(&place, &vm("kill"));
    signal(&child, libc::SIGKILL);
    child.wait().expect("the end");
    assert!(within_seconds(60, || qemu_of(&vm("kill")).is_none()), "a stray QEMU");
    assert_eq!(left_in(&place.runtime()), [""; 0]);
}

#[test]
fn ctrl_c_and_sigterm_end_the_vm() {
    if no_qemu("ctrl_c_and_sigterm_end_the_vm") {
        return;
    }
    let place = Place::new();
    for number in [libc::SIGINT, libc::SIGTERM] {
        let (mut child, _) = attached(&place, &vm("signal"));
        signal(&child, number);
        assert!(child.wait().expect("the end").success());
        assert_eq!(qemu_of(&vm("signal")), None);
    }
}

#[test]
fn a_killed_qemu_is_reported() {
    if no_qemu("a_killed_qemu_is_reported") {
        return;
    }
    let place = Place::new();
    let (mut child, qemu) = attached(&place, &vm("killed-qemu"));
    linux::sys::send_signal(qemu, libc::SIGKILL).expect("a signal");
    assert_eq!(child.wait().expect("the end").code(), Some(1));
}

#[test]
fn a_background_vm_is_listed_refused_twice_and_stopped() {
    if no_qemu("a_background_vm_is_listed_refused_twice_and_stopped") {
        return;
    }
    let place = Place::new();
    let spec = place.spec(&vm("daemon"), "");
    let started = place.output(&["run", text(&spec), "--daemonize", "--json"]);
    assert!(started.status.success(), "{}", stderr(&started));
    let residence: vm::Residence = serde_json::from_slice(&started.stdout).expect("a residence");
    assert_eq!(residence.vcpus.len(), 2);

    let listed = stdout(&place.output(&["vm", "list", "--json"]));
    let vms: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(
        (&vms["vms"][0]["name"], &vms["vms"][0]["qemu"]["pid"]),
        (&vm("daemon").into(), &residence.pid.into()),
        "{listed}"
    );
    assert!(vms["vms"][0]["uptime_seconds"].as_f64().is_some_and(|seconds| seconds < 300.0), "{listed}");
    assert!(stdout(&place.output(&["vm", "list"])).contains(&vm("daemon")));

    let again = place.output(&["run", text(&spec), "--daemonize"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("a VM of this name runs already"), "{}", stderr(&again));

    let stopped = place.output(&["vm", "stop", &vm("daemon"), "--force"]);
    assert!(stopped.status.success(), "{}", stderr(&stopped));
    assert_eq!(qemu_of(&vm("daemon")), None);
    assert!(stdout(&place.output(&["vm", "list"])).contains("stopped"));
    assert_eq!(left_in(&place.runtime()), [""; 0]);
}

#[test]
fn a_background_vm_whose_qemu_was_killed_is_cleaned_up_and_said() {
    if no_qemu("a_background_vm_whose_qemu_was_killed_is_cleaned_up_and_said") {
        return;
    }
    let place = Place::new();
    let spec = place.spec(&vm("stale"), "");
    assert!(place.output(&["run", text(&spec), "--daemonize"]).status.success());
    linux::sys::send_signal(qemu_of(&vm("stale")).expect("a QEMU"), libc::SIGKILL).expect("a signal");
    assert!(within_seconds(60, || qemu_of(&vm("stale")).is_none()));
    // The kernel gives up the lock a moment after the process is gone.
    let cleaned = || {
        stderr(&place.output(&["vm", "list"]))
            .contains(&format!("VM {} has ended; what it left was removed", vm("stale")))
    };
    assert!(within_seconds(60, cleaned));
    let missing = place.output(&["vm", "stop", &vm("stale")]);
    assert_eq!(missing.status.code(), Some(2));
    let refused = format!("VM {}: it is lost: it can be started, or deleted", vm("stale"));
    assert!(stderr(&missing).contains(&refused), "{}", stderr(&missing));
}

#[test]
fn a_start_that_was_cut_short_is_ended_by_the_next_look() {
    if no_qemu("a_start_that_was_cut_short_is_ended_by_the_next_look") {
        return;
    }
    let place = Place::new();
    let spec = place.spec(&vm("half"), "");
    let mut child =
        place.homenode(&["run", text(&spec), "--daemonize"]).stderr(Stdio::null()).spawn().expect("homenode");
    assert!(within_seconds(60, || qemu_of(&vm("half")).is_some()));
    signal(&child, libc::SIGKILL);
    child.wait().expect("the end");
    // Whether the kill came before the start was complete or after it: what is listed runs, and
    // nothing else does.
    let listed = stdout(&place.output(&["vm", "list"])).contains(&vm("half"));
    if listed {
        eprintln!("the start was complete before it was killed");
        assert!(place.output(&["vm", "stop", &vm("half"), "--force"]).status.success());
    }
    assert!(within_seconds(60, || qemu_of(&vm("half")).is_none()), "a stray QEMU");
}

/// A spec that boots the tiny guest; `None` where it was not built.
fn tiny_guest(place: &Place, test: &str, name: &str, kernel: &str) -> Option<PathBuf> {
    crate::common::tiny_guest(test)?;
    let path = place.path(&format!("{name}.toml"));
    let nodes = "{ vcpus = 1, memory = \"192 MiB\" }, { vcpus = 1, memory = \"192 MiB\" }";
    let head = format!("name = \"{name}\"\nvcpus = 2\nmemory = \"384 MiB\"\npolicy.virtual_nodes = [{nodes}]\n");
    std::fs::write(&path, format!("{head}boot = {{ from = \"tiny_guest\"{kernel} }}\n")).expect("a spec");
    Some(path)
}

#[test]
fn a_guest_sees_the_nodes_that_were_planned() {
    let test = "a_guest_sees_the_nodes_that_were_planned";
    let place = Place::new();
    let Some(spec) = tiny_guest(&place, test, &vm("check"), "").filter(|_| !no_qemu(test)) else { return };
    let output = place.output(&["run", text(&spec), "--check"]);
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    let seen = said.split_once("the guest sees:").expect("both reports").1;
    assert!(seen.contains("node 1: CPUs 1") && seen.contains("2 sockets"), "{said}");
    assert_eq!(qemu_of(&vm("check")), None);
}

#[test]
fn a_signal_ends_a_check() {
    let test = "a_signal_ends_a_check";
    let place = Place::new();
    let name = vm("check-signal");
    let Some(spec) = tiny_guest(&place, test, &name, "").filter(|_| !no_qemu(test)) else { return };
    let mut child = place.homenode(&["run", text(&spec), "--check"]).stderr(Stdio::null()).spawn().expect("homenode");
    assert!(within_seconds(60, || qemu_of(&name).is_some()));
    // Whether the guest boots already or QEMU only fills its memory.
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().expect("the end").code(), Some(1));
    assert!(within_seconds(60, || qemu_of(&name).is_none()), "a stray QEMU");
    assert_eq!(left_in(&place.runtime()), [""; 0]);
}

#[test]
fn a_file_that_is_no_kernel_is_said() {
    let test = "a_file_that_is_no_kernel_is_said";
    let place = Place::new();
    let kernel = ", kernel = \"disk.img\"";
    let Some(spec) = tiny_guest(&place, test, &vm("nokernel"), kernel).filter(|_| !no_qemu(test)) else { return };
    let output = place.output(&["run", text(&spec)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("disk.img is not a kernel"), "{}", stderr(&output));
}

#[test]
fn bad_specs_are_bad_input_and_name_file_and_field() {
    let place = Place::new();
    let cases = [
        ("speed = 3", "speed"),
        ("policy.vnuma = \"yes\"", "vnuma"),
        ("policy.max_vcpus_per_node = -1", "max_vcpus_per_node"),
        ("boot.kernel = \"bzImage\"", "`kernel`"),
        ("boot.firmware = \"OVMF.fd\"", "`OVMF.fd`"),
    ];
    for (line, field) in cases {
        let spec = place.spec(&vm("bad"), line);
        let output = place.output(&["run", text(&spec)]);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(&format!("{}.toml", vm("bad"))) && stderr(&output).contains(field),
            "{}",
            stderr(&output)
        );
    }
    let output = place.output(&["run", "/no/such/vm.toml"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_console_that_cannot_be_written_is_bad_input_and_starts_nothing() {
    if no_qemu("a_console_that_cannot_be_written_is_bad_input_and_starts_nothing") {
        return;
    }
    let place = Place::new();
    let name = vm("console");
    let spec = place.spec(&name, "");
    std::fs::create_dir(place.path(&format!("{name}.log"))).expect("a directory");
    for more in [&[][..], &["--daemonize"]] {
        let output = place.homenode(&["run", text(&spec)]).args(more).output().expect("homenode");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("console.path") && said.contains("irectory"), "{said}");
        assert_eq!(left_in(&place.runtime()), [""; 0]);
    }
}

#[test]
fn a_runtime_directory_that_cannot_be_used_is_named_once() {
    let place = Place::new();
    let spec = place.spec(&vm("nowhere"), "");
    for directory in ["/dev/null", "relative"] {
        for arguments in [&["vm", "list"][..], &["run", text(&spec)]] {
            let mut command = place.homenode(arguments);
            let output = command.env("HOMENODE_RUNTIME_DIR", directory).output().expect("homenode");
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.starts_with(&format!("homenode: cannot use {directory}")), "{said}");
            assert_eq!(said.matches("(os error").count(), usize::from(directory != "relative"), "{said}");
        }
    }
}

#[test]
fn a_home_directory_that_is_named_as_the_runtime_directory_keeps_its_folders() {
    let place = Place::new();
    let spec = place.spec(&vm("home"), "");
    let home = place.path("home");
    for folder in [".ssh", "documents"] {
        std::fs::create_dir_all(home.join(folder)).expect("a folder");
    }
    for arguments in [&["vm", "list"][..], &["vm", "stop", "documents"], &["run", text(&spec)]] {
        let output = place.homenode(arguments).env("HOMENODE_RUNTIME_DIR", &home).output().expect("homenode");
        let said = stderr(&output);
        assert!(said.contains("did not make"), "{said}");
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(home.join(".ssh").is_dir() && home.join("documents").is_dir());
    }
}

#[test]
fn a_program_that_is_no_qemu_is_said_to_have_ended() {
    let place = Place::new();
    let spec = place.spec(&vm("notqemu"), "");
    for more in [&[][..], &["--daemonize"]] {
        let mut command = place.homenode(&["run", text(&spec)]);
        let output = command.args(more).env("HOMENODE_QEMU", "/bin/true").output().expect("homenode");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("QEMU ended (exit status: 0)"), "{said}");
    }
}

#[test]
fn arguments_that_would_do_nothing_are_refused() {
    let place = Place::new();
    let spec = place.spec(&vm("idle"), "");
    for more in [["--check", "--json"], ["--dry-run", "--json"], ["--dry-run", "--daemonize"]] {
        let output = place.homenode(&["run", text(&spec)]).args(more).output().expect("homenode");
        assert_eq!(output.status.code(), Some(2), "{more:?}");
    }
}

#[test]
fn a_missing_disk_is_bad_input() {
    let place = Place::new();
    let spec = place.spec(&vm("nodisk"), "");
    std::fs::remove_file(place.path("disk.img")).expect("the image was there");
    let output = place.output(&["run", text(&spec), "--dry-run"]);
    let said = stderr(&output);
    if said.contains("no QEMU") {
        return eprintln!("SKIPPED a_missing_disk_is_bad_input: {said}");
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("disk[0].path") && said.contains("disk.img"), "{said}");
}

#[test]
fn no_qemu_says_what_was_looked_for_and_what_to_install() {
    let place = Place::new();
    let spec = place.spec(&vm("noqemu"), "");
    let output = place.homenode(&["run", text(&spec)]).env("PATH", "/no/bin").output().expect("homenode");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("`qemu-system-x86_64` is in no directory of PATH") && said.contains("Debian package"),
        "{said}"
    );
}

#[test]
fn a_dry_run_prints_a_command_and_starts_nothing() {
    if no_qemu("a_dry_run_prints_a_command_and_starts_nothing") {
        return;
    }
    let place = Place::new();
    let spec = place.spec(&vm("dry"), "");
    let output = place.output(&["run", text(&spec), "--dry-run"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in ["-smp 2,sockets=1", "memory-backend-ram,id=vnode0,size=64M", "-chardev stdio,id=console"] {
        assert!(stdout(&output).contains(part), "{part} in {}", stdout(&output));
    }
    assert_eq!(qemu_of(&vm("dry")), None);
}
