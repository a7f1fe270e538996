//! Homes of VMs that appear, that lost theirs, or that somebody else moved.

use super::toy::{Toy, binds};
use scheduler::balance::{BalanceState, MoveKind};
use scheduler::{Mobility, VmKey};
use topology::{Bytes, CpuId, NodeId, NodeSet};
use vm::NodeUse;

const EIGHT: &str = "numa:2(memory=16GiB) core:8 pu:1";

fn set(text: &str) -> NodeSet {
    text.parse().expect("a list")
}

fn home(toy: &Toy, vm: usize) -> String {
    let key = &toy.vms[vm].key;
    toy.state.home(key, scheduler::ClientId(0)).map(ToString::to_string).unwrap_or_default()
}

fn names(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(vm, home)| ((*vm).to_owned(), (*home).to_owned())).collect()
}

#[test]
fn a_vm_that_sits_on_one_node_is_adopted_in_place() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("whole node", 4, 1.0, Some(1), &[(1, 1024)]);
    toy.vm("part of a node", 2, 1.0, Some(0), &[(0, 1024)]).clients[0].cpus = "2-3".parse().expect("a list");
    assert_eq!(toy.periods(20), []);
    assert_eq!((home(&toy, 0), home(&toy, 1)), ("1".to_owned(), "0".to_owned()));
}

#[test]
fn a_vm_that_floats_gets_the_home_where_its_memory_is() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 4, 1.0, None, &[(1, 3000), (0, 100)]);
    let decisions = toy.period();
    assert_eq!(binds(&decisions), names(&[("a", "1")]));
    assert_eq!(decisions[0].kind, MoveKind::Adopt);
    assert!(
        decisions[0].because.contains("runs on") || decisions[0].because.contains("run on"),
        "{}",
        decisions[0].because
    );
}

#[test]
fn vms_that_start_together_do_not_pile_up() {
    // Eight VMs of 2 vCPUs on two nodes of 8 cores, nobody knows their demand yet: four on each.
    let mut toy = Toy { figures: false, ..Toy::new(EIGHT) };
    for index in 0..8 {
        toy.vm(&format!("vm{index}"), 2, 0.0, None, &[(0, 16), (1, 16)]);
    }
    let decisions = toy.period();
    assert_eq!(binds(&decisions).iter().filter(|(_, home)| home == "0").count(), 4);
    assert_eq!(binds(&decisions).len(), 8);
}

#[test]
fn what_others_reserved_counts() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 4, 1.0, None, &[(0, 16), (1, 16)]);
    let mut observation = toy.observe();
    observation
        .reserved
        .insert(NodeId(0), NodeUse { vcpus: 6, memory: Bytes(0), resident: Bytes(0), ..NodeUse::default() });
    let decisions = toy.step_on(&observation);
    assert_eq!(binds(&decisions), names(&[("a", "1")]));
    // 15.9 GiB of node 1 are promised: no room there, whatever the load.
    toy.forget();
    observation.reserved.insert(
        NodeId(1),
        NodeUse { vcpus: 0, memory: Bytes::from_mib(16_300), resident: Bytes(0), ..NodeUse::default() },
    );
    assert_eq!(binds(&toy.step_on(&observation)), names(&[("a", "0")]));
}

#[test]
fn a_vm_that_its_administrator_fixed_is_left_alone_and_counted() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("rock", 8, 8.0, None, &[(0, 1024)]).mobility = Mobility::Fixed { because: "opted out".to_owned() };
    toy.vm("pinned", 8, 7.0, Some(0), &[(1, 1024)]).mobility = Mobility::Fixed { because: "opted out".to_owned() };
    toy.vm("new", 2, 1.0, None, &[]);
    let decisions = toy.periods(10);
    // Node 0: 4 + 7 = 11 of 8 CPUs; node 1: 4.
    assert_eq!(binds(&decisions), names(&[("new", "1")]));
}

