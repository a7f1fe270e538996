//! Hosts and topologies that nobody builds: what must hold there too.

use super::topology;
use crate::random::{self, Case, cost::Scorer};
use proptest::prelude::*;
use scheduler::{Occupancy, PlanError, rehome};
use topology::{Bytes, CpuSet, NodeId};
use vm::{NodeSize, NodeUse, VirtualTopology, VmSpec};

/// Up to `most` virtual nodes of any sizes, some of which have all, some none, of their vCPUs now;
/// told any distances, either way.
fn given(most: usize) -> impl Strategy<Value = (VirtualTopology, Vec<NodeSize>)> {
    let vcpus = prop_oneof![4 => 1u32..=6, 1 => 7u32..=96];
    let memory = prop_oneof![4 => 1u64..=6144, 1 => 6145u64..=200_000];
    let node = (vcpus, memory, 0u32..=2);
    (prop::collection::vec(node, 1..=most), prop::collection::vec(10u32..=255, 16)).prop_map(|(nodes, told)| {
        let entry = |i: usize, j: usize| if i == j { 10 } else { told[(i * 5 + j * 3) % 16] };
        let rows = (0..nodes.len()).map(|i| (0..nodes.len()).map(|j| entry(i, j)).collect()).collect();
        let sizes: Vec<(u32, u64)> = nodes.iter().map(|&(vcpus, memory, _)| (vcpus, memory)).collect();
        let mut topology = topology(&sizes, rows);
        for (node, &(vcpus, _, there)) in topology.nodes.iter_mut().zip(&nodes) {
            let present = if there == 0 { 0 } else { vcpus.div_ceil(there) };
            node.absent = node.vcpus.iter().copied().skip(present as usize).collect();
        }
        let size = |node: &vm::VirtualNode| NodeSize {
            virtual_node: node.id,
            vcpus: node.present().collect(),
            memory: node.memory,
        };
        let now = topology.nodes.iter().map(size).collect();
        (topology, now)
    })
}

/// A host of which some nodes, and some CPUs, may not be used.
fn arrival(nodes: std::ops::RangeInclusive<usize>, most: usize) -> impl Strategy<Value = Arrival> {
    let taken = prop::collection::vec(0u8..8, 64);
    (random::case(nodes, 8), given(most), taken).prop_map(|(mut case, (topology, now), taken)| {
        let cores: Vec<NodeId> = case.machine.threads.iter().map(|thread| thread.node).collect();
        for (index, node) in case.machine.nodes.iter_mut().enumerate() {
            // The first node with CPUs stays.
            node.allowed = taken[index % 64] > 0 || cores.first() == Some(&node.id);
        }
        for (index, thread) in case.machine.threads.iter_mut().enumerate().skip(1) {
            thread.online = taken[(index * 7) % 64] != 1;
        }
        Arrival { case, topology, now }
    })
}

#[derive(Clone, Debug)]
struct Arrival {
    case: Case,
    topology: VirtualTopology,
    now: Vec<NodeSize>,
}

