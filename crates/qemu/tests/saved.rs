//! Guests that go out of one QEMU and come into another one. No guest is booted: the firmware finds
//! nothing to boot, and waits.

use crate::common::{Place, again_with_the_newer_qemu, let_it_grow, no_qemu, resize};
use qemu::background;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vm::backend::{ErrorKind, GuestBytes, Saved};
use vm::manifest::DevicePlace;
use vm::{Added, Backend, BackendError, CallOff, Manifest, Vm};

impl Place {
    pub(crate) fn manifest(&self, vm: &mut dyn Vm) -> Manifest {
        vm.manifest(&self.launch.spec, &self.launch.plan.topology, &Added::default()).expect("a manifest")
    }

    /// What nobody but QEMU's monitor does; nobody else is at it.
    fn tell(&self, commands: &[Value]) {
        let socket = self.directory.path().join(self.name()).join("monitor");
        let mut stream = UnixStream::connect(socket).expect("a monitor");
        let mut said = BufReader::new(stream.try_clone().expect("a stream")).lines();
        for command in commands {
            writeln!(stream, "{command}").expect("it reads");
            let answer = said
                .by_ref()
                .map(|line| line.expect("it answers"))
                .find(|line| !line.contains("\"event\"") && !line.contains("\"QMP\""));
            assert!(answer.as_ref().is_some_and(|line| line.contains("\"return\"")), "{command}: {answer:?}");
        }
    }

    /// The VM with these bytes as its guest.
    pub(crate) fn resume(&self, manifest: &Manifest, guest: &[u8], right: bool) -> Result<Box<dyn Vm>, BackendError> {
        let (from, into) = linux::sys::wide_pipe().expect("a pipe");
        let guest = guest.to_vec();
        // QEMU may close its end early.
        let writer = std::thread::spawn(move || drop(File::from(into).write_all(&guest)));
        let mut was_right = || match right {
            true => Ok(()),
            false => Err(BackendError::new(ErrorKind::BadInput, "it is damaged")),
        };
        let saved = Saved { manifest, from: GuestBytes::Stream(from), was_right: &mut was_right, told: &mut |_| {} };
        let resumed = self.backend().resume(&self.launch, saved, &CallOff::default());
        writer.join().expect("it ends");
        resumed
    }
}

/// Saves a guest whose vCPUs wait; its bytes.
pub(crate) fn save(vm: &mut dyn Vm) -> Result<Vec<u8>, BackendError> {
    let (from, into) = linux::sys::wide_pipe().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut guest = Vec::new();
        File::from(from).read_to_end(&mut guest).expect("read");
        guest
    });
    vm.save(GuestBytes::Stream(into), &mut |_| {})?;
    Ok(reader.join().expect("read"))
}

/// The memory blocks of a guest, and how many MiB each has.
fn blocks(manifest: &Manifest) -> Vec<(&str, u64)> {
    manifest.run_by.memory.iter().map(|block| (block.id.as_str(), block.size.mib())).collect()
}

#[test]
fn a_guest_goes_out_of_one_qemu_and_on_in_another() {
    if no_qemu("a_guest_goes_out_of_one_qemu_and_on_in_another") {
        return;
    }
    let place = Place::new("test-saved");
    let mut vm = place.start();
    assert!(save(vm.as_mut()).err().unwrap().to_string().contains("its vCPUs run"));
    vm.pause().unwrap();
    let manifest = place.manifest(vm.as_mut());
    assert!(manifest.run_by.machine.starts_with("pc-q35-"), "{}", manifest.run_by.machine);
    assert_eq!(blocks(&manifest), [("vnode0", 32), ("vnode1", 32)]);
    assert_eq!(manifest.run_by.disk_sizes, [topology::Bytes::MIB]);
    // Saving changes nothing: it can be done again, and the guest goes on.
    save(vm.as_mut()).unwrap();
    let guest = save(vm.as_mut()).unwrap();
    vm.unpause().unwrap();
    vm.stop(Duration::ZERO).unwrap();

    let mut vm = place.resume(&manifest, &guest, true).expect("it goes on");
    assert!(vm.exited().is_none());
    assert_eq!(place.manifest(vm.as_mut()), manifest);
    let residence = vm.residence(&place.launch.plan).unwrap();
    assert_eq!(residence.vcpus.len(), 2);
    vm.stop(Duration::ZERO).unwrap();
}

#[test]
fn a_guest_that_does_not_fit_or_is_damaged_never_runs_and_leaves_nothing() {
    if no_qemu("a_guest_that_does_not_fit_or_is_damaged_never_runs") {
        return;
    }
    let place = Place::new("test-unfit");
    let mut vm = place.start();
    vm.pause().unwrap();
    let manifest = place.manifest(vm.as_mut());
    let guest = save(vm.as_mut()).unwrap();
    vm.stop(Duration::ZERO).unwrap();

    let mut other = manifest.clone();
    other.topology.nodes[1].vcpus = vec![0];
    let error = place.resume(&other, &guest, true).err().unwrap();
    assert!(error.is_bad_input() && error.to_string().contains("vCPUs of virtual node 1: 0 where"), "{error}");
    // All of it is there, and whoever wrote it knows that it is not right.
    let error = place.resume(&manifest, &guest, false).err().unwrap();
    assert_eq!(error.to_string(), "it is damaged");
    // It was cut.
    let error = place.resume(&manifest, &guest[..guest.len() / 2], true).err().unwrap();
    assert!(error.to_string().contains("QEMU"), "{error}");
    let error = place.resume(&manifest, &guest[..guest.len() / 2], false).err().unwrap();
    assert_eq!(error.to_string(), "it is damaged");
    assert!(background::list(&place.directory).unwrap().vms.is_empty());
    assert!(place.backend().adopt(place.name()).unwrap().is_none());
}

