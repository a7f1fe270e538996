//! Starts of VMs that take their time, as a user, a signal or a kill meets them, with a real QEMU
//! behind a door: a program that waits until the test lets it become QEMU stands for one that fills
//! much memory.

use crate::common::{homenode_in, lacks, left_in, open_directory, said_in, within_seconds, write_script};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

struct Place {
    directory: tempfile::TempDir,
    label: String,
}

impl Place {
    /// A directory with a QEMU that waits for [`Place::open_the_door`]; `None` without QEMU.
    fn new(test: &str, label: &str) -> Option<Self> {
        if lacks(test, "qemu-system-x86_64") {
            return None;
        }
        let directory = open_directory();
        std::fs::write(directory.path().join("disk.img"), vec![0u8; 1 << 20]).expect("a disk image");
        let place = Self { directory, label: format!("{label}-{}", std::process::id()) };
        let door = place.path("door");
        let script =
            format!("while [ ! -e '{}' ]; do sleep 0.02; done\nexec qemu-system-x86_64 \"$@\"", door.display());
        write_script(&place.path("qemu"), &script);
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn runtime(&self) -> PathBuf {
        self.path("runtime")
    }

    fn open_the_door(&self) {
        std::fs::write(self.path("door"), "").expect("a file");
    }

    fn vm(&self, number: usize) -> String {
        format!("{}-{number}", self.label)
    }

    fn spec(&self, number: usize) -> PathBuf {
        let (vm, path) = (self.vm(number), self.path(&format!("{number}.toml")));
        let console = format!("console = {{ to = \"file\", path = \"{number}.log\" }}");
        let disk = "[[disk]]\npath = \"disk.img\"\nformat = \"raw\"\nread_only = true\n";
        let head = format!("name = \"{vm}\"\nvcpus = 1\nmemory = \"64 MiB\"\nboot.from = \"disk\"");
        std::fs::write(&path, format!("{head}\n{console}\n{disk}")).expect("a spec");
        path
    }

    /// `homenode run` with more arguments; its standard error goes to a file.
    fn run(&self, number: usize, more: &[&str]) -> Child {
        let spec = self.spec(number);
        let errors = std::fs::File::create(self.path(&format!("{number}.errors"))).expect("a file");
        let mut command = homenode_in(&self.runtime(), &["run"]);
        command.arg(spec).args(more).env("HOMENODE_QEMU", self.path("qemu")).stdout(Stdio::null()).stderr(errors);
        command.spawn().expect("homenode")
    }

    fn errors(&self, number: usize) -> String {
        std::fs::read_to_string(self.path(&format!("{number}.errors"))).unwrap_or_default()
    }

    fn reserved(&self) -> Vec<String> {
        qemu::reserved(&self.runtime()).into_iter().map(|reserved| reserved.vm).collect()
    }

    fn qemu_of(&self, number: usize) -> Option<u32> {
        let running = linux::examine_this_host().expect("/proc");
        let vm = self.vm(number);
        running.vms.into_iter().find(|seen| seen.vm.name == vm).map(|seen| seen.vm.pid)
    }

    /// Whether anything is left of VMs: a process with the name, or a file.
    fn left(&self, number: usize) -> Option<String> {
        let vm = self.vm(number);
        let names_it = |pid: &u32| {
            let words = linux::process::command_line(*pid).unwrap_or_default();
            words.iter().any(|word| word.starts_with(&format!("{vm},")))
        };
        let process = linux::process::all().expect("/proc").into_iter().find(names_it);
        let file = left_in(&self.runtime()).into_iter().next();
        process.map(|pid| format!("process {pid}")).or(file)
    }

    fn stop(&self, number: usize) {
        let (code, _, errors) = said_in(&self.runtime(), &["vm", "stop", &self.vm(number), "--force"]);
        assert_eq!(code, Some(0), "{errors}");
    }
}

fn signal(child: &Child, number: i32) {
    linux::sys::send_signal(child.id(), number).expect("a signal");
}

#[test]
fn starts_wait_for_each_others_planning_and_not_for_each_others_memory() {
    let test = "starts_wait_for_each_others_planning_and_not_for_each_others_memory";
    let Some(place) = Place::new(test, "together") else { return };
    let starts: Vec<Child> = (0..4).map(|number| place.run(number, &["--daemonize"])).collect();
    // No QEMU has become one yet, and all are planned.
    assert!(within_seconds(60, || place.reserved().len() == 4), "{:?}: {}", place.reserved(), place.errors(0));
    // Who plans now counts them.
    let (_, planned, _) = said_in(&place.runtime(), &["plan", place.spec(9).to_str().expect("UTF-8"), "--json"]);
    let planned: serde_json::Value = serde_json::from_str(&planned).expect("JSON");
    let nodes = planned["occupancy"]["nodes"].as_object().expect("nodes");
    let vcpus: u64 = nodes.values().filter_map(|node| node["vcpus"].as_u64()).sum();
    assert!(vcpus >= 4, "{planned}");
    // So does who judges a definition.
    let judged = place.path("judged.conf");
    std::fs::write(&judged, "cores: 1\nmemory: 64\nname: judged\n").expect("a configuration");
    let (_, checked, _) = said_in(&place.runtime(), &["check", judged.to_str().expect("UTF-8"), "--json"]);
    let checked: serde_json::Value = serde_json::from_str(&checked).expect("JSON");
    let held = checked["nodes"].as_array().expect("nodes").iter().filter_map(|node| node["held_vcpus"].as_u64());
    assert!(held.sum::<u64>() >= 4, "{checked}");
    place.open_the_door();
    for (number, mut start) in starts.into_iter().enumerate() {
        assert!(start.wait().expect("the end").success(), "{}", place.errors(number));
    }
    assert_eq!(place.reserved(), Vec::<String>::new());
    (0..4).for_each(|number| place.stop(number));
    assert_eq!(place.left(0), None);
}

#[test]
fn a_name_is_taken_from_the_moment_that_it_is_reserved() {
    let Some(place) = Place::new("a_name_is_taken_from_the_moment_that_it_is_reserved", "twice") else { return };
    let mut first = place.run(0, &[]);
    assert!(within_seconds(60, || place.reserved().len() == 1), "{}", place.errors(0));
    let spec = place.spec(0);
    let (code, _, errors) = said_in(&place.runtime(), &["run", spec.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("a VM of this name is being started"), "{errors}");
    signal(&first, libc::SIGTERM);
    assert_eq!(first.wait().expect("the end").code(), Some(1));
    assert_eq!(place.left(0), None);
}

#[test]
fn a_dry_run_waits_for_nobody_and_makes_nothing() {
    let Some(place) = Place::new("a_dry_run_waits_for_nobody_and_makes_nothing", "dry") else { return };
    let spec = place.spec(0);
    let dry_run = || said_in(&place.runtime(), &["run", spec.to_str().expect("UTF-8"), "--dry-run"]);
    assert_eq!(dry_run().0, Some(0));
    assert!(!place.runtime().exists());
    let directory = qemu::RuntimeDir::at(place.runtime()).expect("a directory");
    let lock = directory.lock_placement(Duration::ZERO).expect("a lock").expect("nobody has it");
    let begun = Instant::now();
    assert_eq!(dry_run().0, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(60));
    drop(lock);
}

/// Lets a start come as far as `moment` says, from nothing at all to long complete.
fn come_to(place: &Place, number: usize, moment: usize) {
    let pause = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
    match moment {
        0 => pause(3),
        1 => assert!(within_seconds(60, || !place.reserved().is_empty())),
        2 => assert!(within_seconds(60, || place.left(number).is_some_and(|left| left.starts_with("process")))),
        _ => {
            assert!(within_seconds(60, || place.left(number).is_some_and(|left| left.starts_with("process"))));
            place.open_the_door();
            // QEMU's own program, its monitor, its memory, its vCPUs: 40 to 400 ms on an idle
            // machine.
            pause([0, 15, 40, 80, 150, 300, 600][moment - 3]);
        }
    }
}

#[test]
fn a_signal_ends_a_start_in_the_background_at_any_moment_and_says_so() {
    let test = "a_signal_ends_a_start_in_the_background_at_any_moment_and_says_so";
    let Some(place) = Place::new(test, "signal") else { return };
    for moment in 0..10 {
        let _ = std::fs::remove_file(place.path("door"));
        let mut start = place.run(moment, &["--daemonize"]);
        come_to(&place, moment, moment);
        signal(&start, if moment % 2 == 0 { libc::SIGINT } else { libc::SIGTERM });
        place.open_the_door();
        let status = start.wait().expect("the end");
        let (said, runs) = (place.errors(moment), place.qemu_of(moment).is_some());
        match status.code() {
            // Too late: it runs, and was reported.
            Some(0) => {
                assert!(runs, "moment {moment}: {said}");
                place.stop(moment);
            }
            Some(1) => {
                assert!(said.contains("ended its start; nothing of it is left"), "moment {moment}: {said}");
                assert_eq!(place.left(moment), None, "moment {moment}");
            }
            // Before it watched for signals: nothing was begun.
            code => {
                assert!(moment == 0 && code.is_none(), "moment {moment}: {status}: {said}");
                assert!(!runs);
            }
        }
    }
}

#[test]
fn a_start_that_is_killed_at_any_moment_leaves_nothing_to_the_next_look() {
    let test = "a_start_that_is_killed_at_any_moment_leaves_nothing_to_the_next_look";
    let Some(place) = Place::new(test, "kill") else { return };
    for (number, moment) in (0..10).chain(0..10).enumerate() {
        let _ = std::fs::remove_file(place.path("door"));
        let background: &[&str] = if number < 10 { &["--daemonize"] } else { &[] };
        let mut start = place.run(number, background);
        come_to(&place, number, moment);
        signal(&start, libc::SIGKILL);
        start.wait().expect("the end");
        // It counts for nobody from now on.
        assert!(within_seconds(60, || place.reserved().is_empty()), "moment {moment}");
        let look = || said_in(&place.runtime(), &["vm", "list"]);
        let (code, listed, errors) = look();
        assert_eq!(code, Some(0), "{errors}");
        if listed.contains(&place.vm(number)) {
            // It was complete.
            assert!(number < 10, "an attached VM outlived its homenode: {listed}");
            place.stop(number);
        }
        let gone = within_seconds(60, || {
            look();
            place.left(number).is_none()
        });
        assert!(gone, "start {number}, moment {moment}: {:?} is left: {errors}", place.left(number));
    }
}

/// A cgroup of this test, with a limit; `None` where this user cannot make one.
struct Limited(PathBuf);

impl Limited {
    fn new(test: &str, bytes: u64) -> Option<Self> {
        let name = format!("homenode-test-{}-{}", std::process::id(), test.len());
        let (mount, limit) = if Path::new("/sys/fs/cgroup/memory").is_dir() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            ("/sys/fs/cgroup", "memory.max")
        };
        let path = Path::new(mount).join(name);
        let made = std::fs::create_dir(&path);
        let this = Self(path);
        let set = made.and_then(|()| std::fs::write(this.0.join(limit), bytes.to_string()));
        set.map_err(|error| eprintln!("SKIPPED {test}: no cgroup with a memory limit: {error}")).ok().map(|()| this)
    }

    /// What homenode says that runs in it.
    fn said(&self, place: &Place, qemu: &Path) -> (Option<i32>, String) {
        let script = place.path("inside");
        let procs = self.0.join("cgroup.procs");
        write_script(&script, &format!("echo $$ > '{}'; exec \"$@\"", procs.display()));
        let spec = place.spec(0);
        let mut command = std::process::Command::new(script);
        command.arg(env!("CARGO_BIN_EXE_homenode")).arg("run").arg(spec).stdin(Stdio::null());
        let output = command.env("HOMENODE_RUNTIME_DIR", place.runtime()).env("HOMENODE_QEMU", qemu).output();
        let output = output.expect("homenode");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // Its processes may be on their way out.
        within_seconds(10, || std::fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[test]
fn a_qemu_that_the_kernel_kills_for_lack_of_memory_is_said_to_be() {
    let test = "a_qemu_that_the_kernel_kills_for_lack_of_memory_is_said_to_be";
    let Some(place) = Place::new(test, "oom") else { return };
    let Some(limited) = Limited::new(test, 400 << 20) else { return };
    write_script(&place.path("greedy"), "exec tail /dev/zero");
    let (code, errors) = limited.said(&place, &place.path("greedy"));
    assert_eq!(code, Some(1));
    for part in ["signal: 9", "SIGKILL: the kernel killed for lack of memory in its cgroup", "lower `memory`"] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
    assert_eq!(place.left(0), None);
}

#[test]
fn a_limit_of_the_cgroup_is_heeded_before_qemu_starts() {
    let test = "a_limit_of_the_cgroup_is_heeded_before_qemu_starts";
    let Some(place) = Place::new(test, "limit") else { return };
    // 64 for the guest and 97 for QEMU itself.
    let Some(limited) = Limited::new(test, 150 << 20) else { return };
    let (code, errors) = limited.said(&place, &place.path("qemu"));
    assert_eq!(code, Some(1));
    assert!(errors.contains("memory limit 150 MiB of") && errors.contains("for QEMU itself"), "{errors}");
    assert_eq!(place.left(0), None);
}
