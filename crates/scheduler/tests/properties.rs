//! What holds for every machine and every VM.

use crate::random;
use crate::random::Case;
use crate::random::cost;
use crate::random::cost::Scorer;
use proptest::prelude::*;
use scheduler::{Occupancy, PlanError, plan, plan_together};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Distances, Machine, NodeId};
use vm::Plan;

fn planned(case: &Case) -> Result<Plan, PlanError> {
    plan(&case.machine, &case.occupancy, &case.spec)
}

/// The same machine with all its lists turned by `turn` places and reversed.
pub(crate) fn turned(machine: &Machine, turn: usize) -> Machine {
    fn turn_list<T>(list: &mut [T], turn: usize) {
        if !list.is_empty() {
            list.rotate_left(turn % list.len());
            list.reverse();
        }
    }
    let mut machine = machine.clone();
    turn_list(&mut machine.nodes, turn);
    turn_list(&mut machine.threads, turn);
    let mut ids = machine.distances.nodes().to_vec();
    turn_list(&mut ids, turn);
    machine.distances = relabelled_distances(&machine, &ids, |node| node);
    machine
}

/// The distances in the order `ids`, each node under its new label.
fn relabelled_distances(machine: &Machine, ids: &[NodeId], label: impl Fn(NodeId) -> NodeId) -> Distances {
    let rows = ids.iter().map(|&from| ids.iter().map(|&to| machine.distance(from, to)).collect()).collect();
    Distances::new(ids.iter().map(|&id| label(id)).collect(), rows).expect("square")
}

/// The same machine and occupancy under other node numbers, in rising order again.
pub(crate) fn relabelled(case: &Case, labels: &BTreeMap<NodeId, NodeId>) -> Case {
    let label = |node: NodeId| labels[&node];
    let mut machine = case.machine.clone();
    machine.distances = relabelled_distances(&machine, machine.distances.nodes(), label);
    machine.nodes.iter_mut().for_each(|node| node.id = label(node.id));
    machine.nodes.sort_by_key(|node| node.id);
    machine.threads.iter_mut().for_each(|thread| thread.node = label(thread.node));
    machine.bandwidth.memory = machine.bandwidth.memory.iter().map(|(&node, &gives)| (label(node), gives)).collect();
    let nodes = case.occupancy.nodes.iter().map(|(&node, held)| (label(node), *held)).collect();
    Case { machine, occupancy: Occupancy { nodes, ..Occupancy::default() }, spec: case.spec.clone() }
}

