//! What holds for every machine and every virtual topology; the map against brute force.

use super::topology;
use crate::brute_force::compare;
use crate::properties::{relabelled, turned};
use crate::random::cost::{self, Scorer};
use crate::random::{self, Case};
use proptest::prelude::*;
use scheduler::{Occupancy, PlanError, plan, rehome};
use std::collections::BTreeMap;
use topology::{Bytes, Machine, NodeId};
use vm::spec::Spread;
use vm::{NodeSize, Plan, VirtualTopology};

/// A virtual topology of up to `most` nodes, as some other machine would give it.
fn given(most: usize) -> impl Strategy<Value = VirtualTopology> {
    // Often alike, as virtual nodes are.
    let node = prop_oneof![Just((2u32, 1024u64)), (1u32..=6, 64u64..=6144)];
    (prop::collection::vec(node, 1..=most), prop::collection::vec(11u32..=40, 16), any::<bool>()).prop_map(
        |(nodes, distances, even)| {
            let entry = |i: usize, j: usize| match (i == j, even) {
                (true, _) => 10,
                (false, true) => 21,
                (false, false) => distances[(i * 5 + j * 3) % 16],
            };
            let rows = (0..nodes.len()).map(|i| (0..nodes.len()).map(|j| entry(i, j)).collect()).collect();
            topology(&nodes, rows)
        },
    )
}

/// A machine, a virtual topology, and a policy of homes.
fn arrival(nodes: std::ops::RangeInclusive<usize>, most: usize) -> impl Strategy<Value = (Case, VirtualTopology)> {
    (random::case(nodes, 8), given(most)).prop_map(|(mut case, topology)| {
        case.spec.shape.policy.vnuma = None;
        (case, topology)
    })
}

fn mapped(case: &Case, topology: &VirtualTopology) -> Result<Plan, PlanError> {
    rehome(&case.machine, &case.occupancy, &case.spec, topology, &[])
}

/// Cores and bytes that a node has for a virtual node that shall lose nothing there.
fn room(case: &Case, node: NodeId) -> (u32, u64) {
    let scorer = Scorer::alone(case);
    let cores = scorer.cores(node) as u32;
    let reserve = case.machine.node(node).expect("a node").memory.0 / 32;
    (cores.saturating_sub(case.occupancy.of(node).vcpus), (scorer.available(node) as u64).saturating_sub(reserve) >> 20)
}

/// A topology as if these nodes of the machine had given it: as far apart as they are, and with
/// room on each.
fn like(case: &Case, nodes: &[NodeId]) -> VirtualTopology {
    let least = nodes.iter().map(|&node| room(case, node)).fold((8, 8192), |a, b| (a.0.min(b.0), a.1.min(b.1)));
    let row = |&from: &NodeId| nodes.iter().map(|&to| case.machine.distance(from, to)).collect();
    topology(&vec![least; nodes.len()], nodes.iter().map(row).collect())
}

