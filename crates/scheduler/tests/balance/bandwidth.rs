//! Memory bandwidth as a demand: worked examples.

use super::toy::{Toy, bind};
use scheduler::Traffic;
use scheduler::balance::{Decision, MoveKind};
use topology::{Bytes, NodeId};
use vm::spec::{BandwidthNeed, Spread};

/// Nodes of 16 cores, so that nobody lacks a CPU.
fn nodes(count: u32) -> Toy {
    nodes_of(count, 16)
}

/// Nodes of so many cores and 16 GiB, each of whose memory gives 18 GB/s.
fn nodes_of(count: u32, cores: u32) -> Toy {
    let mut toy = Toy::new(&format!("numa:{count}(memory=16GiB) core:{cores} pu:1"));
    toy.machine.bandwidth.memory = (0..count).map(|node| (NodeId(node), Bytes(18_000_000_000))).collect();
    toy
}

fn gb(local: f64) -> Option<Traffic> {
    Some(Traffic { local: local * 1e9, remote: 0.0 })
}

/// A VM of 4 busy vCPUs and 1 GiB at home on a node, which shows so many GB/s.
fn busy(toy: &mut Toy, name: &str, node: u32, traffic: Option<Traffic>) {
    toy.vm(name, 4, 4.0, Some(node), &[(node, 1024)]).clients[0].traffic = traffic;
}

fn of_kind(decisions: &[Decision], kind: MoveKind) -> Vec<(String, String)> {
    decisions.iter().filter(|decision| decision.kind == kind).filter_map(bind).collect()
}

#[test]
fn two_vms_that_stream_do_not_share_a_controller_while_another_is_idle() {
    let mut toy = nodes(4);
    // Full from the first look: each shows half of 18 GB/s. A CPU that only waits draws 2.84 GB/s,
    // 4 of them 11.4: 8 x (1 - 18 / 22.8) = 1.67 CPUs wait.
    busy(&mut toy, "a", 0, gb(9.0));
    busy(&mut toy, "b", 0, gb(9.0));
    let moved = of_kind(&toy.periods(4), MoveKind::Bandwidth);
    assert_eq!(moved, [("a".to_owned(), "1".to_owned())]);
    let because = &toy.log.iter().find(|(_, decision)| decision.kind == MoveKind::Bandwidth).expect("a move").1.because;
    assert!(because.contains("22.8 GB/s would be drawn from node 0, which gives 18 GB/s"), "{because}");
    assert!(because.contains("1.67 CPUs fewer wait for memory bandwidth"), "{because}");
    // Each alone now: nothing more moves.
    toy.vms.iter_mut().for_each(|vm| vm.clients[0].traffic = gb(11.4));
    assert_eq!(of_kind(&toy.periods(60), MoveKind::Bandwidth), []);
}

#[test]
fn a_full_controller_of_one_client_or_of_unknown_traffic_moves_nobody() {
    let mut alone = nodes(4);
    busy(&mut alone, "a", 0, gb(18.0));
    busy(&mut alone, "computes", 0, gb(0.1));
    assert_eq!(of_kind(&alone.periods(12), MoveKind::Bandwidth), []);
    let mut unknown = nodes(4);
    busy(&mut unknown, "a", 0, None);
    busy(&mut unknown, "b", 0, None);
    assert_eq!(of_kind(&unknown.periods(12), MoveKind::Bandwidth), []);
    let mut no_rates = nodes(4);
    no_rates.machine.bandwidth.memory.clear();
    busy(&mut no_rates, "a", 0, gb(9.0));
    busy(&mut no_rates, "b", 0, gb(9.0));
    assert_eq!(of_kind(&no_rates.periods(12), MoveKind::Bandwidth), []);
}

#[test]
fn a_first_home_is_where_the_controller_has_something_left() {
    let mut toy = nodes(2);
    busy(&mut toy, "streams", 0, gb(16.0));
    busy(&mut toy, "computes", 1, gb(0.1));
    // By CPUs both nodes are the same, and node 0 comes first. 16 + 11.4 of 18 GB/s.
    toy.vm("new", 4, 4.0, None, &[]).stated.bandwidth = BandwidthNeed::High;
    let homes = of_kind(&toy.periods(2), MoveKind::Adopt);
    assert_eq!(homes, [("new".to_owned(), "1".to_owned())]);
    let mut same = nodes(2);
    busy(&mut same, "streams", 0, gb(16.0));
    busy(&mut same, "computes", 1, gb(0.1));
    same.vm("new", 4, 4.0, None, &[]).stated.bandwidth = BandwidthNeed::Low;
    assert_eq!(of_kind(&same.periods(2), MoveKind::Adopt), [("new".to_owned(), "0".to_owned())]);
}

#[test]
fn who_draws_changes_places_with_who_does_not() {
    let mut toy = nodes_of(2, 8);
    // Both nodes are full of CPUs: 8 of 8. 22.8 of 18 GB/s on node 0, nothing on node 1.
    busy(&mut toy, "a", 0, gb(9.0));
    busy(&mut toy, "b", 0, gb(9.0));
    busy(&mut toy, "c", 1, gb(0.1));
    busy(&mut toy, "d", 1, gb(0.1));
    let moved = of_kind(&toy.periods(6), MoveKind::Bandwidth);
    assert_eq!(moved, [("a".to_owned(), "1".to_owned()), ("c".to_owned(), "0".to_owned())]);
}