/// What holds for every map: the topology is the one given, each virtual node has a home of nodes
/// that may be used and have CPUs, all memory has a place, and no node gives more than it has.
fn check(Arrival { case, topology, now }: &Arrival) -> Result<(), TestCaseError> {
    let scorer = Scorer::alone(case);
    let usable = |node: NodeId| case.machine.node(node).is_some_and(|node| node.allowed);
    let nodes = || case.machine.nodes.iter().map(|node| node.id).filter(|&node| usable(node));
    let available: f64 = nodes().map(|node| scorer.available(node)).sum();
    let needed: Bytes = now.iter().map(|size| size.memory).sum();
    match rehome(&case.machine, &case.occupancy, &case.spec, topology, now) {
        Ok(plan) => {
            prop_assert_eq!(&plan.topology, topology);
            let carried: Vec<u32> = plan.placement.clients.iter().flat_map(|one| one.virtual_nodes.clone()).collect();
            prop_assert_eq!(carried, topology.nodes.iter().map(|node| node.id).collect::<Vec<_>>());
            for client in &plan.placement.clients {
                let cpus = client.home.iter().map(|node| case.machine.usable_cpus(node));
                let cpus = cpus.fold(CpuSet::new(), |all, cpus| all.union(&cpus));
                prop_assert!(client.home.iter().all(usable) && !client.cpus.is_empty(), "{client:?}");
                prop_assert!(client.cpus.is_subset(&cpus), "{client:?}");
            }
            prop_assert_eq!(plan.holdings.values().map(|held| held.memory).sum::<Bytes>(), needed);
            for (&node, held) in &plan.holdings {
                let most = scorer.available(node) + topology.nodes.len() as f64;
                prop_assert!(usable(node) && held.memory.0 as f64 <= most, "node {node}: {held:?}, {most}");
            }
            let vcpus = now.iter().map(|size| size.vcpus.len() as u32).sum::<u32>();
            prop_assert_eq!(plan.holdings.values().map(|held| held.vcpus).sum::<u32>(), vcpus);
        }
        Err(PlanError::Memory { .. }) => prop_assert!(available < needed.0 as f64),
        Err(other) => prop_assert!(false, "{other}"),
    }
    Ok(())
}

/// Two maps that lose the same, but for what is rounded: then the one that leaves fewer nodes
/// unused.
#[test]
fn a_third_of_a_cpu_is_the_same_however_it_is_divided() {
    // 2, 7, 4 and 2 cores, all 20 apart; those of nodes 0, 2 and 3 are busy half of the time.
    let mut machine = topology::read::from_synthetic("pack:4 [numa(memory=8GiB)] core:7 pu:1").expect("a machine");
    let cores = |node: NodeId| [2, 7, 4, 2][node.0 as usize];
    machine.threads.retain(|thread| thread.id.0 % 7 < cores(thread.node));
    let rows = (0..4).map(|i| (0..4).map(|j| if i == j { 10 } else { 20 }).collect()).collect();
    machine.distances = topology::Distances::new((0..4).map(NodeId).collect(), rows).expect("square");
    let busy = |node| (NodeId(node), NodeUse { vcpus: cores(NodeId(node)), ..NodeUse::default() });
    let occupancy = Occupancy { nodes: [0, 2, 3].map(busy).into(), ..Occupancy::default() };
    let text = "name = \"vm\"\nvcpus = 1\nmemory = \"1 GiB\"\n[policy]\nplacement = \"most_virtual_nodes\"\n";
    let spec = VmSpec::from_toml(text, "vm.toml").expect("a spec");
    let given = topology(&[(4, 64), (2, 1024)], vec![vec![10, 11], vec![11, 10]]);
    let plan = rehome(&machine, &occupancy, &spec, &given, &[]).expect("a plan");
    // Homes of two nodes, one of them node 1. On nodes 0 and 1 the first has 4 x 2/9 = 8/9 vCPUs on
    // node 0, where the second has 4/9, as it would have on node 3: 12/9 that wait half of the
    // time, 0.667 CPUs. Half of all memory is remote: 6 x 0.3 x 1/2 = 0.9. So neither home loses
    // more.
    // On three nodes 7/9 x 7/9 of one's accesses to the other are local: 6 x 0.06 x 32/81 = 0.142.
    assert_eq!(plan.lost_milli_cpus, 1708, "{plan:#?}");
    assert_eq!(plan.holdings.len(), 3, "{plan:#?}");
}

properties::properties! {
    #![cases(60)]

    #[test]
    fn no_host_makes_a_virtual_node_homeless_or_a_node_overfull(arrival in arrival(1..=8, 6)) {
        check(&arrival)?;
    }
}

properties::properties! {
    #![cases(4)]

    #[test]
    fn nor_does_a_host_of_a_hundred_nodes(arrival in arrival(9..=128, 12)) {
        check(&arrival)?;
    }
}
