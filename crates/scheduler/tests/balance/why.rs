//! What `why` says.

use super::toy::Toy;
use scheduler::balance::{BalancePolicy, why};
use scheduler::{Mobility, VmKey};

#[test]
fn every_node_has_its_figures_and_every_refusal_its_threshold() {
    // Ten cores: 0.5 and 0.3 CPUs on node 0 are 8 points, less than 10.
    let mut toy = Toy::new("numa:2(memory=16GiB) core:10 pu:1");
    toy.vm("a", 1, 0.5, Some(0), &[(0, 512)]);
    toy.vm("b", 1, 0.3, Some(0), &[(0, 512)]);
    toy.periods(3);
    let client = &toy.why("a").clients[0];
    assert_eq!(client.home.lives.as_ref().map(ToString::to_string).as_deref(), Some("0"));
    assert_eq!((client.demand, client.entitled), (Some(0.5), Some(0.5)));
    let [home, other] = &client.candidates[..] else { panic!("two nodes") };
    assert!(home.is_home && home.refused.is_empty());
    assert_eq!((home.load_percent.round(), other.load_percent), (8.0, 0.0));
    assert_eq!(other.load_with_percent, Some(5.0));
    assert_eq!((home.local_percent, other.local_percent), (Some(100.0), Some(0.0)));
    assert_eq!((home.memory_distance, other.memory_distance.map(f64::round)), (Some(10.0), Some(other_distance(&toy))));
    let refusal = other.refused.iter().find(|refusal| refusal.threshold == "imbalance_percent").expect("too even");
    assert_eq!((refusal.limit, refusal.unit.as_str()), (Some(10.0), "points"));
    assert!((refusal.value.expect("a value") - 8.0).abs() < 1e-9);
    assert!(refusal.because.contains("8.0 points"), "{}", refusal.because);
}

fn other_distance(toy: &Toy) -> f64 {
    f64::from(toy.machine.distance(topology::NodeId(1), topology::NodeId(0)))
}

#[test]
fn it_says_what_would_be_done_and_changes_nothing() {
    let mut toy = Toy::new("numa:2(memory=16GiB) core:8 pu:1");
    toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]);
    toy.vm("b", 4, 4.0, Some(0), &[(0, 64)]);
    toy.period();
    let before = toy.state.clone();
    let (observation, key) = (toy.observe(), toy.vms[0].key.clone());
    let told = why(&toy.machine, &toy.policy, &toy.state, &observation, &key).expect("the VM is there");
    assert_eq!(toy.state, before);
    let decisions = toy.decide();
    let mine: Vec<_> = decisions.into_iter().filter(|decision| *decision.action.vm() == key).collect();
    assert_eq!(told.decisions, mine);
    assert!(!mine.is_empty());
    assert!(told.clients[0].candidates[1].refused.is_empty());
    assert!(told.clients[0].candidates[1].gain.is_some_and(|gain| gain > 0.0));
}

#[test]
fn it_knows_why_nothing_moves_at_all() {
    let mut toy = Toy::new("numa:2(memory=16GiB) core:8 pu:1");
    toy.policy = BalancePolicy { rebalance: false, ..BalancePolicy::default() };
    toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]).mobility =
        Mobility::Fixed { because: "its administrator opted out".to_owned() };
    toy.periods(2);
    let refused = &toy.why("a").clients[0].refused;
    let named = |name: &str| refused.iter().any(|refusal| refusal.threshold == name);
    assert!(named("rebalance") && named("mobility"), "{refused:?}");
    assert!(refused.iter().any(|refusal| refusal.because.contains("opted out")));
    let nobody = VmKey { name: "nobody".to_owned(), pid: 1, started: 1 };
    assert_eq!(why(&toy.machine, &toy.policy, &toy.state, &toy.observe(), &nobody), None);
}

/// `node 0: 72 % loaded` stood above a table that had 0 % for the same node.
#[test]
fn the_sentence_of_a_first_home_and_the_table_have_one_load() {
    let mut toy = Toy::new("numa:2(memory=16GiB) core:8 pu:2");
    for (name, wants) in [("a", 4.0), ("b", 3.0), ("c", 2.5), ("d", 0.0), ("e", 1.0)] {
        toy.vm(name, 4, wants, None, &[]);
    }
    for name in ["a", "b", "c", "d", "e"] {
        let why = toy.why(name);
        let [decision] = &why.decisions[..] else { panic!("{name}: {:?}", why.decisions) };
        let scheduler::Action::Bind { home, .. } = &decision.action else { panic!("{decision:?}") };
        let node = home.first().expect("a node");
        let candidate = why.clients[0].candidates.iter().find(|candidate| candidate.node == node).expect("a row");
        let with = candidate.load_with_percent.expect("a figure");
        let said = format!("node {node}: {} % loaded with it", scheduler::balance::decimal(with, 0));
        assert!(decision.because.contains(&said), "{name}: {said} is not in: {}", decision.because);
        assert!(candidate.load_percent <= with, "{candidate:?}");
    }
}
