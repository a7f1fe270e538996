//! `policy.near_device`: a VM is drawn to the nodes of the network cards that it is plugged into.

use crate::random;
use crate::random::Case;
use proptest::prelude::*;
use scheduler::{Occupancy, plan};
use std::collections::BTreeMap;
use topology::{Bytes, Machine, NodeId, NodeSet, read};
use vm::{NodeUse, Plan, VmSpec};

/// Two nodes of 4 cores and 8 hardware threads, twice as far from each other as from themselves;
/// the only port of br0 that is a card is on node 1.
fn machine() -> Machine {
    let machine = read::from_synthetic("pack:2 [numa(memory=24GiB)] l3:1 core:4 pu:2").expect("a machine");
    Machine { cards: BTreeMap::from([("br0".to_owned(), nodes("1")), ("eth0".to_owned(), nodes("0"))]), ..machine }
}

fn nodes(text: &str) -> NodeSet {
    text.parse().expect("nodes")
}

/// A VM of 2 vCPUs with these cards.
fn spec(near: bool, cards: &[&str]) -> VmSpec {
    let cards: String = cards.iter().map(|card| format!("[[network]]\n{card}\n")).collect();
    let text = format!("name = \"vm\"\nvcpus = 2\nmemory = \"1 GiB\"\npolicy.near_device = {near}\n{cards}");
    VmSpec::from_toml(&text, "vm.toml").expect(&text)
}

const ON_BR0: &str = "kind = \"bridge\"\nbridge = \"br0\"";
const ON_ETH0: &str = "kind = \"macvtap\"\ncard = \"eth0\"";

fn home(plan: &Plan) -> String {
    plan.placement.clients[0].home.to_string()
}

fn reason(plan: &Plan) -> Option<&str> {
    plan.reasons.iter().find(|reason| reason.choice == "near_device").map(|reason| reason.because.as_str())
}

#[test]
fn the_card_decides_between_nodes_that_are_as_good() {
    let of = |near, cards: &[&str]| plan(&machine(), &Occupancy::default(), &spec(near, cards)).expect("a plan");
    assert_eq!((home(&of(false, &[ON_BR0])), reason(&of(false, &[ON_BR0]))), ("0".to_owned(), None));
    let near = of(true, &[ON_BR0]);
    assert_eq!(home(&near), "1");
    assert_eq!(reason(&near), Some("br0 is on node 1; its home loses 0.000 CPUs to that distance"));
    // On node 0 it would lose 2 vCPUs x 30 % x 20 % x 1 = 0.12 CPUs.
    let why = &near.reasons.iter().find(|reason| reason.choice == "home: node 1").expect("a home").because;
    assert!(why.contains("0.12 CPUs (0.12 to distance to its network cards)"), "{why}");
    // One card on each node: both are as far, so the lower number is taken, and half is lost.
    let both = of(true, &[ON_BR0, ON_ETH0]);
    assert_eq!(home(&both), "0");
    assert_eq!(reason(&both), Some("br0, eth0 is on nodes 0-1; its home loses 0.060 CPUs to that distance"));
}

#[test]
fn cores_of_its_own_are_worth_more_than_a_near_card() {
    // On node 1, where 4 vCPUs live on 4 cores, both would share a core if these are busy, which
    // half counts: 2 x 0.7 / 2 = 0.7 CPUs, against 0.12.
    let held = NodeUse { vcpus: 4, memory: Bytes::GIB, resident: Bytes::GIB, ..NodeUse::default() };
    let busy = Occupancy { nodes: BTreeMap::from([(NodeId(1), held)]), ..Occupancy::default() };
    let plan = plan(&machine(), &busy, &spec(true, &[ON_BR0])).expect("a plan");
    assert_eq!(home(&plan), "0");
    assert_eq!(reason(&plan), Some("br0 is on node 1; its home loses 0.120 CPUs to that distance"));
}

#[test]
fn a_card_that_nobody_knows_draws_nowhere_and_the_plan_says_so() {
    let of = |cards: &[&str]| plan(&machine(), &Occupancy::default(), &spec(true, cards)).expect("a plan");
    let unknown = of(&["kind = \"bridge\"\nbridge = \"br7\""]);
    assert_eq!((home(&unknown), reason(&unknown)), ("0".to_owned(), Some("nobody says which node br7 is on")));
    let user = of(&["kind = \"user\""]);
    assert!(reason(&user).is_some_and(|why| why.contains("none of its network cards")), "{:?}", user.reasons);
}

/// CPUs that a plan loses to the distance of a card, where each home is one node.
fn lost_to_cards(machine: &Machine, plan: &Plan, card: NodeId) -> Option<f64> {
    let of = |client: &vm::Client| {
        let [home] = client.home.iter().collect::<Vec<_>>()[..] else { return None };
        let own = f64::from(machine.distance(home, home));
        let extra = (f64::from(machine.distance(home, card)) / own - 1.0).max(0.0);
        let vcpus: usize = client.virtual_nodes.iter().map(|&id| plan.topology.nodes[id as usize].vcpus.len()).sum();
        Some(vcpus as f64 * 0.3 * 0.2 * extra)
    };
    plan.placement.clients.iter().map(of).sum()
}

/// The case with a VM that has a card on this node, and is drawn to it.
fn drawn(case: &Case, card: NodeId) -> Case {
    let mut case = case.clone();
    case.machine.cards.insert("card".to_owned(), [card].into_iter().collect());
    case.spec.shape.policy.near_device = true;
    case.spec.shape.near.insert("card".parse().expect("a name"));
    case
}

properties::properties! {
    #![cases(200)]

    /// f is what is lost otherwise, g what is lost to the card. With near_device f + g is least,
    /// without it f: so g is not greater with it, but for the steps of a hundredth of a CPU.
    #[test]
    fn it_never_takes_a_vm_away_from_its_card(case in random::case(2..=4, 12), pick in 0usize..4) {
        let nodes: Vec<NodeId> = case.machine.node_ids().iter().collect();
        let card = nodes[pick % nodes.len()];
        let near = drawn(&case, card);
        let (Ok(without), Ok(with)) = (
            plan(&case.machine, &case.occupancy, &case.spec),
            plan(&near.machine, &near.occupancy, &near.spec),
        ) else { return Ok(()) };
        let same_sizes = |one: &Plan, other: &Plan| {
            let sizes = |plan: &Plan| {
                let nodes = plan.topology.nodes.iter();
                nodes.map(|node| (node.vcpus.clone(), node.memory)).collect::<Vec<_>>()
            };
            sizes(one) == sizes(other)
        };
        let exhaustive = |plan: &Plan| plan.reasons.iter().all(|reason| reason.choice != "search: not exhaustive");
        prop_assume!(same_sizes(&without, &with) && exhaustive(&without) && exhaustive(&with));
        if let (Some(far), Some(drawn)) =
            (lost_to_cards(&case.machine, &without, card), lost_to_cards(&case.machine, &with, card))
        {
            prop_assert!(drawn <= far + 0.025, "{drawn} with it, {far} without\n{with:#?}\n{without:#?}");
        }
    }

    #[test]
    fn a_card_on_no_node_that_is_known_changes_no_home(case in random::case(1..=4, 16)) {
        let mut near = case.clone();
        near.spec.shape.policy.near_device = true;
        near.spec.shape.near.insert("card".parse().expect("a name"));
        let plans = (
            plan(&case.machine, &case.occupancy, &case.spec),
            plan(&near.machine, &near.occupancy, &near.spec),
        );
        if let (Ok(without), Ok(with)) = plans {
            prop_assert_eq!(without.placement, with.placement);
        }
    }
}
