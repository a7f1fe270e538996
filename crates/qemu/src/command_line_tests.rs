use super::*;
use crate::samples::{plan, spec};
use vm::spec::{Card, MacAddress, Spread};
use vm::{MemoryPolicy, TcgThreads};

fn host() -> HostTraits {
    let accelerator = Accelerator::Tcg { threads: TcgThreads::Multi, because: String::new() };
    HostTraits { accelerator, numa: true, amd: false, sandbox: true }
}

fn wiring() -> Wiring {
    Wiring {
        monitor: Some(Channel::Descriptor(3)),
        console: Channel::Descriptor(4),
        console_log: None,
        agent: None,
        taps: BTreeMap::new(),
        paused: true,
    }
}

fn line_of(spec: &VmSpec, plan: &Plan) -> Vec<String> {
    arguments(spec, plan, &BootFiles::default(), &wiring(), &host())
}

fn values<'a>(line: &'a [String], option: &str) -> Vec<&'a str> {
    line.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1].as_str()).collect()
}

#[test]
fn eight_nodes_of_eight_vcpus_are_told_to_the_guest() {
    let line = line_of(&spec("big", 64, 2048), &plan("big", 8, 8, 256));
    assert_eq!(values(&line, "-smp"), ["64,sockets=8,dies=1,cores=8,threads=1"]);
    assert_eq!(values(&line, "-m"), ["2048M"]); // 8 x 256
    let numa = values(&line, "-numa");
    assert_eq!(numa.iter().filter(|value| value.starts_with("node,")).count(), 8);
    assert_eq!(numa[7], "node,nodeid=7,cpus=56-63,memdev=vnode7"); // node 7: vCPUs 7 * 8 = 56 to 63
    assert_eq!(numa.iter().filter(|value| value.starts_with("dist,")).count(), 64); // all 8 x 8 pairs
    assert!(numa.contains(&"dist,src=0,dst=0,val=10") && numa.contains(&"dist,src=6,dst=7,val=20"));
    assert_eq!(
        values(&line, "-object")[7],
        "memory-backend-ram,id=vnode7,size=256M,host-nodes=0,policy=bind,prealloc=on,prealloc-threads=2"
    );
}

/// What homenode writes is what its balancer reads back.
#[test]
fn what_a_spec_states_is_a_mark_and_nothing_else_changes() {
    let (ordinary, plan) = (spec("a", 2, 64), plan("a", 1, 2, 64));
    let mut other = ordinary.clone();
    (other.shape.policy.latency_sensitive, other.shape.policy.placement) = (true, Spread::Apart);
    let (without, with) = (line_of(&ordinary, &plan), line_of(&other, &plan));
    let reads = |line: &[String]| {
        let line: Vec<String> = std::iter::once("qemu-system-x86_64".to_owned()).chain(line.iter().cloned()).collect();
        vm::qemu::CommandLine::parse(&line).expect("a command line").stated
    };
    assert_eq!((reads(&with), reads(&without)), (Stated::of(&other.policy), Stated::default()));
    let mark = ["-chardev", "null,id=policy--placement-apart--latency_sensitive"];
    let rest: Vec<String> = with.iter().filter(|word| !mark.contains(&word.as_str())).cloned().collect();
    let plain: Vec<String> = without.iter().filter(|word| *word != "-chardev").cloned().collect();
    assert_eq!(rest, plain);
}

#[test]
fn a_guest_without_vnuma_has_one_memory_over_all_its_homes() {
    let mut plan = plan("flat", 1, 4, 512);
    plan.topology.exposed = false;
    plan.placement.clients[0].home = "0-1,3".parse().unwrap();
    plan.placement.clients[0].memory_policy = MemoryPolicy::Interleave;
    let line = line_of(&spec("flat", 4, 512), &plan);
    assert_eq!(values(&line, "-machine"), ["q35,memory-backend=vnode0"]);
    assert!(values(&line, "-numa").is_empty());
    let object = "memory-backend-ram,id=vnode0,size=512M,host-nodes=0-1,host-nodes=3,policy=interleave,prealloc=on,prealloc-threads=2";
    assert_eq!(values(&line, "-object"), [object]);
}

/// Without it nobody learns why a disk does not boot: firmware and boot loader would write on a
/// screen that is not there.
#[test]
fn where_a_disk_boots_the_firmware_speaks_on_the_serial_console() {
    let mut spec = spec("own", 1, 64);
    assert_eq!(values(&line_of(&spec, &plan("own", 1, 1, 64)), "-machine"), ["q35"]);
    spec.boot = Boot::BIOS_DISK;
    assert_eq!(values(&line_of(&spec, &plan("own", 1, 1, 64)), "-machine"), ["q35,graphics=off"]);
}

#[test]
fn a_kernel_without_numa_is_not_asked_for_a_policy() {
    let host = HostTraits { numa: false, sandbox: false, ..host() };
    let line = arguments(&spec("a", 2, 64), &plan("a", 1, 2, 64), &BootFiles::default(), &wiring(), &host);
    assert_eq!(values(&line, "-object"), ["memory-backend-ram,id=vnode0,size=64M,prealloc=on,prealloc-threads=2"]);
    assert!(values(&line, "-sandbox").is_empty());
}

