//! Where a VM lives and should live, as everybody is told.

use super::toy::Toy;
use scheduler::balance::{Home, MoveKind, Next, homes};
use scheduler::{ClientId, Mobility};
use topology::{Bytes, NodeSet};

const FOUR: &str = "numa:4(memory=16GiB) core:4 pu:1";

fn nodes(text: &str) -> Option<NodeSet> {
    Some(text.parse().expect("nodes"))
}

/// Of the first VM.
fn answers(toy: &Toy) -> Vec<Home> {
    let homes = homes(&toy.machine, &toy.policy, &toy.state, &toy.observe());
    (0..toy.vms[0].clients.len())
        .map(|client| homes[&(toy.vms[0].key.clone(), ClientId(client as u32))].clone())
        .collect()
}

fn left(answer: &Home) -> &str {
    let Next::Left { because } = &answer.next else { panic!("{answer:?}") };
    because
}

#[test]
fn virtual_nodes_that_float_should_live_where_their_memory_is() {
    let mut toy = Toy::new(FOUR);
    let second = toy.vm("second", 2, 1.0, None, &[(3, 512)]).clients.remove(0);
    toy.vms.pop();
    toy.vm("db", 2, 1.0, None, &[(2, 512)]).clients.push(second);
    let before = answers(&toy);
    assert!(before.iter().all(|home| home.lives.is_none() && !home.decided));
    assert!(before.iter().all(|home| matches!(home.next, Next::Goes { kind: MoveKind::Adopt, .. })), "{before:?}");
    assert_eq!([before[0].should.clone(), before[1].should.clone()], [nodes("2"), nodes("3")]);
    toy.periods(2);
    let after = answers(&toy);
    for (before, after) in before.iter().zip(after) {
        assert_eq!((&after.lives, &after.should, &after.next), (&before.should, &before.should, &Next::Stays));
        assert!(after.decided);
    }
}

#[test]
fn what_is_not_moved_has_a_home_to_name_and_a_reason() {
    let mut toy = Toy::new(FOUR);
    toy.vm("fixed", 2, 1.0, None, &[(1, 512)]).mobility = Mobility::Fixed { because: "its owner said so".to_owned() };
    let answer = &answers(&toy)[0];
    assert_eq!((answer.lives.clone(), answer.should.clone()), (None, nodes("1")));
    assert_eq!(left(answer), "it may not be moved: its owner said so");
}

#[test]
fn of_memory_that_nobody_knows_no_home_is_named() {
    let mut toy = Toy::new(FOUR);
    toy.vm("dark", 2, 1.0, None, &[(1, 512)]).clients[0].unknown = Some("a test hides it".to_owned());
    let answer = &answers(&toy)[0];
    assert_eq!((&answer.lives, &answer.should), (&None, &None));
    assert!(left(answer).contains("a test hides it"), "{answer:?}");
}

#[test]
fn two_nodes_for_what_one_holds_are_left_with_the_gain_that_is_too_small() {
    let mut toy = Toy::new(FOUR);
    let cpus = toy.cpus(0).union(&toy.cpus(1));
    toy.vm("idle", 2, 0.02, None, &[(0, 256), (1, 256)]).clients[0].cpus = cpus;
    let answer = &answers(&toy)[0];
    assert_eq!((answer.lives.clone(), answer.should.clone()), (nodes("0-1"), nodes("0")));
    assert!(left(answer).contains("CPUs"), "{answer:?}");
    // Busy, it is worth it: 2 CPUs x 30 % x half of its accesses at twice the distance.
    toy.vms[0].clients[0].wants = 2.0;
    let answer = &answers(&toy)[0];
    assert!(matches!(answer.next, Next::Goes { kind: MoveKind::Locality, .. }), "{answer:?}");
    assert_eq!(answer.should, nodes("0"));
}

#[test]
fn clients_that_one_node_cannot_run_should_live_apart() {
    let of_two = |wants: f64| {
        let mut toy = Toy::new(FOUR);
        let second = toy.vm("second", 3, wants, Some(0), &[(0, 512)]).clients.remove(0);
        toy.vms.pop();
        toy.vm("tight", 3, wants, Some(0), &[(0, 512)]).clients.push(second);
        let answers = answers(&toy);
        assert!(answers.iter().all(|home| home.lives == nodes("0")));
        answers
    };
    // 5 busy ones of 6 vCPUs, 4 hardware threads.
    let busy = of_two(2.5);
    assert_ne!(busy[0].should, busy[1].should, "{busy:?}");
    // 1.5 are expected of 6 that idle.
    assert!(of_two(0.1).iter().all(|home| home.should == nodes("0") && home.next == Next::Stays));
}

#[test]
fn a_vm_that_floats_is_not_crowded_out_by_itself() {
    let mut toy = Toy::new("numa:2(memory=16GiB) core:4 pu:1");
    toy.vm("busy", 4, 4.0, None, &[(0, 1024)]);
    let mut observation = toy.observe();
    // Its threads are on node 0, beside its memory; 4 CPUs of that node's use are its own.
    let mut nodes_used = observation.nodes.values_mut();
    nodes_used.next().expect("node 0").cpu_used = Some(4.0);
    nodes_used.next().expect("node 1").cpu_used = Some(0.0);
    let homes = homes(&toy.machine, &toy.policy, &toy.state, &observation);
    let home = homes.into_values().next().expect("a client");
    assert_eq!(home.should, nodes("0"), "{home:?}");
    let Next::Goes { because, .. } = &home.next else { panic!("{home:?}") };
    // Its own 4 CPUs on 4 cores, and nothing else.
    assert!(because.contains("node 0: 100 % loaded with it"), "{because}");
    assert_eq!(toy.vms[0].clients[0].size, Bytes::GIB);
}
