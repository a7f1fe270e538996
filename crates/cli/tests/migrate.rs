//! `homenode vm migrate` between two directories of VMs that stand for two hosts, reached by a
//! program that stands for ssh. The firmware finds nothing to boot, and waits.

use crate::common::kept_vm::{DISK, KeptVm, two_nodes};
use crate::common::sshd::Sshd;
use crate::common::{inventory_in, newer_qemu, within_seconds, write_script};
use inventory::Inventory;
use qemu::RuntimeDir;
use std::path::{Path, PathBuf};
use std::process::Command;
use vm::history::{HandedOver, LifeEvent, UnixSeconds};
use vm::life::{State, Step};

/// Two hosts with one VM: `a` has the usual runtime directory.
pub(crate) struct Hosts(pub(crate) KeptVm);

impl Drop for Hosts {
    fn drop(&mut self) {
        // It may run at the other one, or have ended.
        let _ = self.homenode("b", &["vm", "stop", "--force", self.vm()]).output();
    }
}

impl Hosts {
    /// A VM that runs on `a`; `None` where there is no QEMU.
    pub(crate) fn with_vm(test: &str, label: &str) -> Option<Self> {
        Self::with_vm_that_has(test, label, "")
    }

    /// The same, with these lines in its spec too.
    fn with_vm_that_has(test: &str, label: &str, lines: &str) -> Option<Self> {
        let this = Self::of(KeptVm::new(test, label)?);
        this.0.write(&two_nodes(32), &format!("boot.from = \"disk\"\n{DISK}{lines}"));
        this.0.run();
        Some(this)
    }

    /// A VM that runs on `a` in the newer QEMU, where there is one.
    pub(crate) fn with_the_newer_qemu(test: &str, label: &str) -> Option<Self> {
        let newer = newer_qemu(test)?;
        let mut this = Self::of(KeptVm::new(test, label)?);
        this.0.qemu = Some(newer);
        this.0.write(&two_nodes(32), &format!("boot.from = \"disk\"\n{DISK}"));
        this.0.run();
        Some(this)
    }

