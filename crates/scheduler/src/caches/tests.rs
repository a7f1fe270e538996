use crate::{Occupancy, plan, rehome};
use std::collections::BTreeSet;
use topology::{Bytes, LlcId, Machine, NodeId};
use vm::spec::{CachePolicy, FixedNode};
use vm::{NodeUse, Plan, Shape};

fn shape(vcpus: u32, cache: CachePolicy) -> Shape {
    let mut shape = Shape { name: "a".to_owned(), vcpus, memory: Bytes::from_mib(256), ..Shape::default() };
    shape.policy.cache = cache;
    shape
}

/// A socket of Rome, NPS 1: four caches of 4 cores, two hardware threads each.
fn rome() -> Machine {
    machine("numa:1(memory=4GiB) l3:4 core:4 pu:2")
}

fn machine(synthetic: &str) -> Machine {
    topology::read::from_synthetic(synthetic).expect("a machine")
}

fn planned(machine: &Machine, occupancy: &Occupancy, shape: &Shape) -> Plan {
    plan(machine, occupancy, shape).expect("a plan")
}

/// `vCPUs@CPUs` of each group.
fn groups(plan: &Plan) -> Vec<String> {
    let clients = plan.placement.clients.iter();
    let each = clients.flat_map(|client| &client.groups);
    each.map(|group| format!("{}@{}", group.vcpus.len(), group.cpus)).collect()
}

#[test]
fn packed_vcpus_take_the_fewest_caches_that_are_idle_and_tell_the_guest() {
    let (machine, mut occupancy) = (rome(), Occupancy::default());
    let first = planned(&machine, &occupancy, &shape(4, CachePolicy::Pack));
    assert_eq!(groups(&first), ["4@0-7"]);
    occupancy.reserve(&first);
    assert_eq!(occupancy.caches[&LlcId(0)], 4);
    // 8 vCPUs on 4 cores a cache: two groups; cache 0 has 4 vCPUs already.
    let second = planned(&machine, &occupancy, &shape(8, CachePolicy::Pack));
    assert_eq!(groups(&second), ["4@8-15", "4@16-23"]);
    assert_eq!((second.topology.sockets, second.topology.cores_per_socket), (2, 4));
    assert!(second.reasons.iter().any(|reason| reason.choice == "cache groups: 2 of 4 vCPUs, on 2 caches"));
    assert!(second.warnings.is_empty(), "{:?}", second.warnings);
    occupancy.reserve(&second);
    // Cache 3 is idle.
    assert_eq!(groups(&planned(&machine, &occupancy, &shape(3, CachePolicy::Pack))), ["3@24-31"]);
}

#[test]
fn each_has_a_cache_of_its_own_as_far_as_there_are() {
    let (machine, empty) = (rome(), Occupancy::default());
    let four = planned(&machine, &empty, &shape(4, CachePolicy::Own));
    assert_eq!(groups(&four), ["1@0-7", "1@8-15", "1@16-23", "1@24-31"]);
    assert_eq!((four.topology.sockets, four.topology.cores_per_socket), (4, 1));
    let sixteen = planned(&machine, &empty, &shape(16, CachePolicy::Own));
    assert_eq!(groups(&sixteen), ["4@0-7", "4@8-15", "4@16-23", "4@24-31"]);
    // 7 = 2 + 2 + 2 + 1: no socket is that of all, and the plan says so.
    let seven = planned(&machine, &empty, &shape(7, CachePolicy::Own));
    assert_eq!(groups(&seven), ["2@0-7", "2@8-15", "2@16-23", "1@24-31"]);
    assert_eq!(seven.topology.sockets, 1);
    assert!(seven.warnings[0].contains("is not told of these groups"), "{:?}", seven.warnings);
}

