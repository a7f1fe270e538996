//! What goes wrong while a VM is suspended or resumed: homenode is stopped in a phase that the
//! files tell, and then it, its QEMU or its disk fails. After each, one guest runs, or there is a
//! file that resumes; and nothing else is left.

use crate::common::kept_vm::{Drawn, KeptVm};
use crate::common::{lacks, said, within_seconds};
use linux::sys::send_signal;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vm::history::LifeEvent;
use vm::life::State;

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// How far a suspend or a resume has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Its file has been begun.
    Begun,
    /// Its vCPUs wait, and it is written.
    Paused,
    /// Its file is whole.
    Whole,
    /// The record says so; its QEMU is still there.
    Suspended,
    /// The record says that it is resumed.
    Starting,
    /// Its QEMU is there, and gets the guest.
    Built,
    /// Its guest may run from here on.
    MayRun,
    /// The record says that it runs.
    Completed,
}

const OF_SUSPEND: [Phase; 4] = [Phase::Begun, Phase::Paused, Phase::Whole, Phase::Suspended];
const OF_RESUME: [Phase; 4] = [Phase::Starting, Phase::Built, Phase::MayRun, Phase::Completed];

/// What goes wrong then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    CtrlC,
    KilledHomenode,
    KilledQemu,
}

/// The files that tell of a VM.
struct Files {
    life: PathBuf,
    process: PathBuf,
    memory: PathBuf,
    unfinished: PathBuf,
}

impl Files {
    fn of(vm: &KeptVm) -> Self {
        let kept = vm.place.runtime().join(".vms").join(&vm.name);
        let (life, memory) = (kept.join("life.json"), kept.join("memory.homenode"));
        let unfinished = kept.join("memory.homenode.unfinished");
        Self { life, process: vm.place.runtime().join(&vm.name).join("state.json"), memory, unfinished }
    }

    fn are_in(&self, phase: Phase) -> bool {
        let text = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        let state = |word: &str| text(&self.life).contains(&format!("\"state\": \"{word}\""));
        match phase {
            Phase::Begun => self.unfinished.exists(),
            Phase::Paused => state("paused"),
            Phase::Whole => self.memory.exists(),
            Phase::Suspended => state("suspended"),
            Phase::Starting => state("starting"),
            Phase::Built => state("starting") && text(&self.process).contains("\"qemu\": {"),
            Phase::MayRun => state("starting") && text(&self.process).contains("\"phase\": \"running\""),
            Phase::Completed => state("running"),
        }
    }

    /// What else than the four files of a VM lies in its directory.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.life.with_file_name("")).expect("its directory").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| !["life.json", "placement.json", "spec.toml", "topology.json"].contains(&&**name)).collect()
    }
}

