//! What goes wrong in a guest that runs, and on its host: a command fills its disk, its kernel
//! panics, its agent is killed, the host has no room for what it writes. Each is named, the rest of
//! the experiment is kept, and `--resume` goes on.

use crate::common::{lacks, open_directory, tiny_guest, unique, write_script};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// MiB of the guest's disk.
const DISK_MIB: u32 = 24;

/// A cache with a guest of one static program, and an experiment in it.
pub(crate) struct World {
    directory: TempDir,
}

impl World {
    /// `None` where a program is missing. The guest is built by the programs that build every
    /// guest; only what would be fetched is made here.
    fn new(test: &str) -> Option<Self> {
        Self::with(test, |_| true)
    }

    /// The same, with more in its guest: `add` is told where that system's files are, and says
    /// whether it had all that it adds.
    pub(crate) fn with(test: &str, add: impl FnOnce(&Path) -> bool) -> Option<Self> {
        let tools = ["busybox", "fakeroot", "qemu-system-x86_64"];
        if tools.iter().any(|tool| lacks(test, tool)) || tiny_guest(test).is_none() {
            return None;
        }
        let mke2fs = ["/usr/sbin/mke2fs", "/sbin/mke2fs"].into_iter().find(|path| Path::new(path).exists());
        let Some(mke2fs) = mke2fs else {
            eprintln!("SKIPPED {test}: no mke2fs");
            return None;
        };
        let world = Self { directory: open_directory() };
        fs::create_dir(world.at("programs")).expect("a directory");
        let tree = world.at("system");
        for directory in ["bin", "dev", "proc", "sys", "tmp", "run", "root", "etc"] {
            fs::create_dir_all(tree.join(directory)).expect("a directory");
        }
        let busybox = Command::new("sh").args(["-c", "readlink -f $(command -v busybox)"]).output().expect("sh");
        let busybox = String::from_utf8(busybox.stdout).expect("a path");
        fs::copy(busybox.trim(), tree.join("bin/busybox")).expect("a copy");
        for name in ["sh", "dd", "kill", "cat", "sleep"] {
            std::os::unix::fs::symlink("busybox", tree.join("bin").join(name)).expect("a link");
        }
        if !add(&tree) {
            return None;
        }
        let tar = format!(
            "for word; do case $word in */archive.tar) tar -C '{}' -cf \"$word\" . ;; esac; done",
            tree.display()
        );
        let small = format!(
            "left=$#; for word; do shift; left=$((left - 1)); [ $left -gt 0 ] || word={DISK_MIB}M; set -- \"$@\" \
            \"$word\"; done
            exec {mke2fs} \"$@\""
        );
        for (name, text) in [
            ("apt-cache", "for word; do printf '%s:\\n  Candidate: 1.0\\n' \"$word\"; done"),
            ("apt-get", ". /etc/os-release; echo \"http://mirror.example/debian|$VERSION_CODENAME|main|x|\""),
            ("mmdebstrap", tar.as_str()),
            ("mke2fs", small.as_str()),
        ] {
            write_script(&world.at("programs").join(name), text);
        }
        Some(world)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// An experiment whose command is harmless natively, and in a guest does `fault`.
    fn experiment(&self, fault: &str) {
        self.experiment_in(1, fault, "[[configuration]]\nname = '1 VM'\nruns = 'vms'\nvcpus = 1\n");
    }

    /// The same at another width and in VMs of other shapes.
    pub(crate) fn experiment_in(&self, threads: u32, fault: &str, vms: &str) {
        let text = format!(
            "name = '{}'\ntitle = 'A fault'\nworkload = 'command'\nthreads = [{threads}]\npinning = 'none'\n\
             repetitions = 2\nrounds = 1\n[guest]\npackages = ['busybox', 'openssh-server', 'openssh-client']\n\
             native = 'host'\n[command]\nmemory = '256 MiB'\n\
             shell = '''if grep -q homenode.root /proc/cmdline; then {fault}; fi; echo rate 7'''\n\
             [[command.figure]]\nname = 'rate'\nunit = '{{step}}/s'\nbetter = 'more'\nregex = '^rate ([0-9.]+)'\n\
             [command.verify]\npattern = '^rate 7$'\n\
             [limits]\nother_cpu_percent = 10000\nrepetition_seconds = 600\nboot_seconds = 600\n\
             [[configuration]]\nname = 'native'\nruns = 'native'\n{vms}",
            unique("fault")
        );
        fs::write(self.at("fault.toml"), text).expect("an experiment");
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let path = format!("{}:{}", self.at("programs").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program);
        command.env("PATH", path).env("HOMENODE_CACHE_DIR", self.at("cache")).current_dir(self.directory.path());
        command
    }

    pub(crate) fn evaluate(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_homenode"));
        command.arg("evaluate").args(arguments).output().expect("homenode")
    }

    /// Where the results of the only run are.
    pub(crate) fn results(&self) -> PathBuf {
        let mut all = fs::read_dir(self.at("results")).expect("results").flatten().map(|entry| entry.path());
        all.next().expect("one run")
    }

    /// The words of a run that failed after the native command was measured, which is kept: it says
    /// how it goes on, and going on comes to the same end without measuring it again.
    fn fails_and_keeps_the_rest(&self, fault: &str, parts: &[&str]) {
        self.experiment(fault);
        self.fails_after_native(parts);
    }

    /// The same of the experiment that is there.
    pub(crate) fn fails_after_native(&self, parts: &[&str]) {
        let first = self.evaluate(&["fault.toml"]);
        let results = self.results();
        let again = self.evaluate(&["--resume", &results.display().to_string()]);
        for output in [first, again] {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{said}");
            for part in parts.iter().chain(&["--resume"]) {
                assert!(said.contains(part), "{part} is not in {said}");
            }
            assert!(String::from_utf8_lossy(&output.stdout).contains("7.000"), "the native figure is shown");
        }
        let records = fs::read_to_string(results.join("records.jsonl")).expect("records");
        let all = repetitions(&records, "\"configuration\"");
        assert_eq!((all, repetitions(&records, "\"native\"")), (2, 2), "{records}");
    }
}

/// Repetitions among the lines of records whose line has these words.
pub(crate) fn repetitions(records: &str, words: &str) -> usize {
    let is = |line: &&str| line.contains("\"record\":\"repetition\"") && line.contains(words);
    records.lines().filter(is).count()
}

#[test]
fn a_guest_whose_kernel_panics_in_a_command_is_told_at_once_with_its_console() {
    let Some(world) = World::new("a_guest_whose_kernel_panics_in_a_command_is_told_at_once_with_its_console") else {
        return;
    };
    let panics = "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 1000";
    world.fails_and_keeps_the_rest(panics, &["result of a repetition", "panic", "its console ended with"]);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_guest_whose_agent_is_killed_is_told_at_once() {
    let Some(world) = World::new("a_guest_whose_agent_is_killed_is_told_at_once") else { return };
    let killed = "kill -9 $PPID; sleep 1000";
    world.fails_and_keeps_the_rest(killed, &["it ended while homenode waited for result of a repetition"]);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_command_that_fills_its_guests_disk_says_so() {
    let Some(world) = World::new("a_command_that_fills_its_guests_disk_says_so") else { return };
    let fills = "dd if=/dev/zero of=/tmp/large bs=1M count=64 || exit 9";
    world.fails_and_keeps_the_rest(fills, &["ended with exit status 9", "No space left on device"]);
}

/// The guest's own disk has room, and the host has none for it: QEMU stops the guest, which then
/// waits without end.
#[test]
fn a_host_without_room_for_what_a_guest_writes_is_told_and_resuming_elsewhere_goes_on() {
    let test = "a_host_without_room_for_what_a_guest_writes_is_told_and_resuming_elsewhere_goes_on";
    let Some(world) = World::new(test) else { return };
    if linux::sys::effective_user_id() != 0 {
        return eprintln!("SKIPPED {test}: a small file system needs root");
    }
    world.experiment("dd if=/dev/zero of=/tmp/large bs=1M count=12 conv=fsync || exit 9");
    let line = format!(
        "mount -t tmpfs -o size=4m,mode=1777 none /var/tmp && exec {} evaluate fault.toml",
        env!("CARGO_BIN_EXE_homenode")
    );
    let output = world.command("unshare").args(["--mount", "sh", "-c", &line]).output().expect("unshare");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("mount: ") {
        return eprintln!("SKIPPED {test}: {said}");
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["it stands still while homenode waits for", "No space left on device", "/var/tmp", "--resume"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let again = world.evaluate(&["--json", "--resume", &world.results().display().to_string()]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let said: serde_json::Value = serde_json::from_slice(&again.stdout).expect("JSON");
    for configuration in said["configurations"].as_array().expect("configurations") {
        assert_eq!(configuration["cells"][0]["state"], "measured", "{said}");
    }
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn more_output_than_a_guest_of_256_mib_has_memory_costs_none() {
    let Some(world) = World::new("more_output_than_a_guest_of_256_mib_has_memory_costs_none") else { return };
    world.experiment("dd if=/dev/zero bs=1M count=300; echo");
    let output = world.evaluate(&["--json", "fault.toml"]);
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaints}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cell = &said["configurations"][1]["cells"][0];
    assert_eq!((cell["state"].as_str(), cell["verified"].as_bool()), (Some("measured"), Some(true)), "{said}");
}
