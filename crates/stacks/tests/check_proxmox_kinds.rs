//! Kinds of configurations of Proxmox VE that were once read otherwise than qemu-server reads them:
//! each with what is found, and the command that mends it.

use judge::{Finding, Severity};
use scheduler::Occupancy;
use stacks::check::Definition;
use topology::{Machine, read};

/// Two nodes of 16 cores, 32 hardware threads and 128 GiB.
fn two_nodes() -> Machine {
    read::from_synthetic("pack:2 [numa(memory=128GiB)] l3:1 core:16 pu:2").expect("a machine")
}

fn one_node() -> Machine {
    read::from_synthetic("pack:1 [numa(memory=64GiB)] l3:1 core:8 pu:2").expect("a machine")
}

fn definition(text: &str) -> Definition {
    Definition::read(text.to_owned(), "/etc/pve/qemu-server/101.conf".to_owned()).expect(text)
}

fn findings(machine: &Machine, text: &str) -> Vec<Finding> {
    definition(text).check(machine, &Occupancy::default()).expect("findings")
}

fn finding(machine: &Machine, text: &str, what: &str) -> Finding {
    let all = findings(machine, text);
    all.iter().find(|finding| finding.what == what).unwrap_or_else(|| panic!("{what}: {text}{all:#?}")).clone()
}

/// Findings that need doing.
fn kinds(machine: &Machine, text: &str) -> Vec<&'static str> {
    let all = findings(machine, text);
    all.iter().filter(|finding| finding.severity > Severity::Note).map(|finding| finding.what).collect()
}

/// What qemu-server refuses: what it says, and the options that mend it.
const REFUSED: [(&str, &str, &str); 20] = [
    (
        "cores: 2\nmemory: 4096\nnuma: 1\nhotplug: network,disk,usb,memory\naffinity: 0-15\nnuma0: \
         cpus=0-1,hostnodes=0,memory=4096,policy=bind\n",
        "cannot enable memory hotplugging with custom NUMA topology",
        "--hotplug network,disk,usb",
    ),
    (
        "cores: 2\nmemory: 4096\nhotplug: memory\naffinity: 0-15\n",
        "NUMA needs to be enabled for memory hotplug",
        "--numa 1",
    ),
    (
        "cores: 2\nmemory: 512\nnuma: 1\nhotplug: memory,disk\naffinity: 0-15\n",
        "minimum memory must be 1024MB",
        "--hotplug disk",
    ),
    (
        "cores: 2\nmemory: 4000\nnuma: yes\nhotplug: disk,memory\naffinity: 0-15\n",
        "memory size (4000) must be aligned to 512 for hotplugging",
        "--hotplug disk",
    ),
    (
        "cores: 2\nmemory: 4096\nnuma: 1\nhotplug: disk,memory\naffinity: 0-15\nvirtiofs0: share\n",
        "does not work in combination with virtio-fs",
        "--hotplug disk",
    ),
    (
        "cores: 8\nmemory: 16384\nnuma: 1\naffinity: 0-15\nnuma0: cpus=0-3,hostnodes=0,memory=4096,policy=bind\nnuma1: \
         cpus=4-7,hostnodes=0,memory=4096,policy=bind\nsockets: 1\n",
        "total memory for NUMA nodes must be equal to vm static memory",
        "memory=8192,policy=bind --numa1 cpus=4-7,hostnodes=0,memory=8192",
    ),
    (
        "cores: 4\nmemory: 4096\nnuma: on\naffinity: 0-15\nnuma0: cpus=0-3,hostnodes=0,policy=bind\n",
        "missing NUMA node0 memory value",
        "--numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind",
    ),
    (
        "cores: 4\nmemory: 4096\nnuma: 1\naffinity: 0-15\nnuma0: cpus=0-3,hostnodes=0,memory=4096\n",
        "you need to define a policy for hostnode 0",
        "--numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind",
    ),
    ("cores: 4\nmemory: 4096\nhugepages: 2\naffinity: 0-15\n", "numa needs to be enabled to use hugepages", "--numa 1"),
    (
        "cores: 4\nmemory: 4096\nnuma: 1\nhugepages: any\naffinity: 0-15\nnuma0: cpus=0-3,memory=4096\n",
        "numa hostnodes need to be defined to use hugepages",
        "--numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind",
    ),
    (
        "cores: 4\nmemory: 4096\nnuma: 1\nhugepages: 2\naffinity: 0-15\nnuma0: \
         cpus=0-3,hostnodes=0-1,memory=4096,policy=interleave\n",
        "more than 1 hostnode value",
        "--numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind",
    ),
    (
        "cores: 4\nmemory: 4097\nnuma: 1\nhugepages: 2\naffinity: 0-15\n",
        "is not a positive even integer; cannot use for hugepages",
        "",
    ),
    (
        "cores: 4\nmemory: 4098\nnuma: 1\nhugepages: 1024\naffinity: 0-15\n",
        "is not a multiple of the requested hugepages size 1024",
        "--hugepages 2",
    ),
    (
        "sockets: 3\ncores: 2\nmemory: 4096\nnuma: 1\naffinity: 0-15\n",
        "total memory for NUMA nodes should equal RAM size",
        "--sockets 2 --cores 3",
    ),
    (
        "cores: 4\nmemory: 4096\nnuma: 1\naffinity: 0-15\nnuma1: cpus=0-3,hostnodes=0,memory=4096,policy=bind\n",
        "numa: Node ID missing: 0",
        "--numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind --delete numa1",
    ),
    (
        "cores: 4\nmemory: 4096\nnuma: 1\naffinity: 0-15\nnuma0: cpus=0-7,hostnodes=0,memory=4096,policy=bind\n",
        "CPU index (4) should be smaller than maxcpus (4)",
        "--numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind",
    ),
    (
        "cores: 4\nmemory: 4096\nnuma: 1\naffinity: 0-15\nnuma0: cpus=0-3,hostnodes=0;1,memory=4096,policy=bind\n",
        "Invalid parameter '1'",
        "hostnodes=0",
    ),
    (
        "cores: 4\nmemory: 4096\nnuma: 1\naffinity: 0-15\nnuma0: cpus=0-3,hostnodes=4,memory=4096,policy=bind\n",
        "host NUMA node4 doesn't exist",
        "--numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind",
    ),
    (
        "cores: 4\nvcpus: 6\nmemory: 4096\naffinity: 0-15\n",
        "maxcpus must be equal to or greater than smp",
        "--delete vcpus",
    ),
    ("cores: 65\nmemory: 4096\naffinity: 0-15\n", "MAX 64 vcpus allowed per VM on this node", ""),
];

