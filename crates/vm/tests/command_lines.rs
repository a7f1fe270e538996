//! Command lines as programs that start VMs write them, read.

use proptest::prelude::*;
use topology::{Bytes, NodeId};
use vm::qemu::{Backend, BackendKind, CommandLine, Doubt, NumaNode, VcpuTopology, memory_id};
use vm::{Manager, Origin};

#[allow(clippy::disallowed_methods, reason = "a test reads its captures")]
fn arguments(name: &str) -> Vec<String> {
    let path = format!("{}/tests/command-lines/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("a command line").lines().map(str::to_owned).collect()
}

fn read(name: &str) -> (CommandLine, Origin) {
    let arguments = arguments(name);
    (CommandLine::parse(&arguments).expect("a VM"), Origin::parse(&arguments))
}

/// The vCPUs and the memory objects of each node.
fn nodes(command: &CommandLine) -> Vec<(Vec<u32>, Vec<&str>)> {
    let of = |node: &vm::qemu::NumaNode| node.vcpus.iter().copied().collect();
    command.nodes.values().map(|node| (of(node), node.backends.iter().map(String::as_str).collect())).collect()
}

#[test]
fn libvirts_with_a_plugged_dimm_and_a_device() {
    let (command, origin) = read("libvirt");
    assert_eq!((origin.manager, origin.id), (Manager::Libvirt, None));
    assert_eq!(command.name.as_deref(), Some("db01"));
    assert_eq!(command.uuid.as_deref(), Some("5f4dcc3b-5aa7-65d6-1d83-27deb882cf99"));
    assert_eq!((command.memory, command.vcpus.vcpus), (Some(Bytes::from_mib(16384)), 8)); // 16777216 KiB
    let expected = [(vec![0, 1, 2, 3], vec!["ram-node0"]), (vec![4, 5, 6, 7], vec!["ram-node1", "memdimm0"])];
    assert_eq!(nodes(&command), expected);
    let backend = command.backend("ram-node1").unwrap();
    assert_eq!(
        (backend.size, backend.host_nodes.to_string(), backend.prealloc),
        (Bytes::from_mib(8192), "1".into(), true)
    );
    assert_eq!(command.passed_through, ["0000:3b:00.1"]);
    assert!(!command.locked);
}

#[test]
fn openstacks_with_huge_pages() {
    let (command, origin) = read("openstack");
    assert_eq!(origin.manager, Manager::Openstack);
    assert_eq!(command.name.as_deref(), Some("instance-0000002a"));
    assert_eq!(command.main_backend.as_deref(), Some("pc.ram"));
    let backend = command.backend("pc.ram").unwrap();
    assert_eq!((&backend.kind, backend.huge_page_size), (&BackendKind::Memfd { huge: true }, Some(Bytes::from_mib(2))));
    assert!(command.nodes.is_empty());
}

#[test]
fn kubevirts() {
    let (command, origin) = read("kubevirt");
    assert_eq!((origin.manager, command.vcpus.vcpus), (Manager::Kubevirt, 2));
    assert_eq!(command.memory, Some(Bytes::from_mib(1024)));
}

#[test]
fn proxmoxs() {
    let (command, origin) = read("proxmox");
    assert_eq!((origin.manager, origin.id.as_deref()), (Manager::Proxmox, Some("101")));
    assert_eq!(command.name.as_deref(), Some("web"));
    assert_eq!(nodes(&command), [(vec![0, 1, 2, 3], vec!["ram-node0"]), (vec![4, 5, 6, 7], vec!["ram-node1"])]);
    assert_eq!(command.backend("ram-node0").map(|backend| backend.size), Some(Bytes::from_mib(4096)));
}

#[test]
fn homenodes_own() {
    let (command, origin) = read("homenode");
    assert_eq!((origin.manager, command.name.as_deref()), (Manager::Homenode, Some("far")));
    assert_eq!(nodes(&command), [(vec![0, 1], vec!["vnode0"]), (vec![2, 3], vec!["vnode1"])]);
    assert_eq!(command.backend("vnode1").map(|backend| backend.host_nodes.to_string()), Some("3".to_owned()));
}

#[test]
fn one_by_hand_with_nodes_that_nothing_is_said_about() {
    let (command, origin) = read("by-hand");
    assert_eq!((origin.manager, command.name.clone()), (Manager::Unknown, None));
    assert!(command.locked);
    // 3 sockets of 2 vCPUs in turn on 2 nodes: sockets 0 and 2 on node 0.
    assert_eq!(nodes(&command), [(vec![0, 1, 4, 5], vec![]), (vec![2, 3], vec![])]);
}

#[test]
fn what_no_vm_has_is_doubted_before_any_work() {
    let parse = |words: String| CommandLine::parse(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let many = |count: usize, option: &str| format!("qemu-system-x86_64{}", format!(" {option}").repeat(count));
    for (smp, why) in [
        ("4294967295", "cpus=4294967295"),
        ("60000000", "cpus=60000000"),
        ("4097", "cpus=4097"),
        ("2,sockets=65536,dies=65536,cores=4294967295", "sockets=65536"),
        ("1,maxcpus=99999999", "maxcpus=99999999"),
        ("four", "cpus=four"),
    ] {
        assert_eq!(parse(format!("qemu-system-x86_64 -smp {smp}")), Err(Doubt::Vcpus(why.to_owned())));
    }
    assert_eq!(parse(many(6000, "-numa node,cpus=0-65535")), Err(Doubt::Nodes));
    assert_eq!(parse(many(128, "-numa node,cpus=0-4095")), Err(Doubt::VcpusOfNodes));
    let cpu = " -numa cpu,node-id=0".repeat(20_000);
    assert_eq!(parse(format!("qemu-system-x86_64 -smp 1,maxcpus=4096 -numa node{cpu}")), Err(Doubt::VcpusOfNodes));
    assert_eq!(parse(many(2000, "-object memory-backend-ram,id=a,size=1G")), Err(Doubt::Objects));
    let ranges = ",host-nodes=0-4095".repeat(50_000);
    let backend = parse(format!("qemu-system-x86_64 -object memory-backend-ram,id=a,size=1G{ranges}"))
        .expect("a VM")
        .backends
        .remove(0);
    assert_eq!(backend.host_nodes.len(), 1024);
    // The largest VM that there may be is none of them.
    let nodes: String = (0..128).map(|id| format!(" -numa node,cpus={}-{}", id * 32, id * 32 + 31)).collect();
    assert_eq!(parse(format!("qemu-system-x86_64 -smp 4096{nodes}")).expect("a VM").nodes[&127].vcpus.len(), 32);
}

#[test]
fn what_cannot_be_read_is_unknown() {
    let parse = |line: &str| CommandLine::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    for (line, why) in [
        ("qemu-system-x86_64 -m lots", "m lots: no size that QEMU takes"),
        ("qemu-kvm -object memory-backend-ram,id=a,size=1e3", "size 1e3: no size that QEMU takes"),
        ("kvm -m 1G,maxmem=2X", "maxmem 2X: no size that QEMU takes"),
    ] {
        assert_eq!(parse(line).expect_err(line).to_string(), why);
    }
    let unread = |line: &str| parse(line).expect("a VM").unread;
    assert!(unread("/opt/web -accel kvm -smp 2").is_some_and(|why| why.starts_with("it has no -m")));
    assert_eq!(unread("/opt/web -accel kvm -smp 2 -M pc"), None);
    let file = unread("kvm -m 1G -readconfig a.cfg").expect("unread");
    assert!(file.starts_with("its options in a.cfg cannot be read: "), "{file}");
}

/// What `-m` and its like say: memory at start and at most.
fn memory(line: &str) -> (Option<Bytes>, Option<Bytes>) {
    let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let read = CommandLine::parse(&arguments).expect("a VM");
    (read.unnamed_memory(), read.most_memory)
}

#[test]
fn memory_is_what_the_last_word_says() {
    let mib = |mib: u64| Some(Bytes::from_mib(mib));
    let cases = [
        ("kvm -m 32 -m 64", mib(64), None),
        ("kvm -m size=32 -m slots=3,maxmem=1G -m 48", mib(48), mib(1024)),
        ("kvm -m 32,maxmem=67108864,slots=1", mib(32), mib(64)), // bytes
        ("kvm -m 64 -M q35,memory.size=32M", mib(64), None),
        ("kvm -M q35,memory.size=0x2000000,memory.max-size=1G", mib(32), mib(1024)),
        ("kvm -M q35,memory.size=48", Some(Bytes(8192)), None), // 48 bytes, in whole 8 KiB
        ("kvm -m 0", mib(128), None),
        ("kvm -m 1.5G", mib(1536), None),
        ("kvm -append -m -m 64", mib(64), None),
    ];
    for (line, at_start, most) in cases {
        assert_eq!(memory(line), (at_start, most), "{line}");
    }
}

#[test]
fn vcpus_that_no_node_names_are_in_the_first_and_old_nodes_share_memory() {
    let read = |line: &str| {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        CommandLine::parse(&arguments).expect("a VM")
    };
    let partly = read("kvm -m 64 -smp 4 -numa node,cpus=1,memdev=a -numa node,cpus=0x2,memdev=b");
    assert_eq!(nodes(&partly), [(vec![0, 1, 3], vec!["a"]), (vec![2], vec!["b"])]);
    let old = read("kvm -m 70 -smp 2,sockets=2 -numa node -numa node");
    let memory: Vec<Option<u64>> = old.nodes.values().map(|node| node.memory.map(Bytes::mib)).collect();
    assert_eq!(memory, [Some(32), Some(38)]); // 35 is 4 x 8 MiB and 3; the last has 70 - 32
    let said = read("kvm -m 70 -smp 2 -numa node,mem=0x10 -numa node,mem=54");
    let memory: Vec<Option<u64>> = said.nodes.values().map(|node| node.memory.map(Bytes::mib)).collect();
    assert_eq!(memory, [Some(16), Some(54)]);
}

/// The same command line, from what was read of it.
fn written(line: &CommandLine) -> Vec<String> {
    let mut arguments = vec!["qemu-system-x86_64".to_owned()];
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-smp", line.vcpus.option());
    line.backends.iter().for_each(|backend| add("-object", backend.option()));
    line.nodes.values().for_each(|node| add("-numa", node.option()));
    line.nodes
        .values()
        .flat_map(|node| node.distance_options().collect::<Vec<_>>())
        .for_each(|text| add("-numa", text));
    arguments
}

fn backend(id: u32) -> impl Strategy<Value = Backend> {
    let kind = prop_oneof![
        Just(BackendKind::Anonymous),
        any::<bool>().prop_map(|huge| BackendKind::Memfd { huge }),
        "/[a-z,=/]{1,8}".prop_map(|path| BackendKind::File { path }),
    ];
    let size = (1..1_u64 << 40).prop_map(Bytes);
    let huge = proptest::option::of(prop_oneof![Just(Bytes::from_mib(2)), Just(Bytes::GIB)]);
    let nodes = proptest::collection::btree_set(0..64_u32, 0..5);
    let nodes = nodes.prop_map(|nodes| nodes.into_iter().map(NodeId).collect());
    let policy = proptest::option::of(prop_oneof![Just("bind".to_owned()), Just("interleave".to_owned())]);
    let fields = (kind, size, huge, nodes, policy, any::<bool>(), proptest::option::of(1..64_u32));
    fields.prop_map(move |(kind, size, huge_page_size, host_nodes, policy, prealloc, prealloc_threads)| Backend {
        id: memory_id(id),
        kind,
        size,
        huge_page_size,
        host_nodes,
        policy,
        prealloc,
        prealloc_threads,
    })
}

/// Some virtual nodes, each with a socket of its own.
fn command_line() -> impl Strategy<Value = CommandLine> {
    (1..5_u32, 1..4_u32, 1..3_u32).prop_flat_map(|(nodes, cores, threads)| {
        let backends: Vec<_> = (0..nodes).map(backend).collect();
        let row = proptest::collection::vec(10..=254_u32, nodes as usize);
        (backends, proptest::collection::vec(row, nodes as usize)).prop_map(move |(backends, rows)| {
            let each = cores * threads;
            let node = |(id, row): (u32, Vec<u32>)| {
                let vcpus = (id * each..(id + 1) * each).collect();
                let distances = (0..).zip(row).collect();
                (id, NumaNode { id, vcpus, backends: vec![memory_id(id)], memory: None, distances })
            };
            let vcpus = nodes * each;
            CommandLine {
                vcpus: VcpuTopology { vcpus, most: vcpus, sockets: nodes, dies: 1, clusters: 1, cores, threads },
                usual_memory: Some(Bytes::from_mib(128)),
                backends,
                nodes: (0..).zip(rows).map(node).collect(),
                ..CommandLine::default()
            }
        })
    })
}

properties::properties! {
    #[test]
    fn what_is_written_is_read(line in command_line()) {
        prop_assert_eq!(CommandLine::parse(&written(&line)), Ok(line));
    }
}
