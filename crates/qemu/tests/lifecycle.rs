//! The life of VMs with a real QEMU: started, read back, ended. No guest is booted: the firmware
//! finds nothing to boot, and waits.

use crate::common::{empty_disk, launch, machine, no_qemu, start, unique};
use qemu::{QemuError, RuntimeDir};
use std::time::Duration;
use vm::Vm;
use vm::spec::{Boot, DiskFormat, Network, PortForward};

fn ends(pid: u32) -> bool {
    (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        linux::process::Identity::of(pid).is_err()
    })
}

#[test]
fn a_vm_of_eight_nodes_is_at_home_and_its_pages_add_up() {
    let name = unique("test-eight");
    if no_qemu("a_vm_of_eight_nodes_is_at_home_and_its_pages_add_up") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let launch = launch(&name, 8, &empty_disk(directory.path()));
    let mut vm = start(&launch).unwrap();
    let residence = vm.residence(&launch.plan).unwrap();
    assert!(residence.qemu_version.contains('.'), "{}", residence.qemu_version);
    assert_eq!(residence.vcpus.len(), 8);
    for vcpu in &residence.vcpus {
        assert!(vcpu.at_home && vcpu.virtual_node == vcpu.index, "{vcpu:?}");
        assert_eq!(linux::sys::affinity(vcpu.thread_id).unwrap(), vcpu.affinity);
    }
    assert_eq!(residence.memory.len(), 8);
    for memory in residence.memory.iter().filter(|memory| memory.unknown.is_none()) {
        let bytes: u64 = memory.pages_by_node.values().sum::<u64>() * memory.page_bytes;
        assert_eq!(bytes, 32 << 20, "{memory:?}"); // all of the node's 32 MiB were filled at start, and counted once
        assert!(memory.at_home, "{memory:?}");
    }
    assert!(vm.agent().unwrap().is_some() && vm.agent().unwrap().is_none());

    let mut running = linux::examine_this_host().unwrap();
    running.vms.retain(|seen| seen.vm.name == name);
    let [seen] = &running.vms[..] else { panic!("{running:?}") };
    assert_eq!((seen.vm.pid, seen.clients.iter().map(|client| client.vcpus).sum::<u32>()), (vm.pid(), 8));
    assert_eq!(seen.clients.iter().map(|client| client.memory_size.mib()).sum::<u64>(), 256); // 8 x 32
    // homenode's own binding is nobody's choice.
    assert!(seen.clients.iter().all(|client| client.chosen_nodes.is_none()), "{seen:?}");
    let held = scheduler::Occupancy::of_observation(&running, &machine());
    assert_eq!(held.nodes.values().map(|node| node.vcpus).sum::<u32>(), 8);

    let pid = vm.pid();
    assert_eq!(vm.exited(), None);
    Box::new(vm).stop(Duration::ZERO).unwrap();
    assert!(ends(pid));
}

#[test]
fn a_dropped_vm_is_gone() {
    let name = unique("test-drop");
    if no_qemu("a_dropped_vm_is_gone") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let vm = start(&launch(&name, 1, &empty_disk(directory.path()))).unwrap();
    let pid = vm.pid();
    drop(vm);
    assert!(ends(pid));
}

#[test]
fn a_qemu_that_dies_at_once_is_reported_with_its_own_last_words() {
    let name = unique("test-dies");
    if no_qemu("a_qemu_that_dies_at_once_is_reported_with_its_own_last_words") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut launch = launch(&name, 1, &empty_disk(directory.path()));
    launch.spec.disks[0].format = DiskFormat::Qcow2;
    let error = start(&launch).unwrap_err().to_string();
    assert!(error.starts_with(&format!("VM {name}: QEMU ended (exit status: 1)")), "{error}");
    assert!(error.contains("Image is not in qcow2 format") && error.contains("qemu-img info"), "{error}");
}

#[test]
fn a_port_that_is_taken_is_said_with_what_to_do() {
    let name = unique("test-port");
    if no_qemu("a_port_that_is_taken_is_said_with_what_to_do") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let forward = vec![PortForward { host: taken.local_addr().unwrap().port(), guest: 22 }];
    let mut launch = launch(&name, 1, &empty_disk(directory.path()));
    launch.spec.networks = vec![Network::User { forward }];
    let error = start(&launch).unwrap_err().to_string();
    assert!(error.contains("change `forward` in the spec"), "{error}");
}

#[test]
fn more_vcpus_than_qemu_allows_are_refused_in_its_own_words() {
    let name = unique("test-many");
    if no_qemu("more_vcpus_than_qemu_allows_are_refused_in_its_own_words") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut launch = launch(&name, 1, &empty_disk(directory.path()));
    let many = 5000;
    (launch.spec.shape.vcpus, launch.plan.topology.cores_per_socket) = (many, many);
    launch.plan.topology.nodes[0].vcpus = (0..many).collect();
    let error = start(&launch).unwrap_err().to_string();
    assert!(error.contains("5000") && error.contains("Lower `vcpus`"), "{error}");
}

#[test]
fn memory_that_the_host_lacks_is_not_reserved() {
    let name = unique("test-memory");
    let directory = tempfile::tempdir().unwrap();
    let mut launch = launch(&name, 1, &empty_disk(directory.path()));
    launch.plan.topology.nodes[0].memory = topology::Bytes::from_mib(1 << 30); // 2^30 MiB = 1 PiB
    let runtime = RuntimeDir::at(directory.path().join("runtime")).unwrap();
    let lock = runtime.lock_placement(Duration::ZERO).unwrap().unwrap();
    let error = lock.reserve(&[&launch.plan], &scheduler::Observation::default()).unwrap_err();
    assert!(matches!(error, QemuError::Memory { .. }), "{error}");
    let left: Vec<_> = std::fs::read_dir(runtime.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".homenode-runtime"]);
}

#[test]
fn a_kernel_that_is_not_there_is_bad_input() {
    let name = unique("test-kernel");
    if no_qemu("a_kernel_that_is_not_there_is_bad_input") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut launch = launch(&name, 1, &empty_disk(directory.path()));
    launch.spec.boot = Boot::Kernel { kernel: "/no/kernel".into(), initrd: None, command_line: String::new() };
    let error = start(&launch).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("boot.kernel = /no/kernel"), "{error}");
}
