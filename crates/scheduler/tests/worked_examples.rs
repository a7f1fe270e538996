//! Worked examples, arithmetic in the comments. Machines are written in hwloc's synthetic grammar.

use scheduler::{Occupancy, PlanError, plan, plan_together};
use topology::{Bytes, Distances, Machine, NodeId, read};
use vm::{MemoryPolicy, NodeUse, Plan, VmSpec};

/// Two sockets of 4 cores and 8 hardware threads, 24 GiB each: the HP DL380 G6 of the ESX 4.1
/// STREAM article.
const DL380: &str = "pack:2 [numa(memory=24GB)] l3:1 core:4 pu:2";

fn machine(synthetic: &str) -> Machine {
    let machine = read::from_synthetic(synthetic).expect("a synthetic machine");
    // Sizes in whole GiB keep the arithmetic of the examples readable whatever `GB` means to the
    // grammar.
    let whole = |node: &topology::Node| topology::Node {
        memory: gib(node.memory.0 / 1_000_000_000),
        free: None,
        ..node.clone()
    };
    Machine { nodes: machine.nodes.iter().map(whole).collect(), ..machine }
}

fn gib(gib: u64) -> Bytes {
    Bytes(gib << 30)
}

fn spec(vcpus: u32, memory_gib: u64, policy: &str) -> VmSpec {
    let text = format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"{memory_gib} GiB\"\n[policy]\n{policy}\n");
    VmSpec::from_toml(&text, "vm.toml").expect(&text)
}

fn planned(machine: &Machine, spec: &VmSpec) -> Plan {
    plan(machine, &Occupancy::default(), spec).expect("a plan")
}

/// vCPUs of each virtual node.
fn shares(plan: &Plan) -> Vec<usize> {
    plan.topology.nodes.iter().map(|node| node.vcpus.len()).collect()
}

/// Memory of each virtual node, in GiB.
fn memory(plan: &Plan) -> Vec<u64> {
    plan.topology.nodes.iter().map(|node| node.memory.0 >> 30).collect()
}

fn homes(plan: &Plan) -> Vec<String> {
    plan.placement.clients.iter().map(|client| client.home.to_string()).collect()
}

