//! Worked examples, arithmetic in the comments.

use super::{pairs, topology};
use scheduler::{Occupancy, PlanError, plan, rehome};
use std::collections::BTreeSet;
use topology::{Bytes, Distances, Machine, NodeId, read};
use vm::{MemoryPolicy, NodeSize, NodeUse, Plan, VirtualTopology, VmSpec};

fn machine(synthetic: &str, distances: Vec<Vec<u32>>) -> Machine {
    let mut machine = read::from_synthetic(synthetic).expect("a synthetic machine");
    let ids = machine.nodes.iter().map(|node| node.id).collect();
    machine.distances = Distances::new(ids, distances).expect("square");
    machine
}

fn spec(policy: &str) -> VmSpec {
    let text = format!("name = \"vm\"\nvcpus = 1\nmemory = \"1 GiB\"\n[policy]\n{policy}\n");
    VmSpec::from_toml(&text, "vm.toml").expect(&text)
}

fn mapped_by(machine: &Machine, occupancy: &Occupancy, topology: &VirtualTopology, policy: &str) -> Plan {
    let plan = rehome(machine, occupancy, &spec(policy), topology, &[]).expect("a plan");
    assert_eq!(&plan.topology, topology);
    plan
}

fn mapped(machine: &Machine, topology: &VirtualTopology) -> Plan {
    mapped_by(machine, &Occupancy::default(), topology, "")
}

fn homes(plan: &Plan) -> Vec<String> {
    plan.placement.clients.iter().map(|client| client.home.to_string()).collect()
}

fn has_reason(plan: &Plan, choice: &str) -> bool {
    plan.reasons.iter().any(|reason| reason.choice.starts_with(choice))
}

#[test]
fn two_virtual_nodes_on_four_machine_nodes_are_each_interleaved_over_a_near_pair() {
    // 8 vCPUs need two nodes of 4 cores. 0 and 1 are near, and 2 and 3.
    let machine = machine("pack:4 [numa(memory=8GiB)] core:4 pu:1", pairs(4, 12, 22));
    let plan = mapped(&machine, &topology(&[(8, 4096), (8, 4096)], vec![vec![10, 21], vec![21, 10]]));
    assert_eq!(homes(&plan), ["0-1", "2-3"]);
    for client in &plan.placement.clients {
        assert_eq!((client.memory_policy, client.cpus.len()), (MemoryPolicy::Interleave, 8));
    }
    // Half of the vCPUs, half of the memory on each node: 1/2 x 1/2 + 1/2 x 1/2 is local.
    assert_eq!(plan.expected.local_permille, [500, 500]);
    // (10 + 12 + 12 + 10) / 4 = 11; 22 to the other pair, told 21.
    assert_eq!(plan.expected.distances, [[11, 22], [22, 11]]);
    assert!(has_reason(&plan, "map: 0 on 0-1; 1 on 2-3") && has_reason(&plan, "expected locality: 50 %"));
    assert!(plan.holdings.values().all(|held| held.memory == Bytes::from_mib(2048) && held.vcpus == 4));
}