#[test]
fn a_node_that_loses_its_cpus_is_evacuated() {
    let mut toy = Toy::new("numa:3(memory=16GiB) core:8 pu:1");
    toy.vm("a", 2, 0.2, Some(0), &[(0, 64)]);
    toy.vm("fixed", 2, 0.2, Some(0), &[(0, 64)]).mobility = Mobility::Fixed { because: "opted out".to_owned() };
    assert_eq!(toy.periods(4), []);
    toy.offline = "0-7".parse().expect("a list");
    // The kernel lets threads without a CPU run anywhere.
    toy.vms[0].clients[0].cpus = toy.all_cpus();
    let decisions = toy.period();
    assert_eq!(binds(&decisions), names(&[("a", "1")]));
    assert_eq!(decisions[0].kind, MoveKind::Evacuate);
    // Its memory follows: 64 MiB.
    toy.periods(2);
    assert_eq!(toy.vms[0].clients[0].memory[&NodeId(1)], Bytes::from_mib(64));
    assert_eq!(toy.periods(60), []);
}

#[test]
fn a_vm_leaves_nodes_that_it_may_not_live_on() {
    let mut toy = Toy::new("numa:4(memory=16GiB) core:8 pu:1");
    toy.vm("a", 2, 1.0, Some(3), &[(3, 64)]).node_affinity = Some(set("1-2"));
    let decisions = toy.period();
    assert_eq!(decisions[0].kind, MoveKind::Evacuate);
    assert!(["1", "2"].contains(&home(&toy, 0).as_str()));
    assert_eq!(binds(&toy.periods(60)), []);
}

#[test]
fn a_client_that_no_node_holds_gets_the_fewest_nearest_nodes() {
    // Twelve vCPUs, eight cores a node: two nodes. 1 and 2 are neighbours, and 0 and 3.
    let far = [[10, 20, 20, 11], [20, 10, 11, 20], [20, 11, 10, 20], [11, 20, 20, 10]];
    let mut toy = Toy::new("numa:4(memory=16GiB) core:8 pu:1");
    toy.distances(&far);
    toy.vm("busy", 8, 8.0, Some(0), &[(0, 64)]);
    toy.vm("wide", 12, 6.0, None, &[(0, 256), (1, 256), (2, 256), (3, 256)]);
    assert_eq!(binds(&toy.period()), names(&[("wide", "1-2")]));
    // Its memory is interleaved over the two: 512 MiB each, at most a tenth apart.
    assert_eq!(binds(&toy.periods(60)), []);
    let memory = &toy.vms[1].clients[0].memory;
    assert_eq!(memory[&NodeId(0)].0 + memory[&NodeId(3)].0, 0);
    assert!(memory[&NodeId(1)].0.abs_diff(memory[&NodeId(2)].0) <= Bytes::from_mib(64).0, "{memory:?}");
    // More memory than a node has: also two nodes, although two vCPUs fit anywhere.
    let mut toy = Toy::new("numa:4(memory=16GiB) core:8 pu:1");
    toy.distances(&far);
    toy.vm("large", 2, 1.0, None, &[(1, 1024)]).clients[0].size = Bytes::from_mib(20 << 10);
    assert_eq!(binds(&toy.period()).len(), 1);
    assert!(["0,3", "1-2"].contains(&home(&toy, 0).as_str()), "{}", home(&toy, 0));
}

#[test]
fn who_else_moves_a_vm_has_moved_it() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 2, 1.0, Some(0), &[(0, 64)]);
    toy.periods(3);
    toy.vms[0].clients[0].cpus = toy.cpus(1);
    assert_eq!(binds(&toy.periods(20)), []);
    assert_eq!(home(&toy, 0), "1");
}

#[test]
fn who_else_unbinds_a_vm_is_undone_later_and_later() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 2, 1.0, Some(0), &[(0, 64)]);
    toy.periods(2);
    // 100 periods of another program that unbinds it each time: bound again after 0, 10, 20, 40, 80
    // s.
    let mut rebinds = 0;
    for _ in 0..100 {
        toy.vms[0].clients[0].cpus = toy.all_cpus();
        rebinds += binds(&toy.period()).len();
    }
    assert!((3..=6).contains(&rebinds), "{rebinds}");
    assert_eq!(home(&toy, 0), "0");
}

#[test]
fn cpus_that_come_back_are_used_again() {
    let mut toy = Toy::new(EIGHT);
    toy.offline = "6-7".parse().expect("a list");
    toy.vm("a", 2, 0.5, None, &[(0, 4096)]);
    toy.periods(2);
    assert_eq!(toy.vms[0].clients[0].cpus, "0-5".parse().expect("a list"));
    toy.offline = topology::CpuSet::new();
    toy.periods(2);
    assert!(toy.vms[0].clients[0].cpus.contains(CpuId(7)));
}