#[test]
fn eight_vcpus_on_two_sockets_of_four_cores_are_two_nodes() {
    let plan = planned(&machine(DL380), &spec(8, 8, ""));
    assert_eq!(shares(&plan), [4, 4]); // 8 / 4 cores = 2
    assert_eq!(memory(&plan), [4, 4]);
    assert_eq!(homes(&plan), ["0", "1"]);
    assert_eq!((plan.topology.sockets, plan.topology.cores_per_socket, plan.topology.threads_per_core), (2, 4, 1));
    assert!(plan.topology.exposed);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

#[test]
fn eight_vcpus_are_one_node_when_hardware_threads_count() {
    let plan = planned(&machine(DL380), &spec(8, 8, "prefer_ht = true"));
    assert_eq!(shares(&plan), [8]); // 8 / 8 hardware threads = 1
    assert!(!plan.topology.exposed);
    assert_eq!(plan.placement.clients[0].cpus.len(), 8); // all of the node: no pins
    assert_eq!(plan.placement.clients[0].memory_policy, MemoryPolicy::Bind);
}

#[test]
fn thirty_vcpus_on_ten_core_nodes_are_three_nodes_of_ten() {
    let plan = planned(&machine("pack:4 [numa(memory=64GB)] core:10 pu:2"), &spec(30, 60, ""));
    assert_eq!(shares(&plan), [10, 10, 10]);
    assert_eq!((plan.topology.sockets, plan.topology.cores_per_socket), (3, 10));
}

#[test]
fn a_socket_size_that_divides_the_nodes_is_kept() {
    let plan = planned(&machine("pack:4 [numa(memory=64GB)] core:10 pu:2"), &spec(30, 60, "cores_per_socket = 2"));
    // ESXi splits 30 vCPUs with 2 cores per socket 16/14; five whole sockets a node is even.
    assert_eq!(shares(&plan), [10, 10, 10]);
    assert_eq!((plan.topology.sockets, plan.topology.cores_per_socket), (15, 2));
}

#[test]
fn a_socket_that_would_lie_in_two_nodes_is_made_smaller_with_a_warning() {
    let plan = planned(&machine("pack:4 [numa(memory=64GB)] core:10 pu:2"), &spec(30, 60, "cores_per_socket = 6"));
    // Five sockets of 6 are 12/12/6, but a node has 10 cores. gcd(6, 10) = 2.
    assert_eq!(shares(&plan), [10, 10, 10]);
    assert_eq!(plan.topology.cores_per_socket, 2);
    assert!(plan.warnings[0].contains("cores_per_socket = 6"), "{:?}", plan.warnings);
}

#[test]
fn shares_move_to_whole_sockets_where_the_nodes_hold_them() {
    let plan = planned(&machine("pack:2 [numa(memory=64GB)] core:8 pu:1"), &spec(9, 9, "cores_per_socket = 3"));
    assert_eq!(shares(&plan), [6, 3]); // 5/4 would cut a socket; 6 fit 8 cores
    assert_eq!(plan.topology.cores_per_socket, 3);
}

#[test]
fn memory_counts_as_much_as_cores() {
    let plan = planned(&machine(DL380), &spec(2, 40, ""));
    assert_eq!(shares(&plan), [1, 1]); // by cores 1, by memory 40 / 24 = 2
    assert_eq!(memory(&plan), [20, 20]);
    assert!(plan.reasons[0].because.contains("by memory 2"), "{:?}", plan.reasons);
}

#[test]
fn one_vcpu_with_more_memory_than_a_node_has_most_of_it_near() {
    let plan = planned(&machine(DL380), &spec(1, 40, ""));
    // 24 GiB less the reserve of 24 / 32 are local, as with ESXi. Floating over both nodes, half
    // would be remote.
    assert_eq!((homes(&plan), plan.placement.clients[0].cpus.len()), (vec!["0-1".to_owned()], 8));
    assert_eq!(plan.placement.clients[0].memory_policy, MemoryPolicy::Bind);
    assert_eq!(plan.holdings[&NodeId(1)].memory, Bytes(gib(40).0 - gib(23).0 - gib(1).0 / 4));
}

#[test]
fn uneven_nodes_get_uneven_shares() {
    let mut machine = machine("pack:2 [numa(memory=32GB)] core:8 pu:1");
    machine.threads.retain(|thread| thread.id.0 < 12); // 8 and 4 cores
    machine.nodes[1].memory = gib(16);
    let plan = planned(&machine, &spec(12, 48, ""));
    assert_eq!(shares(&plan), [8, 4]);
    assert_eq!(memory(&plan), [32, 16]);
    assert_eq!(homes(&plan), ["0", "1"]);
    assert_eq!(plan.topology.cores_per_socket, 4); // gcd(8, 4): two sockets in the first node
}

#[test]
fn a_cap_on_vcpus_makes_several_clients_on_one_node() {
    let plan = planned(&machine("numa:1(memory=64GB) core:16 pu:1"), &spec(16, 16, "max_vcpus_per_node = 4"));
    assert_eq!(shares(&plan), [4, 4, 4, 4]);
    assert_eq!(homes(&plan), ["0", "0", "0", "0"]);
    assert_eq!(plan.topology.distances[0], [10, 20, 20, 20]);
}

#[test]
fn fixed_virtual_nodes_are_kept_on_a_machine_of_one_node() {
    let node = "{ vcpus = 8, memory = \"1 GiB\" }";
    let policy = format!("virtual_nodes = [{}]", [node; 8].join(", "));
    let plan = planned(&machine("numa:1(memory=16GB) core:2 pu:1"), &spec(64, 8, &policy));
    assert_eq!(shares(&plan), [8; 8]);
    assert_eq!(homes(&plan), ["0"; 8]);
    assert_eq!((plan.topology.sockets, plan.topology.cores_per_socket), (8, 8));
    assert!(plan.warnings.iter().any(|warning| warning.contains("64 vCPUs on 2")), "{:?}", plan.warnings);
}

#[test]
fn a_uniform_vm_is_one_node_interleaved_over_its_homes() {
    let plan = planned(&machine(DL380), &spec(8, 8, "vnuma = false"));
    assert_eq!(shares(&plan), [8]);
    assert!(!plan.topology.exposed);
    assert_eq!(homes(&plan), ["0-1"]);
    assert_eq!(plan.placement.clients[0].memory_policy, MemoryPolicy::Interleave);
}

#[test]
fn spread_uses_every_node() {
    let machine = machine("pack:4 [numa(memory=64GB)] core:10 pu:1");
    assert_eq!(homes(&planned(&machine, &spec(8, 8, ""))), ["0"]);
    let plan = planned(&machine, &spec(8, 8, "placement = \"most_virtual_nodes\""));
    assert_eq!(shares(&plan), [2, 2, 2, 2]);
    assert_eq!(homes(&plan), ["0", "1", "2", "3"]);
}

#[test]
fn clients_live_apart_without_another_virtual_topology() {
    let machine = machine("pack:4 [numa(memory=64GB)] core:10 pu:1");
    // Two virtual nodes of 4 vCPUs fit one node of 10 cores.
    let capped = planned(&machine, &spec(8, 8, "max_vcpus_per_node = 4"));
    assert_eq!((shares(&capped), homes(&capped)), (vec![4, 4], vec!["0".into(), "0".into()]));
    let apart = planned(&machine, &spec(8, 8, "max_vcpus_per_node = 4\nplacement = \"clients_apart\""));
    assert_eq!((&apart.topology.nodes, homes(&apart)), (&capped.topology.nodes, vec!["0".into(), "1".into()]));
    // One client has one home.
    assert_eq!(homes(&planned(&machine, &spec(8, 8, "placement = \"clients_apart\""))), ["0"]);
}

#[test]
fn wide_vms_go_to_nodes_that_are_near_to_each_other() {
    let mut machine = machine("pack:4 [numa(memory=64GB)] core:8 pu:1");
    // A square 0-2-1-3-0: 0 and 1 are far apart (31), neighbours at 21.
    let rows = vec![vec![10, 31, 21, 21], vec![31, 10, 21, 21], vec![21, 21, 10, 31], vec![21, 21, 31, 10]];
    machine.distances = Distances::new((0..4).map(NodeId).collect(), rows).expect("square");
    let plan = planned(&machine, &spec(16, 16, ""));
    assert_eq!(homes(&plan), ["0", "2"]);
    assert_eq!(plan.topology.distances, [[10, 21], [21, 10]]);
}

#[test]
fn vms_that_start_together_do_not_pile_up() {
    let machine = machine(DL380);
    let one = spec(8, 8, "prefer_ht = true");
    let plans = plan_together(&machine, &Occupancy::default(), &[one.clone(), one]).expect("two plans");
    assert_eq!([homes(&plans[0]), homes(&plans[1])], [["0"], ["1"]]);
}

#[test]
fn what_runs_already_is_avoided() {
    let mut occupancy = Occupancy::default();
    occupancy.nodes.insert(NodeId(0), NodeUse { vcpus: 2, memory: gib(2), resident: Bytes(0), ..NodeUse::default() });
    let placed = plan(&machine(DL380), &occupancy, &spec(2, 2, "")).expect("a plan");
    assert_eq!(homes(&placed), ["1"]);
    // 24 - 10 = 14 GiB do not hold 16: node 1 is full, and memory beats free cores.
    occupancy.nodes.insert(NodeId(1), NodeUse { vcpus: 0, memory: gib(10), resident: Bytes(0), ..NodeUse::default() });
    let placed = plan(&machine(DL380), &occupancy, &spec(2, 16, "")).expect("a plan");
    assert_eq!(homes(&placed), ["0"]);
}

#[test]
fn memory_only_nodes_extend_memory_and_are_no_home_for_cpus() {
    let mut machine = machine("pack:2 [numa(memory=32GB)] core:4 pu:1");
    machine.threads.retain(|thread| thread.node == NodeId(0)); // node 1 keeps its memory
    let plan = planned(&machine, &spec(4, 48, "far_memory = \"when_full\""));
    assert_eq!(homes(&plan), ["0-1"]);
    assert_eq!(plan.placement.clients[0].cpus.to_string(), "0-3");
    assert_eq!(plan.holdings[&NodeId(1)].vcpus, 0);
    assert_eq!(homes(&planned(&machine, &spec(4, 8, ""))), ["0"]);
}

#[test]
fn node_affinity_is_obeyed_and_checked() {
    let machine = machine(DL380);
    assert_eq!(homes(&planned(&machine, &spec(2, 2, "node_affinity = \"1\""))), ["1"]);
    let error = plan(&machine, &Occupancy::default(), &spec(2, 2, "node_affinity = \"1,7\"")).expect_err("no node 7");
    assert!(error.is_bad_input() && error.to_string().contains("no usable node 7"), "{error}");
}

#[test]
fn a_machine_without_the_memory_is_an_error_that_says_what_is_free() {
    let error = plan(&machine(DL380), &Occupancy::default(), &spec(2, 49, "")).expect_err("48 GiB");
    assert!(matches!(error, PlanError::Memory { .. }) && !error.is_bad_input());
    assert!(error.to_string().contains("node 0: 24 GiB, node 1: 24 GiB"), "{error}");
}

#[test]
fn a_machine_of_one_node_gives_one_node() {
    let plan = planned(&machine("numa:1(memory=16GB) core:2 pu:1"), &spec(16, 8, ""));
    assert_eq!((shares(&plan), homes(&plan)), (vec![16], vec!["0".to_owned()]));
}

#[test]
fn a_socket_without_memory_is_no_node_of_its_own() {
    let mut machine = machine("pack:2 [numa(memory=32GB)] core:4 pu:1");
    machine.nodes[1].memory = Bytes(0);
    let plan = planned(&machine, &spec(8, 16, ""));
    // One virtual node of 8 vCPUs is the only division in which each part has memory: its CPUs are
    // those of both sockets.
    assert_eq!((homes(&plan), plan.placement.clients[0].cpus.len()), (vec!["0-1".to_owned()], 8));
    assert_eq!(plan.holdings[&NodeId(1)].memory, Bytes(0));
    assert_eq!(plan.placement.clients[0].memory_policy, MemoryPolicy::Bind);
}

#[test]
fn absurd_sizes_end_in_an_error_not_in_a_hang() {
    let text = "name = \"vm\"\nvcpus = 4096\nmemory = \"16777215 TiB\"\n[policy]\nmax_vcpus_per_node = 32\n";
    let spec = VmSpec::from_toml(text, "vm.toml").expect("valid in itself");
    let error = plan(&machine(DL380), &Occupancy::default(), &spec).expect_err("48 GiB");
    assert!(matches!(error, PlanError::Memory { .. }));
}

/// 4 nodes of 12 cores and 24 hardware threads, 126 GiB each, of which node 0 has 41.8 GiB free.
fn four_nodes_one_nearly_full() -> Machine {
    let mut machine = machine("pack:4 [numa(memory=126GB)] l3:1 core:12 pu:2");
    machine.nodes[0].free = Some(Bytes(gib(418).0 / 10));
    machine
}

/// vCPUs on the fullest node.
fn most_vcpus(plan: &Plan) -> u32 {
    plan.holdings.values().map(|held| held.vcpus).max().expect("a node")
}

#[test]
fn a_node_that_lacks_a_little_memory_is_not_left_idle() {
    let machine = four_nodes_one_nearly_full();
    let plan = planned(&machine, &spec(96, 160, ""));
    assert_eq!((homes(&plan), memory(&plan)), (vec!["0".into(), "1".into(), "2".into(), "3".into()], vec![40; 4]));
    // 168 / 4 = 42 GiB, and node 0 has 41.8: its virtual node gets what is free less the reserve
    // (126 / 32 = 3.9), 37.9 GiB; the others 43.4 each. Not 48 vCPUs on the 24 threads of node 1.
    let plan = planned(&machine, &spec(96, 168, ""));
    assert_eq!((shares(&plan), most_vcpus(&plan)), (vec![24; 4], 24));
    let mut all = homes(&plan);
    all.sort();
    assert_eq!(all, ["0", "1", "2", "3"]);
    let mut shares = memory(&plan);
    shares.sort();
    assert_eq!(shares, [37, 43, 43, 43]);
    assert!(plan.reasons.iter().any(|reason| reason.choice == "sized by what is free now"), "{:?}", plan.reasons);
}

#[test]
fn a_node_with_next_to_no_memory_lends_its_cpus_and_one_client_has_remote_memory() {
    let mut machine = four_nodes_one_nearly_full();
    machine.nodes[0].free = Some(gib(1));
    // A virtual node of 24 vCPUs and 1 GiB is no node to live with: it keeps its share, on the
    // nearest node with room.
    let plan = planned(&machine, &spec(96, 168, ""));
    assert_eq!((most_vcpus(&plan), memory(&plan)), (24, vec![42; 4]));
    let far = plan.placement.clients.iter().find(|client| client.home.len() > 1).expect("one on two nodes");
    assert_eq!(far.cpus, machine.usable_cpus(NodeId(0)));
    assert_eq!(plan.placement.clients.iter().filter(|client| client.home.len() > 1).count(), 1);
    // 24 vCPUs, all memory twice as far: 24 x 0.3 = 7.2 CPUs, and 96 x 0.06 by the distance between
    // clients, and 96 - 48 vCPUs that share a core: 96 beyond the cores at 24 on 12 is 12 a node x
    // 0.7 = 33.6.
    assert!((46_000..=47_000).contains(&plan.lost_milli_cpus), "{}", plan.lost_milli_cpus);
}

#[test]
fn clients_of_one_vm_do_not_pile_up_beside_another_vm() {
    // Two nodes of two hardware threads; a VM of 2 vCPUs lives on node 0.
    let machine = machine("pack:2 [numa(memory=8GB)] core:2 pu:1");
    let mut occupancy = Occupancy::default();
    occupancy.nodes.insert(NodeId(0), NodeUse { vcpus: 2, memory: gib(1), resident: gib(1), ..NodeUse::default() });
    let plan = plan(&machine, &occupancy, &spec(4, 2, "")).expect("a plan");
    assert_eq!((shares(&plan), homes(&plan)), (vec![2, 2], vec!["0".into(), "1".into()]));
}

#[test]
fn memory_beyond_a_node_lies_on_its_nearest_memory_only_node() {
    // Nodes 0 and 1 have CPUs, 2 and 3 are memory only: 2 is near 0, 3 near 1.
    let mut machine = machine("pack:4 [numa(memory=64GB)] core:4 pu:1");
    machine.threads.retain(|thread| thread.node.0 < 2);
    machine.nodes[2].memory = gib(512);
    machine.nodes[3].memory = gib(512);
    let rows = vec![vec![10, 21, 17, 28], vec![21, 10, 28, 17], vec![17, 28, 10, 28], vec![28, 17, 28, 10]];
    machine.distances = Distances::new((0..4).map(NodeId).collect(), rows).expect("square");
    // 400 GiB: 200 for each of two virtual nodes, 62 of them local (64 less the reserve of 2).
    let plan = planned(&machine, &spec(8, 400, "far_memory = \"when_full\""));
    assert_eq!((shares(&plan), homes(&plan)), (vec![4, 4], vec!["0,2".into(), "1,3".into()]));
    assert_eq!(plan.holdings[&NodeId(0)].memory, gib(62));
    assert_eq!(plan.holdings[&NodeId(3)].memory, gib(138));
    let reason = plan.reasons.iter().find(|reason| reason.choice.starts_with("client 0 on 2 nodes")).expect("told");
    assert!(reason.because.contains("62 GiB on node 0, 138 GiB on node 2"), "{reason:?}");
}

#[test]
fn a_machine_whose_memory_is_unknown_is_refused_with_that_reason() {
    let mut machine = machine(DL380);
    for node in &mut machine.nodes {
        (node.memory, node.memory_kind) = (Bytes(0), topology::MemoryKind::Unknown);
    }
    let error = plan(&machine, &Occupancy::default(), &spec(2, 2, "")).expect_err("unknown").to_string();
    assert!(error.contains("memory of") && error.contains("is unknown") && !error.contains("stop a VM"), "{error}");
}

#[test]
fn amounts_in_an_error_differ_where_they_decide() {
    let mut machine = machine("numa:1(memory=16GB) core:4 pu:1");
    machine.nodes[0].free = Some(Bytes(gib(16).0 - 5 * Bytes::MIB.0));
    let error = plan(&machine, &Occupancy::default(), &spec(2, 16, "")).expect_err("5 MiB short").to_string();
    // 16379 MiB / 1024 = 15.995.
    assert!(error.contains("needs 16.000 GiB of memory") && error.contains("has 15.995 GiB to give"), "{error}");
}

#[test]
fn a_vm_wider_than_the_machine_piles_up_no_more_than_it_must() {
    // 17 vCPUs on 2 x 8 hardware threads: one is too many. Clients of 6, 6 and 5 on a node each
    // would put 11 on one node.
    let nodes =
        "[{ vcpus = 6, memory = \"4 GiB\" }, { vcpus = 6, memory = \"4 GiB\" }, { vcpus = 5, memory = \"4 GiB\" }]";
    let machine = machine("pack:2 [numa(memory=8GB)] core:4 pu:2");
    let plan = planned(&machine, &spec(17, 12, &format!("virtual_nodes = {nodes}")));
    assert!(plan.holdings.values().all(|held| held.vcpus <= 9), "{:?}", plan.holdings);
}
