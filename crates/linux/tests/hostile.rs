//! Processes that are called QEMU and are no VM: any user may have them, thousands of them.

use crate::real_vms::{Paused, of};
use linux::sys::effective_user_id;
use linux::{HostOptions, LinuxHost, NEWCOMERS_WITHIN};
use scheduler::{Observation, Observe};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use topology::limits::{MOST_THREADS_OF_A_USER, MOST_VMS_OF_A_USER};

/// Processes that end with the value: all of a group.
struct Fakes(Child);

impl Fakes {
    fn start(command: &mut Command) -> Self {
        let child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.expect("a program"))
    }
}

impl Drop for Fakes {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", "--", &format!("-{}", self.0.id())]).status();
        let _ = self.0.wait();
    }
}

/// A directory with a program of QEMU's name that everybody may start.
fn named_qemu(program: impl Into<PathBuf>) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let copy = directory.path().join("qemu-system-x86_64");
    // Another program writes it: what this process has open for writing may be open in a child that
    // another test starts at this moment, and cannot be run until then (ETXTBSY).
    assert!(Command::new("cp").arg(program.into()).arg(&copy).status().is_ok_and(|status| status.success()));
    (directory, copy)
}

/// A user that nobody has, of several; `None`, with a word about it, where no other user can be
/// had.
fn as_another_user(test: &str, number: u32) -> Option<(u32, Command)> {
    let user = 3_000_000_000 + 4 * std::process::id() + number;
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), "--regid=65534", "--clear-groups"]);
    let works = effective_user_id() == 0 && command.arg("true").status().is_ok_and(|status| status.success());
    if !works {
        eprintln!("SKIPPED {test}: only root can become another user, with setpriv");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), "--regid=65534", "--clear-groups"]);
    Some((user, command))
}

/// The lines about a user that an observation has.
fn about(seen: &Observation, user: u32) -> Vec<String> {
    seen.unseen_of(None).into_iter().filter(|line| line.contains(&format!("user {user} "))).collect()
}