#[test]
fn near_virtual_nodes_lie_on_near_machine_nodes() {
    // The guest was told that 0 and 2 are near each other, and 1 and 3. The machine's pairs are 0
    // and 1, 2 and 3; a node holds one virtual node.
    let machine = machine("pack:4 [numa(memory=8GiB)] core:4 pu:1", pairs(4, 12, 32));
    let far = |i: usize, j: usize| {
        if i == j {
            10
        } else if i % 2 == j % 2 {
            12
        } else {
            32
        }
    };
    let told = (0..4).map(|i| (0..4).map(|j| far(i, j)).collect()).collect();
    let plan = mapped(&machine, &topology(&[(4, 4096); 4], told));
    assert_eq!(homes(&plan), ["0", "2", "1", "3"]);
    assert_eq!(plan.expected.distances, plan.topology.distances);
    assert_eq!(plan.expected.local_permille, [1000; 4]);
    assert!(has_reason(&plan, "distances: as the guest was told"), "{:#?}", plan.reasons);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

#[test]
fn the_set_of_nodes_with_the_distances_that_were_told_is_taken() {
    // Nodes 0 to 3 are 12 apart, 4 to 7 are 21 apart, 32 between both. The guest was told 21.
    let group = |i: usize| i / 4;
    let entry = |i: usize, j: usize| match (i == j, group(i) == group(j), group(i)) {
        (true, ..) => 10,
        (_, true, 0) => 12,
        (_, true, _) => 21,
        _ => 32,
    };
    let rows = (0..8).map(|i| (0..8).map(|j| entry(i, j)).collect()).collect();
    let machine = machine("pack:8 [numa(memory=8GiB)] core:4 pu:1", rows);
    let even = |told: u32| (0..4).map(|i| (0..4).map(|j| if i == j { 10 } else { told }).collect()).collect();
    let plan = mapped(&machine, &topology(&[(4, 4096); 4], even(21)));
    assert_eq!(homes(&plan), ["4", "5", "6", "7"]);
    assert_eq!(homes(&mapped(&machine, &topology(&[(4, 4096); 4], even(12)))), ["0", "1", "2", "3"]);
    // Load says otherwise: 4 vCPUs live on node 5, and half of the time they are busy.
    let busy = NodeUse { vcpus: 4, ..NodeUse::default() };
    let occupancy = Occupancy { nodes: [(NodeId(5), busy)].into(), ..Occupancy::default() };
    let plan = mapped_by(&machine, &occupancy, &topology(&[(4, 4096); 4], even(21)), "");
    // 4 x 1/2 = 2 CPUs would be lost there. On 0 to 3 none is, and nobody is farther than told:
    // 16 x 0.06 x 0.2 = 0.19 are lost to distance and 16 x 0.06 x 0.9 = 0.86 charged for the
    // difference, together what 4 to 7 lose to distance: 16 x 0.06 x 1.1 = 1.06.
    assert_eq!(homes(&plan), ["0", "1", "2", "3"]);
    assert!(has_reason(&plan, "distances: no farther than told"), "{:#?}", plan.reasons);
}

#[test]
fn a_pair_that_is_much_farther_than_told_is_warned_of() {
    let machine = machine("pack:2 [numa(memory=8GiB)] core:4 pu:1", vec![vec![10, 32], vec![32, 10]]);
    let plan = mapped(&machine, &topology(&[(4, 4096); 2], vec![vec![10, 12], vec![12, 10]]));
    assert_eq!(homes(&plan), ["0", "1"]);
    let warning = plan.warnings.iter().find(|warning| warning.contains("mislead")).expect("a warning");
    assert!(warning.contains("from virtual node 0 to 1 it is 32, and the guest was told 12"), "{warning}");
}

#[test]
fn several_virtual_nodes_share_a_machine_node_that_holds_them() {
    let told = || pairs(4, 20, 20);
    let large = machine("pack:2 [numa(memory=8GiB)] core:8 pu:1", vec![vec![10, 21], vec![21, 10]]);
    // 8 cores hold two virtual nodes of 4 vCPUs.
    let plan = mapped(&large, &topology(&[(4, 2048); 4], told()));
    let mut sorted = homes(&plan);
    sorted.sort();
    assert_eq!(sorted, ["0", "0", "1", "1"]);
    // All on a machine of one node.
    let one = machine("numa:1(memory=64GiB) core:32 pu:1", vec![vec![10]]);
    let plan = mapped(&one, &topology(&[(4, 2048); 4], told()));
    assert_eq!(homes(&plan), ["0"; 4]);
    assert_eq!(plan.expected.distances, [[10; 4]; 4]);
    assert!(has_reason(&plan, "map: 0, 1, 2, 3 on 0"), "{:#?}", plan.reasons);
}

#[test]
fn clients_apart_are_one_to_one_wherever_there_are_nodes() {
    let machine = machine("pack:4 [numa(memory=64GiB)] core:32 pu:1", pairs(4, 12, 22));
    let two = topology(&[(4, 2048); 2], vec![vec![10, 21], vec![21, 10]]);
    assert_eq!(homes(&mapped(&machine, &two)), ["0", "0"]);
    let apart = mapped_by(&machine, &Occupancy::default(), &two, "placement = \"clients_apart\"");
    // Near: 0.2 lost to distance, 0.9 charged. Far: 1.2 and 0.1; what is farther is paid twice.
    assert_eq!(apart.expected.distances, [[10, 12], [12, 10]]);
    // Memory bandwidth of the whole machine: a fresh VM of 8 vCPUs would get 4 virtual nodes, so
    // each of these two takes two machine nodes.
    let most = mapped_by(&machine, &Occupancy::default(), &two, "placement = \"most_virtual_nodes\"");
    assert_eq!(homes(&most), ["0-1", "2-3"]);
}

#[test]
fn uneven_nodes_take_the_virtual_nodes_that_fit_them() {
    let mut machine = machine("pack:2 [numa(memory=32GiB)] core:8 pu:1", vec![vec![10, 21], vec![21, 10]]);
    machine.threads.retain(|thread| thread.id.0 < 8 || thread.id.0 >= 12); // 8 and 4 cores
    machine.nodes[1].memory = Bytes(16 << 30);
    let plan = mapped(&machine, &topology(&[(4, 8192), (8, 16_384)], vec![vec![10, 21], vec![21, 10]]));
    assert_eq!(homes(&plan), ["1", "0"]);
}

#[test]
fn memory_that_a_node_lacks_lies_on_the_nearest_with_room() {
    let machine = machine("pack:4 [numa(memory=8GiB)] core:4 pu:1", pairs(4, 12, 22));
    let plan = mapped(&machine, &topology(&[(4, 12_288), (4, 12_288)], vec![vec![10, 21], vec![21, 10]]));
    // 8 GiB less the reserve of 1/32 = 7.75 GiB local; 12 - 7.75 = 4.25 GiB on the near neighbour.
    // Local: 7.75 / 12 = 0.646. The CPUs are those of one node: more would be remote over both.
    assert_eq!(plan.expected.local_permille, [646, 646]);
    let homes = homes(&plan);
    assert_eq!(homes.iter().collect::<BTreeSet<_>>().len(), 2);
    assert!(homes.iter().all(|home| home == "0-1" || home == "2-3"), "{homes:?}");
    assert!(plan.placement.clients.iter().all(|client| client.cpus.len() == 4));
}

#[test]
fn memory_only_nodes_extend_a_home_and_are_none_of_their_own() {
    let mut machine = machine("pack:2 [numa(memory=8GiB)] core:4 pu:1", vec![vec![10, 17], vec![28, 10]]);
    machine.threads.retain(|thread| thread.node == NodeId(0));
    let told = topology(&[(2, 6144), (2, 6144)], vec![vec![10, 20], vec![20, 10]]);
    let plan = mapped_by(&machine, &Occupancy::default(), &told, "far_memory = \"when_full\"");
    // 12 GiB on node 0, which gives 7.75.
    assert_eq!(plan.holdings[&NodeId(0)].memory, Bytes((8 << 30) - (8 << 30) / 32));
    assert_eq!((plan.holdings[&NodeId(1)].vcpus, plan.holdings[&NodeId(0)].vcpus), (0, 4));
    assert!(plan.placement.clients.iter().all(|client| client.cpus.len() == 4));
}

#[test]
fn what_was_plugged_counts_and_what_is_absent_does_not() {
    let machine = machine("pack:2 [numa(memory=8GiB)] core:4 pu:1", vec![vec![10, 21], vec![21, 10]]);
    let mut grown = topology(&[(4, 2048), (4, 2048)], vec![vec![10, 21], vec![21, 10]]);
    for node in &mut grown.nodes {
        node.absent = node.vcpus[2..].to_vec();
    }
    // Two vCPUs each at power-on would fit one node of 4 cores; at their largest they do not.
    assert_eq!(homes(&mapped(&machine, &grown)), ["0", "1"]);
    let full_up = NodeUse { vcpus: 2, memory: Bytes(8 << 30), resident: Bytes(0), ..NodeUse::default() };
    let occupancy = Occupancy { nodes: [(NodeId(1), full_up)].into(), ..Occupancy::default() };
    let plan = mapped_by(&machine, &occupancy, &grown, "");
    assert_eq!(homes(&plan), ["0", "0"]);
    assert!(
        plan.warnings.iter().any(|warning| warning.contains("it may grow to 8 vCPUs and 4 GiB")),
        "{:?}",
        plan.warnings
    );
    let full = |id: usize| NodeSize {
        virtual_node: id as u32,
        vcpus: grown.nodes[id].vcpus.iter().copied().collect(),
        memory: Bytes::from_mib(6144),
    };
    let plan = rehome(&machine, &Occupancy::default(), &spec(""), &grown, &[full(0), full(1)]).expect("a plan");
    assert_eq!((homes(&plan), &plan.topology), (vec!["0".to_owned(), "1".to_owned()], &grown));
    assert_eq!(plan.holdings[&NodeId(1)].memory, Bytes::from_mib(6144));
    // Bound 1:1, each vCPU that is there has its CPU, also one that was plugged.
    let bound = spec("vcpu_binding = \"core\"");
    let plan = rehome(&machine, &Occupancy::default(), &bound, &grown, &[full(0)]).expect("a plan");
    assert_eq!(plan.placement.clients.iter().map(|client| client.vcpu_cpus.len()).collect::<Vec<_>>(), [4, 2]);
    // 17 GiB are not there.
    let more = NodeSize { memory: Bytes::from_mib(11 * 1024), ..full(0) };
    let error = rehome(&machine, &Occupancy::default(), &spec(""), &grown, &[more, full(1)]).expect_err("16 GiB");
    assert!(matches!(error, PlanError::Memory { needed, .. } if needed == Bytes::from_mib(17 * 1024)), "{error}");
}

#[test]
fn a_virtual_node_without_vcpus_has_a_home_and_cpus_for_those_to_come() {
    let machine = machine("pack:2 [numa(memory=8GiB)] core:4 pu:1", vec![vec![10, 21], vec![21, 10]]);
    let mut first = topology(&[(4, 6144), (0, 6144)], vec![vec![10, 21], vec![21, 10]]);
    // Its memory lies as near to the other's vCPUs as there is room: 8 - 0.25 - 6 = 1.75 GiB there.
    let plan = mapped(&machine, &first);
    assert_eq!((homes(&plan), plan.placement.clients[1].cpus.len()), (vec!["0".to_owned(), "0-1".to_owned()], 4));
    assert_eq!(plan.holdings[&NodeId(1)], NodeUse { memory: Bytes::from_mib(4352), ..NodeUse::default() });
    // One that gets its vCPUs later has the home that they will need.
    first = topology(&[(4, 6144), (4, 6144)], vec![vec![10, 21], vec![21, 10]]);
    first.nodes[1].absent = vec![4, 5, 6, 7];
    let plan = mapped(&machine, &first);
    assert_eq!((homes(&plan), plan.placement.clients[1].cpus.len()), (vec!["0".to_owned(), "1".to_owned()], 4));
    assert_eq!(plan.holdings.values().map(|held| held.vcpus).collect::<Vec<_>>(), [4, 0]);
}

#[test]
fn node_affinity_is_obeyed_on_arrival() {
    let machine = machine("pack:4 [numa(memory=8GiB)] core:4 pu:1", pairs(4, 12, 22));
    let two = topology(&[(4, 2048); 2], vec![vec![10, 21], vec![21, 10]]);
    assert_eq!(homes(&mapped_by(&machine, &Occupancy::default(), &two, "node_affinity = \"1,3\"")), ["1", "3"]);
    let error = rehome(&machine, &Occupancy::default(), &spec("node_affinity = \"9\""), &two, &[]).expect_err("no 9");
    assert!(error.is_bad_input(), "{error}");
}

#[test]
fn a_uniform_vm_stays_one_node_over_as_many_homes_as_it_needs() {
    let machine = machine("pack:2 [numa(memory=8GiB)] core:4 pu:1", vec![vec![10, 21], vec![21, 10]]);
    let uniform = topology(&[(8, 4096)], vec![vec![10]]);
    let plan = mapped_by(&machine, &Occupancy::default(), &uniform, "vnuma = false");
    assert_eq!(
        (homes(&plan), plan.placement.clients[0].memory_policy),
        (vec!["0-1".to_owned()], MemoryPolicy::Interleave)
    );
}

#[test]
fn a_vm_that_starts_again_where_it_was_planned_lives_as_it_did() {
    let machine = machine("pack:4 [numa(memory=8GiB)] core:4 pu:1", pairs(4, 12, 22));
    let text = "name = \"vm\"\nvcpus = 12\nmemory = \"12 GiB\"\n";
    let spec = VmSpec::from_toml(text, "vm.toml").expect("a spec");
    let first = plan(&machine, &Occupancy::default(), &spec).expect("a plan");
    let again = rehome(&machine, &Occupancy::default(), &spec, &first.topology, &[]).expect("a plan");
    assert_eq!((&again.topology, again.lost_milli_cpus), (&first.topology, first.lost_milli_cpus));
    assert_eq!(again.expected.distances, again.topology.distances);
}

#[test]
fn a_topology_that_contradicts_itself_is_refused_with_what_is_wrong() {
    let machine = machine("pack:2 [numa(memory=8GiB)] core:4 pu:1", vec![vec![10, 21], vec![21, 10]]);
    let good = topology(&[(2, 1024); 2], vec![vec![10, 21], vec![21, 10]]);
    let refused = |topology: &VirtualTopology, sizes: &[NodeSize]| {
        let error = rehome(&machine, &Occupancy::default(), &spec(""), topology, sizes).expect_err("refused");
        assert!(error.is_bad_input());
        error.to_string()
    };
    let size = |virtual_node, vcpus: &[u32]| NodeSize {
        virtual_node,
        vcpus: vcpus.iter().copied().collect(),
        memory: Bytes::from_mib(1024),
    };
    assert!(refused(&good, &[size(7, &[])]).contains("it has no node 7; it has 0, 1"));
    assert!(refused(&good, &[size(1, &[0])]).contains("vCPU 0 is said to be in node 1, which has [2, 3]"));
    let cut = VirtualTopology { distances: vec![vec![10, 21]], ..good.clone() };
    assert!(refused(&cut, &[]).contains("2 rows of 2 values"));
    let wild = VirtualTopology { distances: vec![vec![10, u32::MAX], vec![21, 10]], ..good.clone() };
    assert!(refused(&wild, &[]).contains("a distance of 4294967295"));
    assert!(refused(&VirtualTopology { nodes: Vec::new(), distances: Vec::new(), ..good }, &[]).contains("no nodes"));
}
