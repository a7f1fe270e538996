//! VMs that go into files and come out again, with a real QEMU whose firmware finds nothing to
//! boot, and with the tiny guest. Emulated guests are stopped before they are saved, which is safe
//! on QEMU 7.2 too.

use crate::common::kept_vm::{DISK, KeptVm, two_nodes};
use crate::common::{inventory_in, newer_qemu, said, tiny_guest, within_seconds};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use vm::history::LifeEvent;
use vm::life::State;

impl KeptVm {
    pub(crate) fn of_two_nodes(test: &str, label: &str) -> Option<Self> {
        let vm = Self::new(test, label)?;
        vm.write_spec(&two_nodes(32));
        Some(vm)
    }

    /// What was refused: exit code 2, and nothing changed.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let before = self.record();
        let (code, said, errors) = self.said(arguments);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{arguments:?}: {errors}");
        assert_eq!(self.record(), before);
        errors
    }

    pub(crate) fn suspend(&self) -> PathBuf {
        let said: Value = serde_json::from_str(&self.ok(&["vm", "suspend", &self.name, "--json"])).expect("JSON");
        PathBuf::from(said["file"].as_str().expect("a file"))
    }

    pub(crate) fn resume(&self) {
        self.vm_ok("resume", &[]);
    }
}

#[test]
fn a_vm_goes_into_a_file_and_on_from_it() {
    let Some(vm) = KeptVm::of_two_nodes("a_vm_goes_into_a_file_and_on_from_it", "suspend-suspended") else { return };
    vm.run();
    let before = vm.record();
    let file = vm.suspend();
    assert_eq!((vm.state(), vm.pid()), (State::Suspended, None));
    assert_eq!(vm.record().life.suspended_in.as_deref(), Some(file.as_path()));
    // 64 MiB that are mostly empty.
    assert!(fs::metadata(&file).unwrap().len() < 16 << 20);
    let shown = vm.ok(&["vm", "resume", &vm.name, "--dry-run"]);
    assert!(shown.contains("Placement") && vm.state() == State::Suspended, "{shown}");
    assert!(vm.refused(&["vm", "start", &vm.name]).contains("is suspended"));
    // Both say it in one word, at one place.
    let json = |arguments: &[&str]| serde_json::from_str::<Value>(&vm.ok(arguments)).expect("JSON");
    let (shown, listed) = (json(&["vm", "show", &vm.name, "--json"]), json(&["vm", "list", "--json"]));
    let states = [&shown["state"], &listed["vms"][0]["state"]];
    assert!(states.iter().all(|state| *state == "suspended") && listed["vms"][0].get("phase").is_none(), "{states:?}");
    vm.resume();
    assert_eq!((vm.state(), vm.pid().is_some(), file.exists()), (State::Running, true, false));
    assert_eq!((vm.record().topology, vm.record().spec), (before.topology, before.spec));
    let last = vm.record().life.history.last().map(|chapter| chapter.event.clone());
    assert!(matches!(last, Some(LifeEvent::Resumed { .. })), "{last:?}");
    // One that is paused, into a file that its owner names; it stays there until it is let go on.
    vm.ok(&["vm", "pause", &vm.name]);
    vm.ok(&["vm", "suspend", &vm.name, "--to", "elsewhere"]);
    assert!(vm.place.path("elsewhere").exists() && vm.state() == State::Suspended);
    vm.ok(&["vm", "stop", &vm.name, "--force"]);
    assert!(!vm.place.path("elsewhere").exists() && vm.state() == State::Stopped);
    vm.ok(&["vm", "start", &vm.name]);
    fs::write(vm.place.path("there"), "x").unwrap();
    assert!(vm.refused(&["vm", "suspend", &vm.name, "--to", "there"]).contains("it is there already"));
    assert!(vm.refused(&["vm", "suspend", &vm.name, "--to", "none/here"]).contains("none/here"));
    // QEMU would fail half way, with words of its own.
    fs::rename(vm.place.path("disk.img"), vm.place.path("moved.img")).unwrap();
    assert!(vm.refused(&["vm", "suspend", &vm.name]).contains("disk.img: it is not there any more"));
    fs::rename(vm.place.path("moved.img"), vm.place.path("disk.img")).unwrap();
    assert_eq!(vm.state(), State::Running);
    assert!(vm.pid().is_some());
}

