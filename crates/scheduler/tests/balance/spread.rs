//! Memory that somebody interleaved stays where it is, and its VM on those nodes: gathered on one
//! it would lose the bandwidth of the others.

use super::toy::{Toy, bind, binds};
use scheduler::balance::{Decision, Next, homes};
use scheduler::{Action, ClientId, Mobility};
use topology::{Bytes, NodeId};

const FOUR: &str = "numa:4(memory=16GiB) core:8 pu:1";

/// A database of 4 vCPUs whose memory lies in equal parts on these nodes.
fn database<'a>(toy: &'a mut Toy, bound: Option<u32>, spread: &str) -> &'a mut super::toy::ToyVm {
    let nodes: topology::NodeSet = spread.parse().expect("nodes");
    let memory: Vec<(u32, u64)> = nodes.iter().map(|node| (node.0, 1024)).collect();
    let vm = toy.vm("database", 4, 2.0, bound, &memory);
    vm.clients[0].spread = nodes;
    vm
}

fn moves_memory(decisions: &[Decision]) -> bool {
    decisions.iter().any(|decision| matches!(decision.action, Action::MoveMemory { .. }))
}

#[test]
fn memory_that_somebody_interleaved_is_never_gathered() {
    for wants in [0.0, 0.05, 2.0, 4.0] {
        let mut toy = Toy::new(FOUR);
        database(&mut toy, None, "2-3").clients[0].wants = wants;
        let decisions = toy.periods(200);
        assert_eq!(binds(&decisions), [("database".to_owned(), "2-3".to_owned())], "wants {wants}");
        assert!(!moves_memory(&decisions), "wants {wants}: {decisions:?}");
        let because = &decisions[0].because;
        assert!(because.ends_with("; somebody interleaved its memory over these"), "{because}");
    }
    // Where nobody chose that, all of it comes to one node.
    let mut toy = Toy::new(FOUR);
    database(&mut toy, None, "2-3").clients[0].spread = topology::NodeSet::new();
    assert!(moves_memory(&toy.periods(200)));
}

#[test]
fn interleaved_over_all_nodes_it_floats_and_doctor_wants_no_other_home() {
    let mut toy = Toy::new(FOUR);
    database(&mut toy, None, "0-3");
    assert_eq!(toy.periods(200), []);
    let homes = homes(&toy.machine, &toy.policy, &toy.state, &toy.observe());
    let home = &homes[&(toy.vms[0].key.clone(), ClientId(0))];
    assert_eq!((&home.lives, &home.next), (&None, &Next::Stays));
    assert_eq!(home.should.as_ref().map(ToString::to_string).as_deref(), Some("0-3"));
}

#[test]
fn a_vm_that_somebody_put_on_one_of_its_nodes_stays_there_and_so_does_its_memory() {
    let mut toy = Toy::new(FOUR);
    database(&mut toy, Some(2), "2-3");
    assert_eq!(toy.periods(200), []);
    // Node 2 is so crowded that it goes: to the other node of the two, though node 0 is empty too.
    toy.vm("rock", 8, 8.0, Some(2), &[(2, 16)]).mobility = Mobility::Fixed { because: "a test".to_owned() };
    let decisions = toy.periods(200);
    assert_eq!(binds(&decisions), [("database".to_owned(), "3".to_owned())]);
    assert!(!moves_memory(&decisions));
    let resident = |node: u32| toy.vms[0].clients[0].memory[&NodeId(node)];
    assert_eq!((resident(2), resident(3)), (Bytes::from_mib(1024), Bytes::from_mib(1024)));
}

#[test]
fn why_says_who_keeps_it_on_several_nodes() {
    let mut toy = Toy::new(FOUR);
    database(&mut toy, None, "2-3");
    toy.periods(3);
    let why = toy.why("database");
    let refused = |node: usize| why.clients[0].candidates[node].refused.iter().map(|refusal| refusal.because.as_str());
    let other = "somebody interleaved its memory over nodes 2-3: that is where its home may be";
    assert!(refused(0).any(|because| because == other), "{:?}", why.clients[0].candidates[0]);
    let one = "somebody interleaved its memory over nodes 2-3: all of them are its home";
    assert!(refused(2).any(|because| because == one), "{:?}", why.clients[0].candidates[2]);
}

#[test]
fn what_is_bound_to_two_nodes_goes_between_them_alone() {
    let mut toy = Toy::new(FOUR);
    let vm = toy.vm("bound", 4, 4.0, None, &[(2, 1024), (3, 512)]);
    vm.clients[0].chosen = Some("2-3".parse().expect("nodes"));
    toy.periods(50);
    assert_eq!(toy.state.home(&toy.vms[0].key, ClientId(0)).map(ToString::to_string).as_deref(), Some("2"));
    toy.vm("rock", 8, 8.0, Some(2), &[(2, 16)]).mobility = Mobility::Fixed { because: "a test".to_owned() };
    let decisions = toy.periods(200);
    assert!(decisions.iter().filter_map(bind).all(|(_, home)| home == "3"), "{decisions:?}");
    assert_eq!(toy.vms[0].clients[0].memory[&NodeId(3)], Bytes::from_mib(1536));
}