#[test]
fn no_policy_leaves_memory_to_the_kernel() {
    let mut plan = plan("a", 1, 2, 64);
    plan.placement.clients[0].memory_policy = MemoryPolicy::Default;
    assert_eq!(values(&line_of(&spec("a", 2, 64), &plan), "-object"), ["memory-backend-ram,id=vnode0,size=64M"]);
}

#[test]
fn memory_that_is_not_promised_at_once_is_bound_and_not_filled() {
    let mut plan = plan("a", 1, 2, 64);
    plan.backing.fill = vm::spec::Fill::OnTouch;
    let of = |plan: &Plan| values(&line_of(&spec("a", 2, 64), plan), "-object").join(" ");
    assert_eq!(of(&plan), "memory-backend-ram,id=vnode0,size=64M,host-nodes=0,policy=bind");
    // MPOL_PREFERRED has one node: the first of the home.
    plan.placement.clients[0].home = "2-3".parse().unwrap();
    plan.placement.clients[0].memory_policy = MemoryPolicy::Preferred;
    assert_eq!(of(&plan), "memory-backend-ram,id=vnode0,size=64M,host-nodes=2,policy=preferred");
}

#[test]
fn huge_pages_need_no_mount_and_are_filled_whatever_the_policy() {
    let mut plan = plan("a", 1, 2, 64);
    plan.backing.huge_pages = Some(topology::Bytes::from_mib(2));
    let of = |plan: &Plan| values(&line_of(&spec("a", 2, 64), plan), "-object").join(" ");
    let huge = "memory-backend-memfd,hugetlb=on,id=vnode0,size=64M,hugetlbsize=2M";
    assert_eq!(of(&plan), format!("{huge},host-nodes=0,policy=bind,prealloc=on,prealloc-threads=2"));
    plan.placement.clients[0].memory_policy = MemoryPolicy::Default;
    assert_eq!(of(&plan), format!("{huge},prealloc=on,prealloc-threads=2"));
}

#[test]
fn vcpus_that_are_not_neighbours_are_listed_in_ranges() {
    let node = VirtualNode { id: 1, vcpus: vec![0, 1, 4, 6, 7], ..VirtualNode::default() };
    assert_eq!(numa_node(&node, BTreeMap::new()).option(), "node,nodeid=1,cpus=0-1,cpus=4,cpus=6-7"); // and no memdev: the node has no memory
}

#[test]
fn a_card_on_a_switch_is_a_tap_that_qemu_inherits() {
    let mut spec =
        VmSpec { shape: vm::spec::Shape { name: "vm".to_owned(), ..Default::default() }, ..VmSpec::default() };
    let card = |model, queues| Network::Plugged {
        into: Outlet::Switch("lan".parse().unwrap()),
        card: Card { model, queues, ..Card::default() },
    };
    spec.networks = vec![card(CardModel::Virtio, 2), card(CardModel::E1000, 1), card(CardModel::E1000e, 1)];
    let tap = |queues: &[i32], vhost: &[i32]| TapNumbers {
        queues: queues.to_vec(),
        vhost: vhost.to_vec(),
        carries: Carries::TapFrames,
    };
    let taps = BTreeMap::from([(0, tap(&[7, 8], &[10, 11])), (1, tap(&[9], &[]))]);
    let netdevs: Vec<String> = (0..3).map(|card| netdev(card, &spec.networks[card], taps.get(&card))).collect();
    // The third has no tap: a command that a person starts.
    let expected = ["tap,id=net0,fds=7:8,vhost=on,vhostfds=10:11", "tap,id=net1,fd=9", "bridge,id=net2,br=lan"];
    assert_eq!(netdevs, expected);
    // A switch that is a program: a frame in each datagram.
    let socket = TapNumbers { carries: Carries::Datagrams, ..tap(&[9], &[]) };
    assert_eq!(netdev(1, &spec.networks[1], Some(&socket)), "dgram,id=net1,local.type=fd,local.str=9");
    let mac = |card| MacAddress::of_card("vm", card);
    // 2 x 2 + 2 = 6 interrupts.
    let expected = format!("virtio-net-pci,netdev=net0,mac={},romfile=,mq=on,vectors=6", mac(0));
    assert_eq!(super::card(&spec, 0, &spec.networks[0]), expected);
    assert_eq!(super::card(&spec, 1, &spec.networks[1]), format!("e1000,netdev=net1,mac={},romfile=", mac(1)));
}

