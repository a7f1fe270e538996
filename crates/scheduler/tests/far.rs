//! Memory on nodes without CPUs: never a home, and never by accident.

use crate::balance::toy::Toy;
use scheduler::balance::{BalancePolicy, BalanceState, step};
use scheduler::{Action, Occupancy, PlanError, plan};
use topology::{Bytes, Machine, NodeId};
use vm::spec::FarMemory;
use vm::{MemoryPolicy, Plan, Shape};

/// Two packages, each with a node of 8 cores and 16 GiB and one of 64 GiB without CPUs: nodes 0 and
/// 2, and 1 and 3.
const EXPANDERS: &str = "pack:2 [numa(memory=16GiB)] [numa(memory=64GiB)] core:8 pu:1";

/// The expanders give a third of what the nodes give.
fn machine() -> Machine {
    let mut machine = topology::read::from_synthetic(EXPANDERS).expect("a machine");
    assert_eq!(machine.memory_only().to_string(), "1,3");
    let gives = |node: NodeId| Bytes(if [1, 3].contains(&node.0) { 30_000_000_000 } else { 90_000_000_000 });
    machine.bandwidth.memory = machine.node_ids().iter().map(|node| (node, gives(node))).collect();
    // The expander of a package is nearer than that of the other.
    let rows = vec![vec![10, 14, 21, 24], vec![14, 10, 24, 28], vec![21, 24, 10, 14], vec![24, 28, 14, 10]];
    machine.distances = topology::Distances::new(machine.distances.nodes().to_vec(), rows).expect("a square");
    machine
}

fn shape(vcpus: u32, gib: u64, far_memory: FarMemory) -> Shape {
    let mut shape = Shape { name: "a".to_owned(), vcpus, memory: Bytes(gib << 30), ..Shape::default() };
    shape.policy.far_memory = far_memory;
    shape
}

fn planned(shape: &Shape) -> Plan {
    plan(&machine(), &Occupancy::default(), shape).expect("a plan")
}

fn gib(plan: &Plan) -> Vec<(u32, u64)> {
    plan.holdings
        .iter()
        .filter(|(_, held)| held.memory.0 > 0)
        .map(|(node, held)| (node.0, held.memory.0 >> 30))
        .collect()
}

#[test]
fn what_a_home_lacks_lies_on_nodes_with_cpus_unless_the_policy_says_otherwise() {
    // 20 GiB with one vCPU: a node has 16 and keeps 1/32 of them where it runs over.
    let near = planned(&shape(1, 20, FarMemory::Never));
    assert!(near.holdings.keys().all(|node| [0, 2].contains(&node.0)), "{:?}", near.holdings);
    let when_full = planned(&shape(1, 20, FarMemory::WhenFull));
    assert_eq!(when_full.homes().to_string(), "0-1");
    assert!(when_full.placement.clients[0].far.is_empty());
}

#[test]
fn a_vm_that_only_expanders_could_hold_is_refused_and_told_of_them() {
    let refused = plan(&machine(), &Occupancy::default(), &shape(1, 40, FarMemory::Never)).unwrap_err();
    assert!(matches!(&refused, PlanError::Memory { available, .. } if *available == Bytes(32 << 30)));
    let text = refused.to_string();
    assert!(text.contains("nodes 1 and 3") || text.contains("nodes 1,3"), "{text}");
    assert!(text.contains("128 GiB more, which policy.far_memory = \"when_full\""), "{text}");
    assert_eq!(planned(&shape(1, 40, FarMemory::WhenFull)).placement.clients.len(), 1);
}