#[test]
fn sockets_that_the_policy_states_are_groups_by_default() {
    let mut stated = shape(16, CachePolicy::Auto);
    let machine = machine("pack:2 [numa(memory=4GiB)] l3:4 core:4 pu:1");
    let float = planned(&machine, &Occupancy::default(), &stated);
    assert!(groups(&float).is_empty() && float.reasons.iter().all(|reason| !reason.choice.contains("cache")));
    stated.policy.cores_per_socket = Some(4);
    let bound = planned(&machine, &Occupancy::default(), &stated);
    assert_eq!(groups(&bound), ["4@0-3", "4@4-7", "4@8-11", "4@12-15"]);
    // No cache has 8 cores: each socket has two dies of 4, and so the guest is told of the caches.
    stated.policy.cores_per_socket = Some(8);
    let wide = planned(&machine, &Occupancy::default(), &stated);
    assert_eq!(groups(&wide), groups(&bound));
    let topology = &wide.topology;
    assert_eq!((topology.sockets, topology.cores_per_socket, topology.dies_per_socket), (2, 8, 2));
    assert!(wide.warnings.is_empty(), "{:?}", wide.warnings);
    // Sockets of 7 divide into dies of one vCPU only.
    let mut odd = shape(14, CachePolicy::Auto);
    odd.policy.cores_per_socket = Some(7);
    let odd = planned(&machine, &Occupancy::default(), &odd);
    assert!(groups(&odd).is_empty() && odd.topology.dies_per_socket == 1);
    assert!(odd.warnings[0].contains("none of its home has more than 4 cores"), "{:?}", odd.warnings);
    stated.policy.cores_per_socket = Some(4);
    stated.policy.cache = CachePolicy::Ignore;
    let ignored = planned(&machine, &Occupancy::default(), &stated);
    assert!(groups(&ignored).is_empty() && ignored.topology == bound.topology);
}

#[test]
fn clients_of_one_vm_that_each_fit_under_a_cache_keep_to_one() {
    assert_eq!(CachePolicy::default(), CachePolicy::Auto);
    let machine = machine("pack:2 [numa(memory=4GiB)] l3:4 core:4 pu:1");
    let in_two = |vcpus: u32| {
        let mut shape = shape(2 * vcpus, CachePolicy::Auto);
        shape.memory = Bytes::from_mib(1024);
        let node = FixedNode { vcpus, memory: Bytes::from_mib(512), ..FixedNode::default() };
        shape.policy.virtual_nodes = Some(vec![node; 2]);
        planned(&machine, &Occupancy::default(), &shape)
    };
    let bound = in_two(4);
    let clients = &bound.placement.clients;
    assert_eq!(clients.iter().map(|client| client.groups.len()).collect::<Vec<_>>(), [1, 1]);
    let caches: BTreeSet<LlcId> = clients.iter().map(|client| client.groups[0].llc).collect();
    assert_eq!((caches.len(), clients[0].groups[0].cpus.len()), (2, 4), "{clients:?}");
    assert!(bound.warnings.is_empty(), "{:?}", bound.warnings);
    // 5 vCPUs are under two caches whatever is done, and nothing was stated of them.
    let floats = in_two(5);
    assert!(groups(&floats).is_empty() && floats.warnings.is_empty(), "{:?}", floats.warnings);
}

#[test]
fn the_article_of_rome_has_its_vm() {
    // 2 sockets of NPS 4: 8 nodes of 4 caches of 4 cores; 128 vCPUs, 4 to a socket.
    let machine = machine("pack:2 group:4 [numa(memory=64GiB)] l3:4 core:4 pu:2");
    let mut shape = shape(128, CachePolicy::Auto);
    shape.policy.cores_per_socket = Some(4);
    let plan = planned(&machine, &Occupancy::default(), &shape);
    assert_eq!(plan.placement.clients.len(), 8);
    let caches = plan.vcpus_by_cache();
    assert!(caches.len() == 32 && caches.values().all(|&vcpus| vcpus == 4), "{caches:?}");
}

#[test]
fn unlike_caches_take_what_they_have_cores_for() {
    // A cache of 6 cores and one of 2, as hybrid parts have them.
    let mut machine = machine("numa:1(memory=4GiB) l3:2 core:4 pu:1");
    for thread in &mut machine.threads[4..6] {
        thread.llc = Some(LlcId(0));
    }
    let mut stated = shape(8, CachePolicy::Auto);
    stated.policy.cores_per_socket = Some(2);
    let plan = planned(&machine, &Occupancy::default(), &stated);
    assert_eq!(groups(&plan), ["2@0-5", "2@0-5", "2@0-5", "2@6-7"]);
    // 6 + 2: of 4 and 4 the second would not fit, of 2 all do, and the guest is told.
    let eight = planned(&machine, &Occupancy::default(), &shape(8, CachePolicy::Pack));
    assert_eq!((groups(&eight), eight.topology.cores_per_socket), (groups(&plan), 2));
    // 6 vCPUs fit into one.
    assert_eq!(groups(&planned(&machine, &Occupancy::default(), &shape(6, CachePolicy::Pack))), ["6@0-5"]);
}