properties::properties! {
    #![cases(100)]

    #[test]
    fn the_topology_stays_and_every_client_has_a_home_with_room((case, topology) in arrival(1..=8, 5)) {
        let scorer = Scorer::alone(&case);
        let available: f64 = case.machine.nodes.iter().map(|node| scorer.available(node.id)).sum();
        let needed: Bytes = topology.nodes.iter().map(|node| node.memory).sum();
        match mapped(&case, &topology) {
            Ok(plan) => {
                prop_assert_eq!(&plan.topology, &topology);
                let carried: Vec<u32> =
                    plan.placement.clients.iter().flat_map(|client| client.virtual_nodes.clone()).collect();
                prop_assert_eq!(carried, topology.nodes.iter().map(|node| node.id).collect::<Vec<_>>());
                for client in &plan.placement.clients {
                    prop_assert!(!client.home.is_empty() && !client.cpus.is_empty(), "{client:?}");
                }
                prop_assert_eq!(plan.holdings.values().map(|held| held.memory).sum::<Bytes>(), needed);
                for (&node, held) in &plan.holdings {
                    prop_assert!(held.memory.0 as f64 <= scorer.available(node) + topology.nodes.len() as f64);
                }
                let expected = &plan.expected;
                prop_assert!(expected.local_permille.iter().all(|local| (0..=1000).contains(local)));
                prop_assert_eq!(expected.distances.len(), topology.nodes.len());
            }
            Err(PlanError::Memory { .. }) => prop_assert!(available < needed.0 as f64),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn the_same_input_gives_the_same_map_in_any_order_of_lists(
        (case, topology) in arrival(1..=6, 5),
        turn in 0usize..40,
    ) {
        let other = Case { machine: turned(&case.machine, turn), ..case.clone() };
        prop_assert_eq!(mapped(&case, &topology), mapped(&other, &topology));
    }

    #[test]
    fn other_node_numbers_give_an_equally_good_map(
        (case, topology) in arrival(1..=4, 4),
        labels in Just((100u32..104).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let ids: Vec<NodeId> = case.machine.nodes.iter().map(|node| node.id).collect();
        let labels: BTreeMap<NodeId, NodeId> = ids.into_iter().zip(labels.into_iter().map(NodeId)).collect();
        let other = relabelled(&case, &labels);
        if let (Ok(one), Ok(two)) = (mapped(&case, &topology), mapped(&other, &topology)) {
            let cost = |case: &Case, plan: &Plan| Scorer::given(case, plan).cost(&cost::homes(case, plan));
            let (one_cost, two_cost) = (cost(&case, &one), cost(&other, &two));
            let alike = !Scorer::worse(&one_cost, &two_cost) && !Scorer::worse(&two_cost, &one_cost);
            prop_assert!(alike, "{one_cost:?} {two_cost:?}");
        }
    }

    #[test]
    fn no_other_map_costs_less((case, topology) in arrival(1..=4, 4)) {
        if let Ok(plan) = mapped(&case, &topology)
            && let Some((cost, least)) = compare(&Scorer::given(&case, &plan), &plan, 4)
        {
            prop_assert!(!Scorer::worse(&cost, &least), "{cost:?} against {least:?}\n{plan:#?}");
        }
    }

    /// Clients apart: where some nodes are as far apart as the guest was told, and have room, the
    /// map has these distances.
    #[test]
    fn a_set_of_nodes_like_the_virtual_ones_is_found(
        (mut case, _) in arrival(2..=8, 2),
        picks in Just((0..8).collect::<Vec<usize>>()).prop_shuffle(),
        count in 2usize..=8,
        idle in any::<bool>(),
    ) {
        case.spec.shape.policy.placement = Spread::Apart;
        case.spec.shape.policy.prefer_ht = false;
        // Full controllers can be worth more than distances.
        case.machine.bandwidth = topology::Bandwidths::default();
        if idle {
            case.occupancy = Occupancy::default();
        }
        let picked = picks.iter().filter_map(|&pick| case.machine.nodes.get(pick));
        let nodes: Vec<NodeId> = picked.map(|node| node.id).collect();
        let roomy = nodes.into_iter().filter(|&node| room(&case, node).0 > 0 && room(&case, node).1 > 0);
        let nodes: Vec<NodeId> = roomy.take(count).collect();
        prop_assume!(nodes.len() > 1);
        let topology = like(&case, &nodes);
        let plan = mapped(&case, &topology).expect("there is room");
        prop_assert_eq!(&plan.expected.distances, &topology.distances, "{:#?}", plan);
        prop_assert!(plan.expected.local_permille.iter().all(|&local| local == 1000));
    }

    /// A VM that starts again where it was planned loses no more than then.
    #[test]
    fn who_starts_again_on_the_same_machine_loses_no_more(case in random::case(1..=4, 16)) {
        let Ok(first) = plan(&case.machine, &case.occupancy, &case.spec) else { return Ok(()) };
        prop_assume!(first.placement.clients.iter().all(|client| client.home.len() == 1));
        let again = rehome(&case.machine, &case.occupancy, &case.spec, &first.topology, &[]).expect("as before");
        prop_assert!(again.lost_milli_cpus <= first.lost_milli_cpus + 20, "{first:#?}{again:#?}");
    }

    /// What a virtual node has now counts as if it had had it at power-on.
    #[test]
    fn what_was_plugged_counts_as_if_it_had_been_there(
        case in random::case(1..=4, 8),
        full in given(4),
        at_first in 0u32..3,
    ) {
        let mut grown = full.clone();
        for node in &mut grown.nodes {
            node.absent = node.vcpus.iter().copied().skip(at_first as usize + 1).collect();
            (node.growth, node.memory) = (Bytes(node.memory.0 / 2), Bytes(node.memory.0 / 2));
        }
        let size = |node: &vm::VirtualNode| NodeSize {
            virtual_node: node.id,
            vcpus: node.vcpus.iter().copied().collect(),
            memory: node.memory,
        };
        let sizes: Vec<NodeSize> = full.nodes.iter().map(size).collect();
        let now = rehome(&case.machine, &case.occupancy, &case.spec, &grown, &sizes);
        let as_if = mapped(&case, &full);
        prop_assert_eq!(now.clone().map(|plan| plan.placement), as_if.map(|plan| plan.placement));
        prop_assert_eq!(now.map(|plan| plan.topology).unwrap_or_else(|_| grown.clone()), grown);
    }
}

/// The same on 8 nodes of two levels, where the search is cut short: every pick of 5 nodes.
#[test]
fn a_set_like_the_virtual_ones_is_found_on_eight_nodes() {
    let machine: Machine = {
        let mut machine = topology::read::from_synthetic("pack:8 [numa(memory=8GiB)] core:4 pu:1").expect("a machine");
        let ids = machine.nodes.iter().map(|node| node.id).collect();
        let level = |i: usize, j: usize| match (i == j, i / 2 == j / 2, i / 4 == j / 4) {
            (true, ..) => 10,
            (_, true, _) => 12,
            (_, _, true) => 21,
            _ => 32,
        };
        let rows = (0..8).map(|i| (0..8).map(|j| level(i, j)).collect()).collect();
        machine.distances = topology::Distances::new(ids, rows).expect("square");
        machine
    };
    let spec = vm::VmSpec::from_toml("name = \"vm\"\nvcpus = 1\nmemory = \"1 GiB\"\n", "vm.toml").expect("a spec");
    for mask in (0u32..256).filter(|mask| mask.count_ones() == 5) {
        let nodes: Vec<NodeId> = (0..8).rev().filter(|bit| mask >> bit & 1 == 1).map(NodeId).collect();
        let row = |&from: &NodeId| nodes.iter().map(|&to| machine.distance(from, to)).collect();
        let given = topology(&[(4, 4096); 5], nodes.iter().map(row).collect());
        let plan = rehome(&machine, &Occupancy::default(), &spec, &given, &[]).expect("a plan");
        assert_eq!(plan.expected.distances, given.distances, "{nodes:?}");
    }
}
