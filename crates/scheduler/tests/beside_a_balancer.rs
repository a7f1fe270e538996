//! Plans on a host where a balancer runs: a VM is placed by what is expected of it, and mended by
//! what it does.

use scheduler::{Occupancy, plan};
use topology::{Bytes, Machine};
use vm::spec::{Backing, Fill, Spread};
use vm::{Plan, Shape};

/// Two nodes of 8 cores, 16 hardware threads and 16 GiB, twice as far as local memory.
fn machine() -> Machine {
    topology::read::from_synthetic("pack:2 [numa(memory=16GiB)] core:8 pu:2").expect("a machine")
}

/// 12 vCPUs and 4 GiB that are taken on touch.
fn shape() -> Shape {
    let backing = Backing { fill: Fill::OnTouch, ..Backing::default() };
    Shape { name: "wide".to_owned(), vcpus: 12, memory: Bytes(4 << 30), backing, ..Shape::default() }
}

fn uniform() -> Shape {
    let mut shape = shape();
    shape.policy.vnuma = Some(false);
    shape
}

fn planned(shape: &Shape, balanced: bool) -> Plan {
    plan(&machine(), &Occupancy { balanced, ..Occupancy::default() }, shape).expect("a plan")
}

fn homes(plan: &Plan) -> Vec<String> {
    plan.placement.clients.iter().map(|client| client.home.to_string()).collect()
}

/// 12 busy vCPUs on 8 cores lose 4 x 0.7 = 2.8 CPUs, on both nodes 12 x 0.3 / 2 = 1.8 to memory.
/// Of 12 x 25 % = 3 busy ones a node loses 0.2 x 3^2 / 8 = 0.23, both 0.11 and 0.45.
#[test]
fn a_uniform_vm_starts_on_one_node() {
    assert_eq!(homes(&planned(&uniform(), false)), ["0-1"]);
    let beside = planned(&uniform(), true);
    assert_eq!(homes(&beside), ["0"]);
    assert_eq!(beside.holdings.values().map(|held| held.vcpus).sum::<u32>(), 12, "it holds all of its vCPUs");
    let said = |plan: &Plan| plan.reasons.iter().any(|reason| reason.choice.starts_with("25 % of each vCPU"));
    assert!(said(&beside) && !said(&planned(&uniform(), false)));
}

/// What is for good is planned for all vCPUs: memory that is all taken at the start, and vCPUs that
/// always count.
#[test]
fn what_nobody_mends_is_planned_for_all_vcpus() {
    let mut at_start = uniform();
    at_start.backing.fill = Fill::AtStart;
    let mut always_busy = uniform();
    always_busy.policy.latency_sensitive = true;
    for shape in [at_start, always_busy] {
        assert_eq!(homes(&planned(&shape, true)), ["0-1"]);
    }
}

#[test]
fn more_memory_than_a_node_has_stays_on_both() {
    let large = Shape { memory: Bytes(20 << 30), ..uniform() };
    assert_eq!(homes(&planned(&large, true)), ["0-1"]);
}

/// The guest is told of two nodes in either case: that is for life. Of each virtual node 1.5 CPUs
/// are expected. Apart they lose 3 x 0.06 = 0.18 CPUs to distance and 2 x 0.2 x 1.5^2 / 8 = 0.11,
/// together 0.2 x 3^2 / 8 = 0.23.
#[test]
fn virtual_nodes_share_one_unless_they_are_to_live_apart() {
    let with = |placement: Spread, balanced: bool| {
        let mut shape = shape();
        shape.policy.placement = placement;
        let plan = planned(&shape, balanced);
        assert_eq!(plan.topology.nodes.len(), 2);
        homes(&plan)
    };
    assert_eq!(with(Spread::Auto, false), ["0", "1"]);
    assert_eq!(with(Spread::Auto, true), ["0", "0"]);
    assert_eq!(with(Spread::Apart, true), ["0", "1"]);
}