#[test]
fn a_file_that_is_damaged_old_or_of_another_vm_starts_nothing() {
    let test = "a_file_that_is_damaged_old_or_of_another_vm_starts_nothing";
    let (Some(vm), Some(other)) =
        (KeptVm::of_two_nodes(test, "suspend-damaged"), KeptVm::of_two_nodes(test, "suspend-other"))
    else {
        return;
    };
    vm.run();
    let file = vm.suspend();
    let whole = fs::read(&file).unwrap();
    let spoiled = vm.place.path("spoiled");
    let from = |bytes: &[u8]| {
        fs::write(&spoiled, bytes).unwrap();
        let said = vm.refused(&["vm", "resume", &vm.name, "--from", "spoiled"]);
        assert_eq!(vm.pid(), None, "{said}");
        said
    };
    // Its beginning, what it is about, the first piece's checksum and bytes, the last byte.
    for at in [3, 17, 40, 70, 200, 1 << 20, (1 << 20) + 500, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        let said = from(&bytes);
        assert!(
            ["damaged", "no VM that homenode suspended", "version"].iter().any(|word| said.contains(word)),
            "{at}: {said}"
        );
    }
    for length in [0, 60, 300, 1 << 20, whole.len() - 1] {
        from(&whole[..length]);
    }
    // A file of the VM from before its last run.
    fs::write(vm.place.path("old"), &whole).unwrap();
    vm.resume();
    // In the same second, where the machine is fast enough.
    vm.suspend();
    assert!(vm.refused(&["vm", "resume", &vm.name, "--from", "old"]).contains("has run since"));
    assert!(vm.refused(&["vm", "resume", "old"]).contains("has run since"));
    assert!(vm.refused(&["vm", "resume", "no-such-vm"]).contains("no VM named no-such-vm is kept"));
    assert!(vm.refused(&["vm", "resume", "no-such-vm", "--from", "old"]).contains("not no-such-vm"));
    // Another VM's.
    other.run();
    let of_other = other.suspend();
    let said = vm.refused(&["vm", "resume", &vm.name, "--from", &of_other.display().to_string()]);
    assert!(said.contains(&format!("it holds VM {}", other.name)), "{said}");
    vm.resume();
    assert!(vm.pid().is_some());
}

#[test]
fn a_vm_goes_on_on_a_host_that_does_not_know_it() {
    let Some(vm) = KeptVm::of_two_nodes("a_vm_goes_on_on_a_host_that_does_not_know_it", "suspend-abroad") else {
        return;
    };
    vm.run();
    let topology = vm.record().topology;
    vm.ok(&["vm", "suspend", &vm.name, "--to", "file"]);
    let there = vm.place.path("there");
    let abroad = |arguments: &[&str]| said(&mut vm.command_in(&there, arguments));
    // Whoever brought it should see what it would use of this host.
    let (code, shown, errors) = abroad(&["vm", "resume", "file", "--dry-run"]);
    assert!(code == Some(0) && shown.contains("[[disk]]") && shown.contains("disk.img"), "{shown} {errors}");
    if linux::sys::effective_user_id() == 0 {
        let file = vm.place.path("file");
        std::os::unix::fs::chown(&file, Some(54_321), None).unwrap();
        let (code, _, errors) = abroad(&["vm", "resume", "file"]);
        assert!(code == Some(2) && errors.matches("belongs to user 54321").count() == 1, "{errors}");
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    }
    // A VM of that name is there, and another one; it may have begun in the same second.
    vm.write_spec(&two_nodes(40));
    let (code, _, errors) = abroad(&["run", "vm.toml", "--daemonize"]);
    assert_eq!(code, Some(0), "{errors}");
    let runs = inventory_in(&there).read(&vm.name).unwrap();
    let (code, _, errors) = abroad(&["vm", "resume", "file"]);
    assert!(code == Some(2) && errors.contains("it holds another VM named"), "{code:?} {errors}");
    assert_eq!(inventory_in(&there).read(&vm.name).unwrap(), runs);
    assert_eq!(abroad(&["vm", "delete", &vm.name, "--force"]).0, Some(0));
    // What cannot go on leaves nothing there.
    let disk = vm.place.path("disk.img");
    fs::rename(&disk, vm.place.path("hidden.img")).unwrap();
    let (code, _, errors) = abroad(&["vm", "resume", "file"]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("disk[0].path") && inventory_in(&there).read(&vm.name).is_err(), "{errors}");
    // A disk of another size is another disk.
    fs::write(&disk, vec![0u8; 2 << 20]).unwrap();
    let (code, _, errors) = abroad(&["vm", "resume", "file"]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("size of disk 0: 1 MiB where it ran, 2 MiB"), "{errors}");
    fs::rename(vm.place.path("hidden.img"), &disk).unwrap();
    let (code, _, errors) = abroad(&["vm", "resume", "file"]);
    assert_eq!(code, Some(0), "{errors}");
    let record = inventory_in(&there).read(&vm.name).unwrap();
    assert_eq!((record.life.state, record.topology), (State::Running, topology));
    let events: Vec<&LifeEvent> = record.life.history.iter().map(|chapter| &chapter.event).collect();
    let came = matches!(events[..], [LifeEvent::Started { .. }, .., LifeEvent::Resumed { .. }])
        || matches!(events[..], [LifeEvent::Planned, .., LifeEvent::Resumed { .. }]);
    assert!(came && errors.contains("file stays"), "{events:?} {errors}");
    let (code, _, errors) = abroad(&["vm", "delete", &vm.name, "--force"]);
    assert_eq!(code, Some(0), "{errors}");
}

