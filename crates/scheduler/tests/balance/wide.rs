//! Clients with more vCPUs than a node has cores: one node while few of them are busy, more when
//! more are.

use super::toy::{Toy, bind, binds};
use scheduler::balance::MoveKind;
use topology::{Bytes, NodeId};
use vm::spec::Spread;

/// Two nodes of 8 cores and 16 hardware threads, 2.1 times as far as local memory.
const EIGHT: &str = "numa:2(memory=16GiB) core:8 pu:2";

/// `wide` has 12 vCPUs, of which so many are busy, and so much memory by node. It floats.
fn wide(wants: f64, memory: &[(u32, u64)]) -> Toy {
    let mut toy = Toy::new(EIGHT);
    toy.machine.distances =
        topology::Distances::new(vec![NodeId(0), NodeId(1)], vec![vec![10, 21], vec![21, 10]]).expect("square");
    toy.vm("wide", 12, wants, None, memory);
    toy
}

fn home(toy: &Toy) -> Vec<NodeId> {
    toy.nodes_of(&toy.vms[0].clients[0].cpus).into_iter().map(|(node, _)| node).collect()
}

/// Expected of it are 12 x 25 % = 3 CPUs. On one node 0.2 x 3^2 / 8 = 0.23 CPUs are lost to crowded
/// ones. On both it is 2 x 0.2 x 1.5^2 / 8 = 0.11, and 3 x 0.3 x 1.1 / 2 = 0.50 to memory, half of
/// which is on the other node.
#[test]
fn few_busy_vcpus_live_on_one_node() {
    let mut toy = wide(2.0, &[(0, 40), (1, 24)]);
    assert_eq!(binds(&toy.periods(60)), [("wide".to_owned(), "0".to_owned())]);
}

/// 11 busy ones: on one node 0.2 x 11^2 / 8 + 3 x 0.7 = 5.13 CPUs are lost. On both it is
/// 2 x 0.2 x 5.5^2 / 8 + 11 x 0.3 x 1.1 / 2 = 1.51 + 1.82 = 3.33: spread, it wins 1.8 CPUs.
#[test]
fn many_busy_vcpus_get_more_nodes_and_no_memory_moves() {
    let mut toy = wide(2.0, &[(0, 64)]);
    toy.periods(40);
    assert_eq!(home(&toy), [NodeId(0)]);
    toy.vms[0].clients[0].wants = 11.0;
    let decisions = toy.periods(60);
    assert_eq!(binds(&decisions), [("wide".to_owned(), "0-1".to_owned())], "once");
    assert_eq!(decisions[0].kind, MoveKind::Load);
    assert!(decisions[0].because.starts_with("with more of its vCPUs busy it lives on nodes 0-1"), "{decisions:?}");
    assert_eq!(decisions.len(), 1, "no memory moves");
    assert_eq!(toy.vms[0].clients[0].memory[&NodeId(0)], Bytes::from_mib(64));
}

/// 9 busy ones: one node loses 0.2 x 9^2 / 8 + 0.7 = 2.73 CPUs, both 1.01 + 1.49 = 2.5: what is won
/// is enough. 8 busy ones: 1.6 against 0.8 + 1.32 = 2.12, so it stays where it is, and one that was
/// spread comes back, to where its memory is.
#[test]
fn it_comes_back_when_one_node_is_better_again() {
    let mut toy = wide(11.0, &[(1, 64)]);
    toy.periods(60);
    assert_eq!(home(&toy), [NodeId(0), NodeId(1)]);
    toy.vms[0].clients[0].wants = 8.0;
    let decisions = toy.periods(60);
    assert_eq!(binds(&decisions), [("wide".to_owned(), "1".to_owned())], "once");
    assert_eq!((decisions[0].kind, decisions.len()), (MoveKind::Locality, 1));
}