/// 90 and 30 GB/s: three quarters near and a quarter on the expander of the same package.
#[test]
fn by_bandwidth_each_client_has_its_part_on_the_expander_beside_it() {
    let narrow = planned(&shape(4, 8, FarMemory::ByBandwidth));
    assert_eq!(gib(&narrow), [(0, 6), (1, 2)]);
    let client = &narrow.placement.clients[0];
    assert_eq!((client.home.to_string(), client.cpus.to_string()), ("0-1".to_owned(), "0-7".to_owned()));
    assert_eq!((client.memory_policy, client.far.clone()), (MemoryPolicy::Bind, vec![(NodeId(1), Bytes(2 << 30))]));
    assert!(narrow.reasons.iter().any(|reason| reason.choice == "client 0: 2 GiB on node 1 by bandwidth"));
    let wide = planned(&shape(16, 16, FarMemory::ByBandwidth));
    assert_eq!(gib(&wide), [(0, 6), (1, 2), (2, 6), (3, 2)]);
    // The guest is told of its two nodes, and nothing of the expanders.
    assert_eq!(wide.topology.distances, [[10, 21], [21, 10]]);
}

/// 20 GiB do not fit into 16, but three quarters of them do.
#[test]
fn what_lies_far_makes_room_near() {
    let plan = planned(&shape(4, 20, FarMemory::ByBandwidth));
    assert_eq!(gib(&plan), [(0, 15), (1, 5)]);
}

/// 4 GiB are wanted of the expander, which has 1 GiB free and keeps 2 of 64: nothing is left.
#[test]
fn what_an_expander_lacks_stays_near() {
    let mut machine = machine();
    for node in machine.nodes.iter_mut().filter(|node| node.id.0 % 2 == 1) {
        node.free = Some(Bytes::GIB);
    }
    let plan = plan(&machine, &Occupancy::default(), &shape(4, 8, FarMemory::ByBandwidth)).expect("a plan");
    assert_eq!(gib(&plan), [(0, 8)]);
    assert!(plan.warnings.iter().any(|warning| warning.contains("all of it lies near")), "{:?}", plan.warnings);
}

#[test]
fn bandwidth_that_nobody_knows_is_an_error_and_not_equal_parts() {
    let mut machine = machine();
    machine.bandwidth.memory.remove(&NodeId(3));
    let of = |shape: &Shape| plan(&machine, &Occupancy::default(), shape);
    let text = of(&shape(4, 8, FarMemory::ByBandwidth)).unwrap_err().to_string();
    assert!(text.contains("node 3") && text.contains("HMAT"), "{text}");
    assert!(of(&shape(4, 8, FarMemory::WhenFull)).is_ok());
}

#[test]
fn an_affinity_that_names_an_expander_does_not_fill_it() {
    let mut shape = shape(4, 8, FarMemory::Never);
    shape.policy.node_affinity = Some("0-1".parse().expect("nodes"));
    let plan = planned(&shape);
    assert_eq!(gib(&plan), [(0, 8)]);
    assert!(plan.warnings.iter().any(|warning| warning.contains("names node 1 without CPUs")), "{:?}", plan.warnings);
}

/// A VM at home on node 0 with a quarter of its memory on node 1: where it was spread on purpose it
/// stays, else it follows. Nothing ever goes to an expander.
#[test]
fn the_balancer_leaves_what_lies_far_on_purpose() {
    let moved = |on_purpose: bool| {
        let mut toy = Toy { machine: machine(), ..Toy::new(EXPANDERS) };
        toy.vm("a", 4, 2.0, Some(0), &[(0, 600), (1, 200)]);
        let mut observation = toy.observe();
        if on_purpose {
            observation.vms[0].clients[0].far_nodes = "1".parse().expect("nodes");
        }
        let decisions = step(&toy.machine, &BalancePolicy::default(), &mut BalanceState::default(), &observation);
        let moves = decisions.into_iter().filter_map(|decision| match decision.action {
            Action::MoveMemory { from, to, at_most, .. } => Some((from.0, to.0, at_most.mib())),
            _ => None,
        });
        moves.collect::<Vec<_>>()
    };
    assert_eq!(moved(true), []);
    assert_eq!(moved(false), [(1, 0, 200)]);
}
