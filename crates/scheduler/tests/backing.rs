//! Huge pages, memory that is taken on touch, and one hardware thread for each vCPU: worked
//! examples, and what holds for every machine.

use crate::random;
use proptest::prelude::*;
use scheduler::{Occupancy, PlanError, plan, plan_together};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, HugePages, Machine, NodeId, read};
use vm::spec::{Fill, VcpuBinding};
use vm::{MemoryPolicy, NodeUse, Plan, VmSpec};

const PAGE: Bytes = Bytes::from_mib(2);

/// Two nodes of 4 cores, 8 hardware threads and 24 GiB.
fn machine() -> Machine {
    let machine = read::from_synthetic("numa:2(memory=24GiB) core:4 pu:2").expect("a machine");
    Machine { nodes: machine.nodes.into_iter().map(|node| topology::Node { free: None, ..node }).collect(), ..machine }
}

fn gib(gib: u64) -> Bytes {
    Bytes(gib << 30)
}

fn spec(vcpus: u32, memory_gib: u64, backing: &str) -> VmSpec {
    let text = format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"{memory_gib} GiB\"\n[backing]\n{backing}\n");
    VmSpec::from_toml(&text, "vm.toml").expect(&text)
}

/// What runs on node 0 and on node 1, in GiB.
fn held(gib_by_node: [u64; 2]) -> Occupancy {
    let of = |(node, memory)| (NodeId(node), NodeUse { memory: gib(memory), ..NodeUse::default() });
    Occupancy { nodes: (0..).zip(gib_by_node).map(of).collect(), ..Occupancy::default() }
}

fn with_pools(mut machine: Machine, page: Bytes, pools: &[(u64, u64)]) -> Machine {
    for (node, &(total, free)) in machine.nodes.iter_mut().zip(pools) {
        node.huge_pages = vec![HugePages { page_size: page, total, free }];
    }
    machine
}

fn homes(plan: &Plan) -> Vec<String> {
    plan.placement.clients.iter().map(|client| client.home.to_string()).collect()
}

#[test]
fn what_is_not_free_is_promised_where_memory_is_taken_on_touch() {
    // 24 - 20 = 4 GiB are free of each node: 8 in all, 16 are asked for.
    let (machine, occupancy) = (machine(), held([20, 20]));
    let refused = plan(&machine, &occupancy, &spec(4, 16, "")).unwrap_err();
    assert!(matches!(refused, PlanError::Memory { .. }), "{refused}");
    let placed = plan(&machine, &occupancy, &spec(4, 16, "fill = \"on_touch\"")).expect("a plan");
    assert_eq!(homes(&placed), ["0"]);
    assert_eq!(placed.placement.clients[0].memory_policy, MemoryPolicy::Preferred);
    assert_eq!(placed.holdings[&NodeId(0)].memory, gib(16));
    let warning = placed.warnings.join("\n");
    assert!(warning.contains("node 0: 16 GiB promised, 4 GiB free; overcommitted by 12 GiB"), "{warning}");
    // The next VM sees 20 + 16 of 24 promised on node 0, and goes to the other.
    let mut beside = occupancy.clone();
    beside.reserve(&placed);
    let next = plan(&machine, &beside, &spec(4, 16, "fill = \"on_touch\"")).expect("a plan");
    assert_eq!(homes(&next), ["1"]);
    // No more than the machine has: 2 x 24.
    let refused = plan(&machine, &occupancy, &spec(4, 49, "fill = \"on_touch\"")).unwrap_err().to_string();
    assert!(refused.contains("memory = \"49 GiB\"") && refused.contains("(48 GiB)"), "{refused}");
}

#[test]
fn pools_that_nobody_states_are_not_known_rather_than_empty() {
    // 24 GiB of each node, 12288 pages; 20 GiB are held of node 0.
    let asked = spec(2, 8, "huge_pages = \"2 MiB\"");
    let placed = plan(&machine(), &held([20, 0]), &asked).expect("a plan");
    assert_eq!(homes(&placed), ["1"]);
    let warnings = placed.warnings.join("\n");
    assert!(warnings.contains("is not known") && warnings.contains("4096 on node 1"), "{warnings}");
    // What was planned is held for the next one: 24 - 8 - 20 GiB, and 4 GiB of node 0.
    let mut beside = held([20, 0]);
    beside.reserve(&placed);
    let refused = plan(&machine(), &beside, &spec(2, 22, "huge_pages = \"2 MiB\"")).unwrap_err();
    assert!(matches!(refused, PlanError::Memory { .. }), "{refused}");
    assert_eq!(homes(&plan(&machine(), &beside, &spec(2, 15, "huge_pages = \"2 MiB\"")).expect("a plan")), ["1"]);
    // Where somebody says what pools there are, one that is not among them is empty.
    let stated = with_pools(machine(), Bytes(1 << 30), &[(4, 4), (4, 4)]);
    let refused = plan(&stated, &held([20, 0]), &asked).unwrap_err().to_string();
    assert!(refused.contains("node 0: 0 of 0, node 1: 0 of 0"), "{refused}");
}

