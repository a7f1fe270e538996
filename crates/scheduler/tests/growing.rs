//! VMs that may grow: sized at their largest, started with a part of it.

use crate::random::{self, Case};
use proptest::prelude::*;
use scheduler::{Occupancy, plan};
use std::collections::BTreeMap;
use topology::{Bytes, Machine, NodeId, read};
use vm::{NodeUse, Plan, VirtualNode, VmSpec};

fn spec(text: &str) -> VmSpec {
    let text = format!("name = \"vm\"\n{text}\n");
    VmSpec::from_toml(&text, "vm.toml").expect(&text)
}

/// Two nodes of 8 cores and 32 GiB.
fn machine() -> Machine {
    read::from_synthetic("pack:2 [numa(memory=32GiB)] l3:1 core:8 pu:1").expect("a machine")
}

fn planned(text: &str) -> Plan {
    plan(&machine(), &Occupancy::default(), &spec(text)).expect("a plan")
}

/// vCPUs, absent ones, MiB at power-on and MiB that may come, of each virtual node.
fn nodes(plan: &Plan) -> Vec<(Vec<u32>, Vec<u32>, u64, u64)> {
    let of = |node: &VirtualNode| (node.vcpus.clone(), node.absent.clone(), node.memory.mib(), node.growth.mib());
    plan.topology.nodes.iter().map(of).collect()
}

fn choices(plan: &Plan) -> Vec<&str> {
    plan.reasons.iter().map(|reason| reason.choice.as_str()).collect()
}

