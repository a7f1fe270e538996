//! Configurations of Proxmox VE, judged, and cured by the `qm set` that is printed.

use judge::{Finding, Severity};
use scheduler::Occupancy;
use stacks::check::Definition;
use std::collections::BTreeMap;
use topology::{Bytes, Machine, NodeId, read};
use vm::NodeUse;

fn machine() -> Machine {
    read::shipped("hp-dl380-g6").expect("a file").expect("a machine")
}

fn findings(text: &str) -> Vec<Finding> {
    let definition =
        Definition::read(text.to_owned(), "/etc/pve/qemu-server/101.conf".to_owned()).expect("a configuration");
    definition.check(&machine(), &Occupancy::default()).expect("findings")
}

fn kinds(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.what).collect()
}

/// What `qm set 101 --KEY VALUE ...` makes of a configuration.
fn set(text: &str, command: &str) -> String {
    let words = command.strip_prefix("qm set 101 ").expect("a qm set");
    let mut lines: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    for option in words.split("--").filter(|option| !option.trim().is_empty()) {
        let (key, value) = option.trim().split_once(' ').expect("a value");
        let value = value.trim_matches('\'').to_owned();
        match key {
            "delete" => lines.remove(&value),
            _ => lines.insert(key.to_owned(), value),
        };
    }
    lines.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

/// The configuration with the cures of all problems and warnings, one after the other.
fn cured(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..8 {
        let found = findings(&text);
        let curable = found.iter().filter(|finding| finding.severity > Severity::Note);
        let Some(command) = curable.filter_map(|finding| finding.cure.commands.first()).next() else { break };
        let next = set(&text, command);
        assert_ne!(next, text, "{command} changes nothing");
        text = next;
    }
    text
}

const PLAIN: &str = "cores: 4\nmemory: 4096\nname: db\nsockets: 1\n";
const TWO_CELLS: &str = "cores: 8\nmemory: 8192\nname: web\nnuma: 1\nnuma0: cpus=0-3,memory=4096\nnuma1: \
    cpus=4-7,memory=4096\nsockets: 1\n";

#[test]
fn a_default_vm_floats_and_gets_a_home_by_qm_set() {
    let found = findings(PLAIN);
    assert_eq!(kinds(&found)[0], "floats");
    let command = &found[0].cure.commands[0];
    assert_eq!(command, "qm set 101 --numa 1 --numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind --affinity 0-3,8-11");
    assert_eq!(judge::wrong(&findings(&cured(PLAIN))), 0, "{}", cured(PLAIN));
}

#[test]
fn what_a_cure_can_mend_is_mended_and_the_rest_is_no_longer_called_curable() {
    let found = findings(TWO_CELLS);
    assert!(kinds(&found).contains(&"cache_over_nodes"), "{found:#?}");
    let after = cured(TWO_CELLS);
    let left = findings(&after);
    let curable = left.iter().filter(|finding| finding.severity > Severity::Note && !finding.cure.commands.is_empty());
    assert_eq!(curable.count(), 0, "{after}{left:#?}");
    assert!(!kinds(&left).contains(&"cache_over_nodes"), "{after}");
    // Proxmox has one set of CPUs for the whole process.
    for finding in left.iter().filter(|finding| finding.severity > Severity::Note) {
        assert!(finding.cure.advice.contains("homenode balance"), "{finding:#?}");
    }
}

#[test]
fn lines_have_their_numbers_and_snapshots_are_other_vms() {
    let text = "#a comment\nname: a\ncores: 2\naffinity: 4-7\nnuma: 1\nnuma0: \
        cpus=0-1,hostnodes=0,memory=1024,policy=bind\nmemory: 1024\n[before]\nmemory: 999999\n";
    let found = findings(text);
    assert_eq!(kinds(&found)[0], "memory_away", "{found:#?}");
    let spots: Vec<String> = found[0].spots.iter().map(ToString::to_string).collect();
    assert!(
        spots.contains(&"affinity (line 4)".to_owned()) && spots.contains(&"numa0 (line 6)".to_owned()),
        "{spots:?}"
    );
}

#[test]
fn a_value_that_proxmox_does_not_take_is_refused_with_its_line() {
    let refused = |text: &str| Definition::read(text.to_owned(), "7.conf".to_owned()).expect_err(text).to_string();
    assert_eq!(refused("name: a\ncores: many\n"), "7.conf: line 2: cores: \"many\": expected a number from 1");
    assert!(refused("cores: 999999999999\n").contains("line 1: cores"));
    assert!(refused("cores: 1048576\naffinity: 0-8191\n").ends_with("expected at most 4096 vCPUs in all sockets"));
    assert!(refused("sockets: 129\nnuma: 1\n").ends_with("expected at most 128, each a virtual node"));
}

fn planned(text: &str, others: &Occupancy) -> Result<String, String> {
    let definition =
        Definition::read(text.to_owned(), "/etc/pve/qemu-server/101.conf".to_owned()).expect("a configuration");
    definition.proxmox_numa_lines(&machine(), others).map_err(|error| error.to_string())
}

fn numa_lines(text: &str) -> String {
    planned(text, &Occupancy::default()).expect("lines")
}

/// The configuration with the printed lines in the place of those with the same key.
fn with_lines(text: &str, printed: &str) -> String {
    let lines = text.lines().chain(printed.lines().filter(|line| !line.starts_with('#')));
    let lines: BTreeMap<&str, &str> = lines.filter_map(|line| line.split_once(": ")).collect();
    lines.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

/// 4 vCPUs and 4 GiB are one virtual node on a host of two nodes with 4 cores, 8 hardware threads
/// and 24 GiB each.
#[test]
fn a_vm_that_exists_gets_the_lines_that_it_lacks_and_no_other() {
    let printed = numa_lines(PLAIN);
    let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        lines,
        ["numa: 1", "numa0: cpus=0-3,hostnodes=0,memory=4096,policy=bind", "affinity: 0-3,8-11"],
        "{printed}"
    );
    let command = "# qm set 101 --numa 1 --numa0 cpus=0-3,hostnodes=0,memory=4096,policy=bind --affinity 0-3,8-11\n";
    assert!(printed.contains(command), "{printed}");
    let after = numa_lines(&with_lines(PLAIN, &printed));
    assert_eq!(after, "# VM db on hp-dl380-g6: its configuration has all of its NUMA lines already.\n");
    // The line that is there is not repeated.
    let half = numa_lines(&format!("{PLAIN}numa: 1\n"));
    assert!(!half.lines().any(|line| line.starts_with("numa: ")) && !half.contains("--numa 1"), "{half}");
}

#[test]
fn the_lines_and_the_command_write_the_same_and_leave_no_curable_fault() {
    for text in [PLAIN, TWO_CELLS] {
        let printed = numa_lines(text);
        let command = printed.lines().find_map(|line| line.strip_prefix("# qm set")).expect("the command");
        let after = with_lines(text, &printed);
        assert_eq!(after, set(text, &format!("qm set{command}")), "{printed}");
        let left = findings(&after);
        let curable = left.iter().filter(|finding| finding.severity > Severity::Note);
        assert_eq!(curable.filter(|finding| !finding.cure.commands.is_empty()).count(), 0, "{after}{left:#?}");
    }
}

#[test]
fn a_vm_without_room_or_of_another_stack_is_told_so() {
    let large = planned("cores: 4\nmemory: 98304\nname: db\nsockets: 1\n", &Occupancy::default());
    let refused = large.expect_err("96 GiB, and the machine has 48");
    assert!(refused.contains("101.conf: VM `db` needs 96 GiB of memory; hp-dl380-g6 has 48 GiB"), "{refused}");
    // 23 of 24 GiB of each node are taken, and the VM has 4: the lines are those for the machine
    // without others.
    let mut others = Occupancy::default();
    for node in [0, 1] {
        let taken = NodeUse { vcpus: 0, memory: Bytes(23 << 30), resident: Bytes(0), ..NodeUse::default() };
        others.nodes.insert(NodeId(node), taken);
    }
    let crowded = planned(PLAIN, &others).expect("lines");
    assert!(crowded.contains("\n# WARNING: ") && crowded.contains("\nnuma0: "), "{crowded}");
    let domain = include_str!("check-domains/right.xml").to_owned();
    let domain = Definition::read(domain, "right.xml".to_owned()).expect("a domain");
    let refused = domain.proxmox_numa_lines(&machine(), &Occupancy::default()).expect_err("no configuration");
    assert!(refused.to_string().starts_with("right.xml: is no Proxmox VE configuration"), "{refused}");
}

/// Node 1 of three is full, and the VM has one vCPU and more memory than a node: its home is nodes
/// 0 and 2.
#[test]
fn a_home_with_a_gap_is_not_handed_to_proxmox() {
    let machine = read::from_synthetic("pack:3 [numa(memory=16GiB)] core:4 pu:1").expect("a machine");
    let taken = NodeUse { vcpus: 0, memory: Bytes(16 << 30), resident: Bytes(0), ..NodeUse::default() };
    let others = Occupancy { nodes: BTreeMap::from([(NodeId(1), taken)]), ..Occupancy::default() };
    let of = |text: &str| Definition::read(text.to_owned(), "101.conf".to_owned()).expect("a configuration");
    let text = "cores: 1\nmemory: 20480\nname: db\nsockets: 1\n";
    let printed = of(text).proxmox_numa_lines(&machine, &others).expect("lines");
    assert!(printed.contains("\nnuma0: cpus=0,memory=20480\n") && !printed.contains("hostnodes"), "{printed}");
    assert!(printed.contains("# WARNING: the home 0,2 of virtual node 0 has a gap"), "{printed}");
    let found = of(text).check(&machine, &others).expect("findings");
    let cure = &found.iter().find(|finding| finding.what == "floats").expect("it floats").cure;
    assert!(cure.commands[0].contains("--numa0 cpus=0,memory=20480"), "{cure:?}");
    assert!(cure.advice.contains("has a gap") && cure.advice.contains("homenode balance"), "{cure:?}");
    // Proxmox starts no VM of huge pages whose virtual nodes name no host nodes: that line stays as
    // it is.
    let huge = of(&format!("{text}hugepages: 2\n")).proxmox_numa_lines(&machine, &others).expect("lines");
    assert!(!huge.contains("\nnuma0: "), "{huge}");
}

/// One vCPU and 32 GiB on nodes of 24 GiB: the vCPU lives on node 0, and what that cannot hold lies
/// on node 1. The kernel fills the nodes of a bind policy from the nearest on, so that both lines
/// together are what `homenode plan` says of such a VM.
#[test]
fn memory_beyond_a_node_is_bound_as_the_planner_places_it() {
    let printed = numa_lines("cores: 1\nmemory: 32768\nname: db\nsockets: 1\n");
    assert!(printed.contains("\nnuma0: cpus=0,hostnodes=0-1,memory=32768,policy=bind\n"), "{printed}");
    assert!(printed.contains("\naffinity: 0-3,8-11\n"), "{printed}");
    let spec = vm::VmSpec::from_toml("name = \"db\"\nvcpus = 1\nmemory = \"32 GiB\"\n", "vm.toml").expect("a spec");
    let plan = scheduler::plan(&machine(), &Occupancy::default(), &spec).expect("a plan");
    let client = &plan.placement.clients[0];
    assert_eq!((client.home.to_string(), client.cpus.to_string()), ("0-1".to_owned(), "0-3,8-11".to_owned()));
    assert_eq!(client.memory_policy, vm::MemoryPolicy::Bind);
}

#[test]
fn a_vm_that_does_not_fit_is_no_bad_input() {
    let too_large = Definition::read("cores: 4\nmemory: 98304\n".to_owned(), "101.conf".to_owned()).expect("one");
    let error = too_large.proxmox_numa_lines(&machine(), &Occupancy::default()).expect_err("96 GiB on 48");
    assert!(!error.is_bad_input(), "{error}");
}