    /// With a VM that was not started.
    pub(crate) fn of(vm: KeptVm) -> Self {
        let this = Self(vm);
        let path = |name: &str| this.0.place.path(name);
        std::fs::set_permissions(path("disk.img"), std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .expect("a mode");
        let program = env!("CARGO_BIN_EXE_homenode");
        let script = |other: &str| {
            let runtime = this.runtime(other).display().to_string();
            format!("shift; set -- $1; shift\nexec env HOMENODE_RUNTIME_DIR={runtime} {program} \"$@\"")
        };
        write_script(&path("to-b"), &script("b"));
        write_script(&path("to-a"), &script("a"));
        this
    }

    pub(crate) fn vm(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn runtime(&self, host: &str) -> PathBuf {
        if host == "a" { self.0.place.runtime() } else { self.0.place.path(host) }
    }

    pub(crate) fn inventory(&self, host: &str) -> Inventory {
        inventory_in(&self.runtime(host))
    }

    pub(crate) fn homenode(&self, host: &str, arguments: &[&str]) -> Command {
        let other = if host == "a" { "to-b" } else { "to-a" };
        let mut command = self.0.command_in(&self.runtime(host), arguments);
        command.env("HOMENODE_SSH", self.0.place.path(other));
        command
    }

    /// What homenode says on a host; it must end with this exit code.
    pub(crate) fn says(&self, host: &str, arguments: &[&str], code: i32) -> String {
        let output = self.homenode(host, arguments).output().expect("homenode");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    }

    pub(crate) fn state(&self, host: &str) -> Option<State> {
        self.inventory(host).read(self.vm()).ok().map(|record| record.life.state)
    }

    /// Whether a guest is on a host, and runs.
    pub(crate) fn runs(&self, host: &str) -> Option<bool> {
        let directory = RuntimeDir::at(self.runtime(host)).expect("a runtime directory");
        let mut said = None;
        // On a busy machine a monitor that is there may take longer than a look waits.
        within_seconds(30, || {
            said = qemu::background::vcpus_run(&directory, self.vm());
            said.is_some() || qemu::background::pid(&directory, self.vm()).is_none()
        });
        said
    }

    /// Processes whose arguments are so.
    pub(crate) fn processes(&self, are: impl Fn(&[String]) -> bool) -> Vec<u32> {
        let all = linux::process::all().expect("/proc");
        all.into_iter().filter(|&pid| linux::process::command_line(pid).is_ok_and(|words| are(&words))).collect()
    }

    pub(crate) fn qemus(&self) -> Vec<u32> {
        let named = format!("{},", self.vm());
        self.processes(|words| words.windows(2).any(|pair| pair[0] == "-name" && pair[1].starts_with(&named)))
    }

    /// What is on a host beside its VM and what is kept of it.
    pub(crate) fn left(&self, host: &str) -> Vec<String> {
        let names = |path: &Path| {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let runtime = self.runtime(host);
        let mut left = names(&runtime);
        left.extend(names(&runtime.join(".vms")));
        left.retain(|name| ![".homenode-runtime", ".vms", self.vm()].contains(&name.as_str()));
        left
    }

    pub(crate) fn nothing_else_is_left(&self) {
        assert!(within_seconds(10, || self.qemus().len() == 1), "{} QEMUs", self.qemus().len());
        assert_eq!((self.left("a"), self.left("b")), (vec![], vec![]));
    }
}

#[test]
fn a_vm_gets_another_home_on_its_own_host() {
    let Some(hosts) = Hosts::with_vm("a_vm_gets_another_home_on_its_own_host", "migrate-here") else { return };
    let said = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "unix:"], 0);
    assert!(said.contains("runs on") && said.contains("stood still for"), "{said}");
    // Of which most is another QEMU's start.
    assert!(said.contains("until a QEMU was ready there: ") && !said.contains("of it 0.00 s"), "{said}");
    assert_eq!((hosts.runs("a"), hosts.state("a")), (Some(true), Some(State::Running)));
    let record = hosts.inventory("a").read(hosts.vm()).expect("a record");
    let last = record.life.history.last().map(|chapter| &chapter.event);
    assert!(matches!(last, Some(LifeEvent::Arrived { .. })), "{last:?}");
    hosts.nothing_else_is_left();
}

#[test]
fn a_vm_goes_to_another_host_and_comes_back() {
    let Some(hosts) = Hosts::with_vm("a_vm_goes_to_another_host_and_comes_back", "migrate-there") else { return };
    let topology = hosts.inventory("a").read(hosts.vm()).expect("a record").topology;
    let nowhere = hosts.says("a", &["vm", "migrate", hosts.vm()], 2);
    assert!(["--to HOST", "--to unix:", "--resolve"].iter().all(|word| nowhere.contains(word)), "{nowhere}");
    let refused = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "b"], 2);
    assert!(refused.contains("--shared-storage"), "{refused}");
    let dry = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage", "--dry-run"], 0);
    assert!(dry.contains("would live on") && dry.contains("64 MiB"), "{dry}");
    assert_eq!((hosts.runs("a"), hosts.state("a"), hosts.qemus().len()), (Some(true), Some(State::Running), 1));
    hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage"], 0);
    assert_eq!((hosts.runs("a"), hosts.state("a")), (None, None));
    assert_eq!((hosts.runs("b"), hosts.state("b")), (Some(true), Some(State::Running)));
    hosts.nothing_else_is_left();
    hosts.says("b", &["vm", "migrate", hosts.vm(), "--to", "a", "--shared-storage"], 0);
    assert_eq!((hosts.runs("a"), hosts.runs("b")), (Some(true), None));
    let record = hosts.inventory("a").read(hosts.vm()).expect("a record");
    assert_eq!(record.topology, topology, "what the guest sees is the same for life");
    let arrivals = record.life.history.iter().filter(|chapter| matches!(chapter.event, LifeEvent::Arrived { .. }));
    assert_eq!(arrivals.count(), 2);
    hosts.nothing_else_is_left();
}

/// A real ssh gives the program pipes, and waits for ever in a read of one that was spliced into.
#[test]
fn a_vm_goes_through_a_real_ssh() {
    const TEST: &str = "a_vm_goes_through_a_real_ssh";
    let Some(sshd) = Sshd::start(TEST) else { return };
    let Some(hosts) = Hosts::with_vm(TEST, "migrate-ssh") else { return };
    let (runtime, program) = (hosts.runtime("b").display().to_string(), env!("CARGO_BIN_EXE_homenode"));
    let there = format!("env -u HOMENODE_STATE_DIR HOMENODE_RUNTIME_DIR={runtime} {program}");
    write_script(&hosts.0.place.path("to-b"), &format!("shift; set -- $1; shift\n{} \"{there} $*\"", sshd.exec()));
    let arguments = ["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage", "--timeout", "60"];
    hosts.says("a", &arguments, 0);
    assert_eq!((hosts.runs("a"), hosts.runs("b")), (None, Some(true)));
    hosts.nothing_else_is_left();
}

