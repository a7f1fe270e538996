//! Monitors that mean harm, of another user where this one may become another: nobody waits for
//! them, nobody is visited in their name, and nothing that they say touches others.

use crate::common::no_qemu;
use linux::host::{AskMonitor, Heard, Questions, Said};
use linux::vm::RunningVm;
use linux::{HostOptions, LinuxHost, Root};
use qemu::monitor::FreeMonitors;
use scheduler::{Observe, RunState};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Behaves in the way that its first argument names.
const STAND_IN: &str = include_str!("stand_in.pl");
/// What a monitor has in a look that somebody waits for.
const WITHIN: Duration = Duration::from_millis(500);

/// Ends with the value.
struct Process(Child);

impl Process {
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a user of the test's own has its files and a program that is called QEMU.
struct Harm {
    /// Another user, where this one is root.
    uid: Option<u32>,
    place: tempfile::TempDir,
}

impl Harm {
    /// `number` tells the users of tests apart. `None` without perl.
    fn new(test: &str, number: u32) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let Some(perl) = std::env::split_paths(&path).map(|place| place.join("perl")).find(|perl| perl.is_file())
        else {
            eprintln!("SKIPPED {test}: no perl");
            return None;
        };
        let place = tempfile::tempdir().expect("a directory");
        // Another program copies it: a child that another test starts meanwhile would have the copy
        // open for writing, and it could not be run (ETXTBSY).
        let copied = Command::new("cp").arg(perl).arg(place.path().join("qemu-system-x86_64")).status();
        assert!(copied.expect("cp").success(), "perl cannot be copied");
        let uid = (linux::sys::effective_user_id() == 0).then(|| 1_000_000_000 + 100 * std::process::id() + number);
        match uid {
            Some(_) => chown(place.path(), uid, uid).expect("a directory of the other user"),
            None => eprintln!("SKIPPED {test}: this user cannot become another; its own processes stand in"),
        }
        Some(Self { uid, place })
    }

    /// A process of that user that says it is QEMU with a monitor, and is ready.
    fn start(&self, way: &str, socket: &Path) -> Process {
        let program = self.place.path().join("qemu-system-x86_64");
        let mut command = Command::new(&program);
        command.args(["-e", STAND_IN, way, "-m", "1", "-smp", "2", "-name", way]);
        command.args(["-qmp", &format!("unix:{},server,nowait", socket.display())]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).current_dir("/");
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        let mut child = command.spawn().expect("perl");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its words")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "{way}");
        Process(child)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }
}

fn examined(process: &Process) -> RunningVm {
    RunningVm::examine(&Root::default(), process.pid()).expect("a process").expect("a VM, by its own words")
}

#[test]
fn nobody_waits_for_a_monitor_that_means_harm_and_nothing_that_it_says_is_believed() {
    let Some(harm) = Harm::new("nobody_waits_for_a_monitor", 1) else { return };
    let questions = Questions { vcpu_threads: true, ..Questions::default() };
    let ask = |process: &Process| {
        let began = Instant::now();
        let heard = FreeMonitors::default().ask(&examined(process), questions, WITHIN);
        (heard, began.elapsed() < 8 * WITHIN)
    };
    // As many wait as it takes; nothing; a greeting, and nothing; a byte a second; 1 GiB without an
    // end of a line; and the threads of another process: this one's, and init's.
    let others = format!("threads={},1", std::process::id());
    for (number, way) in ["full", "silent", "greets", "drip", "endless", &others].into_iter().enumerate() {
        let process = harm.start(way, &harm.socket(&number.to_string()));
        assert_eq!(ask(&process), (Heard::Silent, true), "{way}");
    }
    // The same program is believed of a thread of its own.
    let process = harm.start("threads=own", &harm.socket("own"));
    let said = Said { vcpu_threads: Some(BTreeMap::from([(0, process.pid())])), ..Said::default() };
    // It may be late where all CPUs are busy.
    assert!((0..20).any(|_| ask(&process).0 == Heard::Said(said.clone())));
}

#[test]
fn nobody_is_visited_because_another_user_names_his_monitor() {
    let Some(harm) = Harm::new("nobody_is_visited", 2) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let victims = place.path().join("victims");
    let listener = UnixListener::bind(&victims).expect("a socket");
    listener.set_nonblocking(true).expect("a socket that does not wait");
    // Its own is at a path of its own; its command line is what it says it is.
    let process = harm.start("greets", &harm.socket("own"));
    let visited = |owner: u32| {
        let vm = RunningVm { owner_uid: Some(owner), monitor: Some(victims.clone()), ..examined(&process) };
        let questions = Questions { run_state: true, ..Questions::default() };
        assert_eq!(FreeMonitors::default().ask(&vm, questions, WITHIN), Heard::Absent);
        listener.accept().is_ok()
    };
    // Another process of the socket's own user is found out by who listens.
    assert!(visited(linux::sys::effective_user_id()));
    if let Some(uid) = harm.uid {
        assert!(!visited(uid), "another user's socket is left alone");
    }
}

#[test]
fn twenty_silent_monitors_of_one_user_do_not_take_the_time_of_others() {
    let test = "twenty_silent_monitors";
    let Some(harm) = Harm::new(test, 3) else { return };
    if no_qemu(test) {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let socket = place.path().join("qmp");
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-S", "-accel", "tcg", "-display", "none", "-nodefaults", "-m", "32"]);
    command.args(["-qmp", &format!("unix:{},server=on,wait=off", socket.display())]);
    let good = Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("QEMU"));
    let silent: Vec<Process> = (0..20).map(|number| harm.start("silent", &harm.socket(&number.to_string()))).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !socket.exists() {
        assert!(Instant::now() < deadline, "QEMU does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let options =
        || HostOptions { monitor: Some(Box::<FreeMonitors>::default()), run_states: true, ..HostOptions::default() };
    let count = format!("20 of user {}", harm.uid.unwrap_or_else(linux::sys::effective_user_id));
    for whole in [false, true] {
        loop {
            let mut host = LinuxHost::new(options()).expect("a host");
            let began = Instant::now();
            let seen = if whole { host.examine() } else { host.observe() }.expect("an observation");
            let took = began.elapsed();
            // 20 monitors of half a second each, asked twice, took 20 s.
            assert!(took < Duration::from_secs(if whole { 8 } else { 4 }), "{took:?}");
            let state =
                |process: &Process| seen.vms.iter().find(|vm| vm.vm.pid == process.pid()).expect("the VM").state;
            assert!(silent.iter().all(|process| state(process).is_none()));
            let said = seen.unseen_of(None).join("\n");
            if harm.uid.is_none() || (state(&good) == Some(RunState::Paused) && said.contains(&count)) {
                break;
            }
            // It may be late where all CPUs are busy.
            assert!(Instant::now() < deadline, "{said}");
        }
    }
}
