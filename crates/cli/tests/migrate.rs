//! `homenode vm migrate` between two directories of VMs that stand for two hosts, reached by a program
//! that stands for ssh. The firmware finds nothing to boot, and waits.

use crate::common::{Place, homenode_in, lacks, unique, within_seconds, write_script};
use inventory::Inventory;
use qemu::RuntimeDir;
use qemu::migration::Outgoing;
use std::path::{Path, PathBuf};
use std::process::Command;
use vm::history::LifeEvent;
use vm::life::State;

/// Two hosts with one VM.
struct Hosts {
    place: Place,
    vm: String,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in ["a", "b"] {
            // It may run at one only, or have ended.
            let _ = homenode_in(&self.runtime(host), &["vm", "stop", "--force", &self.vm]).output();
        }
    }
}

impl Hosts {
    /// A VM that runs on `a`.
    fn with_vm(label: &str) -> Self {
        let place = Place::new();
        std::fs::set_permissions(place.path("disk.img"), std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .expect("a mode");
        let this = Self { place, vm: unique(label) };
        let program = env!("CARGO_BIN_EXE_homenode");
        let script = |other: &str| {
            let runtime = this.runtime(other).display().to_string();
            format!("shift; set -- $1; shift\nexec env HOMENODE_RUNTIME_DIR={runtime} {program} \"$@\"")
        };
        write_script(&this.place.path("to-b"), &script("b"));
        write_script(&this.place.path("to-a"), &script("a"));
        this.start();
        this
    }

    fn runtime(&self, host: &str) -> PathBuf {
        self.place.path(host)
    }

    fn inventory(&self, host: &str) -> Inventory {
        Inventory::at(self.runtime(host).join(".vms"))
    }

    fn start(&self) {
        let disk = self.place.path("disk.img");
        let disk = format!("[[disk]]\npath = '{}'\nformat = \"raw\"\n", disk.display());
        let fixed = r#"{ vcpus = 1, memory = "32 MiB" },"#.repeat(2);
        let head = format!("name = \"{}\"\nvcpus = 2\nmemory = \"64 MiB\"\nboot.from = \"disk\"\n", self.vm);
        let log = self.place.path("console.log");
        let console = format!("console = {{ to = \"file\", path = '{}' }}\n", log.display());
        let text = format!("{head}{console}policy.virtual_nodes = [{fixed}]\n{disk}");
        let file = self.place.path("vm.toml");
        std::fs::write(&file, &text).expect("a spec");
        self.says("a", &["run", file.to_str().expect("UTF-8"), "--daemonize"], 0);
    }

    fn homenode(&self, host: &str, arguments: &[&str]) -> Command {
        let other = if host == "a" { "to-b" } else { "to-a" };
        let mut command = homenode_in(&self.runtime(host), arguments);
        command.env("HOMENODE_SSH", self.place.path(other));
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
        self.inventory(host).read(&self.vm).ok().map(|record| record.life.state)
    }

    /// Whether a guest is on a host, and runs.
    fn runs(&self, host: &str) -> Option<bool> {
        let directory = RuntimeDir::at(self.runtime(host)).expect("a runtime directory");
        Outgoing::connect(&directory, &self.vm).ok().and_then(|mut vm| vm.runs().ok())
    }

    fn qemus(&self) -> usize {
        let all = linux::process::all().expect("/proc");
        let named = format!("{},", self.vm);
        let is_it = |pid: &u32| {
            let words = linux::process::command_line(*pid).unwrap_or_default();
            words.windows(2).any(|pair| pair[0] == "-name" && pair[1].starts_with(&named))
        };
        all.iter().filter(|pid| is_it(pid)).count()
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
        left.retain(|name| ![".homenode-runtime", ".vms", &self.vm].contains(&name.as_str()));
        left
    }

    fn nothing_else_is_left(&self) {
        assert!(within_seconds(10, || self.qemus() == 1), "{} QEMUs", self.qemus());
        assert_eq!((self.left("a"), self.left("b")), (vec![], vec![]));
    }
}

fn no_qemu(test: &str) -> bool {
    lacks(test, "qemu-system-x86_64")
}

#[test]
fn a_vm_gets_another_home_on_its_own_host() {
    if no_qemu("a_vm_gets_another_home_on_its_own_host") {
        return;
    }
    let hosts = Hosts::with_vm("mig-here");
    let said = hosts.says("a", &["vm", "migrate", &hosts.vm, "--to", "unix:"], 0);
    assert!(said.contains("runs on") && said.contains("stood still for"), "{said}");
    assert_eq!((hosts.runs("a"), hosts.state("a")), (Some(true), Some(State::Running)));
    let record = hosts.inventory("a").read(&hosts.vm).expect("a record");
    let last = record.life.history.last().map(|chapter| &chapter.event);
    assert!(matches!(last, Some(LifeEvent::Arrived { .. })), "{last:?}");
    hosts.nothing_else_is_left();
}

#[test]
fn a_vm_goes_to_another_host_and_comes_back() {
    if no_qemu("a_vm_goes_to_another_host_and_comes_back") {
        return;
    }
    let hosts = Hosts::with_vm("mig-there");
    let topology = hosts.inventory("a").read(&hosts.vm).expect("a record").topology;
    let refused = hosts.says("a", &["vm", "migrate", &hosts.vm, "--to", "b"], 2);
    assert!(refused.contains("--shared-storage"), "{refused}");
    let dry = hosts.says("a", &["vm", "migrate", &hosts.vm, "--to", "b", "--shared-storage", "--dry-run"], 0);
    assert!(dry.contains("would live on") && dry.contains("64 MiB"), "{dry}");
    assert_eq!((hosts.runs("a"), hosts.state("a"), hosts.qemus()), (Some(true), Some(State::Running), 1));
    hosts.says("a", &["vm", "migrate", &hosts.vm, "--to", "b", "--shared-storage"], 0);
    assert_eq!((hosts.runs("a"), hosts.state("a")), (None, None));
    assert_eq!((hosts.runs("b"), hosts.state("b")), (Some(true), Some(State::Running)));
    hosts.nothing_else_is_left();
    hosts.says("b", &["vm", "migrate", &hosts.vm, "--to", "a", "--shared-storage"], 0);
    assert_eq!((hosts.runs("a"), hosts.runs("b")), (Some(true), None));
    let record = hosts.inventory("a").read(&hosts.vm).expect("a record");
    assert_eq!(record.topology, topology, "what the guest sees is the same for life");
    let arrivals = record.life.history.iter().filter(|chapter| matches!(chapter.event, LifeEvent::Arrived { .. }));
    assert_eq!(arrivals.count(), 2);
    hosts.nothing_else_is_left();
}
