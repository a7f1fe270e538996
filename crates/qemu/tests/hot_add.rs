//! vCPUs and memory that are plugged into a real QEMU whose vCPUs are stopped: its threads, its
//! memory backends, and what is refused. What a guest makes of them: `cli/tests/vm_set.rs`.

use crate::common::{again_with_the_newer_qemu, empty_disk, launch, let_it_grow, no_qemu, resize, start, unique};
use qemu::AttachedVm;
use std::collections::BTreeMap;
use std::time::Duration;
use topology::Bytes;
use vm::{Added, Launch, MemoryDeviceKind, Resize, Resized, Vm};

/// A VM that may grow, whose firmware runs, and where its disk is; `None` where there is no QEMU.
fn growing(test: &str, label: &str) -> Option<(Launch, AttachedVm, tempfile::TempDir)> {
    if no_qemu(test) {
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut launch = launch(&unique(label), 2, &empty_disk(directory.path()));
    let_it_grow(&mut launch);
    let vm = start(&launch).expect("a VM");
    Some((launch, vm, directory))
}

fn carry_out(vm: &mut AttachedVm, resize: &Resize) -> (Resized, Vec<Added>) {
    let mut told = Vec::new();
    let resized = vm.resize(resize, &mut |added| told.push(added.clone())).expect("it is resized");
    (resized, told)
}

#[test]
fn new_threads_and_new_memory_are_at_their_clients_home() {
    let Some((mut launch, mut vm, _directory)) =
        growing("new_threads_and_new_memory_are_at_their_clients_home", "test-grow")
    else {
        return;
    };
    vm.pause().unwrap();
    let usual = linux::sys::affinity(vm.pid()).unwrap();
    // The client of virtual node 1 has moved meanwhile: to the last CPU alone.
    let last = *launch.plan.cpus().iter().collect::<Vec<_>>().last().unwrap();
    let of_node_1 = launch.plan.placement.clients.iter().position(|client| client.virtual_nodes.contains(&1));
    launch.plan.placement.clients[of_node_1.unwrap()].cpus = [last].into_iter().collect();

    let (resized, told) = carry_out(&mut vm, &resize(&launch, &Added::default(), &[3], &[(1, 32 + 64)]));
    assert_eq!(resized.added.vcpus, [3]);
    let [device] = &resized.added.memory[..] else { panic!("{resized:?}") };
    assert_eq!((device.id.as_str(), device.virtual_node, device.kind), ("vnode1-1", 1, MemoryDeviceKind::VirtioMem));
    // The device is as large as all growth; the guest is asked to take what is wanted now.
    assert_eq!((device.size, device.requested), (Bytes::from_mib(256), Bytes::from_mib(64)));
    // Told of: the device, its request, the vCPU.
    assert_eq!(
        told.iter().map(|added| (added.memory.len(), added.vcpus.len())).collect::<Vec<_>>(),
        [(1, 0), (1, 0), (1, 1)]
    );
    assert!(resized.undone.is_empty() && resized.notes[0].contains("vCPUs are stopped"), "{resized:?}");

    let residence = vm.residence(&launch.plan).unwrap();
    assert_eq!(residence.vcpus.iter().map(|vcpu| vcpu.index).collect::<Vec<_>>(), [0, 2, 3]);
    let new = &residence.vcpus[2];
    assert_eq!((new.virtual_node, new.affinity.to_string()), (1, last.to_string()));
    assert_eq!(linux::sys::affinity(vm.pid()).unwrap(), usual);
    let maps = std::fs::read_to_string(format!("/proc/{}/numa_maps", vm.pid())).unwrap_or_default();
    if !maps.is_empty() {
        let home = launch.plan.client_of(1).unwrap().home.to_string();
        let bound: Vec<&str> = maps.lines().filter(|line| line.contains(&format!(" bind:{home}"))).collect();
        // Two virtual nodes of power-on and the device.
        assert!(bound.len() >= 3, "{bound:?}");
        assert_eq!(device.bound_to.to_string(), home);
    }

    // homenode was killed before it wrote anything down, and while it plugged a vCPU of node 1: all
    // is found, the same device gives more, and QEMU's main thread has its CPUs again.
    linux::sys::set_affinity(vm.pid(), &[last].into_iter().collect()).unwrap();
    let (resized, told) = carry_out(&mut vm, &resize(&launch, &Added::default(), &[3, 1], &[(1, 32 + 128)]));
    assert_eq!((told[0].vcpus.as_slice(), told[0].memory[0].requested), (&[3][..], Bytes::from_mib(64)));
    assert_eq!((resized.added.vcpus.as_slice(), resized.added.memory.len()), (&[3, 1][..], 1));
    assert_eq!(resized.added.memory[0].requested, Bytes::from_mib(128));
    assert_eq!(linux::sys::affinity(vm.pid()).unwrap(), usual);
    let sizes = resized.added.sizes(&launch.plan.topology);
    assert_eq!((sizes[0].vcpus.len(), sizes[1].vcpus.len(), sizes[1].memory), (2, 2, Bytes::from_mib(160)));

    // Another home: a device of its own for what is left, 256 - 128.
    let mut elsewhere = resize(&launch, &resized.added, &[], &[(1, 32 + 192)]);
    elsewhere.placement.clients.iter_mut().for_each(|client| client.memory_policy = vm::MemoryPolicy::Default);
    let (resized, _) = carry_out(&mut vm, &elsewhere);
    let [_, second] = &resized.added.memory[..] else { panic!("{resized:?}") };
    assert_eq!(
        (second.id.as_str(), second.size, second.requested),
        ("vnode1-2", Bytes::from_mib(128), Bytes::from_mib(64))
    );
    assert!(second.bound_to.is_empty());

    // Less again: what lies away from home goes first.
    let (resized, _) = carry_out(&mut vm, &resize(&launch, &resized.added, &[], &[(1, 32 + 96)]));
    let requested: Vec<u64> = resized.added.memory.iter().map(|device| device.requested.mib()).collect();
    assert_eq!(requested, [96, 0]); // 96 = 192 - 64 (all of the second) - 32
    Box::new(vm).stop(Duration::ZERO).unwrap();
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_plugged() {
    let Some((launch, mut vm, _directory)) =
        growing("what_cannot_be_is_refused_before_anything_is_plugged", "test-refuse")
    else {
        return;
    };
    vm.pause().unwrap();
    let ask = |plug: &[u32], memory: &[(u32, u64)]| resize(&launch, &Added::default(), plug, memory);
    let unplug = Resize { unplug: vec![0], ..ask(&[], &[]) };
    let cases = [
        (ask(&[2], &[]), "it has no vCPU 2 that may be plugged in"),
        (ask(&[1], &[(0, 32 + 257)]), "virtual node 0 may have 288 MiB at most, not 289 MiB"),
        (ask(&[1], &[(0, 16)]), "virtual node 0 keeps 32 MiB while it runs, not 16 MiB"),
        (ask(&[1], &[(7, 64)]), "it has no virtual node 7"),
        (unplug, "vCPU 0 was there at power-on"),
    ];
    for (resize, words) in cases {
        let error = vm.resize(&resize, &mut |_| panic!("nothing is plugged")).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains(words), "{error}");
    }
    // Two are there, one was taken away: QEMU has a place for the thread of one more, of four.
    if *Vm::accelerator(&vm) != vm::Accelerator::Kvm {
        let mut more = ask(&[1, 3], &[]);
        more.added.taken_away = 1;
        let error = vm.resize(&more, &mut |_| panic!("nothing is plugged")).unwrap_err();
        assert!(
            error.is_bad_input() && error.to_string().contains("it may have 3 vCPUs until its next power-on, not 4"),
            "{error}"
        );
    }
    assert_eq!(vm.residence(&launch.plan).unwrap().vcpus.len(), 2);
    Box::new(vm).stop(Duration::ZERO).unwrap();
}

#[test]
fn a_guest_without_a_driver_gets_a_dimm_and_it_is_said() {
    let Some((launch, mut vm, _directory)) =
        growing("a_guest_without_a_driver_gets_a_dimm_and_it_is_said", "test-dimm")
    else {
        return;
    };
    // The firmware runs, and has no driver for anything that is plugged in.
    let impatient =
        |mib| Resize { patience: Duration::from_millis(100), ..resize(&launch, &Added::default(), &[], &[(0, mib)]) };
    let (resized, _) = carry_out(&mut vm, &impatient(32 + 128));
    let dimms: Vec<_> = resized.added.memory.iter().filter(|device| device.kind == MemoryDeviceKind::Dimm).collect();
    assert_eq!(dimms.len(), 1, "{resized:?}");
    assert_eq!(
        (dimms[0].size, dimms[0].requested, dimms[0].virtual_node),
        (Bytes::from_mib(128), Bytes::from_mib(128), 0)
    );
    // QEMU 7.2 does not let the empty device go; with a newer one the guest does not.
    assert!(resized.added.memory.iter().all(|device| device.requested.0 == 0 || device.kind == MemoryDeviceKind::Dimm));
    assert!(
        resized.notes[..]
            .iter()
            .any(|note| note.contains("no driver for virtio-mem: virtual node 0 got a DIMM of 128 MiB"))
    );
    assert!(resized.undone[0].contains("has not answered about DIMM"), "{resized:?}");
    assert_eq!(resized.added.sizes(&launch.plan.topology)[0].memory, Bytes::from_mib(160));

    // A DIMM of 64 MiB is none that Linux would take. A newer QEMU refuses to use the device again.
    let error = vm.resize(&impatient(32 + 192), &mut |_| {}).unwrap_err();
    assert!(
        error.is_bad_input() && error.to_string().contains("a DIMM has a multiple of 128 MiB, not 64 MiB"),
        "{error}"
    );

    // A vCPU that nobody brings online is there, and it is said.
    let (resized, _) = carry_out(&mut vm, &Resize { memory: BTreeMap::new(), plug: vec![1], ..impatient(0) });
    assert_eq!(resized.added.vcpus, [1]);
    assert!(resized.undone[0].contains("has not brought vCPU 1 online within 0 s"), "{resized:?}");
    // Nothing told QEMU yet that this guest has ACPI's hot-plug.
    let back = Resize { plug: Vec::new(), unplug: vec![1], memory: BTreeMap::new(), ..impatient(0) };
    let (resized, _) = carry_out(&mut vm, &back);
    assert!(resized.undone[0].contains("vCPU 1 stays: its guest has not turned on ACPI's"), "{resized:?}");
    assert_eq!(resized.added.vcpus, [1]);
    Box::new(vm).stop(Duration::ZERO).unwrap();
}

#[test]
fn the_newer_qemu_does_all_of_it_too() {
    again_with_the_newer_qemu("hot_add", 3);
}