#[test]
fn caches_that_nobody_knows_and_one_for_a_node_divide_nothing() {
    let one = machine("numa:1(memory=4GiB) l3:1 core:8 pu:1");
    let private = machine("numa:1(memory=4GiB) core:8 l3:1 pu:1");
    let mut none = one.clone();
    none.threads.iter_mut().for_each(|thread| thread.llc = None);
    for machine in [one, private, none] {
        let plan = planned(&machine, &Occupancy::default(), &shape(8, CachePolicy::Own));
        assert!(groups(&plan).is_empty() && plan.topology.sockets == 1);
        assert!(plan.warnings[0].contains("divides nothing"), "{:?}", plan.warnings);
        let mut stated = shape(8, CachePolicy::Auto);
        stated.policy.cores_per_socket = Some(2);
        let plan = planned(&machine, &Occupancy::default(), &stated);
        assert!(groups(&plan).is_empty() && plan.warnings.is_empty());
    }
}

#[test]
fn a_guest_keeps_its_sockets_on_a_machine_of_smaller_caches() {
    let milan = machine("numa:1(memory=4GiB) l3:2 core:8 pu:1");
    let pack = shape(16, CachePolicy::Pack);
    let first = planned(&milan, &Occupancy::default(), &pack);
    assert_eq!(groups(&first), ["8@0-7", "8@8-15"]);
    let moved = rehome(&rome(), &Occupancy::default(), &pack, &first.topology, &[]).expect("a plan");
    assert_eq!(moved.topology, first.topology);
    assert_eq!(groups(&moved), ["4@0-7", "4@8-15", "4@16-23", "4@24-31"]);
    assert!(moved.warnings.iter().any(|warning| warning.contains("sockets of 8 vCPUs")), "{:?}", moved.warnings);
}

#[test]
fn vcpus_that_may_come_have_a_group() {
    let mut growing = shape(2, CachePolicy::Pack);
    growing.max_vcpus = Some(8);
    let plan = planned(&rome(), &Occupancy::default(), &growing);
    assert_eq!(groups(&plan), ["4@0-7", "4@8-15"]);
    assert_eq!(plan.vcpus_by_cache().values().sum::<u32>(), 2);
    assert_eq!(plan.placement.clients[0].cpus_of(7).to_string(), "8-15");
}

/// What is free under the caches of a home counts as what is free of its node.
#[test]
fn the_home_is_where_caches_are_idle() {
    // Two caches of 4 cores a node. Others have 4 vCPUs on each: under cache 0, and anywhere on
    // node 1. Two groups of 4 lose on node 0 0.2 x (8^2 - 4^2) / 4 + 4 and 0.2 x 4^2 / 4, that is
    // 7.2 CPUs, on node 1 2 x 0.8.
    let machine = machine("pack:2 [numa(memory=4GiB)] l3:2 core:4 pu:1");
    let mut occupancy = Occupancy::default();
    for node in [0, 1] {
        occupancy.nodes.insert(NodeId(node), NodeUse { vcpus: 4, ..NodeUse::default() });
    }
    occupancy.hold_caches(&[(LlcId(0), 4)].into());
    let of = |cache| planned(&machine, &occupancy, &shape(8, cache));
    assert_eq!(groups(&of(CachePolicy::Pack)), ["4@8-11", "4@12-15"]);
    assert_eq!(of(CachePolicy::Ignore).placement.clients[0].home.to_string(), "0");
    let told = &of(CachePolicy::Pack).reasons.iter().find(|reason| reason.choice == "home: node 1").cloned();
    let told = &told.as_ref().expect("its home").because;
    assert!(told.contains("it loses 3.6 CPUs (2 to waiting and shared cores, 1.6 to crowded last-level"), "{told}");
    // Of the charge nothing is lost: a VM that floats crowds its node as much.
    assert_eq!(of(CachePolicy::Pack).lost_milli_cpus, of(CachePolicy::Ignore).lost_milli_cpus);
}

#[test]
fn clients_of_one_home_share_its_caches_evenly() {
    // Two virtual nodes of 8 on one node of four caches: each group has one.
    let mut two = shape(16, CachePolicy::Pack);
    let node = FixedNode { vcpus: 8, memory: Bytes::from_mib(128), ..FixedNode::default() };
    two.policy.virtual_nodes = Some(vec![node; 2]);
    let plan = planned(&rome(), &Occupancy::default(), &two);
    assert_eq!(groups(&plan), ["4@0-7", "4@8-15", "4@16-23", "4@24-31"]);
}

fn described(toml: &str) -> Machine {
    topology::read::from_toml(toml, "machine.toml").expect("a machine")
}

