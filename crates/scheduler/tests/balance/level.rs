//! Memory of a wide client, level where it streams: worked examples.

use super::toy::Toy;
use scheduler::Traffic;
use topology::{Bytes, NodeId};
use vm::spec::BandwidthNeed;

/// A VM of 8 busy vCPUs on both of two nodes of 4 cores, each of whose memory gives 18 GB/s. All of
/// its 4 GiB lie on node 0, and it shows so many GB/s.
fn wide(gb: Option<f64>) -> Toy {
    let mut toy = Toy::new("numa:2(memory=16GiB) core:4 pu:1");
    toy.machine.bandwidth.memory = (0..2).map(|node| (NodeId(node), Bytes(18_000_000_000))).collect();
    let vm = toy.vm("wide", 8, 8.0, None, &[(0, 4096)]);
    vm.clients[0].traffic = gb.map(|gb| Traffic { local: gb * 1e9, remote: 0.0 });
    toy
}

fn mib(toy: &Toy) -> [u64; 2] {
    [0, 1].map(|node| toy.vms[0].clients[0].memory.get(&NodeId(node)).map_or(0, |bytes| bytes.mib()))
}

/// What it shows in each of these periods: where so much of its memory is on node 0, that gives it
/// what it waits for.
fn streams(toy: &mut Toy, periods: usize) -> Vec<String> {
    let mut said = Vec::new();
    for _ in 0..periods {
        let [first, second] = mib(toy).map(|mib| mib as f64 / 4096.0);
        let all = (18.0 / first.max(second)).min(22.8) * 1e9;
        toy.vms[0].clients[0].traffic = Some(Traffic { local: all / 2.0, remote: all / 2.0 });
        said.extend(toy.period().into_iter().map(|decision| decision.because));
    }
    said
}

#[test]
fn memory_of_a_wide_vm_that_streams_is_levelled_until_no_controller_is_too_slow() {
    // It shows what node 0 gives, and waits all of its time: alone it would draw 8 x 2.84 = 22.8
    // GB/s, so that 8 x (1 - 18 / 22.8) = 1.67 CPUs wait. Half of 4 GiB costs 2 CPU seconds.
    let mut toy = wide(Some(18.0));
    let said = streams(&mut toy, 4);
    let words = "4 GiB of its 4 GiB lie on node 0 of its home, nodes 0-1 (to 1); equal parts win about 1.67 CPUs";
    assert!(said.iter().any(|because| because.starts_with(words)), "{said:?}");
    // 512 MiB a period. With 3 GiB there, node 0 is asked for 17.1 of 18 GB/s.
    streams(&mut toy, 12);
    assert_eq!(mib(&toy), [3072, 1024]);
    assert!(streams(&mut toy, 60).is_empty());
    assert_eq!(mib(&toy), [3072, 1024]);
}

#[test]
fn nodes_that_give_little_get_equal_parts() {
    let mut toy = wide(None);
    // 9 GB/s each are less than half of 22.8: both are asked for more whatever lies where.
    toy.machine.bandwidth.memory = (0..2).map(|node| (NodeId(node), Bytes(9_000_000_000))).collect();
    toy.vms[0].stated.bandwidth = BandwidthNeed::High;
    toy.periods(16);
    let [first, second] = mib(&toy);
    assert!(first - second < 256 && first + second == 4096, "{first} and {second} MiB");
}

#[test]
fn what_a_spec_states_counts_where_nothing_is_measured() {
    let mut toy = wide(None);
    toy.vms[0].stated.bandwidth = BandwidthNeed::High;
    toy.periods(12);
    assert_eq!(mib(&toy), [3072, 1024]);
}

#[test]
fn what_waits_for_latency_or_is_unknown_keeps_its_memory_whole() {
    let mut cases = [("little traffic", wide(Some(2.0))), ("unknown", wide(None)), ("no rates", wide(Some(18.0)))];
    cases[2].1.machine.bandwidth.memory.clear();
    for (name, toy) in &mut cases {
        toy.periods(60);
        assert_eq!(mib(toy), [4096, 0], "{name}");
    }
}

#[test]
fn what_does_not_pay_back_or_may_not_move_stays() {
    // 2 CPU seconds at 1.67 CPUs are 1.2 s.
    for (seconds, expected) in [(1.0, [4096, 0]), (120.0, [3072, 1024])] {
        let mut toy = wide(Some(18.0));
        toy.policy.payback_seconds = seconds;
        streams(&mut toy, 12);
        assert_eq!(mib(&toy), expected, "payback_seconds = {seconds}");
    }
    let mut still = wide(Some(18.0));
    still.policy.move_memory = false;
    still.periods(12);
    assert_eq!(mib(&still), [4096, 0]);
    // Somebody bound its memory to node 0.
    let mut bound = wide(Some(18.0));
    bound.vms[0].clients[0].chosen = "0".parse().ok();
    bound.periods(12);
    assert_eq!(mib(&bound), [4096, 0]);
}

#[test]
fn a_node_without_room_gets_as_much_as_it_has() {
    let mut toy = wide(Some(18.0));
    // Node 1 has 1 GiB beside another's memory, and keeps some of it free.
    toy.vm("full", 1, 0.0, Some(1), &[(1, 15 << 10)]).shares = 1;
    toy.policy.rebalance = false;
    toy.periods(12);
    let [there, moved] = mib(&toy);
    assert!((256..1024).contains(&moved) && there + moved == 4096, "{moved} MiB");
}