/// What was plugged in is there again, in its order, where the guest knows it.
#[test]
fn a_guest_that_grew_finds_what_was_plugged_in() {
    if no_qemu("a_guest_that_grew_finds_what_was_plugged_in") {
        return;
    }
    let mut place = Place::new("test-grown");
    let_it_grow(&mut place.launch);
    let mut vm = place.start();
    vm.pause().unwrap();
    let plan = place.launch.plan.clone();
    let grow = resize(&place.launch, &Added::default(), &[3, 1], &[(1, 32 + 64), (0, 32 + 32)]);
    let added = vm.resize(&grow, &mut |_| {}).unwrap().added;
    assert_eq!((added.vcpus.len(), added.memory.len()), (2, 2));
    let manifest = vm.manifest(&place.launch.spec, &plan.topology, &added).unwrap();
    let plugged = [("ram-vnode0-1", 256), ("ram-vnode1-1", 256)];
    assert_eq!(blocks(&manifest), [plugged, [("vnode0", 32), ("vnode1", 32)]].concat());
    let guest = save(vm.as_mut()).unwrap();
    vm.stop(Duration::ZERO).unwrap();

    let mut vm = place.resume(&manifest, &guest, true).expect("it goes on");
    let again = vm.manifest(&place.launch.spec, &plan.topology, &added).unwrap();
    assert_eq!(manifest.differences(&again), []);
    let residence = vm.residence(&plan).unwrap();
    assert_eq!(residence.vcpus.iter().map(|vcpu| vcpu.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    vm.stop(Duration::ZERO).unwrap();
}

/// What was plugged in first and taken away since left its port and its addresses free: the guest
/// would find the others at other places than it knows.
#[test]
fn what_was_plugged_in_is_at_its_place_again_behind_what_was_taken_away() {
    if no_qemu("what_was_plugged_in_is_at_its_place_again_behind_what_was_taken_away") {
        return;
    }
    let mut place = Place::new("test-places");
    let_it_grow(&mut place.launch);
    drop(place.start());
    place.tell(&[
        json!({ "execute": "qmp_capabilities" }),
        json!({ "execute": "stop" }),
        json!({ "execute": "object-add", "arguments": {
            "qom-type": "memory-backend-ram", "id": "ram-vnode1-2", "size": 256 << 20, "reserve": false,
        }}),
        json!({ "execute": "device_add", "arguments": {
            "driver": "virtio-mem-pci", "id": "vnode1-2", "memdev": "ram-vnode1-2", "node": 1, "bus": "hotplug1",
            "memaddr": 5u64 << 30, "requested-size": 64 << 20,
        }}),
    ]);
    let mut vm = place.backend().adopt(place.name()).unwrap().expect("it runs");
    let added = vm.resize(&resize(&place.launch, &Added::default(), &[], &[]), &mut |_| {}).unwrap().added;
    let manifest = vm.manifest(&place.launch.spec, &place.launch.plan.topology, &added).unwrap();
    let there = DevicePlace { id: "vnode1-2".to_owned(), address: 5 << 30, port: Some(1) };
    assert_eq!(manifest.run_by.places, [there]);
    let guest = save(vm.as_mut()).unwrap();
    vm.stop(Duration::ZERO).unwrap();

    let mut old = manifest.clone();
    old.run_by.places.clear();
    assert!(place.resume(&old, &guest, true).is_err(), "a guest went on whose devices are elsewhere");
    let mut vm = place.resume(&manifest, &guest, true).expect("it goes on");
    let again = vm.manifest(&place.launch.spec, &place.launch.plan.topology, &added).unwrap();
    assert_eq!(again, manifest);
    vm.stop(Duration::ZERO).unwrap();
}

/// Nothing more is written: by a QEMU that was stopped, and to a disk that hangs, which here is a
/// pipe that nobody reads.
#[test]
fn a_guest_of_which_nothing_more_comes_is_given_up_and_goes_on() {
    const SIGCONT: i32 = 18;
    const SIGSTOP: i32 = 19;
    if no_qemu("a_guest_of_which_nothing_more_comes_is_given_up_and_goes_on") {
        return;
    }
    let place = Place::new("test-silent");
    drop(place.start());
    let silent = place.backend().given_up_after(Duration::from_secs(2));
    for stopped in [false, true] {
        let mut vm = silent.adopt(place.name()).unwrap().expect("it runs");
        let pid = vm.pid();
        vm.pause().unwrap();
        let (unread, into) = std::io::pipe().expect("a pipe");
        let mut tell = |_| {
            if stopped {
                linux::sys::send_signal(pid, SIGSTOP).expect("a signal");
            }
        };
        let began = Instant::now();
        let error = vm.save(GuestBytes::Stream(into.into()), &mut tell).expect_err("nobody reads");
        let said = error.to_string();
        assert!(said.contains("nothing of its guest was written for 2 s"), "{stopped}: {said}");
        assert!(began.elapsed() >= Duration::from_secs(2), "{stopped}: {said}");
        drop(unread);
        linux::sys::send_signal(pid, SIGCONT).expect("a signal");
        // Answers that came too late are another connection's.
        drop(vm);
        let mut vm = silent.adopt(place.name()).unwrap().expect("it is there");
        vm.unpause().unwrap();
        assert!(save(vm.as_mut()).err().unwrap().to_string().contains("its vCPUs run"), "{stopped}");
        vm.pause().unwrap();
        save(vm.as_mut()).unwrap();
        vm.unpause().unwrap();
    }
}

#[test]
fn the_newer_qemu_does_all_of_it_too() {
    again_with_the_newer_qemu("saved", 5);
}