#[test]
fn a_vm_that_ends_is_forgotten_and_its_successor_is_another() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 2, 1.0, Some(0), &[(0, 64)]);
    toy.periods(2);
    let old = toy.vms[0].key.clone();
    toy.vms[0].key = VmKey { started: 2, ..old.clone() };
    toy.period();
    assert!(toy.state.vm(&old).is_none());
    assert!(toy.state.vm(&toy.vms[0].key).is_some());
    toy.vms.clear();
    toy.period();
    assert!(toy.state.vms.is_empty());
}

#[test]
fn a_restart_moves_nothing() {
    let mut toy = Toy::new("numa:4(memory=16GiB) core:8 pu:1");
    for index in 0..24 {
        toy.vm(&format!("vm{index:02}"), 2, 1.0, None, &[(index % 4, 512)]);
    }
    toy.vm("wide", 12, 1.0, None, &[(0, 64), (1, 64)]);
    toy.periods(200);
    assert_eq!(toy.periods(60), []);
    let text = serde_json::to_string(&toy.state).expect("text");
    let mut saved = Toy { state: serde_json::from_str(&text).expect("a state"), ..toy.clone() };
    assert_eq!(saved.state, toy.state);
    assert_eq!(saved.periods(60), []);
    let mut empty = Toy { state: BalanceState::default(), ..toy.clone() };
    assert_eq!(empty.periods(60), []);
    let homes = |toy: &Toy| -> Vec<String> { (0..25).map(|vm| home(toy, vm)).collect() };
    assert_eq!(homes(&empty), homes(&toy));
}

#[test]
fn an_idle_vm_goes_where_its_memory_is_although_another_node_is_a_little_less_loaded() {
    // It counts as 0.5 CPUs, a quarter of each vCPU. Node 1 with the other's 0.5: 0.2 x (1.0^2 -
    // 0.5^2) / 8 = 0.0188 CPUs lost. Node 0: 0.2 x 0.5^2 / 8 = 0.0063, and 256 MiB that follow
    // (0.25 CPU s, and 0.15 x 1 x 0.5 s) over 120 s: 0.0090. The difference is less than 2 % of 0.5
    // CPUs: nobody would move it for that later.
    let mut toy = Toy::new(EIGHT);
    toy.distances(&[[10, 20], [20, 10]]);
    toy.vm("other", 1, 0.5, Some(1), &[(1, 64)]);
    toy.vm("idle", 2, 0.0, None, &[(1, 256)]);
    assert_eq!(binds(&toy.period()), names(&[("idle", "1")]));
    // Beside 4 CPUs it would lose 0.2 x (4.5^2 - 4^2) / 8 = 0.106: it goes to the empty node.
    toy.forget();
    (toy.vms[0].clients[0].vcpus, toy.vms[0].clients[0].wants) = (4, 4.0);
    toy.vms[1].clients[0].cpus = toy.all_cpus();
    assert_eq!(binds(&toy.period()), names(&[("idle", "0")]));
}

#[test]
fn the_clients_of_an_idle_vm_are_given_homes_near_each_other() {
    // Two and two nodes of two cores are neighbours. Each client counts as 0.5 CPUs, the other VM
    // on node 1 as 0.25. The second client on node 1: crowding 0.2 x (0.75^2 - 0.25^2) / 2 = 0.050,
    // its sibling 0.15 x 0.2 x 0.2 = 0.006; on node 2: 0.2 x 0.5^2 / 2 = 0.025 and 0.15 x 0.2 x 2.1
    // = 0.063. Were it taken to idle for ever, node 2 would win.
    let mut toy = Toy::new("numa:4(memory=16GiB) core:2 pu:1");
    toy.distances(&[[10, 12, 31, 31], [12, 10, 31, 31], [31, 31, 10, 12], [31, 31, 12, 10]]);
    toy.vm("other", 1, 0.0, Some(1), &[(1, 64)]);
    let wide = toy.vm("wide", 2, 0.0, None, &[]);
    wide.clients.push(wide.clients[0].clone());
    assert_eq!(binds(&toy.period()), names(&[("wide", "0"), ("wide", "1")]));
}
