//! VMs that exchange much: drawn together where the policy says so, bounded by CPU loads.

use super::toy::{Toy, bind};
use scheduler::balance::{Decision, MoveKind};

/// Two nodes of ten cores.
fn two_nodes(communication_percent: f64) -> Toy {
    let mut toy = Toy::new("numa:2(memory=16GiB) core:10 pu:1");
    toy.policy.communication_percent = communication_percent;
    toy
}

fn binds(decisions: &[Decision]) -> Vec<(MoveKind, String, String)> {
    let bind = |decision: &Decision| bind(decision).map(|(vm, home)| (decision.kind, vm, home));
    decisions.iter().filter_map(bind).collect()
}

/// Two VMs of 2 busy vCPUs and 64 MiB on different nodes that exchange 1.42 GB/s.
fn pair(communication_percent: f64) -> Toy {
    let mut toy = two_nodes(communication_percent);
    toy.vm("a", 2, 2.0, Some(0), &[(0, 64)]);
    toy.vm("b", 2, 2.0, Some(1), &[(1, 64)]);
    toy.exchanges = vec![("a", "b", 1.42e9)];
    toy
}

#[test]
fn off_nobody_is_drawn_anywhere() {
    assert_eq!(binds(&pair(0.0).periods(60)), []);
}

#[test]
fn two_that_exchange_much_come_to_share_a_node() {
    // 0.5 CPUs each at twice the distance, 60 % count: 0.6 CPUs. Four CPUs on one node of ten cores
    // crowd each other by 0.2 x (16 - 4 - 4) / 10 = 0.16.
    let mut toy = pair(60.0);
    assert_eq!(binds(&toy.periods(4)), [(MoveKind::Locality, "a".to_owned(), "1".to_owned())]);
    let because = &toy.log.iter().find(|(_, decision)| bind(decision).is_some()).expect("a move").1.because;
    assert!(because.contains("it exchanges 1.4 GB/s with b"), "{because}");
    // Together they stay.
    assert_eq!(binds(&toy.periods(60)), []);
}

#[test]
fn what_is_exchanged_is_not_worth_a_crowded_node() {
    // Node 1 is full: a would wait there.
    let mut toy = pair(60.0);
    for name in ["c", "d", "e", "f"] {
        toy.vm(name, 2, 2.0, Some(1), &[(1, 64)]);
    }
    let binds = binds(&toy.periods(60));
    assert!(binds.iter().all(|(_, vm, home)| vm != "a" || home != "1"), "{binds:?}");
}

/// The failure for which ESXi switched its action affinity off: all VMs talk to one, and all come
/// to its node.
#[test]
fn a_star_of_vms_does_not_pile_up_on_the_node_of_its_centre() {
    let mut toy = two_nodes(100.0);
    let names = ["centre", "a", "b", "c", "d", "e", "f", "g"];
    for (index, name) in names.iter().enumerate() {
        let node = index as u32 % 2;
        toy.vm(name, 2, 2.0, Some(node), &[(node, 64)]);
    }
    toy.exchanges = names[1..].iter().map(|name| ("centre", *name, 4e9)).collect();
    for _ in 0..200 {
        toy.period();
        // 16 CPUs are wanted on 20 cores; core_cap_percent is 90.
        assert!(toy.wanted(0) <= 9.0 && toy.wanted(1) <= 9.0, "{} and {}", toy.wanted(0), toy.wanted(1));
    }
    let settled = toy.log.iter().filter(|(at, decision)| *at > 1_150_000 && bind(decision).is_some()).count();
    assert_eq!(settled, 0, "it came to rest");
}
