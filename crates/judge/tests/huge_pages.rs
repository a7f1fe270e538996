//! Huge pages of definitions against pools.

use judge::{Binding, Finding, HugePages, ShapedNode, ShapedVm, definition, together};
use scheduler::Occupancy;
use topology::{Bytes, Machine, read};
use vm::qemu::GuestCpus;

const GIB: u64 = 1 << 30;

/// Two nodes of 16 GiB and 8 hardware threads, with these lines more.
fn machine(more: &str) -> Machine {
    let text = format!("sockets = 2\ncores_per_llc = 4\nthreads_per_core = 2\nmemory_per_node = \"16 GiB\"\n{more}");
    read::from_toml(&text, "m.toml").expect("a machine")
}

/// 1024 pages of 2 MiB on node 0, 266 of them in use; none on node 1.
const POOLS: &str = "[[huge_pages]]\nsize = \"2 MiB\"\npages = [1024, 0]\nfree = [758, 0]\n";

/// A VM of 2 vCPUs, on a node or wherever; its pages of no size that is written.
fn vm(gib: u64, node: Option<&str>) -> ShapedVm {
    let memory = Bytes(gib * GIB);
    let set = |node: &str| node.parse().expect("a set");
    let binding = node.map(|node| Binding { mode: "strict".to_owned(), nodes: set(node) });
    let pins = |node: &str| {
        (0..2).map(|vcpu| (vcpu, if node == "0" { "0-3,8-11" } else { "4-7,12-15" }.parse().expect("CPUs"))).collect()
    };
    ShapedVm {
        name: "vm".to_owned(),
        vcpus: 2,
        memory,
        guest: GuestCpus { sockets: 1, dies: 1, cores: 2, threads: 1, ..GuestCpus::default() },
        nodes: vec![ShapedNode { vcpus: "0-1".parse().expect("vCPUs"), memory, binding, ..ShapedNode::default() }],
        pins: node.map(pins).unwrap_or_default(),
        huge_pages: vec![HugePages { size: None, cells: None }],
        ..ShapedVm::default()
    }
}

fn lacking(machine: &Machine, others: &Occupancy, vm: &ShapedVm) -> Option<Finding> {
    definition(machine, others, vm).findings.into_iter().find(|finding| finding.what == "no_huge_pages")
}

#[test]
fn no_size_is_the_hosts_default_and_what_is_free_of_a_pool_counts() {
    let found = |more: &str, vm: &ShapedVm| lacking(&machine(more), &Occupancy::default(), vm);
    // 2 GiB are 1024 pages of 2 MiB, and 758 are free: 1024 + 1024 - 758 would be enough.
    let one = found(POOLS, &vm(2, Some("0"))).expect("too few");
    assert!(one.sentence.contains("node 0 has 758 of its 1024 huge pages of 2 MiB free"), "{}", one.sentence);
    assert!(one.sentence.contains("the VM needs 1024 there") && one.seen.contains("taken to be 2 MiB"), "{one:?}");
    assert!(one.cure.commands[0].starts_with("echo 1290 > ") && one.cure.commands[0].contains("node0"), "{one:?}");
    assert_eq!(found(POOLS, &vm(1, Some("0"))), None);
    let known = format!("default_huge_page = \"1 GiB\"\n{POOLS}");
    let one = found(&known, &vm(1, Some("0"))).expect("no such pool");
    assert!(one.sentence.contains("node 0 has no huge pages of 1 GiB, and the VM needs 1 there"), "{}", one.sentence);
    // A machine of which nobody says what pools it has is not known, and not judged.
    assert_eq!(found("", &vm(2, Some("0"))), None);
}

#[test]
fn a_definition_without_a_home_gets_one_where_its_pages_are() {
    let homes = |more: &str| together(&machine(more), &Occupancy::default(), &[vm(1, None)])[0].homes.to_string();
    assert_eq!(homes(POOLS), "0");
    assert_eq!(homes(&POOLS.replace("[1024, 0]", "[0, 1024]").replace("[758, 0]", "[0, 758]")), "1");
    // Too few anywhere: a home all the same, and what it lacks.
    let machine = machine(POOLS);
    assert!(lacking(&machine, &Occupancy::default(), &vm(4, None)).is_some());
}

#[test]
fn definitions_that_are_solved_together_share_a_pool() {
    let machine = machine(POOLS);
    let vms = [vm(1, Some("0")), vm(1, Some("0"))];
    let beside = together(&machine, &Occupancy::default(), &vms);
    let lack: Vec<Option<String>> =
        (0..2).map(|i| lacking(&machine, &beside[i].others, &vms[i]).map(|one| one.sentence)).collect();
    // 512 of 758 for the first, 246 are left.
    let second = lack[1].as_ref().expect("too few for both");
    assert!(lack[0].is_none() && second.contains("246 of its 1024 huge pages of 2 MiB free"), "{lack:?}");
}