#[test]
fn of_two_caches_that_are_as_idle_the_larger_is_taken() {
    let v_cache = described(include_str!("../../../../examples/machines/ryzen-7950x3d.toml"));
    let (mut occupancy, pack) = (Occupancy::default(), shape(8, CachePolicy::Pack));
    let first = planned(&v_cache, &occupancy, &pack);
    assert_eq!(groups(&first), ["8@0-7,16-23"]); // that of 96 MiB
    occupancy.reserve(&first);
    assert_eq!(groups(&planned(&v_cache, &occupancy, &pack)), ["8@8-15,24-31"]);
    assert_eq!(groups(&planned(&v_cache, &Occupancy::default(), &shape(16, CachePolicy::Own))).len(), 2);
}

#[test]
fn groups_fit_the_caches_of_a_hybrid_part() {
    // 4 large cores under one cache, 8 small ones under another: CPUs 0-11, then their siblings.
    let hybrid = described(include_str!("../../../../examples/machines/ryzen-ai-370.toml"));
    let of = |vcpus, policy| {
        let plan = planned(&hybrid, &Occupancy::default(), &shape(vcpus, policy));
        assert_eq!(plan.topology.nodes.len(), 1);
        (groups(&plan), plan.topology.sockets, plan.warnings.len())
    };
    let list = |all: &[&str]| all.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>();
    let (large, small) = ("0-3,12-15", "4-11,16-23");
    // 12 on 4 and 8 cores: three of 4; two of 6 would have 6 vCPUs on 4 cores.
    let three = list(&[&format!("4@{large}"), &format!("4@{small}"), &format!("4@{small}")]);
    // Cores are unlike, which is said: 8 of one kind would be worth less (docs/placement.md).
    assert_eq!(of(12, CachePolicy::Pack), (three.clone(), 3, 1));
    // Also with a cache for each as far as there are: two share one, and that is said.
    assert_eq!(of(12, CachePolicy::Own), (three, 3, 1));
    // 4 x 1024 is more than 4 x 663; of one kind there is one cache, and nothing to divide.
    assert_eq!(of(4, CachePolicy::Pack), (Vec::new(), 1, 1));
    assert_eq!(of(2, CachePolicy::Own), (list(&[&format!("1@{large}"), &format!("1@{small}")]), 2, 0));
    assert_eq!(of(12, CachePolicy::Auto), (Vec::new(), 1, 1));
}

#[test]
fn more_groups_than_caches_share_them_and_that_is_said() {
    let machine = machine("numa:1(memory=4GiB) l3:3 core:4 pu:1");
    let mut own = shape(8, CachePolicy::Own);
    own.policy.cores_per_socket = Some(2);
    let plan = planned(&machine, &Occupancy::default(), &own);
    assert_eq!(groups(&plan), ["2@0-3", "2@0-3", "2@4-7", "2@8-11"]);
    assert!(plan.warnings[0].contains("4 groups of vCPUs have 3 last-level caches"), "{:?}", plan.warnings);
}

#[test]
fn a_cache_that_lies_in_two_nodes_divides_neither() {
    // As /sys shows it of some virtual machines: one cache for all.
    let mut machine = machine("pack:2 [numa(memory=4GiB)] l3:1 core:4 pu:1");
    machine.threads.iter_mut().for_each(|thread| thread.llc = Some(LlcId(0)));
    let mut own = shape(8, CachePolicy::Own);
    own.memory = Bytes::from_mib(512);
    let plan = planned(&machine, &Occupancy::default(), &own);
    assert!(groups(&plan).is_empty() && plan.topology.sockets == 2, "no virtual socket over two nodes");
    assert!(plan.warnings[0].contains("divides nothing"), "{:?}", plan.warnings);
}

#[test]
fn no_virtual_node_cuts_a_cache_of_its_home_on_machines_of_today() {
    // Caches of 4 (Rome), 8 (Milan, Genoa) cores; nodes of 16; 24 vCPUs are two nodes of 12.
    for (caches, cores) in [(4, 4), (2, 8)] {
        let machine = machine(&format!("pack:2 [numa(memory=64GiB)] l3:{caches} core:{cores} pu:2"));
        for (policy, each, number) in [
            (CachePolicy::Pack, 12 / 12_u32.div_ceil(cores), 12_u32.div_ceil(cores)),
            (CachePolicy::Own, 12 / caches, caches),
        ] {
            let plan = planned(&machine, &Occupancy::default(), &shape(24, policy));
            let of_client: Vec<usize> = plan.placement.clients.iter().map(|client| client.groups.len()).collect();
            assert_eq!((plan.topology.cores_per_socket, of_client), (each, vec![number as usize; 2]));
            assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
        }
    }
}
