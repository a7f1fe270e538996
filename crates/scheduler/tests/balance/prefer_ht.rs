//! A VM that prefers hardware threads counts against these for its whole life: the balancer neither
//! spreads it nor takes its home for crowded.

use super::toy::{Toy, ToyVm, bind, binds};
use scheduler::ClientId;
use scheduler::balance::MoveKind;
use topology::{Bytes, NodeId};

/// A node of the DL380 G6: 4 cores of two threads.
const DL380: &str = "numa:2(memory=24GiB) core:4 pu:2";

fn prefers<'a>(toy: &'a mut Toy, name: &str, vcpus: u32, wants: f64, bound: Option<u32>, node: u32) -> &'a mut ToyVm {
    let vm = toy.vm(name, vcpus, wants, bound, &[(node, 1024)]);
    vm.stated.prefer_ht = true;
    vm
}

fn home(toy: &Toy, vm: usize) -> Option<String> {
    toy.state.home(&toy.vms[vm].key, ClientId(0)).map(ToString::to_string)
}

#[test]
fn two_busy_vcpus_stay_on_one_core_of_two_threads() {
    // Without the preference the same VM gets both nodes: 0.2 x 2^2 + 0.7 CPUs are crowded.
    for (prefers_threads, moves) in [(true, 0), (false, 1)] {
        let mut toy = Toy::new("numa:2(memory=1GiB) core:1 pu:2");
        toy.policy.least_cores_host = 1;
        prefers(&mut toy, "stream", 2, 2.0, Some(1), 1).stated.prefer_ht = prefers_threads;
        let decisions = toy.periods(300);
        assert_eq!(binds(&decisions).len(), moves, "{decisions:?}");
        assert_eq!(home(&toy, 0).as_deref(), Some(if prefers_threads { "1" } else { "0-1" }));
    }
}

#[test]
fn where_one_of_two_goes_idle_the_other_stays() {
    let mut toy = Toy::new(DL380);
    prefers(&mut toy, "one", 8, 8.0, Some(0), 0);
    prefers(&mut toy, "two", 8, 8.0, Some(1), 1);
    assert_eq!(toy.periods(60), []);
    toy.vms[1].clients[0].wants = 0.05;
    assert_eq!(toy.periods(300), []);
}

#[test]
fn a_new_one_gets_the_node_whose_threads_hold_it() {
    let mut toy = Toy::new(DL380);
    toy.vm("other", 2, 2.0, Some(0), &[(0, 64)]);
    prefers(&mut toy, "new", 8, 7.0, None, 1);
    assert_eq!(binds(&toy.periods(60)), [("new".to_owned(), "1".to_owned())]);
    let why = toy.why("new");
    // 7 CPUs on 8 threads are 88 %.
    assert_eq!(why.clients[0].candidates[1].load_percent.round() as u32, 88);
}

#[test]
fn it_goes_to_its_memory_where_its_threads_find_room() {
    // 6 CPUs are 75 % of 8 threads, and 150 % of 4 cores: over the core cap.
    let mut toy = Toy::new(DL380);
    let size = Bytes::from_mib(20 << 10);
    let client = &mut prefers(&mut toy, "away", 6, 6.0, Some(0), 1).clients[0];
    client.memory.insert(NodeId(1), size);
    client.size = size;
    let decisions = toy.periods(10);
    let went = decisions.iter().find(|decision| bind(decision).is_some()).expect("it goes");
    assert_eq!((bind(went), went.kind), (Some(("away".to_owned(), "1".to_owned())), MoveKind::Locality));
}

#[test]
fn who_does_not_prefer_it_still_leaves_a_core_that_it_shares() {
    let mut toy = Toy::new(DL380);
    prefers(&mut toy, "large", 8, 8.0, Some(0), 0);
    toy.vm("small", 2, 2.0, Some(0), &[(0, 64)]);
    let decisions = toy.periods(60);
    assert_eq!(binds(&decisions), [("small".to_owned(), "1".to_owned())]);
}