properties::properties! {
    #![cases(128)]

    #[test]
    fn vcpus_and_memory_are_divided_without_rest(case in random::case(1..=8, 40)) {
        let Ok(plan) = planned(&case) else { return Ok(()) };
        let topology = &plan.topology;
        let vcpus: Vec<u32> = topology.nodes.iter().flat_map(|node| node.vcpus.clone()).collect();
        prop_assert_eq!(vcpus, (0..case.spec.vcpus).collect::<Vec<_>>());
        prop_assert_eq!(topology.nodes.iter().map(|node| node.memory).sum::<Bytes>(), case.spec.memory);
        for node in &topology.nodes {
            prop_assert!(!node.vcpus.is_empty() && node.memory >= Bytes::MIB && node.memory.0.is_multiple_of(Bytes::MIB.0));
            prop_assert_eq!(node.vcpus.len() as u32 % topology.cores_per_socket, 0, "a socket lies in two nodes");
        }
        prop_assert_eq!(topology.sockets * topology.cores_per_socket * topology.threads_per_core, case.spec.vcpus);
        let carried: Vec<u32> = plan.placement.clients.iter().flat_map(|client| client.virtual_nodes.clone()).collect();
        prop_assert_eq!(carried, topology.nodes.iter().map(|node| node.id).collect::<Vec<_>>());
    }

    #[test]
    fn the_guest_is_told_distances_that_acpi_allows(case in random::case(1..=8, 40)) {
        let Ok(plan) = planned(&case) else { return Ok(()) };
        let count = plan.topology.nodes.len();
        prop_assert_eq!(plan.topology.distances.len(), count);
        for (i, row) in plan.topology.distances.iter().enumerate() {
            prop_assert_eq!(row.len(), count);
            let valid = |j: usize, distance: u32| if i == j { distance == 10 } else { (11..255).contains(&distance) };
            prop_assert!(row.iter().enumerate().all(|(j, &distance)| valid(j, distance)));
        }
    }

    #[test]
    fn memory_is_never_exceeded_and_a_vm_that_fits_is_placed(case in random::case(1..=8, 40)) {
        let scorer = Scorer::alone(&case);
        let ids: Vec<NodeId> = case.machine.nodes.iter().map(|node| node.id).collect();
        let available: f64 = ids.iter().map(|&node| scorer.available(node)).sum();
        match planned(&case) {
            Ok(plan) => {
                prop_assert_eq!(plan.holdings.values().map(|held| held.memory).sum::<Bytes>(), case.spec.memory);
                prop_assert_eq!(plan.holdings.values().map(|held| held.vcpus).sum::<u32>(), case.spec.vcpus);
                for (&node, held) in &plan.holdings {
                    // A client on every node is divided in proportion to the room, each share
                    // rounded to a byte.
                    prop_assert!(held.memory.0 as f64 <= scorer.available(node) + plan.placement.clients.len() as f64);
                }
            }
            Err(PlanError::Memory { .. }) => prop_assert!(available < case.spec.memory.0 as f64),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn a_home_has_cpus_and_all_of_them_may_be_used(case in random::case(1..=8, 40)) {
        let Ok(plan) = planned(&case) else { return Ok(()) };
        for client in &plan.placement.clients {
            prop_assert!(!client.cpus.is_empty());
            // Nodes whole, and none that is not its home.
            let used = client.home.iter().map(|node| case.machine.usable_cpus(node));
            let used: Vec<CpuSet> = used.filter(|cpus| !cpus.intersection(&client.cpus).is_empty()).collect();
            prop_assert_eq!(used.iter().fold(CpuSet::new(), |all, cpus| all.union(cpus)), client.cpus.clone());
        }
    }

    #[test]
    fn the_order_of_the_lists_does_not_matter(case in random::case(1..=8, 40), turn in 0usize..40) {
        let other = Case { machine: turned(&case.machine, turn), ..case.clone() };
        prop_assert_eq!(planned(&case), planned(&other));
    }

    #[test]
    fn other_node_numbers_give_an_equally_good_placement(
        case in random::case(1..=4, 16),
        labels in Just((100u32..104).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let ids: Vec<NodeId> = case.machine.nodes.iter().map(|node| node.id).collect();
        let labels: BTreeMap<NodeId, NodeId> = ids.into_iter().zip(labels.into_iter().map(NodeId)).collect();
        let other = relabelled(&case, &labels);
        match (planned(&case), planned(&other)) {
            (Ok(one), Ok(two)) => {
                prop_assert_eq!(&one.topology.nodes, &two.topology.nodes);
                let cost = |case: &Case, plan: &Plan| Scorer::new(case, plan).cost(&cost::homes(case, plan));
                let (one_cost, two_cost) = (cost(&case, &one), cost(&other, &two));
                let exhaustive = |plan: &Plan| plan.reasons.iter().all(|reason| reason.choice != "search: not \
                    exhaustive");
                let equal = !Scorer::worse(&one_cost, &two_cost) && !Scorer::worse(&two_cost, &one_cost);
                prop_assert!(equal || !exhaustive(&one), "{:?} {:?}", one_cost, two_cost);
            }
            (one, two) => prop_assert_eq!(one.is_err(), two.is_err()),
        }
    }

    #[test]
    fn one_node_in_one_node_out(mut case in random::case(1..=1, 40)) {
        case.spec.shape.policy.max_vcpus_per_node = None;
        let Ok(plan) = planned(&case) else { return Ok(()) };
        prop_assert_eq!(plan.topology.nodes.len(), 1);
        prop_assert_eq!(&plan.placement.clients[0].home, &case.machine.node_ids());
    }

    #[test]
    fn vms_planned_together_never_promise_more_than_there_is(
        (machine, occupancy) in random::machine(1..=4),
        specs in prop::collection::vec(random::spec(8), 1..4),
    ) {
        let Ok(plans) = plan_together(&machine, &occupancy, &specs) else { return Ok(()) };
        prop_assert!(plans.iter().zip(&specs).all(|(plan, spec)| plan.topology.sockets * plan.topology.cores_per_socket == spec.vcpus));
        let case = Case { machine: machine.clone(), occupancy, spec: specs[0].clone() };
        let scorer = Scorer::alone(&case);
        for node in machine.nodes.iter().map(|node| node.id) {
            let promised: u64 = plans.iter().filter_map(|plan| plan.holdings.get(&node)).map(|held| held.memory.0).sum();
            prop_assert!(promised as f64 <= scorer.available(node) + 64.0);
        }
    }
}