#[test]
fn what_proxmox_refuses_is_found_in_its_words_with_a_cure_that_starts() {
    let machine = two_nodes();
    for (text, says, options) in REFUSED {
        let found = finding(&machine, text, "start_refused");
        assert_eq!(found.severity, Severity::Problem, "{text}");
        assert!(found.seen.contains(says), "{text}{}", found.seen);
        let command = found.cure.commands.first().cloned().unwrap_or_default();
        assert_eq!(command.is_empty(), options.is_empty(), "{text}{command}");
        assert!(command.contains(options), "{text}{command}");
        assert!(!found.cure.advice.is_empty(), "{text}");
    }
}

#[test]
fn two_sockets_with_huge_pages_on_a_host_of_one_node_become_one() {
    let text = "cores: 2\nhugepages: 1024\nmemory: 8192\nnuma: 1\nsockets: 2\n";
    let found = finding(&one_node(), text, "start_refused");
    assert!(found.seen.contains("host NUMA node1 doesn't exist"), "{}", found.seen);
    assert_eq!(found.cure.commands, ["qm set 101 --sockets 1 --cores 4"]);
    assert_eq!(kinds(&two_nodes(), text), ["floats"], "node 1 is there");
}

#[test]
fn a_home_is_not_bound_beside_memory_hotplug() {
    let text = "cores: 2\nmemory: 66560\nnuma: 1\nsockets: 2\nhotplug: memory\n";
    let found = finding(&two_nodes(), text, "floats");
    assert!(found.cure.commands[0].contains("--hotplug 0"), "{found:#?}");
    assert!(found.cure.advice.contains("no longer grows"), "{}", found.cure.advice);
    let printed = definition(text).proxmox_numa_lines(&two_nodes(), &Occupancy::default()).expect("lines");
    assert!(printed.contains("\nhotplug: 0\n") && printed.contains(&found.cure.commands[0]), "{printed}");
}

/// DIMMs of memory hot-plug: 1024 MiB in equal parts, then 512 MiB for each node in turn.
#[test]
fn memory_that_is_plugged_in_lies_as_proxmox_plugs_it() {
    let vm = |memory: u64| {
        let text = format!("cores: 2\nsockets: 2\nnuma: 1\nhotplug: memory\nmemory: {memory}\n");
        definition(&text).shaped().nodes.iter().map(|node| node.memory.mib()).collect::<Vec<_>>()
    };
    assert_eq!(vm(1024), [512, 512]);
    assert_eq!(vm(2560), [512 + 1024, 512 + 512]);
}

