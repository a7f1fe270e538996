//! `homenode vm migrate` between two directories of VMs that stand for two hosts, reached by a
//! program that stands for ssh. The firmware finds nothing to boot, and waits.

use crate::common::kept_vm::{DISK, Drawn, KeptVm, two_nodes};
use crate::common::sshd::Sshd;
use crate::common::{inventory_in, within_seconds, write_script};
use inventory::Inventory;
use qemu::RuntimeDir;
use qemu::migration::Outgoing;
use std::path::{Path, PathBuf};
use std::process::Command;
use vm::history::{HandedOver, LifeEvent, UnixSeconds};
use vm::life::{State, Step};

/// Two hosts with one VM: `a` has the usual runtime directory.
struct Hosts(KeptVm);

impl Drop for Hosts {
    fn drop(&mut self) {
        // It may run at the other one, or have ended.
        let _ = self.homenode("b", &["vm", "stop", "--force", self.vm()]).output();
    }
}

impl Hosts {
    /// A VM that runs on `a`; `None` where there is no QEMU.
    fn with_vm(test: &str, label: &str) -> Option<Self> {
        Self::with_vm_that_has(test, label, "")
    }

    /// The same, with these lines in its spec too.
    fn with_vm_that_has(test: &str, label: &str, lines: &str) -> Option<Self> {
        let this = Self(KeptVm::new(test, label)?);
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
        this.0.write(&two_nodes(32), &format!("boot.from = \"disk\"\n{DISK}{lines}"));
        this.0.run();
        Some(this)
    }

    fn vm(&self) -> &str {
        &self.0.name
    }

    fn runtime(&self, host: &str) -> PathBuf {
        if host == "a" { self.0.place.runtime() } else { self.0.place.path(host) }
    }

    fn inventory(&self, host: &str) -> Inventory {
        inventory_in(&self.runtime(host))
    }

    fn homenode(&self, host: &str, arguments: &[&str]) -> Command {
        let other = if host == "a" { "to-b" } else { "to-a" };
        let mut command = self.0.command_in(&self.runtime(host), arguments);
        command.env("HOMENODE_SSH", self.0.place.path(other));
        command
    }

    /// What homenode says on a host; it must end with this exit code.
    fn says(&self, host: &str, arguments: &[&str], code: i32) -> String {
        let output = self.homenode(host, arguments).output().expect("homenode");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    }

    fn state(&self, host: &str) -> Option<State> {
        self.inventory(host).read(self.vm()).ok().map(|record| record.life.state)
    }

    /// Whether a guest is on a host, and runs.
    fn runs(&self, host: &str) -> Option<bool> {
        let directory = RuntimeDir::at(self.runtime(host)).expect("a runtime directory");
        Outgoing::connect(&directory, self.vm()).ok().and_then(|mut vm| vm.runs().ok())
    }

    /// Processes whose arguments are so.
    fn processes(&self, are: impl Fn(&[String]) -> bool) -> Vec<u32> {
        let all = linux::process::all().expect("/proc");
        all.into_iter().filter(|&pid| linux::process::command_line(pid).is_ok_and(|words| are(&words))).collect()
    }

    fn qemus(&self) -> Vec<u32> {
        let named = format!("{},", self.vm());
        self.processes(|words| words.windows(2).any(|pair| pair[0] == "-name" && pair[1].starts_with(&named)))
    }