fn number_before(line: &str, words: &str) -> usize {
    line.strip_suffix(words)
        .or_else(|| Some(line.split_once(words)?.0))
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[test]
fn a_process_that_says_what_no_vm_has_is_one_line_and_costs_nothing() {
    let name = format!("hostile-{}", std::process::id());
    let (_directory, program) = named_qemu("/bin/sh");
    let nodes = "-numa node,cpus=0-4095 ".repeat(3000);
    let start = |options: &str| {
        let mut command = Command::new(&program);
        Fakes::start(command.args(["-c", "read wait", "-name", &name]).args(options.trim_end().split(' ')))
    };
    let fakes: Vec<Fakes> =
        ["-smp 4294967295", "-smp 60000000", "-smp 2,maxcpus=4000000000 -numa cpu,node-id=0", &nodes].map(start).into();
    let mut host = LinuxHost::new(HostOptions::default()).expect("this host");
    let begun = Instant::now();
    let seen = host.examine().expect("an observation");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(seen.vms.iter().all(|vm| vm.vm.name != name), "none of them is a VM");
    let about = |seen: &Observation, fake: &Fakes| -> Vec<String> {
        let word = format!(" {} ", fake.0.id());
        seen.unseen_of(None).into_iter().filter(|line| line.contains(&word)).collect()
    };
    // On a busy machine a look may leave one of them to the next.
    let mut last = seen;
    for _ in 0..20 {
        if fakes.iter().all(|fake| !about(&last, fake).is_empty()) {
            break;
        }
        last = host.examine().expect("an observation");
    }
    for fake in &fakes {
        assert!(matches!(&about(&last, fake)[..], [line] if line.len() < 200), "{:?}", last.unseen);
    }
    // Who was doubted is known, until another process has its number.
    assert!(host.observe().expect("another look").vms.iter().all(|vm| vm.vm.name != name));
}

/// `fakes` processes of another user that are only called QEMU: they are one line, and a VM beside
/// them is seen at once.
fn many_are_one_line(test: &str, fakes: usize) {
    let Some((user, mut command)) = as_another_user(test, fakes as u32 % 3) else { return };
    let Some(vm) = Paused::start(test, "tcg", "-m 32") else { return };
    vm.seen(|seen, _| !seen.threads.vcpus.is_empty());
    // Half of them with 100 kB of arguments.
    let script = format!(
        "exec 3<&0; printf -v long '%*s' 100000 ''; for i in $(seq {}); do \
         (exec -a qemu-system-x86_64 sh -c 'read wait' -m 100T <&3) & \
         (exec -a qemu-kvm sh -c 'read wait' \"$long\" <&3) & done; wait",
        fakes / 2
    );
    let _fakes = Fakes::start(command.args(["bash", "-c", &script]));
    let until = Instant::now() + Duration::from_secs(60);
    let said = format!(" processes of user {user} call themselves QEMU and are not (");
    let mut known = LinuxHost::new(HostOptions::default()).expect("this host");
    loop {
        let seen = known.observe().expect("a look");
        if matches!(&about(&seen, user)[..], [line] if number_before(line, &said) == fakes) {
            break;
        }
        assert!(Instant::now() < until, "{:?}", about(&seen, user));
        std::thread::sleep(Duration::from_millis(200));
    }
    // A balancer begins although they are there, and has seen the VM.
    let begun = Instant::now();
    let options = HostOptions { newcomers_within: Some(NEWCOMERS_WITHIN), ..HostOptions::default() };
    let mut balancers = LinuxHost::new(options).expect("this host");
    balancers.examine_all(Duration::from_millis(10)).expect("all that count");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let seen = balancers.observe().expect("a look");
    assert!(of(&seen, vm.pid()).is_some(), "{:?}", seen.unseen);
    // VMs of other tests come and go: while one of them waits for its turn, it is not known.
    let mut is_known = || {
        let seen = balancers.observe().expect("a look");
        seen.nodes.values().all(|node| node.memory_free.is_some())
    };
    assert!((0..50).any(|_| is_known()), "free memory is known");
    // Looks: those of `top` and `balance`, and that of `plan` and `doctor`.
    let slowest = |look: &mut dyn FnMut() -> Observation| {
        let mut times: Vec<Duration> = (0..9)
            .map(|_| {
                let begun = Instant::now();
                assert!(of(&look(), vm.pid()).is_some());
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[4]
    };
    let usual = slowest(&mut || known.observe().expect("a look"));
    let whole = slowest(&mut || LinuxHost::new(HostOptions::default()).expect("this host").examine().expect("a look"));
    println!("{fakes} fakes: a usual look {usual:?}, a whole one {whole:?} (medians)");
    // Tests run beside other work, and are not optimized.
    let most = Duration::from_millis(500) + Duration::from_micros(400) * fakes as u32;
    assert!(usual < most && whole < most, "{usual:?} {whole:?}");
    assert!(about(&known.examine().expect("a look"), user).len() <= 2);
}

#[test]
fn processes_that_are_only_called_qemu_are_one_line_and_delay_nobody() {
    many_are_one_line("called_qemu", 200);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn three_thousand_processes_that_are_only_called_qemu_are_one_line_and_delay_nobody() {
    many_are_one_line("called_qemu_3000", 3000);
}

/// Copies of a program under QEMU's name with threads that are called vCPUs: no look can tell them
/// from QEMU under emulation.
#[test]
fn a_user_has_so_many_vms_and_no_more_and_others_keep_theirs() {
    let test = "a_user_has_so_many";
    let Some((user, _)) = as_another_user(test, 3) else { return };
    let Some(vm) = Paused::start(test, "tcg", "-m 32") else { return };
    vm.seen(|seen, _| !seen.threads.vcpus.is_empty());
    let (_directory, program) = named_qemu(std::env::current_exe().expect("this program"));
    let start = |_| {
        let Some((_, mut command)) = as_another_user(test, 3) else { panic!("it was there") };
        command.arg(&program).args(["--exact", "hostile::inner_guest", "--nocapture"]);
        Fakes::start(command.env("HOMENODE_TEST_GUEST", "1500"))
    };
    // 3 of them have more threads than one user may have in all.
    let _guests: Vec<Fakes> = (0..3).map(start).collect();
    let until = Instant::now() + Duration::from_secs(60);
    let most = format!(
        " is not watched: of one user at most {MOST_VMS_OF_A_USER} VMs are, with {MOST_THREADS_OF_A_USER} threads"
    );
    let (mut host, mut any) = (LinuxHost::new(HostOptions::default()).expect("this host"), false);
    loop {
        let seen = host.observe().expect("a look");
        assert!(of(&seen, vm.pid()).is_some());
        let theirs = seen.vms.iter().filter(|seen| seen.owner_uid == Some(user) && !seen.unverified).count();
        any |= theirs > 0;
        // All of their threads come one after the other.
        if any && theirs <= 2 && about(&seen, user).iter().any(|line| line.ends_with(&most)) {
            return;
        }
        assert!(Instant::now() < until, "{theirs} are watched: {:?}", seen.unseen);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The part of the test above that calls its threads vCPUs.
#[test]
fn inner_guest() {
    let Some(threads) = std::env::var("HOMENODE_TEST_GUEST").ok().and_then(|number| number.parse::<u32>().ok()) else {
        return;
    };
    let vcpu = |index| {
        let named = std::thread::Builder::new().name(format!("CPU {index}/TCG")).stack_size(64 << 10);
        named.spawn(|| std::thread::sleep(Duration::from_secs(120))).expect("a thread")
    };
    let all: Vec<_> = (0..threads).map(vcpu).collect();
    all.into_iter().for_each(|thread| drop(thread.join()));
}