/// homenode, stopped in a phase of what it does; `None` where it had ended before it was seen.
fn stopped_in(vm: &KeptVm, phase: Phase) -> Option<Child> {
    let command = if OF_SUSPEND.contains(&phase) { "suspend" } else { "resume" };
    let mut command = vm.command(&["vm", command, &vm.name]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("homenode");
    let files = Files::of(vm);
    while !files.are_in(phase) {
        if child.try_wait().expect("a child").is_some() {
            return None;
        }
    }
    // One that ends meanwhile is not stopped.
    let _ = send_signal(child.id(), SIGSTOP);
    child.try_wait().expect("a child").is_none().then_some(child)
}

/// Lets one fault happen in one phase, looks at what has become of the VM, and lets it go on. False
/// where homenode had come past that phase before it was stopped.
fn cut(vm: &KeptVm, phase: Phase, fault: Fault, later: Duration) -> bool {
    let suspends = OF_SUSPEND.contains(&phase);
    let Some(mut child) = stopped_in(vm, phase) else {
        if suspends {
            vm.resume();
        } else {
            vm.suspend();
        }
        return false;
    };
    if !later.is_zero() {
        send_signal(child.id(), SIGCONT).ok();
        std::thread::sleep(later);
    }
    match (fault, vm.pid()) {
        (Fault::KilledQemu, Some(qemu)) => {
            send_signal(qemu, SIGKILL).ok();
            assert!(within_seconds(10, || vm.pid() != Some(qemu)));
        }
        (Fault::CtrlC, _) => send_signal(child.id(), SIGINT).unwrap_or_default(),
        _ => child.kill().unwrap_or_default(),
    }
    send_signal(child.id(), SIGCONT).ok();
    assert!(within_seconds(60, || child.try_wait().expect("a child").is_some()), "{phase:?} {fault:?}: it hangs");
    let mut said = String::new();
    child.stderr.take().map(|mut errors| errors.read_to_string(&mut said));
    let told = format!("{phase:?}, {fault:?} after {later:?}: {:?}; {said}", vm.state());
    if fault == Fault::CtrlC {
        // It goes on at once, with nobody to look; or it was too late, and all is done.
        let expected = if vm.pid().is_some() { State::Running } else { State::Suspended };
        assert_eq!(vm.state(), expected, "{told}");
    }
    if suspends && fault == Fault::KilledQemu {
        // Once, and not in the words of whoever had talked to it.
        let times = said.matches("QEMU has ended").count();
        assert!(times == usize::from(said.contains("is lost")) && !said.contains("its monitor"), "{told}");
    }
    vm.ok(&["vm", "list"]);
    settle(vm, fault, &format!("{told}, then {:?}", vm.state()));
    // It went on and not only its record.
    vm.ok(&["vm", "list"]);
    assert_eq!(vm.state(), State::Running, "{told}");
    true
}

/// One guest runs, or there is a file that resumes: after it the VM runs.
fn settle(vm: &KeptVm, fault: Fault, told: &str) {
    let files = Files::of(vm);
    match vm.state() {
        State::Suspended => {
            assert_eq!(files.left(), ["memory.homenode"], "{told}");
            vm.resume();
        }
        State::Running => {
            assert!(vm.pid().is_some(), "{told}");
            vm.refused(&["vm", "resume", &vm.name]);
        }
        State::Lost if fault == Fault::KilledQemu => {
            assert_eq!(vm.pid(), None, "{told}");
            vm.ok(&["vm", "start", &vm.name]);
        }
        state => panic!("{state}: {told}"),
    }
    assert_eq!(files.left(), Vec::<String>::new(), "{told}");
}

/// One that is in the state from which a phase is reached.
fn ready_for(vm: &KeptVm, phase: Phase) {
    if OF_RESUME.contains(&phase) && vm.state() == State::Running {
        vm.suspend();
    }
}

#[test]
fn a_cut_in_some_phases_leaves_a_vm_or_a_file() {
    let Some(vm) = KeptVm::of_two_nodes("a_cut_in_some_phases_leaves_a_vm_or_a_file", "suspend-cut") else { return };
    vm.run();
    let cuts = [
        (Phase::Paused, Fault::CtrlC),
        (Phase::Paused, Fault::KilledHomenode),
        (Phase::Built, Fault::CtrlC),
        (Phase::Paused, Fault::KilledQemu),
    ];
    for (phase, fault) in cuts {
        ready_for(&vm, phase);
        // The files are looked at as fast as can be; on a busy machine once is not enough.
        let was_cut = (0..20).any(|_| cut(&vm, phase, fault, Duration::ZERO));
        assert!(was_cut, "{phase:?} was never seen");
        let last = vm.record().life.history.last().map(|chapter| chapter.event.clone());
        if (phase, fault) == (Phase::Paused, Fault::KilledHomenode) {
            assert!(matches!(last, Some(LifeEvent::Failed { .. })), "{last:?}");
        }
    }
}

/// All phases, all faults, at their beginning and a drawn moment later. `HOMENODE_SEED` draws
/// others.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn many_cuts_leave_a_vm_or_a_file() {
    let Some(vm) = KeptVm::of_two_nodes("many_cuts_leave_a_vm_or_a_file", "suspend-cuts") else { return };
    vm.run();
    let seed = std::env::var("HOMENODE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed);
    let (mut random, began) = (Drawn(seed), Instant::now());
    let mut done = std::collections::BTreeMap::new();
    let faults = [Fault::CtrlC, Fault::KilledHomenode, Fault::KilledQemu];
    while done.values().sum::<u32>() < 72 {
        assert!(began.elapsed() < Duration::from_secs(600), "seed {seed}: {done:?}");
        for phase in OF_SUSPEND.into_iter().chain(OF_RESUME) {
            let fault = faults[random.below(3) as usize];
            let later = Duration::from_millis(random.below(3).saturating_sub(1) * random.below(80));
            ready_for(&vm, phase);
            if cut(&vm, phase, fault, later) {
                *done.entry((phase, fault)).or_default() += 1;
            } else if OF_RESUME.contains(&phase) {
                vm.resume();
            }
        }
    }
    println!("seed {seed}: {done:?}");
}

/// homenode with a limit on the size of the files that it writes, and a signal for it or not.
fn limited(vm: &KeptVm, ignores_signal: bool, arguments: &[&str]) -> Command {
    let homenode = vm.command(arguments);
    let mut command = Command::new("env");
    if ignores_signal {
        command.arg("--ignore-signal=XFSZ");
    }
    command.args(["prlimit", "--fsize=1200000"]).arg(homenode.get_program()).args(homenode.get_args());
    homenode.get_envs().for_each(|(name, value)| _ = value.map(|value| command.env(name, value)));
    command.current_dir(vm.place.path("."));
    command
}

#[test]
fn a_place_that_is_full_or_goes_away_lets_the_vm_go_on() {
    let test = "a_place_that_is_full_or_goes_away_lets_the_vm_go_on";
    if lacks(test, "prlimit") {
        return;
    }
    let Some(vm) = KeptVm::of_two_nodes(test, "suspend-full") else { return };
    vm.run();
    let goes_on = |told: &str| {
        assert_eq!((vm.state(), Files::of(&vm).left()), (State::Running, Vec::new()), "{told}");
        vm.ok(&["vm", "list"]);
        assert_eq!(vm.state(), State::Running, "{told}");
    };
    let suspend = ["vm", "suspend", &vm.name];
    let (code, _, errors) = said(&mut limited(&vm, true, &suspend));
    assert!(code == Some(1) && errors.contains("was not suspended and goes on: cannot write"), "{code:?} {errors}");
    goes_on(&errors);
    // The kernel ends whoever does not ignore it.
    let (code, _, errors) = said(&mut limited(&vm, false, &suspend));
    assert_eq!((code, vm.state()), (None, State::Paused), "{errors}");
    vm.ok(&["vm", "list"]);
    goes_on("killed by SIGXFSZ");
    // Its directory goes away while it is written.
    fs::create_dir(vm.place.path("there")).unwrap();
    let mut child = vm.command(&["vm", "suspend", &vm.name, "--to", "there/file"]);
    let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("homenode");
    while !vm.place.path("there/file.unfinished").exists() {}
    send_signal(child.id(), SIGSTOP).unwrap();
    fs::rename(vm.place.path("there"), vm.place.path("elsewhere")).unwrap();
    send_signal(child.id(), SIGCONT).unwrap();
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && errors.contains("was not suspended and goes on"), "{errors}");
    goes_on(&errors);
}