#[test]
fn what_was_seen_alone_is_remembered_beside_another() {
    let mut toy = nodes(2);
    // Alone on node 0 it draws 4 GB/s for a CPU second, 16 in all.
    busy(&mut toy, "a", 0, gb(16.0));
    toy.periods(20);
    // Another comes; both get 9.
    busy(&mut toy, "b", 0, gb(9.0));
    toy.vms[0].clients[0].traffic = gb(9.0);
    let state = toy.state.clone();
    let known = state.vms[0].clients[0].traffic.expect("measured");
    assert!((known.per_cpu_second / 1e9 - 4.0).abs() < 0.01 && known.alone, "{known:?}");
    toy.period();
    let known = toy.state.vms[0].clients[0].traffic.expect("measured");
    assert!((known.per_cpu_second / 1e9 - 4.0).abs() < 0.01, "{known:?}");
}

#[test]
fn clients_of_one_vm_part_for_bandwidth_unless_they_are_to_be_together() {
    let with = |placement: Spread, traffic: f64| {
        let mut toy = nodes(2);
        let vm = toy.vm("vm", 4, 4.0, Some(0), &[(0, 1024)]);
        vm.stated.placement = placement;
        vm.clients[0].traffic = gb(traffic);
        let other = vm.clients[0].clone();
        vm.clients.push(other);
        of_kind(&toy.periods(12), MoveKind::Bandwidth)
    };
    // 1.67 CPUs of bandwidth are won; 9 GB/s are 3.17 CPUs of waits, of which each of the two loses
    // 20 % to twice the distance: 2 x 0.63 = 1.27 CPUs.
    assert_eq!(with(Spread::Auto, 9.0), [("vm".to_owned(), "1".to_owned())]);
    assert_eq!(with(Spread::Together, 9.0), []);
    assert_eq!(with(Spread::Auto, 1.0), []);
}

#[test]
fn memory_that_cannot_move_loads_its_own_controller_and_the_way_there() {
    let mut toy = nodes(2);
    // Its threads go to node 1 and change nothing on node 0: 22.8 GB/s are drawn there as before,
    // and a way of 2 GB/s would hold it up.
    for name in ["a", "b"] {
        busy(&mut toy, name, 0, gb(9.0));
        let because = "VFIO pins all of its memory".to_owned();
        toy.vms.last_mut().expect("a VM").mobility = scheduler::Mobility::MemoryFixed { because };
    }
    let links = |from: u32, to: u32| (NodeId(from), [(NodeId(to), Bytes(2_000_000_000))].into());
    toy.machine.bandwidth.links = [links(0, 1), links(1, 0)].into();
    assert_eq!(of_kind(&toy.periods(12), MoveKind::Bandwidth), []);
}

#[test]
fn why_says_what_is_drawn_and_what_the_contrary_would_be_worth() {
    let mut toy = nodes(2);
    let vm = toy.vm("vm", 4, 4.0, Some(0), &[(0, 1024)]);
    vm.stated.placement = Spread::Together;
    vm.clients[0].traffic = gb(9.0);
    let other = vm.clients[0].clone();
    vm.clients.push(other);
    toy.periods(4);
    let client = &toy.why("vm").clients[0];
    let bandwidth = client.bandwidth.as_deref().expect("a sentence");
    assert!(bandwidth.starts_with("it draws 9 GB/s, and would draw 11.4 GB/s alone"), "{bandwidth}");
    assert!(bandwidth.ends_with("from node 0, which gives 18 GB/s: 1.67 CPUs wait for it"), "{bandwidth}");
    let shape = client.shape.as_deref().expect("a sentence");
    assert!(
        shape.starts_with("it lives with client 1 of its VM, as was asked for (placement together), as its spec says"),
        "{shape}"
    );
    assert!(shape.contains("apart, on node 1, it would win 1.67 CPUs of bandwidth, -1.27 of distance"), "{shape}");
    assert_eq!(client.candidates[1].controller_loss, Some(0.0));
    // Why it is not parted stands among the refusals.
    let refused = |why: &scheduler::balance::Explanation| -> Vec<String> {
        why.clients[0].candidates[1].refused.iter().map(|refusal| refusal.threshold.clone()).collect()
    };
    let refused = refused(&toy.why("vm"));
    assert!(refused.contains(&"placement".to_owned()), "{refused:?}");
    // Without figures there is nothing to say.
    let mut unknown = nodes(2);
    busy(&mut unknown, "a", 0, None);
    unknown.period();
    let why = unknown.why("a");
    assert_eq!((&why.clients[0].bandwidth, &why.clients[0].shape), (&None, &None));
}

#[test]
fn what_goes_to_siblings_is_measured_and_takes_the_place_of_the_assumption() {
    let with = |remote: f64| {
        let mut toy = nodes(2);
        let vm = toy.vm("vm", 2, 2.0, Some(0), &[(0, 64)]);
        vm.clients[0].traffic = Some(Traffic { local: 3e9 - remote * 1e9, remote: remote * 1e9 });
        let mut other = vm.clients[0].clone();
        other.memory = [(NodeId(1), Bytes::from_mib(64))].into();
        vm.clients.push(other);
        toy.vms[0].clients[1].cpus = toy.cpus(1);
        of_kind(&toy.periods(30), MoveKind::Locality)
    };
    // 3 GB/s are 1.05 CPUs of waits; half of them, for both: 1.05 CPUs are won by sharing a node,
    // which costs them 0.2 x (16 - 4 - 4) / 16 = 0.1. Of next to nothing next to nothing is.
    assert_eq!(with(1.5).len(), 1);
    assert_eq!(with(0.02), []);
}