    /// What is on a host beside its VM and what is kept of it.
    fn left(&self, host: &str) -> Vec<String> {
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

    fn nothing_else_is_left(&self) {
        assert!(within_seconds(10, || self.qemus().len() == 1), "{} QEMUs", self.qemus().len());
        assert_eq!((self.left("a"), self.left("b")), (vec![], vec![]));
    }
}

#[test]
fn a_vm_gets_another_home_on_its_own_host() {
    let Some(hosts) = Hosts::with_vm("a_vm_gets_another_home_on_its_own_host", "migrate-here") else { return };
    let said = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "unix:"], 0);
    assert!(said.contains("runs on") && said.contains("stood still for"), "{said}");
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
    for (script, code, words) in [
        ("echo 'Welcome to b'".to_owned(), 1, "\"Welcome to b\""),
        ("exit 3".to_owned(), 1, "the connection was closed"),
        (format!("echo '{hello}'"), 2, "on both hosts"),
    ] {
        write_script(&hosts.0.place.path("to-b"), &format!("read hello\n{script}"));
        let said = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage"], code);
        assert!(said.contains(words), "{said}");
        assert_eq!((hosts.runs("a"), hosts.state("a")), (Some(true), Some(State::Running)));
    }
    write_script(&hosts.0.place.path("to-b"), there.split_once('\n').map_or("", |(_, commands)| commands));
    // Handed over, and then both ends were killed.
    let mut held = hosts.inventory("a").hold(hosts.vm()).expect("held");
    held.step(Step::Send, None, UnixSeconds(1)).expect("a step");
    let handed_over = HandedOver { to: "b".to_owned(), receipt: "7".repeat(32) };
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

/// Whether these are the arguments of the homenode that a VM comes to.
fn receives(words: &[String]) -> bool {
    words.get(2).is_some_and(|word| word == "receive")
}

/// Who is killed.
#[derive(Clone, Copy, Debug)]
enum Cut {
    SourceHomenode,
    DestinationHomenode,
    Link,
    DestinationQemu,
    CtrlC,
    Timeout,
}

const CUTS: [Cut; 6] =
    [Cut::SourceHomenode, Cut::DestinationHomenode, Cut::Link, Cut::DestinationQemu, Cut::CtrlC, Cut::Timeout];

impl Hosts {
    /// Those that this migration started: by the variables that they were given.
    fn of_host(&self, host: &str, pid: u32) -> bool {
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let wanted = format!("HOMENODE_RUNTIME_DIR={}", self.runtime(host).display());
        variables.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    }

    /// Cuts a migration from one host to the other.
    fn cut(&self, cut: Cut, migrate: u32, to: &str) {
        let kill = |pid: u32, signal: i32| _ = linux::sys::send_signal(pid, signal);
        let there = |pids: Vec<u32>| pids.into_iter().filter(|&pid| self.of_host(to, pid)).collect::<Vec<_>>();
        match cut {
            Cut::Timeout => {}
            Cut::CtrlC => kill(migrate, libc::SIGINT),
            Cut::SourceHomenode => kill(migrate, libc::SIGKILL),
            Cut::DestinationHomenode => {
                there(self.processes(receives)).into_iter().for_each(|pid| kill(pid, libc::SIGKILL))
            }
            // What stands for ssh becomes homenode: the program that carries the guest.
            Cut::Link => {
                let carries = |words: &[String]| receives(words) && words.iter().any(|word| word == "--data");
                there(self.processes(carries)).into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
            }
            Cut::DestinationQemu => {
                let arriving = self.runtime(to).join(format!("{}+arriving", self.vm()));
                let holds = |pid: &u32| {
                    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
                    open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|target| target == arriving)
                };
                self.qemus().into_iter().filter(holds).for_each(|pid| kill(pid, libc::SIGKILL));
            }
        }
    }

    /// After a cut: what homenode is asked to settle is settled, and exactly one guest runs. A QEMU
    /// that was killed when its guest had arrived and ran takes it along, as at any time: then it
    /// is started anew.
    fn settled(&self, cut: Cut, what: &str) {
        for host in ["a", "b"] {
            // What a killed homenode left goes at the next look.
            self.says(host, &["vm", "list"], 0);
            if self.state(host) == Some(State::MigratingOut) {
                self.says(host, &["vm", "migrate", self.vm(), "--resolve"], 0);
            }
        }
        for host in ["a", "b"] {
            self.says(host, &["vm", "list"], 0);
        }
        if matches!(cut, Cut::DestinationQemu) && self.qemus().is_empty() {
            let lost = |host: &str| self.state(host) == Some(State::Lost);
            let states = [self.state("a"), self.state("b")];
            assert!(lost("a") != lost("b") && states.contains(&None), "{what}: {states:?}");
            self.says(if lost("a") { "a" } else { "b" }, &["vm", "start", self.vm()], 0);
        }
        let runs = [self.runs("a"), self.runs("b")];
        let states = [self.state("a"), self.state("b")];
        let running = [Some(State::Running), None];
        let there = [None, Some(State::Running)];
        let is_one =
            (runs == [Some(true), None] && states == running) || (runs == [None, Some(true)] && states == there);
        assert!(is_one, "{what}: {runs:?} {states:?}");
        assert!(within_seconds(10, || self.qemus().len() == 1), "{what}: {} QEMUs", self.qemus().len());
        let mut left = [self.left("a"), self.left("b")].concat();
        // A receipt that nobody asked for any more may stay: it is a word of a few bytes.
        left.retain(|name| name != ".receipts");
        assert_eq!(left, [""; 0], "{what}");
    }
}

