//! `near_device`: VMs are drawn to the nodes of their devices.

use super::properties::{comes_to_rest, toy};
use super::toy::{Toy, bind};
use proptest::prelude::*;
use scheduler::balance::{BalancePolicy, Decision, MoveKind};
use topology::NodeId;

const EIGHT: &str = "numa:2(memory=16GiB) core:8 pu:1";

/// A host whose VM `a` of 2 vCPUs lives on node 0, wants so many CPUs, has so many MiB there, and
/// a device on node 1.
fn host(near_device: bool, wants: f64, mib: u64) -> Toy {
    let policy = BalancePolicy { near_device, ..BalancePolicy::default() };
    let mut toy = Toy { policy, ..Toy::new(EIGHT) };
    toy.vm("a", 2, wants, Some(0), &[(0, mib)]).devices = "1".parse().expect("nodes");
    toy
}

fn moves(decisions: &[Decision]) -> Vec<(MoveKind, String)> {
    decisions.iter().filter_map(|decision| Some((decision.kind, bind(decision)?.1))).collect()
}

#[test]
fn a_busy_vm_goes_to_its_device_where_that_pays_back() {
    // It waits 30 % of 2 CPUs, 20 % of that for its device, which is twice as far: 0.12 CPUs. 64
    // MiB: 0.06 CPU s to copy, 0.6 x 0.125 s of remote memory. 0.12 of 2 CPUs are 6 %, more than 2.
    let mut toy = host(true, 2.0, 64);
    let decisions = toy.periods(4);
    assert_eq!(moves(&decisions), [(MoveKind::Locality, "1".to_owned())]);
    let said = &decisions.iter().find(|decision| bind(decision).is_some()).expect("a move").because;
    assert!(said.ends_with("; its devices are on node 1"), "{said}");
    assert_eq!(moves(&toy.periods(120)), [], "and stays there");
}

#[test]
fn what_is_said_of_a_vm_counts_before_what_holds_for_all() {
    // The same, of one VM by its spec while it is off for all.
    let mut toy = host(false, 2.0, 64);
    toy.vms[0].stated.near_device = true;
    let decisions = toy.periods(4);
    assert_eq!(moves(&decisions), [(MoveKind::Locality, "1".to_owned())]);
    let said = &decisions.iter().find(|decision| bind(decision).is_some()).expect("a move").because;
    assert!(said.ends_with("; its devices are on node 1, as its spec says (policy.near_device)"), "{said}");
}

#[test]
fn by_default_and_where_it_costs_more_it_stays() {
    assert_eq!(moves(&host(false, 2.0, 64).periods(120)), [], "off, as in ESXi");
    // 8 GiB: 8 CPU s to copy and 0.6 x 16 s of remote memory, over 120 s: 0.15 CPUs, more than
    // 0.12.
    assert_eq!(moves(&host(true, 2.0, 8192).periods(120)), [], "much memory");
    // 0.5 CPUs: 0.03 won, the floor is 0.05.
    assert_eq!(moves(&host(true, 0.5, 64).periods(120)), [], "nearly idle");
}

#[test]
fn a_first_home_is_near_the_device() {
    for (near, home) in [(false, "0"), (true, "1")] {
        let mut toy = host(near, 2.0, 0);
        let all = toy.all_cpus();
        toy.vms[0].clients[0].cpus = all;
        let decisions = toy.periods(3);
        assert_eq!(moves(&decisions), [(MoveKind::Adopt, home.to_owned())], "near_device = {near}");
    }
}

properties::properties! {
    #![cases(64)]

    #[test]
    fn vms_without_devices_are_balanced_as_ever(toy in toy()) {
        let (mut with, mut without) = (toy.clone(), toy);
        with.policy.near_device = true;
        with.periods(20);
        without.periods(20);
        prop_assert_eq!(with.log, without.log);
    }

    #[test]
    fn where_it_is_off_devices_move_nothing(toy in toy(), node in 0u32..2) {
        let (mut with, mut without) = (toy.clone(), toy);
        with.vms.iter_mut().for_each(|vm| vm.devices = [NodeId(node)].into_iter().collect());
        with.periods(20);
        without.periods(20);
        prop_assert_eq!(with.log, without.log);
    }
}

properties::properties! {
    #![cases(16)]

    #[test]
    fn with_devices_too_actions_can_be_carried_out_and_constant_load_comes_to_rest(toy in toy(), node in 0u32..2) {
        let mut toy = toy;
        toy.policy.near_device = true;
        toy.vms.iter_mut().for_each(|vm| vm.devices = [NodeId(node)].into_iter().collect());
        comes_to_rest(toy)?;
    }
}