#[test]
fn disks_and_networks_follow_the_spec() {
    let mut spec = spec("a", 2, 64);
    spec.boot = Boot::BIOS_DISK;
    spec.disks = vec![
        Disk { path: "/images/a,b.qcow2".into(), format: DiskFormat::Qcow2, snapshot: true, read_only: false },
        Disk { path: "nbd:evil".into(), format: DiskFormat::Raw, snapshot: false, read_only: true },
    ];
    let forward = vec![vm::spec::PortForward { host: 2222, guest: 22 }];
    spec.networks = vec![Network::User { forward }];
    let line = line_of(&spec, &plan("a", 1, 2, 64));
    assert_eq!(
        values(&line, "-drive"),
        [
            "if=none,id=disk0,file=/images/a,,b.qcow2,format=qcow2,snapshot=on",
            "if=none,id=disk1,file=./nbd:evil,format=raw,readonly=on"
        ]
    );
    assert_eq!(values(&line, "-netdev"), ["user,id=net0,hostfwd=tcp:127.0.0.1:2222-:22"]);
    assert!(values(&line, "-device").contains(&"virtio-blk-pci,drive=disk0,bootindex=0"));
    assert!(!line.contains(&"-kernel".to_owned()));
    assert!(!line.contains(&"-no-reboot".to_owned())); // a guest with a system of its own may reboot
}

#[test]
fn a_kernel_is_booted_with_its_own_line() {
    let boot =
        BootFiles { kernel: Some("/k".into()), initrd: Some("/i".into()), command_line: "a b".into(), flash: None };
    let line = arguments(&spec("a", 2, 64), &plan("a", 1, 2, 64), &boot, &wiring(), &host());
    assert_eq!((values(&line, "-kernel"), values(&line, "-initrd")), (vec!["/k"], vec!["/i"]));
    assert_eq!(values(&line, "-append"), ["a b"]);
    assert_eq!(line.last().map(String::as_str), Some("-S"));
}

#[test]
fn hardware_threads_and_dies_on_amd_need_their_cpuid_leaf() {
    let host = |amd| HostTraits { accelerator: Accelerator::Kvm, amd, ..host() };
    let cases = [
        (true, (2, 1, 2), "host,topoext=on", "4,sockets=1,dies=1,cores=2,threads=2"),
        (true, (4, 2, 1), "host,topoext=on", "4,sockets=1,dies=2,cores=2,threads=1"),
        (true, (4, 1, 1), "host", "4,sockets=1,dies=1,cores=4,threads=1"),
        (false, (4, 2, 1), "host", "4,sockets=1,dies=2,cores=2,threads=1"),
    ];
    for (amd, (cores, dies, threads), cpu, smp) in cases {
        let mut plan = plan("a", 1, 4, 64);
        plan.topology.cores_per_socket = cores;
        (plan.topology.dies_per_socket, plan.topology.threads_per_core) = (dies, threads);
        let line = arguments(&spec("a", 4, 64), &plan, &BootFiles::default(), &wiring(), &host(amd));
        assert_eq!(values(&line, "-cpu"), [cpu], "{smp}");
        assert_eq!(values(&line, "-smp"), [smp]);
    }
}

#[test]
fn a_command_can_be_pasted_into_a_shell() {
    let arguments = ["-append".to_owned(), "a 'b'".to_owned(), "-S".to_owned(), String::new()];
    let text = as_shell(Path::new("/usr/bin/q"), &arguments);
    assert_eq!(text, "/usr/bin/q \\\n  -append 'a '\\''b'\\''' \\\n  -S ''");
}

#[test]
fn a_vm_that_may_grow_names_all_its_vcpus_and_starts_with_each_nodes_first() {
    let (spec, mut plan) = (spec("grows", 4, 1024), plan("grows", 2, 4, 512));
    plan.topology.nodes[0].absent = vec![2, 3];
    plan.topology.nodes[1].absent = vec![6, 7];
    plan.topology.nodes.iter_mut().for_each(|node| node.growth = topology::Bytes::from_mib(2048));
    let line = line_of(&spec, &plan);
    assert_eq!(values(&line, "-smp"), ["1,maxcpus=8,sockets=2,dies=1,cores=4,threads=1"]);
    assert_eq!(values(&line, "-m"), ["size=1024M,slots=32,maxmem=9216M"]); // 1024 + 2 * (2048 + 2048)
    let devices = values(&line, "-device");
    assert_eq!(
        devices[..4],
        [
            "max-x86_64-cpu,id=vcpu1,socket-id=0,core-id=1,thread-id=0",
            "max-x86_64-cpu,id=vcpu4,socket-id=1,core-id=0,thread-id=0",
            "max-x86_64-cpu,id=vcpu5,socket-id=1,core-id=1,thread-id=0",
            "pcie-root-port,id=hotplug0,bus=pcie.0,addr=1e.0,multifunction=on,chassis=1,slot=1,io-reserve=0",
        ]
    );
    assert_eq!(devices.iter().filter(|device| device.starts_with("pcie-root-port")).count(), 4); // 2 for each node
    assert_eq!(values(&line, "-numa")[1], "node,nodeid=1,cpus=4-7,memdev=vnode1");
    // What homenode writes is what it reads.
    let read = vm::qemu::CommandLine::parse(&line).unwrap();
    assert_eq!(read.vcpus_at_start().collect::<Vec<_>>(), [0, 1, 4, 5]);
}
