use super::*;
use crate::qemu::memory_id;
use crate::spec::{Boot, Disk, DiskFormat, Firmware, GuestRoot, Network, PortForward};
use crate::{MemoryDeviceKind, Shape, samples};
use proptest::prelude::*;

/// Two virtual nodes of two vCPUs, one of which is absent in each; a vCPU and memory were plugged.
fn manifest() -> Manifest {
    let shape = Shape { name: "web".to_owned(), vcpus: 2, memory: Bytes::from_mib(1024), ..Shape::default() };
    let disk = Disk { path: "/d/web.img".into(), format: DiskFormat::Raw, snapshot: false, read_only: false };
    let networks = vec![Network::User { forward: vec![PortForward { host: 2222, guest: 22 }] }];
    let spec = VmSpec { shape, disks: vec![disk], networks, ..VmSpec::default() };
    let (topology, device) = (samples::topology(), samples::device());
    let block = |id: &str, size: Bytes| MemoryBlock { id: id.to_owned(), size };
    let at_start = topology.nodes.iter().map(|node| block(&memory_id(node.id), node.memory));
    let memory = at_start.chain([block(&device.backend(), device.size)]).collect();
    let places = vec![DevicePlace { id: device.id.clone(), address: 1 << 32, port: Some(1) }];
    let added = Added { vcpus: vec![3], memory: vec![device], taken_away: 1 };
    let run_by = RunBy {
        qemu: "7.2.22".to_owned(),
        machine: "pc-q35-7.2".to_owned(),
        cpu_model: "host".to_owned(),
        host_cpu: Some("EPYC".to_owned()),
        hardware: true,
        memory,
        places,
        disk_sizes: vec![Bytes::from_mib(2048)],
        flash_sizes: vec![Bytes::from_mib(4), Bytes(528 << 10)],
        agent: false,
    };
    Manifest::of(&spec, &topology, &added, run_by)
}

type Change = fn(&mut Manifest, u32);

/// Every field that a guest can notice, its first words in a difference, and whether that refuses.
const CHANGES: &[(&str, bool, Change)] = &[
    ("homenode", false, |it, _| it.homenode += "x"),
    ("QEMU", false, |it, _| it.run_by.qemu += "x"),
    ("machine type", true, |it, _| it.run_by.machine += "x"),
    ("CPU model", true, |it, _| it.run_by.cpu_model += "x"),
    ("the host's CPU", true, |it, _| it.run_by.host_cpu = None),
    ("what runs its instructions", true, |it, _| it.run_by.hardware = false),
    ("memory blocks", true, |it, _| it.run_by.memory[0].id += "x"),
    ("memory block vnode0", true, |it, by| it.run_by.memory[1].size.0 += u64::from(by)),
    ("place of memory device mem1", true, |it, by| it.run_by.places[0].address += u64::from(by)),
    ("size of disk 0", true, |it, by| it.run_by.disk_sizes[0].0 += u64::from(by)),
    ("disks that have a size", true, |it, _| it.run_by.disk_sizes.clear()),
    ("flash of its UEFI firmware", true, |it, by| it.run_by.flash_sizes[1].0 += u64::from(by)),
    ("port of homenode's agent", true, |it, _| it.run_by.agent = true),
    ("name", true, |it, _| it.spec.shape.name += "x"),
    ("what it boots from", true, |it, _| it.spec.boot = Boot::BIOS_DISK),
    ("what it boots from", true, |it, _| it.spec.boot = Boot::Disk { firmware: Firmware::Uefi }),
    ("what it boots", false, |it, _| {
        it.spec.boot = Boot::TinyGuest { kernel: Some("/k".into()), root: GuestRoot::Initramfs }
    }),
    ("path of disk 0", true, |it, _| it.spec.disks[0].path = "/d/other.img".into()),
    ("format of disk 0", true, |it, _| it.spec.disks[0].format = DiskFormat::Qcow2),
    ("writes to disk 0", true, |it, _| it.spec.disks[0].snapshot = true),
    ("write protection of disk 0", true, |it, _| it.spec.disks[0].read_only = true),
    ("network cards", true, |it, _| it.spec.networks.clear()),
    ("ports into network card 0", false, |it, _| it.spec.networks = vec![Network::User { forward: vec![] }]),
    ("virtual nodes are", true, |it, _| it.topology.exposed = false),
    ("number of virtual node 0", true, |it, by| it.topology.nodes[0].id += by),
    ("vCPUs of virtual node", true, |it, by| it.topology.nodes[(by % 2) as usize].vcpus[0] += 9),
    ("vCPUs that were absent", true, |it, _| it.topology.nodes[1].absent.clear()),
    ("memory of virtual node", true, |it, by| it.topology.nodes[0].memory.0 += u64::from(by)),
    ("room to grow", true, |it, by| it.topology.nodes[1].growth.0 += u64::from(by)),
    ("virtual sockets", true, |it, by| it.topology.sockets += by),
    ("cores in a virtual socket", true, |it, by| it.topology.cores_per_socket += by),
    ("hardware threads", true, |it, by| it.topology.threads_per_core += by),
    ("distances from virtual node", true, |it, by| it.topology.distances[(by % 2) as usize][1] += by),
    ("rows of distances", true, |it, _| it.topology.distances.truncate(1)),
    ("vCPUs that were plugged in", true, |it, _| it.added.vcpus = vec![1]),
    ("memory devices that were plugged in", true, |it, _| it.added.memory[0].id += "x"),
    ("virtual node of memory device", true, |it, _| it.added.memory[0].virtual_node = 0),
    ("kind of memory device", true, |it, _| it.added.memory[0].kind = MemoryDeviceKind::Dimm),
    ("size of memory device", true, |it, by| it.added.memory[0].size.0 += u64::from(by)),
    ("memory asked of memory device", true, |it, by| it.added.memory[0].requested.0 += u64::from(by)),
    ("disks", true, |it, _| it.spec.disks.clear()),
    ("virtual nodes", true, |it, _| it.topology.nodes.truncate(1)),
];