/// A machine type that is gone is said, and a VM that began on the older QEMU goes there and back.
#[test]
fn a_vm_goes_from_one_qemu_to_another() {
    let test = "a_vm_goes_from_one_qemu_to_another";
    let Some(newer) = newer_qemu(test) else { return };
    let Some(mut vm) = KeptVm::of_two_nodes(test, "suspend-newer") else { return };
    vm.run();
    for qemu in [Some(newer.clone()), None] {
        vm.suspend();
        vm.qemu = qemu;
        let (code, _, errors) = vm.said(&["vm", "resume", &vm.name]);
        assert_eq!(code, Some(0), "{errors}");
        assert!(errors.contains("QEMU: "), "that it is another one is said: {errors}");
    }
    vm.ok(&["vm", "stop", &vm.name, "--force"]);
    vm.qemu = Some(newer);
    vm.ok(&["vm", "start", &vm.name]);
    vm.suspend();
    vm.qemu = None;
    let (code, _, errors) = vm.said(&["vm", "resume", &vm.name]);
    assert!(code == Some(2) && errors.contains("lacks the machine type"), "{code:?} {errors}");
    assert_eq!(vm.state(), State::Suspended);
}

/// The last round of its pattern that a guest told of, its number written to its end.
fn round(console: &str) -> Option<u64> {
    let number = |line: &str| line.strip_prefix("pattern: round ")?.split_once(',')?.0.parse().ok();
    console.lines().rev().find_map(number)
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_guest_finds_its_memory_and_its_time_as_they_were() {
    let test = "a_guest_finds_its_memory_and_its_time_as_they_were";
    let Some(mut vm) = KeptVm::of_two_nodes(test, "suspend-pattern") else { return };
    let Some(guest) = tiny_guest(test) else { return };
    let (kernel, initrd) = (guest.kernel().display(), guest.initramfs().display());
    let command_line = "maxcpus=1 homenode.pattern=24 quiet";
    let boot = format!(
        "boot = {{ from = \"kernel\", kernel = '{kernel}', initrd = '{initrd}', command_line = '{command_line}' }}"
    );
    vm.write(&two_nodes(96), &format!("{boot}\n{DISK}read_only = true\n"));
    vm.run();
    let mut qemus = vec![None, newer_qemu(&format!("part of {test}")), None];
    qemus.dedup();
    for qemu in qemus {
        let before = round(&vm.console()).unwrap_or(0);
        assert!(within_seconds(90, || round(&vm.console()) > Some(before + 3)), "{}", vm.console());
        vm.suspend();
        let at = round(&vm.console());
        vm.qemu = qemu;
        vm.resume();
        assert!(within_seconds(90, || round(&vm.console()) > at.map(|at| at + 3)), "{}", vm.console());
    }
    let console = vm.console();
    assert!(!console.contains("WRONG"), "{console}");
    let rounds: Vec<u64> = console.lines().filter_map(round).collect();
    assert!(rounds.windows(2).all(|pair| pair[1] == pair[0] + 1), "{rounds:?}");
}