#[test]
fn between_both_it_rests() {
    // A load that comes and goes each 20 s: homes follow it no faster than their rests allow, two
    // in 90 s.
    let mut toy = wide(2.0, &[(0, 64)]);
    toy.periods(40);
    let mut changes = 0;
    for turn in 0..30 {
        toy.vms[0].clients[0].wants = if turn % 2 == 0 { 11.5 } else { 1.0 };
        changes += toy.periods(10).iter().filter(|decision| bind(decision).is_some()).count();
    }
    assert!((1..=14).contains(&changes), "{changes} changes in 600 s");
}

/// With a core for each vCPU on a node, being crowded there spreads nobody.
#[test]
fn a_client_that_fits_a_node_is_never_spread() {
    let mut toy = wide(0.0, &[]);
    toy.vms.clear();
    for (name, node) in [("a", 0), ("b", 0), ("c", 1), ("d", 1)] {
        toy.vm(name, 8, 8.0, Some(node), &[(node, 64)]);
    }
    assert_eq!(binds(&toy.periods(60)), []);
}

/// More vCPUs than the node has hardware threads, too: what they may do counts, not how many they
/// are.
#[test]
fn a_vm_wider_than_the_threads_of_a_node_lives_on_one_while_it_idles() {
    let mut toy = wide(3.0, &[(0, 24), (1, 40)]);
    toy.vms[0].clients[0].vcpus = 20;
    assert_eq!(binds(&toy.periods(60)), [("wide".to_owned(), "1".to_owned())]);
}

/// The memory that it may still touch counts: no node has 20 GiB.
#[test]
fn a_vm_with_more_memory_than_a_node_stays_on_both() {
    let mut toy = wide(2.0, &[(0, 64), (1, 64)]);
    toy.vms[0].clients[0].size = Bytes(20 << 30);
    toy.periods(60);
    assert_eq!(home(&toy), [NodeId(0), NodeId(1)]);
}

/// A VM of two clients with 6 vCPUs each that floats, so much of them busy.
fn of_two(wants: f64, placement: Spread) -> Toy {
    let mut toy = wide(wants, &[]);
    let client = &mut toy.vms[0].clients[0];
    (client.vcpus, client.size) = (6, Bytes(1 << 30));
    let second = client.clone();
    toy.vms[0].clients.push(second);
    toy.vms[0].stated.placement = placement;
    toy
}

/// Each is expected to use 6 x 25 % = 1.5 CPUs. The second loses 1.5 x 0.3 x 0.2 x 1.1 = 0.10 CPUs
/// by the distance to the first, and the first as much by its: 0.20. Beside it, it crowds CPUs by
/// 0.2 x (3^2 - 1.5^2) / 8 = 0.17, alone by 0.2 x 1.5^2 / 8 = 0.06: 0.11 CPUs more.
#[test]
fn clients_of_a_vm_that_does_little_share_a_node() {
    let homes = |placement: Spread| binds(&of_two(1.0, placement).periods(60));
    let on = |first: &str, second: &str| [first, second].map(|node| ("wide".to_owned(), node.to_owned()));
    assert_eq!(homes(Spread::Auto), on("0", "0"));
    assert_eq!(homes(Spread::Together), on("0", "0"));
    assert_eq!(homes(Spread::Apart), on("0", "1"));
}

/// Later all 12 are busy: the node loses 0.2 x 12^2 / 8 + 4 x 0.7 = 6.4 CPUs, two nodes 1.8, and
/// 0.79 to distance.
#[test]
fn they_part_when_they_crowd_their_node() {
    let mut toy = of_two(1.0, Spread::Auto);
    toy.periods(40);
    toy.vms[0].clients.iter_mut().for_each(|client| client.wants = 6.0);
    let decisions = toy.periods(60);
    let moved = decisions.last().and_then(bind);
    assert_eq!(moved, Some(("wide".to_owned(), "1".to_owned())), "{decisions:?}");
    assert_eq!(decisions.last().map(|decision| decision.kind), Some(MoveKind::Load));
}