#[test]
fn a_manifest_is_as_itself_and_what_is_the_hosts_is_no_difference() {
    let mut other = manifest();
    assert_eq!(manifest().differences(&other), []);
    other.added.memory[0].bound_to = "3".parse().unwrap();
    other.spec.console = crate::spec::Console::File { path: "/c".into() };
    other.spec.shape.policy.prefer_ht = true;
    assert_eq!(manifest().differences(&other), []);
}

#[test]
fn every_change_is_found_by_its_name() {
    for (first, refuses, change) in CHANGES {
        let mut other = manifest();
        change(&mut other, 1);
        let found = manifest().differences(&other);
        let [only] = &found[..] else { panic!("{first}: {found:#?}") };
        assert!(only.to_string().starts_with(first), "{first}: {only}");
        assert_eq!(only.verdict == Verdict::Refuses, *refuses, "{only}");
    }
}

#[test]
fn a_difference_is_a_sentence_with_both_values() {
    let mut other = manifest();
    other.topology.nodes[1].vcpus = vec![4, 5];
    let found = manifest().differences(&other);
    let words = "vCPUs of virtual node 1: 2-3 where it ran, 4-5 where it would go on: QEMU takes that without \
        a word, and the guest would believe what it saw before";
    assert_eq!(found[0].to_string(), words);
}

#[test]
fn what_another_homenode_wrote_is_named() {
    let text = manifest().to_text().unwrap();
    let other = text.replacen("\"version\":1", "\"version\":2", 1);
    let error = Manifest::from_text(&other).unwrap_err().to_string();
    let words =
        "its manifest cannot be used: homenode.manifest, version 2: this homenode reads homenode.manifest, version 1";
    assert_eq!(error, words);
    assert!(Manifest::from_text("{}").is_err());
    assert!(Manifest::from_text(&" ".repeat(MOST_BYTES + 1)).is_err());
}

#[test]
fn what_is_no_vm_is_refused() {
    let wrong: [(&str, Change); 7] = [
        ("topology: each of", |it, _| it.topology.nodes[0].vcpus = vec![0, 2]),
        ("topology.nodes[1].id = 7", |it, _| it.topology.nodes[1].id = 7),
        ("topology.distances", |it, _| it.topology.distances[1].truncate(1)),
        ("added.vcpus: vCPU 0", |it, _| it.added.vcpus = vec![0]),
        ("added.memory: there is no virtual node 8", |it, _| it.added.memory[0].virtual_node = 8),
        ("\"a,b\" is no name", |it, _| it.added.memory[0].id = "a,b".to_owned()),
        ("spec.name: ", |it, _| it.spec.shape.name = "../x".to_owned()),
    ];
    for (words, change) in wrong {
        let mut it = manifest();
        change(&mut it, 0);
        let error = Manifest::from_text(&it.to_text().unwrap()).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}

properties::properties! {
    #![cases(64)]

    #[test]
    fn what_was_written_is_read_and_any_changes_are_found(
        drawn in prop::collection::btree_map(0..CHANGES.len(), 1u32..1000, 0..4)
    ) {
        let mut other = manifest();
        for (index, by) in &drawn {
            CHANGES[*index].2(&mut other, *by);
        }
        prop_assert_eq!(manifest().differences(&other).is_empty(), drawn.is_empty());
        prop_assert_eq!(other.differences(&manifest()).is_empty(), drawn.is_empty());
        prop_assert!(other.differences(&other).is_empty());
        if let Ok(read) = Manifest::from_text(&other.to_text().unwrap()) {
            prop_assert_eq!(read, other);
        }
        prop_assert_eq!(Manifest::from_text(&manifest().to_text().unwrap()).unwrap(), manifest());
    }
}

#[test]
fn the_fuzzers_seed_is_a_manifest_that_is_read() {
    let seed = include_str!("../../../../fuzz/seeds/manifest/web.json");
    assert_eq!(Manifest::from_text(seed.trim_end()).map(|read| read.spec.shape.name), Ok("web".to_owned()));
}
