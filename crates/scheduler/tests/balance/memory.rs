//! Memory follows: how much, whose first, and when not.

use super::toy::Toy;
use scheduler::balance::Decision;
use scheduler::{Action, Mobility, Traffic};
use topology::{Bytes, NodeId};

const EIGHT: &str = "numa:2(memory=16GiB) core:8 pu:1";

/// VM and MiB of each memory move.
fn moved(decisions: &[Decision]) -> Vec<(String, u64)> {
    let memory = |decision: &Decision| match &decision.action {
        Action::MoveMemory { vm, at_most, .. } => Some((vm.name.clone(), at_most.mib())),
        Action::Bind { .. } => None,
    };
    decisions.iter().filter_map(memory).collect()
}

fn of(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(vm, mib)| ((*vm).to_owned(), *mib)).collect()
}

/// Threads on node 0, memory on node 1; small enough that the threads do not go there.
fn away(toy: &mut Toy, name: &str, wants: f64, mib: u64) {
    toy.vm(name, 4, wants, Some(0), &[(1, mib)]);
}

#[test]
fn the_rate_bounds_what_moves_and_pressure_halves_it() {
    // 256 MiB/s in periods of 2 s: 512 MiB, at most 256 of one VM. Half of it from 5 % pressure on,
    // nothing from 20 % on; pressure that nobody knows counts as some.
    for (pressure, expected) in [
        (Some(0.0), vec![("b", 256), ("a", 256)]),
        (Some(0.05), vec![("b", 256)]),
        (Some(0.20), vec![]),
        (None, vec![("b", 256)]),
    ] {
        let mut toy = Toy { pressure, ..Toy::new(EIGHT) };
        // b loses 0.3 x 2 CPUs, a 0.3 x 1: b comes first.
        away(&mut toy, "a", 1.0, 900);
        away(&mut toy, "b", 2.0, 900);
        assert_eq!(moved(&toy.period()), of(&expected), "{pressure:?}");
    }
}

#[test]
fn one_vm_alone_gets_the_whole_rate_in_chunks() {
    let mut toy = Toy::new(EIGHT);
    away(&mut toy, "a", 0.5, 2048);
    toy.policy.rebalance = false;
    assert_eq!(moved(&toy.period()), of(&[("a", 256), ("a", 256)]));
    toy.periods(3);
    assert_eq!(toy.vms[0].clients[0].memory[&NodeId(0)], Bytes::from_mib(2048));
    assert_eq!(moved(&toy.periods(5)), of(&[]));
}

#[test]
fn measured_traffic_says_who_comes_first() {
    // a uses one CPU and reads 4 GB/s; b uses two and reads 0.1 GB/s. 4e9 / 64 x 90 ns / 4 = 1.4,
    // but at most its 1 CPU; 0.1e9 / 64 x 90 ns / 4 = 0.035 CPUs.
    let mut toy = Toy::new(EIGHT);
    away(&mut toy, "a", 1.0, 900);
    away(&mut toy, "b", 2.0, 900);
    toy.vms[0].clients[0].traffic = Some(Traffic { local: 0.0, remote: 4e9 });
    toy.vms[1].clients[0].traffic = Some(Traffic { local: 0.0, remote: 1e8 });
    let decisions = toy.period();
    assert_eq!(moved(&decisions)[0].0, "a");
    assert!(decisions[0].because.contains("4000 MB/s"), "{}", decisions[0].because);
}

#[test]
fn little_that_is_away_stays_away() {
    // 2 % of 1000 MiB is 20 MiB.
    let with = |mib: u64| {
        let mut toy = Toy::new(EIGHT);
        toy.vm("a", 2, 1.0, Some(0), &[(0, 1000 - mib), (1, mib)]);
        moved(&toy.period())
    };
    assert_eq!(with(19), of(&[]));
    assert_eq!(with(20), of(&[("a", 20)]));
}

#[test]
fn a_node_keeps_its_last_memory() {
    // 16 GiB, 2 % of which (327.7 MiB) stay free; a rock holds all but 400 MiB: 72 MiB may come.
    let mut toy = Toy::new(EIGHT);
    let rock = toy.vm("rock", 1, 0.0, Some(0), &[(0, (16 << 10) - 400)]);
    rock.mobility = Mobility::Fixed { because: "a test".to_owned() };
    away(&mut toy, "a", 1.0, 900);
    assert_eq!(moved(&toy.period()), of(&[("a", 72)]));
    assert_eq!(moved(&toy.period()), of(&[]));
}

#[test]
fn huge_pages_come_only_where_huge_pages_are_free() {
    let mut toy = Toy::new(EIGHT);
    away(&mut toy, "a", 1.0, 900);
    toy.vms[0].clients[0].huge_page_size = Some(Bytes::from_mib(2));
    let mut observation = toy.observe();
    assert_eq!(moved(&toy.step_on(&observation)), of(&[]));
    // 101 MiB free: fifty pages of 2 MiB.
    observation.nodes.get_mut(&NodeId(0)).expect("node 0").huge_pages_free.insert(2 << 20, Bytes::from_mib(101));
    observation.at.0 += 2000;
    assert_eq!(moved(&toy.step_on(&observation)), of(&[("a", 100)]));
}

#[test]
fn memory_that_cannot_move_is_not_asked_to() {
    let mut toy = Toy::new(EIGHT);
    away(&mut toy, "a", 0.0, 900);
    toy.vms[0].mobility = Mobility::MemoryFixed { because: "VFIO".to_owned() };
    assert_eq!(moved(&toy.periods(10)), of(&[]));
    toy.vms[0].mobility = Mobility::Movable;
    toy.policy.move_memory = false;
    assert_eq!(moved(&toy.periods(10)), of(&[]));
}

#[test]
fn after_a_gap_no_more_moves_at_once() {
    let mut toy = Toy::new(EIGHT);
    toy.policy.rebalance = false;
    for name in ["a", "b", "c", "d", "e", "f"] {
        away(&mut toy, name, 0.5, 900);
    }
    toy.period();
    toy.at += 3_600_000;
    // Two periods' worth: 1024 MiB.
    assert_eq!(moved(&toy.period()).iter().map(|(_, mib)| mib).sum::<u64>(), 1024);
}