/// A small file system, which only this homenode has: what is missing is said before anything is
/// stopped.
#[test]
fn a_file_system_that_is_too_small_is_refused() {
    let test = "a_file_system_that_is_too_small_is_refused";
    let works = Command::new("unshare").args(["-Urm", "true"]).output().is_ok_and(|output| output.status.success());
    if lacks(test, "unshare") || !works {
        return eprintln!("SKIPPED {test}: no mount namespace of one's own");
    }
    let Some(vm) = KeptVm::of_two_nodes(test, "suspend-small") else { return };
    vm.run();
    fs::create_dir(vm.place.path("small")).unwrap();
    let homenode = vm.command(&["vm", "suspend", &vm.name, "--to", "small/file"]);
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=20m small small && exec \"$0\" \"$@\"";
    command.args(["-Urm", "sh", "-c", script]).arg(homenode.get_program()).args(homenode.get_args());
    homenode.get_envs().for_each(|(name, value)| _ = value.map(|value| command.env(name, value)));
    let before = vm.record();
    let (code, _, errors) = said(command.current_dir(vm.place.path(".")));
    assert!(code == Some(2) && errors.contains("are free there"), "{code:?} {errors}");
    assert_eq!(vm.record(), before);
}

/// What a stranger may name: nothing of it is changed, and the VM runs.
#[test]
fn what_is_no_new_file_is_refused() {
    let Some(vm) = KeptVm::of_two_nodes("what_is_no_new_file_is_refused", "suspend-to") else { return };
    vm.run();
    let place = |name: &str| vm.place.path(name);
    fs::create_dir(place("directory")).unwrap();
    fs::write(place("file"), "x").unwrap();
    std::os::unix::fs::symlink("file", place("link")).unwrap();
    assert!(Command::new("mkfifo").arg(place("pipe")).status().expect("mkfifo").success());
    for (to, words) in [
        ("directory", "is a directory; name a file in it"),
        ("directory/new/", "ends with a /"),
        ("file", "is there already"),
        ("link", "is a link, a device or a pipe"),
        ("pipe", "is a link, a device or a pipe"),
        ("/dev/full", "is a link, a device or a pipe"),
        ("none/file", "No such file or directory"),
        ("file/file", "Not a directory"),
        ("/proc/file", "cannot make /proc/file"),
    ] {
        let said = vm.refused(&["vm", "suspend", &vm.name, "--to", to]);
        assert!(said.contains(words), "{to}: {said}");
    }
    for from in ["directory", "link", "pipe", "file", "/dev/zero", "/dev/full", "none"] {
        let said = vm.refused(&["vm", "resume", from]);
        assert!(said.contains(from) && vm.pid().is_some(), "{from}: {said}");
    }
    assert_eq!((fs::read(place("file")).unwrap(), fs::read_dir(place("directory")).unwrap().count()), (b"x".into(), 0));
}