#[test]
fn a_vm_that_may_grow_lives_where_what_runs_fits() {
    for (text, most) in [
        ("cores: 16\nvcpus: 4\nhotplug: network,disk,usb,cpu\nmemory: 16384\nnuma: 1\nsockets: 2\n", 32),
        ("cores: 16\nhotplug: network,disk,usb,cpu\nmemory: 16384\nnuma: 1\nsockets: 4\nvcpus: 4\n", 64),
    ] {
        let vm = definition(text);
        assert_eq!((vm.shaped().present(), vm.shaped().vcpus), (4, most), "{text}");
        let found = finding(&two_nodes(), text, "memory_without_vcpus");
        let command = format!(
            "qm set 101 --sockets 1 --cores {most} --numa0 cpus=0-{},hostnodes=0,memory=16384,policy=bind --affinity \
             0-15,32-47",
            most - 1
        );
        // The synthetic machine numbers siblings side by side.
        assert_eq!(found.cure.commands, [command.replace("0-15,32-47", "0-31")], "{text}");
    }
}

#[test]
fn vcpus_of_homes_that_somebody_chose_come_in_order() {
    let text = "cores: 8\nvcpus: 4\nmemory: 16384\nnuma: 1\nsockets: 2\nnuma0: \
        cpus=0-7,hostnodes=0,memory=8192,policy=bind\nnuma1: cpus=8-15,hostnodes=1,memory=8192,policy=bind\n";
    let found = finding(&two_nodes(), text, "memory_without_vcpus");
    let command = "qm set 101 --sockets 16 --cores 1 --numa0 \
        'cpus=0-1;4;6;8;10;12;14,hostnodes=0,memory=8192,policy=bind' --numa1 \
        'cpus=2-3;5;7;9;11;13;15,hostnodes=1,memory=8192,policy=bind'";
    assert_eq!(found.cure.commands, [command]);
}

#[test]
fn vcpus_that_no_node_names_keep_their_number() {
    let text = "cores: 8\nmemory: 16384\nnuma: 1\nnuma0: cpus=0-1,hostnodes=0,memory=8192,policy=bind\nnuma1: \
        cpus=2-3,hostnodes=1,memory=8192,policy=bind\nsockets: 1\n";
    assert_eq!(definition(text).shaped().vcpus, 8);
    let found = finding(&two_nodes(), text, "vcpus_without_node");
    let command = "qm set 101 --sockets 2 --cores 4 --numa0 cpus=0-3,hostnodes=0,memory=8192,policy=bind --numa1 \
        cpus=4-7,hostnodes=1,memory=8192,policy=bind";
    assert!(found.cure.commands[0].starts_with(command), "{:?}", found.cure.commands);
}

#[test]
fn homes_that_somebody_chose_stay_when_sockets_change() {
    let text = "cores: 8\nmemory: 24576\nnuma: 1\nnuma0: cpus=0-1;4-5,hostnodes=0,memory=12288,policy=bind\nnuma1: \
        cpus=2-3;6-7,hostnodes=1,memory=12288,policy=bind\nsockets: 1\n";
    let found = finding(&two_nodes(), text, "cache_over_nodes");
    let command = &found.cure.commands[0];
    assert!(command.contains("--numa0 cpus=0-3,hostnodes=0,") && command.contains("--numa1 cpus=4-7,hostnodes=1,"));
}

/// `affinity` with all CPUs of the host binds nothing.
#[test]
fn what_no_line_mends_is_said_at_once() {
    let text = "cores: 8\nmemory: 32768\nnuma: 1\nnuma0: cpus=0-7,hostnodes=0,memory=16384,policy=preferred\nnuma1: \
        cpus=8-15,hostnodes=1,memory=16384,policy=preferred\nsockets: 2\n";
    for found in findings(&two_nodes(), text) {
        assert!(found.cure.commands.is_empty(), "{found:#?}");
        assert!(found.severity == Severity::Note || found.cure.advice.contains("homenode balance"), "{found:#?}");
    }
    let printed = definition(text).proxmox_numa_lines(&two_nodes(), &Occupancy::default()).expect("lines");
    assert!(!printed.contains("affinity:"), "{printed}");
}