#[test]
fn a_paused_vm_goes_and_comes_back_paused() {
    let Some(hosts) = Hosts::with_vm("a_paused_vm_goes_and_comes_back_paused", "migrate-paused") else { return };
    hosts.says("a", &["vm", "pause", hosts.vm()], 0);
    for (from, to) in [("a", "b"), ("b", "a")] {
        hosts.says(from, &["vm", "migrate", hosts.vm(), "--to", to, "--shared-storage"], 0);
        assert_eq!((hosts.runs(to), hosts.state(to)), (Some(false), Some(State::Paused)));
    }
    hosts.says("a", &["vm", "continue", hosts.vm()], 0);
    assert_eq!(hosts.runs("a"), Some(true));
    hosts.nothing_else_is_left();
}

#[test]
fn a_vm_whose_ports_are_taken_here_keeps_its_home_here() {
    const TEST: &str = "a_vm_whose_ports_are_taken_here_keeps_its_home_here";
    // A port that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let card = format!("[[network]]\nkind = \"user\"\nforward = [{{ host = {port}, guest = 22 }}]\n");
    let Some(hosts) = Hosts::with_vm_that_has(TEST, "migrate-port", &card) else { return };
    let said = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "unix:"], 2);
    assert!(said.contains("its ports of this host"), "{said}");
    assert_eq!((hosts.runs("a"), hosts.state("a")), (Some(true), Some(State::Running)));
}

#[test]
fn what_answers_instead_of_homenode_is_shown_and_a_guest_that_is_nowhere_is_lost() {
    let Some(hosts) =
        Hosts::with_vm("what_answers_instead_of_homenode_is_shown_and_a_guest_that_is_nowhere_is_lost", "migrate-odd")
    else {
        return;
    };
    let there = std::fs::read_to_string(hosts.0.place.path("to-b")).expect("a script");
    let hello = r#"{"hello":{"version":7,"homenode":"9.9","host":"b","boot":"","runtime":"/","inventory":"/"}}"#;
    let hear = "read hello\n";
    for (script, code, words) in [
        // It ends before anything was said to it.
        ("exit 3".to_owned(), 1, "see what `ssh HOST homenode --version` prints"),
        (format!("{hear}exit 3"), 1, "the connection was closed"),
        (format!("{hear}echo 'Welcome to b'"), 1, "\"Welcome to b\""),
        (format!("{hear}echo '{hello}'"), 2, "on both hosts"),
    ] {
        write_script(&hosts.0.place.path("to-b"), &script);
        let said = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage"], code);
        assert!(said.contains(words), "{said}");
        assert_eq!((hosts.runs("a"), hosts.state("a")), (Some(true), Some(State::Running)));
    }
    write_script(&hosts.0.place.path("to-b"), there.split_once('\n').map_or("", |(_, commands)| commands));
    // Handed over, and then both ends were killed.
    let mut held = hosts.inventory("a").hold(hosts.vm()).expect("held");
    held.step(Step::Send, None, UnixSeconds(1)).expect("a step");
    let handed_over = HandedOver { to: "b".to_owned(), receipt: "7".repeat(32), placement: None };
    held.change_life(|life| life.handed_over = Some(handed_over)).expect("written");
    drop(held);
    let directory = RuntimeDir::at(hosts.runtime("a")).expect("a runtime directory");
    let pid = qemu::background::pid(&directory, hosts.vm()).expect("a process");
    linux::sys::send_signal(pid, libc::SIGKILL).expect("a signal");
    assert!(within_seconds(10, || hosts.qemus().is_empty()));
    let said = hosts.says("a", &["vm", "migrate", hosts.vm(), "--resolve"], 1);
    assert!(said.contains("it is lost") && !said.contains("goes on"), "{said}");
    assert_eq!(hosts.state("a"), Some(State::Lost));
}

/// It was exit code 1, and the VM's record told of a migration that had failed.
#[test]
fn memory_that_may_not_follow_is_bad_input_and_changes_nothing() {
    const TEST: &str = "memory_that_may_not_follow_is_bad_input_and_changes_nothing";
    let permitted = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    if !permitted.is_ok_and(|permitted| permitted.trim() == "0") {
        return println!("SKIPPED {TEST}: every user may use userfaultfd here");
    }
    let Some(hosts) = Hosts::with_vm(TEST, "migrate-no-userfaultfd") else { return };
    let before = hosts.0.record();
    let said = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage", "--postcopy"], 2);
    assert!(said.contains("userfaultfd") && said.contains("leave --postcopy out"), "{said}");
    assert_eq!((hosts.0.record(), hosts.runs("a"), hosts.state("b")), (before, Some(true), None));
    hosts.nothing_else_is_left();
}