#[test]
fn a_vm_is_sized_at_its_largest_and_starts_with_an_even_part() {
    let plan = planned("vcpus = 4\nmemory = \"8 GiB\"\nmax_vcpus = 12\nmax_memory = \"24 GiB\"");
    // 12 vCPUs on nodes of 8 cores: two nodes of 6, of which 2 each are there; 4 of 12 GiB each.
    let (first, second) = ((0..6).collect(), (6..12).collect());
    assert_eq!(nodes(&plan), [(first, vec![2, 3, 4, 5], 4096, 8192), (second, vec![8, 9, 10, 11], 4096, 8192)]);
    assert_eq!((plan.topology.sockets, plan.topology.cores_per_socket), (2, 6));
    // Both would fit on one machine node now, but not when they have grown.
    let homes: Vec<String> = plan.placement.clients.iter().map(|client| client.home.to_string()).collect();
    assert_eq!(homes, ["0", "1"]);
    let held = NodeUse { vcpus: 2, memory: Bytes(4 << 30), resident: Bytes(0), ..NodeUse::default() };
    assert_eq!(plan.holdings, BTreeMap::from([(NodeId(0), held), (NodeId(1), held)]));
    assert!(choices(&plan).contains(&"at power-on: 2 + 4 GiB, 2 + 4 GiB"), "{:?}", plan.reasons);
    assert!(choices(&plan).contains(&"homes of the VM at its largest"), "{:?}", plan.reasons);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

#[test]
fn what_a_vm_may_grow_to_counts_by_memory_too() {
    // 40 GiB at most on nodes of 32: two nodes of 20, 1 of 20 there.
    let plan = planned("vcpus = 2\nmemory = \"2 GiB\"\nmax_memory = \"40 GiB\"");
    assert_eq!(nodes(&plan), [(vec![0], vec![], 1024, 19 * 1024), (vec![1], vec![], 1024, 19 * 1024)]);
}

#[test]
fn a_node_may_start_without_a_vcpu() {
    let plan = planned("vcpus = 1\nmemory = \"2 GiB\"\nmax_vcpus = 16");
    assert_eq!(nodes(&plan)[0].1, (1..8).collect::<Vec<_>>());
    assert_eq!(nodes(&plan)[1].1, (8..16).collect::<Vec<_>>());
    assert!(plan.placement.clients.iter().all(|client| !client.cpus.is_empty()));
}

#[test]
fn growth_comes_in_blocks_of_the_guest_where_that_stays_even() {
    // 4736 MiB each at most. 9 blocks of 128 MiB: 5 and 4, so that they start with 4096 and 4224.
    let plan = planned("vcpus = 10\nmemory = \"8320 MiB\"\nmax_memory = \"9472 MiB\"");
    assert_eq!(nodes(&plan).iter().map(|node| (node.2, node.3)).collect::<Vec<_>>(), [(4096, 640), (4224, 512)]);
    // 1 block for 2 nodes that start with 64 MiB each: in blocks of 2 MiB.
    let plan = planned("vcpus = 10\nmemory = \"128 MiB\"\nmax_memory = \"256 MiB\"");
    assert_eq!(nodes(&plan).iter().map(|node| (node.2, node.3)).collect::<Vec<_>>(), [(64, 64), (64, 64)]);
}

#[test]
fn without_room_for_all_of_it_the_vm_is_placed_as_it_starts_and_the_plan_says_so() {
    let held = |gib: u64| NodeUse { vcpus: 0, memory: Bytes(gib << 30), resident: Bytes(0), ..NodeUse::default() };
    let occupancy = Occupancy { nodes: BTreeMap::from([(NodeId(1), held(28))]), ..Occupancy::default() };
    let spec = spec("vcpus = 4\nmemory = \"8 GiB\"\nmax_vcpus = 12\nmax_memory = \"24 GiB\"");
    let plan = plan(&machine(), &occupancy, &spec).expect("a plan");
    // Node 1 has 4 GiB left. Both clients start on node 0, which has no 12 threads.
    let homes: Vec<String> = plan.placement.clients.iter().map(|client| client.home.to_string()).collect();
    assert_eq!(homes, ["0", "0"]);
    let said = "it may grow to 12 vCPUs and 24 GiB: node 0 lacks hardware threads for that, as things are";
    assert_eq!(plan.warnings, [said]);
}

#[test]
fn fixed_nodes_grow_as_they_say() {
    let nodes_text = "virtual_nodes = [{ vcpus = 2, memory = \"2 GiB\", max_vcpus = 4 }, \
        { vcpus = 1, memory = \"1 GiB\", max_memory = \"2 GiB\" }]";
    let plan = planned(&format!(
        "vcpus = 3\nmemory = \"3 GiB\"\nmax_vcpus = 5\nmax_memory = \"4 GiB\"\n[policy]\n{nodes_text}"
    ));
    assert_eq!(nodes(&plan), [(vec![0, 1, 2, 3], vec![2, 3], 2048, 0), (vec![4], vec![], 1024, 1024)]);
    // 4 and 1 have no common divisor: sockets of 1.
    assert_eq!((plan.topology.sockets, plan.topology.cores_per_socket), (5, 1));
}

/// The case's VM as one that begins with a part of it.
fn begun(case: &Case, vcpus: prop::sample::Index, memory: prop::sample::Index) -> VmSpec {
    let mut spec = case.spec.clone();
    (spec.shape.max_vcpus, spec.shape.max_memory) = (Some(spec.vcpus), Some(spec.memory));
    spec.shape.vcpus = 1 + vcpus.index(spec.vcpus as usize) as u32;
    let steps = (spec.memory.mib() - 4) / 2;
    spec.shape.memory = Bytes(spec.memory.0 - 2 * Bytes::MIB.0 * memory.index(steps as usize + 1) as u64);
    spec
}

fn sized_by_size(plan: &Plan) -> bool {
    !choices(plan).contains(&"sized by what is free now")
}

properties::properties! {
    #![cases(64)]

    #[test]
    fn the_nodes_are_those_of_the_vm_at_its_largest(
        case in random::case(1..=4, 24),
        vcpus in any::<prop::sample::Index>(),
        memory in any::<prop::sample::Index>(),
    ) {
        let spec = begun(&case, vcpus, memory);
        let Ok(plan) = plan(&case.machine, &case.occupancy, &spec) else { return Ok(()) };
        if let Ok(largest) = scheduler::plan(&case.machine, &case.occupancy, &case.spec)
            && sized_by_size(&plan) && sized_by_size(&largest)
        {
            let all = |plan: &Plan| -> Vec<_> {
                let most = |node: &VirtualNode| (node.vcpus.clone(), node.memory.saturating_add(node.growth));
                plan.topology.nodes.iter().map(most).collect()
            };
            prop_assert_eq!(all(&plan), all(&largest));
            prop_assert_eq!(plan.topology.cores_per_socket, largest.topology.cores_per_socket);
        }
        prop_assert_eq!(plan.topology.sockets * plan.topology.cores_per_socket, case.spec.vcpus);
    }

    #[test]
    fn what_is_there_at_power_on_is_what_the_spec_says_spread_evenly(
        case in random::case(1..=4, 24),
        vcpus in any::<prop::sample::Index>(),
        memory in any::<prop::sample::Index>(),
    ) {
        let spec = begun(&case, vcpus, memory);
        let Ok(plan) = plan(&case.machine, &case.occupancy, &spec) else { return Ok(()) };
        let nodes = &plan.topology.nodes;
        let present: Vec<u32> = nodes.iter().flat_map(|node| node.present()).collect();
        prop_assert_eq!(present.len() as u32, spec.vcpus);
        prop_assert!(present.contains(&0));
        prop_assert_eq!(nodes.iter().map(|node| node.memory).sum::<Bytes>(), spec.memory);
        for node in nodes {
            let count = node.present().count();
            let present: Vec<u32> = node.present().collect();
            prop_assert_eq!(&present[..], &node.vcpus[..count], "not the first of the node");
            prop_assert!(count > 0 || (spec.vcpus as usize) < nodes.len());
            prop_assert!(node.growth.0.is_multiple_of(2 * Bytes::MIB.0));
        }
        // Equal nodes differ by a vCPU at most, and in memory by less than is even divided by 4
        // (an eighth each).
        for pair in nodes.windows(2).filter(|pair| pair[0].vcpus.len() == pair[1].vcpus.len()) {
            prop_assert!(pair[0].present().count().abs_diff(pair[1].present().count()) <= 1);
        }
        prop_assert_eq!(plan.holdings.values().map(|held| held.vcpus).sum::<u32>(), spec.vcpus);
        prop_assert_eq!(plan.holdings.values().map(|held| held.memory).sum::<Bytes>(), spec.memory);
        prop_assert!(plan.placement.clients.iter().all(|client| !client.cpus.is_empty()));
    }

    #[test]
    fn a_vm_whose_largest_is_its_start_is_planned_as_one_that_does_not_grow(case in random::case(1..=4, 24)) {
        let mut spec = case.spec.clone();
        (spec.shape.max_vcpus, spec.shape.max_memory) = (Some(spec.vcpus), Some(spec.memory));
        let planned = |spec: &VmSpec| plan(&case.machine, &case.occupancy, spec);
        prop_assert_eq!(planned(&spec), planned(&case.spec));
    }
}