/// Cuts so many migrations, each at a moment between its begin and its usual end.
fn cuts(test: &str, label: &str, seed: u64, times: usize) {
    let Some(hosts) = Hosts::with_vm(test, label) else { return };
    let mut drawn = Drawn(seed);
    let began = std::time::Instant::now();
    hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage"], 0);
    let mut usual = began.elapsed().as_millis() as u64;
    let (mut at, mut was_cut, mut round) = ([0usize; 2], 0, 0);
    // On a busy machine more of them end before they are cut.
    while round < times || (was_cut <= times / 3 && round < 4 * times) {
        let (from, to) = if hosts.state("a").is_some() { ("a", "b") } else { ("b", "a") };
        at[usize::from(from == "b")] += 1;
        let cut = CUTS[drawn.below(CUTS.len() as u64) as usize];
        let after = drawn.below(usual);
        let seconds = format!("{:.3}", (after.max(100)) as f64 / 1000.0);
        let mut arguments = vec!["vm", "migrate", hosts.vm(), "--to", to, "--shared-storage"];
        if matches!(cut, Cut::Timeout) {
            arguments.extend(["--timeout", &seconds]);
        }
        let began = std::time::Instant::now();
        let null = std::process::Stdio::null;
        let mut child = hosts.homenode(from, &arguments).stdout(null()).stderr(null()).spawn().expect("homenode");
        std::thread::sleep(std::time::Duration::from_millis(after));
        hosts.cut(cut, child.id(), to);
        if child.wait().expect("the end").success() {
            // The next one is cut at a moment of one that takes as long.
            usual = began.elapsed().as_millis() as u64;
        } else {
            was_cut += 1;
        }
        // A destination whose source was killed notices that by itself.
        let gone =
            || hosts.processes(receives).into_iter().all(|pid| !hosts.of_host("a", pid) && !hosts.of_host("b", pid));
        assert!(within_seconds(60, gone), "a destination stays");
        hosts.settled(cut, &format!("seed {seed}, round {round}: {cut:?} after {after} of {usual} ms from {from}"));
        round += 1;
    }
    assert!(was_cut > times / 3, "{was_cut} of {round} were cut");
    assert!(times < 20 || at.iter().all(|&times| times > 0), "it never went: {at:?}");
}

#[test]
fn however_a_migration_is_cut_one_guest_runs() {
    cuts("however_a_migration_is_cut_one_guest_runs", "migrate-cut", 7, 6);
}

#[test]
#[ignore = "by hand: `cargo test -p cli --test all however_200 -- --ignored`; one of its first four runs lost a guest"]
fn however_200_migrations_are_cut_one_guest_runs() {
    cuts("however_200_migrations_are_cut_one_guest_runs", "migrate-cuts", 20_261_123, 200);
}
