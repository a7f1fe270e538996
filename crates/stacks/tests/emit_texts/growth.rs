//! VMs that may grow, for stacks that can be told so and for those that cannot.

use qemu::command_line::BootFiles;
use scheduler::Occupancy;
use stacks::emit::{Emission, Kind, emit};
use vm::{Accelerator, Plan, Shape, VmSpec};

fn spec() -> VmSpec {
    let text = "name = \"db\"\nvcpus = 4\nmax_vcpus = 12\nmemory = \"8 GiB\"\nmax_memory = \"24 GiB\"\n";
    VmSpec::from_toml(text, "vm.toml").expect("valid")
}

fn machine() -> topology::Machine {
    topology::read::from_synthetic("pack:2 [numa(memory=32GiB)] l3:1 core:8 pu:1").expect("a machine")
}

/// The text for a plan of this shape; two nodes of 8 cores and 32 GiB.
fn text(kind: Kind, shape: &Shape) -> (Plan, Result<String, String>) {
    let machine = machine();
    let plan = scheduler::plan(&machine, &Occupancy::default(), shape).expect("a plan");
    let (spec, boot) = (spec(), BootFiles { kernel: Some("/boot/vmlinuz".into()), ..BootFiles::default() });
    let emission =
        Emission { machine: &machine, spec: &spec, plan: &plan, boot: &boot, accelerator: &Accelerator::Kvm };
    let text = emit(kind, &emission).map_err(|error| error.to_string());
    (plan, text)
}

#[test]
fn a_stack_that_cannot_be_told_gets_the_vm_as_it_starts_and_says_what_is_lost() {
    for kind in [Kind::Nova, Kind::Kubevirt] {
        let (_, refused) = text(kind, &spec().shape);
        assert!(refused.expect_err("it would start with all 12").starts_with("max_vcpus, max_memory: "), "{kind:?}");
        let (plan, text) = text(kind, &kind.planned(&spec()));
        assert_eq!((plan.topology.vcpus(), plan.topology.max_vcpus()), (4, 4));
        let text = text.expect("a text");
        let lost = "The VM may grow to 12 vCPUs and 24 GiB (max_vcpus, max_memory): growth is not carried over.";
        assert!(text.contains(lost), "{kind:?}: {text}");
    }
}

#[test]
fn a_stack_that_can_be_told_is() {
    for (kind, said) in [
        (Kind::Qemu, ["maxcpus=12", "slots=32,maxmem="].as_slice()),
        (Kind::Libvirt, &["current=\"4\">12</vcpu>", "<maxMemory unit=\"KiB\" slots=\"32\">25165824</maxMemory>"]),
        (Kind::Systemd, &["(vCPUs 2-5 and 8 GiB later)"]),
    ] {
        assert_eq!(kind.planned(&spec()), spec().shape);
        let text = text(kind, &spec().shape).1.expect("a text");
        assert!(said.iter().all(|said| text.contains(said)), "{kind:?}: {text}");
        assert!(!text.contains("growth is not carried over"), "{text}");
    }
}

/// Two nodes of 6 vCPUs, 2 of them at power-on, with 4 of 12 GiB each. The lowest numbers are those
/// of power-on; then the nodes take turns.
#[test]
fn cloud_hypervisor_gets_vcpus_in_the_order_in_which_they_come_and_zones_that_grow() {
    let text = text(Kind::CloudHypervisor, &Kind::CloudHypervisor.planned(&spec())).1.expect("a text");
    for said in [
        "boot=4,max=12,topology=1:1:1:12,affinity=[0@[0-7],1@[0-7],4@[0-7],",
        "--memory size=0,hotplug_method=virtio-mem",
        "--memory-zone id=vnode0,size=4096M,host_numa_node=0,hotplug_size=8192M",
        "--memory-zone id=vnode1,size=4096M,host_numa_node=1,hotplug_size=8192M",
        "guest_numa_id=0,cpus=[0-1,4,6,8,10]",
        "--api-socket path=db.sock",
        "resize-zone --id vnode0 --size 12288M",
        "NOT EXPRESSED: cloud-hypervisor fills a zone that may grow to its largest",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("prefault=on") && !text.contains("growth is not carried over"), "{text}");
}

/// 100 MiB more for each of two nodes is less than cloud-hypervisor's 128 MiB.
#[test]
fn what_is_no_whole_piece_of_memory_is_said() {
    let shape = Shape { max_memory: Some(topology::Bytes::from_mib(8192 + 200)), ..spec().shape };
    let text = text(Kind::CloudHypervisor, &shape).1.expect("a text");
    assert!(text.contains("Of 200 MiB that may come the text holds 0"), "{text}");
    assert!(!text.contains("hotplug_"), "{text}");
}