#[test]
fn what_fits_is_said_to_be_promised_too() {
    let placed = plan(&machine(), &held([4, 6]), &spec(2, 8, "fill = \"on_touch\"")).expect("a plan");
    let warning = placed.warnings.join("\n");
    assert!(warning.contains("node 0: 8 GiB promised, 20 GiB free; others may take it"), "{warning}");
}

/// 40 GiB as one virtual node on two nodes of 24: only without a policy, or with "interleave", in
/// equal parts.
#[test]
fn a_wide_home_is_said_to_be_filled_as_its_policy_fills_it() {
    let said = |policy: Option<MemoryPolicy>| {
        let mut spec = spec(4, 40, "");
        (spec.shape.policy.vnuma, spec.shape.policy.memory) = (Some(false), policy);
        let plan = plan(&machine(), &Occupancy::default(), &spec).expect("a plan");
        assert_eq!(homes(&plan), ["0-1"]);
        let reason = plan.reasons.iter().find(|reason| reason.choice == "client 0 on 2 nodes: 0-1");
        reason.expect("a reason").because.clone()
    };
    for policy in [None, Some(MemoryPolicy::Interleave)] {
        assert!(said(policy).ends_with("its memory is interleaved in equal parts"), "{policy:?}");
    }
    assert!(said(Some(MemoryPolicy::Preferred)).contains("its memory fills node 0 first"));
    for policy in [MemoryPolicy::Bind, MemoryPolicy::Default] {
        assert!(!said(Some(policy)).contains("interleaved"), "{policy:?}");
    }
}

#[test]
fn huge_pages_come_from_the_pool_of_the_home() {
    // Node 1 alone has a pool: 1 GiB is 512 pages of 2 MiB.
    let machine = with_pools(machine(), PAGE, &[(0, 0), (1024, 600)]);
    let spec = spec(2, 1, "huge_pages = \"2 MiB\"");
    let placed = plan(&machine, &Occupancy::default(), &spec).expect("a plan");
    assert_eq!(homes(&placed), ["1"]);
    assert_eq!(placed.placement.clients[0].memory_policy, MemoryPolicy::Bind);
    // The pool is missing from the node's free memory already.
    let all = NodeUse { vcpus: 2, memory: gib(1), resident: gib(1), ..NodeUse::default() };
    assert_eq!(placed.holdings, BTreeMap::from([(NodeId(1), all)]));
    // 600 - 512 = 88 pages do not hold a second one.
    let refused = plan_together(&machine, &Occupancy::default(), &[spec.clone(), spec]).unwrap_err();
    assert!(matches!(refused, PlanError::HugePages { needed: 512, free: 88, .. }), "{refused}");
}