#[test]
fn a_line_that_proxmox_cannot_read_is_found_and_mended_where_it_is_a_slip() {
    let machine = two_nodes();
    let text = "cores: 4\nmemory: 4096\nnuma: 1\naffinity: 0-15\nnuma0: cpus=0-3,hostnode=0,memory=4096,policy=bind\n";
    let found = finding(&machine, text, "line_left_out");
    assert!(found.sentence.contains("invalid key in comma-separated list property: hostnode"), "{}", found.sentence);
    assert_eq!(found.cure.commands, ["qm set 101 --numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind"]);
    let found = finding(&machine, "cores: 4\nmemory: 4096\naffinty: 0-15\n", "line_left_out");
    assert!(found.cure.commands[0].contains("--affinity"), "{found:#?}");
    // What another version knows is no harm.
    assert_eq!(kinds(&one_node(), "cores: 4\nmemory: 4096\nsome-new-option: 1\n"), [""; 0]);
    for value in ["0-3;8", "3-1", "all"] {
        let text = format!("cores: 4\nmemory: 4096\naffinity: {value}\n");
        assert!(kinds(&machine, &text).contains(&"line_left_out"), "{text}");
    }
    assert_eq!(definition("cores: 1\nmemory: 64\naffinity: 0, 5,8-9\n").shaped().pins[&0].to_string(), "0,5,8-9");
}

#[test]
fn virtual_nodes_while_numa_is_off_count_for_nothing() {
    let text = "cores: 4\nmemory: 4096\nnuma: 0\naffinity: 0-15\nnuma0: cpus=0-3,hostnodes=0,memory=4096,policy=bind\n";
    assert_eq!(finding(&two_nodes(), text, "virtual_nodes_off").cure.commands, ["qm set 101 --numa 1"]);
}

#[test]
fn a_template_is_no_vm_that_runs() {
    let text = "cores: 64\nmemory: 999999\ntemplate: 1\nname: golden\n";
    let found = findings(&two_nodes(), text);
    assert_eq!(found.iter().map(|finding| finding.what).collect::<Vec<_>>(), ["template"]);
    assert_eq!(found[0].severity, Severity::Note);
    let vm = definition(text);
    assert!(vm.is_template() && vm.shaped().memory.0 == 0);
    let refused = vm.proxmox_numa_lines(&two_nodes(), &Occupancy::default()).expect_err("a template");
    assert!(refused.is_bad_input() && refused.to_string().contains("is a template"), "{refused}");
}

/// A cure that writes `memory=8192` beside a `memory: 16384` that waits would keep the VM from
/// starting.
#[test]
fn what_waits_for_the_next_start_is_cured_with_it() {
    let text =
        "cores: 4\nmemory: 8192\nname: a\n\n[before]\ncores: 99\n\n[PENDING]\ncores: 8\nmemory: 16384\ndelete: vcpus\n";
    assert_eq!(definition(text).shaped().vcpus, 4);
    let found = finding(&two_nodes(), text, "floats");
    assert!(found.cure.commands[0].contains("--numa0 cpus=0-7,hostnodes=0,memory=16384,policy=bind"), "{found:#?}");
    let waiting = finding(&two_nodes(), text, "changes_wait");
    assert!(waiting.sentence.contains("cores: 8, memory: 16384"), "{}", waiting.sentence);
}

#[test]
fn texts_of_others_are_refused_by_what_they_are() {
    let refused = |text: &str| Definition::read(text.to_owned(), "a.conf".to_owned()).expect_err(text).to_string();
    let vmi = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: numavm}\n";
    assert!(refused(vmi).contains("YAML"), "{}", refused(vmi));
    let container = "arch: amd64\ncores: 2\nhostname: ct1\nmemory: 512\nrootfs: local-lvm:vm-101-disk-0\nswap: 512\n";
    assert!(refused(container).contains("container (LXC)"), "{}", refused(container));
    assert!(refused("#!/bin/sh\ncores: 2\n").contains("a script"));
    assert!(refused("{\"name\": \"a\"}").contains("JSON"));
    for text in
        ["name: a\nvcpus: 4\nram: 512\ndisk: 3\nid: 7\n", "some words\n", "Name: a\n", "memory = 4096\nvcpus = 2\n"]
    {
        let refused = refused(text);
        assert!(refused.starts_with("a.conf: it is ") && refused.contains("expected a libvirt domain"), "{refused}");
    }
}

/// Proxmox sets huge pages aside by itself when a VM starts.
#[test]
fn huge_pages_that_proxmox_sets_aside_itself_are_no_problem() {
    let mut machine = two_nodes();
    for node in &mut machine.nodes {
        let pool = topology::HugePages { page_size: topology::Bytes::from_mib(2), total: 0, free: 0 };
        node.huge_pages = vec![pool];
    }
    let text = "cores: 4\nmemory: 4096\nnuma: 1\nhugepages: 2\naffinity: 0-31\nnuma0: \
        cpus=0-3,hostnodes=0,memory=4096,policy=bind\n";
    assert_eq!(kinds(&machine, text), [""; 0]);
    assert!(finding(&machine, text, "no_huge_pages").because.contains("sets the pages that lack aside itself"));
}