/// Proxmox plugs vCPUs in beside `numaN` lines, and no memory.
#[test]
fn proxmox_gets_the_vcpus_that_may_come_and_says_that_memory_cannot() {
    let planned = Kind::Proxmox.planned(&spec());
    assert_eq!((planned.max_vcpus, planned.max_memory), (Some(12), None));
    let refused = text(Kind::Proxmox, &spec().shape).1.expect_err("it has no word for memory");
    assert!(refused.starts_with("max_memory: "), "{refused}");
    let written = text(Kind::Proxmox, &planned).1.expect("a text");
    let lines: Vec<&str> = written.lines().filter(|line| !line.starts_with('#')).collect();
    for line in [
        "sockets: 12",
        "cores: 1",
        "vcpus: 4",
        "hotplug: network,disk,usb,cpu",
        "memory: 8192",
        "numa0: cpus=0-1;4;6;8;10,hostnodes=0,memory=4096,policy=bind",
        "numa1: cpus=2-3;5;7;9;11,hostnodes=1,memory=4096,policy=bind",
    ] {
        assert!(lines.contains(&line), "{line}: {written}");
    }
    let lost = "The VM may grow to 24 GiB (max_memory): growth is not carried over.";
    assert!(written.contains(lost), "{written}");
    let wide = Shape { max_vcpus: Some(17), ..planned };
    let refused = text(Kind::Proxmox, &wide).1.expect_err("the host has 16 CPUs");
    assert!(refused.starts_with("max_vcpus = 17: "), "{refused}");
}

/// One virtual node has its first vCPUs at power-on: nothing is numbered anew.
#[test]
fn a_vm_of_one_node_keeps_its_numbers_and_sockets() {
    let shape = Shape { vcpus: 2, max_vcpus: Some(4), max_memory: None, ..spec().shape };
    let ch = text(Kind::CloudHypervisor, &shape).1.expect("a text");
    assert!(ch.contains("boot=2,max=4,topology=1:4:1:1,") && ch.contains("prefault=on"), "{ch}");
    let lines = text(Kind::Proxmox, &shape).1.expect("a text");
    assert!(lines.contains("\nsockets: 1\ncores: 4\nvcpus: 2\n") && !lines.contains("lowest numbers"), "{lines}");
}

/// Each of two virtual nodes starts with 2 of 6 vCPUs, or of 20, for which no node has the CPUs.
#[test]
fn check_reads_of_a_domain_what_is_there_at_power_on_and_what_may_come() {
    for most in [12, 40] {
        let shape = Shape { max_vcpus: Some(most), ..spec().shape };
        let (plan, text) = text(Kind::Libvirt, &shape);
        let text = text.expect("a text");
        let domain = stacks::domain::parse(&text, "vm.xml").expect("our own text");
        let absent = plan.topology.nodes.iter().flat_map(|node| &node.absent).map(|&vcpu| topology::CpuId(vcpu));
        assert_eq!((domain.vcpus, &domain.absent), (most, &absent.collect()));
        let vm = stacks::check::shaped(&domain, &text);
        assert_eq!(vm.present(), 4);
        let findings = judge::definition(&machine(), &Occupancy::default(), &vm).findings;
        assert_eq!(judge::wrong(&findings), 0, "{findings:#?}");
    }
}

#[test]
fn without_a_list_the_first_vcpus_are_there() {
    let absent = |vcpu: &str| {
        let text = format!("<domain><name>a</name><memory unit='MiB'>64</memory>{vcpu}</domain>");
        stacks::domain::parse(&text, "vm.xml")
            .map(|domain| domain.absent.to_string())
            .map_err(|error| error.to_string())
    };
    assert_eq!(absent("<vcpu current='2'>4</vcpu>").as_deref(), Ok("2-3"));
    assert_eq!(absent("<vcpu>4</vcpu>").as_deref(), Ok(""));
    let listed = "<vcpus><vcpu id='0' enabled='yes'/><vcpu id='1' enabled='no'/><vcpu id='2' enabled='yes'/></vcpus>";
    assert_eq!(absent(&format!("<vcpu current='2'>4</vcpu>{listed}")).as_deref(), Ok("1,3"));
    for wrong in ["<vcpu current='5'>4</vcpu>", "<vcpu current='0'>4</vcpu>"] {
        assert!(absent(wrong).expect_err(wrong).contains("domain/vcpu: current="), "{wrong}");
    }
}