#[test]
fn what_pools_lack_is_refused_with_the_command_that_makes_it() {
    // Node 0 would hold the VM: 512 pages, 100 are free: 412 are lacking to the 1000 there.
    let machine = with_pools(machine(), PAGE, &[(1000, 100), (1000, 0)]);
    let refused = plan(&machine, &Occupancy::default(), &spec(2, 1, "huge_pages = \"2 MiB\"")).unwrap_err().to_string();
    for part in [
        "needs 512 huge pages of 2 MiB",
        "node 0: 100 of 1000, node 1: 0 of 1000",
        "as root, echo 1412 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    // Pages of 1 GiB are another pool; each of two virtual nodes wants two, of its own node.
    let refused = plan(&machine, &Occupancy::default(), &spec(8, 4, "huge_pages = \"1 GiB\"")).unwrap_err().to_string();
    for node in [0, 1] {
        let command =
            format!("echo 2 > /sys/devices/system/node/node{node}/hugepages/hugepages-1048576kB/nr_hugepages");
        assert!(refused.contains(&command), "{command} in {refused}");
    }
    // Nobody knows whether a node can still make one.
    for part in ["in one piece", "try another node", "`hugepagesz=1G hugepages=0:2,1:2`"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let refused = plan(&machine, &held([24, 24]), &spec(2, 1, "huge_pages = \"1 GiB\"")).unwrap_err().to_string();
    assert!(refused.contains("lack the memory to make more"), "{refused}");
}

#[test]
fn virtual_nodes_are_whole_pages() {
    // 5 GiB for 8 vCPUs on 2 x 4 cores: 3 + 2 pages of 1 GiB, not 2.5 each.
    let machine = with_pools(machine(), gib(1), &[(8, 8), (8, 8)]);
    let placed = plan(&machine, &Occupancy::default(), &spec(8, 5, "huge_pages = \"1 GiB\"")).expect("a plan");
    let memory: Vec<u64> = placed.topology.nodes.iter().map(|node| node.memory.0 >> 30).collect();
    assert_eq!(memory, [3, 2]);
}

properties::properties! {
    #![cases(40)]

    #[test]
    fn no_pool_gives_more_than_it_has(
        case in random::case(1..=4, 16),
        pools in prop::collection::vec((0u64..6000, 0u64..6000), 6),
    ) {
        let free = |&(one, other): &(u64, u64)| (one.max(other), one.min(other));
        let machine = with_pools(case.machine, PAGE, &pools.iter().map(free).collect::<Vec<_>>());
        let mut spec = case.spec;
        spec.shape.memory = Bytes(spec.memory.0.next_multiple_of(PAGE.0));
        spec.shape.backing.huge_pages = Some(PAGE);
        prop_assume!(spec.check().is_ok());
        let there: u64 = machine.nodes.iter().map(|node| node.huge_pages[0].free).sum();
        let plan = match plan(&machine, &case.occupancy, &spec) {
            Ok(plan) => plan,
            Err(PlanError::HugePages { needed, .. }) => {
                prop_assert!(needed > there, "{needed} of {there}");
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        let whole = |bytes: Bytes| bytes.0.is_multiple_of(PAGE.0);
        prop_assert!(plan.topology.nodes.iter().all(|node| whole(node.memory)), "{plan:?}");
        prop_assert_eq!(plan.holdings.values().map(|held| held.memory).sum::<Bytes>(), spec.memory);
        for (&node, held) in &plan.holdings {
            let pool = machine.node(node).expect("a node").huge_pages[0];
            prop_assert!(whole(held.memory) && held.memory.0 / PAGE.0 <= pool.free && held.resident == held.memory);
        }
    }

    #[test]
    fn who_fits_is_placed_alike_and_who_does_not_is_promised_what_there_is(case in random::case(1..=4, 16)) {
        let mut lazy = case.spec.clone();
        lazy.shape.backing.fill = Fill::OnTouch;
        let (at_start, on_touch) =
            (plan(&case.machine, &case.occupancy, &case.spec), plan(&case.machine, &case.occupancy, &lazy));
        let there: Bytes = case.machine.nodes.iter().map(|node| node.memory).sum();
        match (at_start, on_touch) {
            (Ok(at_start), Ok(on_touch)) => {
                prop_assert_eq!(&at_start.holdings, &on_touch.holdings);
                prop_assert_eq!(&at_start.topology, &on_touch.topology);
            }
            (Err(PlanError::Memory { .. }), Ok(on_touch)) => {
                prop_assert!(on_touch.warnings.iter().any(|warning| warning.contains("overcommitted by")));
                prop_assert_eq!(on_touch.holdings.values().map(|held| held.memory).sum::<Bytes>(), lazy.memory);
                for (&node, held) in &on_touch.holdings {
                    prop_assert!(held.memory <= case.machine.node(node).expect("a node").memory);
                }
            }
            (Err(_), Err(PlanError::LargerThanMachine { .. })) => prop_assert!(lazy.memory > there),
            (at_start, on_touch) => prop_assert!(false, "{at_start:?} and {on_touch:?}"),
        }
    }

    #[test]
    fn no_hardware_thread_is_given_twice_and_cores_come_before_siblings(case in random::case(1..=4, 16)) {
        let mut bound = case.spec.clone();
        bound.shape.policy.vcpu_binding = VcpuBinding::Core;
        let mut occupancy = case.occupancy.clone();
        let mut taken = CpuSet::new();
        for _ in 0..2 {
            let plan = match plan(&case.machine, &occupancy, &bound) {
                Ok(plan) => plan,
                Err(
                    PlanError::NoCpuForVcpu { .. } | PlanError::EachCpuBound { .. } | PlanError::Memory { .. },
                ) => break,
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            };
            let mut given = CpuSet::new();
            for client in &plan.placement.clients {
                for (vcpu, &cpu) in &client.vcpu_cpus {
                    prop_assert!(client.cpus.contains(cpu) && !taken.contains(cpu) && !given.contains(cpu));
                    prop_assert!(plan.topology.nodes[client.virtual_nodes[0] as usize].vcpus.contains(vcpu));
                    given.insert(cpu);
                }
            }
            prop_assert_eq!(given.len(), bound.vcpus as usize);
            let threads = plan.topology.threads_per_core;
            let core_of = |cpu| case.machine.thread(cpu).map(|thread| thread.core);
            let mut cores = std::collections::BTreeMap::<u32, std::collections::BTreeSet<_>>::new();
            for (vcpu, &cpu) in plan.placement.clients.iter().flat_map(|client| &client.vcpu_cpus) {
                cores.entry(vcpu / threads).or_default().insert(core_of(cpu));
            }
            let apart = plan.warnings.iter().any(|warning| warning.contains("on different cores"));
            prop_assert!(apart || cores.values().all(|cores| cores.len() == 1), "{given}");
            // A second thread of a core is in use only where each core of its node has one, or
            // where the guest is told of threads.
            let all = taken.union(&given);
            let used = |cpus: &CpuSet, core| {
                case.machine.threads.iter().filter(|thread| thread.core == core && cpus.contains(thread.id)).count()
            };
            for node in plan.homes().iter().filter(|_| threads == 1).filter(|node| plan.holdings.get(node).is_some_and(|held| held.vcpus > 0)) {
                let cores = case.machine.usable_cores(node);
                let idle = cores.iter().any(|core| used(&all, core) == 0);
                let doubled = cores.iter().any(|core| used(&all, core) > 1 && used(&given, core) > 0);
                prop_assert!(!(idle && doubled), "node {node}: {given} beside {taken}");
            }
            occupancy.reserve(&plan);
            taken = all;
        }
    }
}
