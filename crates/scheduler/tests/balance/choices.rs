//! What somebody chose is kept: memory policies bound the home, and memory that is all on one node
//! stays whole. What nobody knows moves nothing.

use super::toy::{Toy, bind, binds};
use scheduler::balance::{Decision, MoveKind};
use scheduler::{ClientId, Mobility};
use topology::{Bytes, NodeId, NodeSet};

const EIGHT: &str = "numa:2(memory=16GiB) core:8 pu:1";

fn nodes(text: &str) -> Option<NodeSet> {
    Some(text.parse().expect("nodes"))
}

fn home(toy: &Toy, client: u32) -> Option<String> {
    toy.state.home(&toy.vms[0].key, ClientId(client)).map(ToString::to_string)
}

/// A VM of two virtual nodes that floats, each with 48 MiB of its own on nodes 0 and 1.
fn wide(toy: &mut Toy, wants: f64) {
    let second = toy.vm("second", 2, wants, None, &[(1, 48)]).clients.remove(0);
    toy.vms.pop();
    toy.vm("wide", 2, wants, None, &[(0, 48)]).clients.push(second);
}

#[test]
fn virtual_nodes_that_somebody_bound_get_those_homes_and_keep_them() {
    for wants in [0.0, 0.3, 2.0] {
        let mut toy = Toy::new(EIGHT);
        wide(&mut toy, wants);
        toy.vms[0].clients[0].chosen = nodes("0");
        toy.vms[0].clients[1].chosen = nodes("1");
        // Node 0 is so busy that both would be better off on node 1.
        toy.vm("rock", 8, 7.5, Some(0), &[(0, 16)]).mobility = Mobility::Fixed { because: "a test".to_owned() };
        let decisions = toy.periods(120);
        let wanted = [("wide".to_owned(), "0".to_owned()), ("wide".to_owned(), "1".to_owned())];
        assert_eq!(binds(&decisions), wanted, "wants {wants}");
        assert_eq!(decisions.len(), 2, "no memory moves");
    }
}

#[test]
fn an_idle_wide_vm_starts_where_its_memory_is_and_stays() {
    // Nobody chose, but each virtual node's memory is whole: siblings that would be nearer are not
    // worth 48 MiB.
    let mut toy = Toy::new(EIGHT);
    wide(&mut toy, 0.05);
    let decisions = toy.periods(120);
    assert_eq!(binds(&decisions), [("wide".to_owned(), "0".to_owned()), ("wide".to_owned(), "1".to_owned())]);
    assert_eq!(decisions.len(), 2);
}

#[test]
fn why_names_the_choice_that_refuses_a_node() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]).clients[0].chosen = nodes("0");
    toy.vm("b", 6, 6.0, Some(0), &[(0, 64)]).clients[0].chosen = nodes("0");
    assert_eq!(toy.periods(10), []);
    let why = toy.why("a");
    let refused = &why.clients[0].candidates[1].refused;
    let said =
        refused.iter().find(|refusal| refusal.threshold == "chosen_nodes").map(|refusal| refusal.because.as_str());
    assert_eq!(said, Some("somebody bound its memory to node 0: that is where its home may be"), "{refused:?}");
}

#[test]
fn a_choice_that_is_learned_late_brings_the_client_back() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("rock", 8, 6.0, Some(0), &[(0, 16)]).mobility = Mobility::Fixed { because: "a test".to_owned() };
    let floats = toy.vm("floats", 4, 4.0, None, &[(0, 16)]).key.clone();
    toy.periods(1);
    assert_eq!(toy.state.home(&floats, ClientId(0)).map(ToString::to_string).as_deref(), Some("1"));
    toy.vms[1].clients[0].chosen = nodes("0");
    let decisions = toy.period();
    assert_eq!((decisions[0].kind, bind(&decisions[0])), (MoveKind::Evacuate, Some(("floats".into(), "0".into()))));
    assert!(decisions[0].because.contains("somebody bound its memory to node 0"), "{}", decisions[0].because);
}

#[test]
fn threads_and_memory_that_somebody_bound_apart_are_left_alone() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("apart", 2, 1.0, Some(0), &[(1, 256)]).clients[0].chosen = nodes("1");
    let decisions = toy.periods(60);
    // Threads may go to the memory, for a gain; memory never leaves where somebody bound it.
    assert!(decisions.iter().all(|decision| bind(decision) == Some(("apart".into(), "1".into()))), "{decisions:?}");
    assert_eq!(toy.vms[0].clients[0].memory[&NodeId(1)], Bytes::from_mib(256));
}

#[test]
fn threads_that_somebody_bound_away_from_bound_memory_stay_while_nothing_is_won() {
    for idle in [0.0, 0.02, 0.1] {
        let mut toy = Toy::new(EIGHT);
        toy.vm("apart", 2, idle, Some(0), &[(1, 256)]).clients[0].chosen = nodes("1");
        assert_eq!(toy.periods(120), [], "wants {idle}");
    }
    // 0.3 x 1 CPUs are lost: now they follow.
    let mut toy = Toy::new(EIGHT);
    toy.vm("apart", 2, 1.0, Some(0), &[(1, 256)]).clients[0].chosen = nodes("1");
    assert_eq!(binds(&toy.periods(120)), [("apart".to_owned(), "1".to_owned())]);
}

#[test]
fn a_node_that_can_be_no_home_is_no_choice_of_one() {
    // Memory on node 1, whose CPUs are all offline: the threads live on node 0.
    let mut toy = Toy::new(EIGHT);
    toy.offline = toy.cpus(1);
    toy.vm("far", 2, 1.0, None, &[(1, 64)]).clients[0].chosen = nodes("1");
    toy.periods(5);
    assert_eq!(toy.vms[0].clients[0].memory.get(&NodeId(0)), None, "what is bound there stays there");
}

#[test]
fn memory_of_which_nobody_knows_moves_nothing_and_why_says_so() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("large", 8, 8.0, Some(0), &[(0, 64)]);
    toy.vm("small", 2, 2.0, Some(0), &[(0, 64)]);
    toy.vm("floats", 2, 1.0, None, &[(1, 64)]);
    for vm in &mut toy.vms {
        vm.clients[0].unknown = Some("its main block is not told from an ivshmem file".to_owned());
    }
    assert_eq!(toy.periods(40), Vec::<Decision>::new());
    for name in ["small", "floats"] {
        let why = toy.why(name);
        let refused = why.clients[0].refused.iter().find(|refusal| refusal.threshold == "memory_by_node");
        let because = &refused.expect("a reason").because;
        assert!(because.contains("where its memory lies is not known: its main block"), "{because}");
    }
    // As soon as it is known all goes its way.
    toy.vms.iter_mut().for_each(|vm| vm.clients[0].unknown = None);
    assert_eq!(binds(&toy.periods(6)).len(), 2);
}

#[test]
fn one_node_that_may_be_its_home_needs_no_knowledge() {
    let mut toy = Toy::new(EIGHT);
    let vm = toy.vm("floats", 2, 1.0, None, &[(1, 64)]);
    vm.clients[0].unknown = Some("a test".to_owned());
    vm.node_affinity = nodes("1");
    toy.period();
    assert_eq!(home(&toy, 0).as_deref(), Some("1"));
}

/// Eight busy VMs of 2 vCPUs on node 0 of 8 cores: 16 CPUs of work, and node 1 idles. Each that may
/// go goes.
#[test]
fn a_vm_stays_on_the_nodes_that_its_spec_says() {
    let moved = |stated: Option<&str>| {
        let mut toy = Toy::new(EIGHT);
        for number in 0..8 {
            let vm = toy.vm(&format!("vm{number}"), 2, 2.0, Some(0), &[(0, 64)]);
            vm.stated.node_affinity = stated.and_then(nodes);
        }
        (binds(&toy.periods(120)).len(), toy.why("vm0"))
    };
    assert!(moved(None).0 > 0);
    // Nodes that the host does not have say nothing.
    assert!(moved(Some("0-1,7")).0 > 0 && moved(Some("5")).0 > 0);
    let (count, why) = moved(Some("0,5"));
    assert_eq!(count, 0);
    let refused = &why.clients[0].candidates[1].refused;
    let because = &refused.iter().find(|refusal| refusal.threshold == "node_affinity").expect("a reason").because;
    assert_eq!(because, "it may not live on node 1, but on nodes 0,5, as its spec says (policy.node_affinity)");
}

#[test]
fn memory_that_is_all_on_one_node_is_never_halved() {
    // Eight cores with two threads each. Twelve vCPUs have no core each on one node, and a thread
    // each: with 3 CPUs of work, half of the accesses from afar would lose more than crowded
    // caches.
    let mut toy = Toy::new("numa:2(memory=16GiB) core:8 pu:2");
    toy.vm("db", 12, 3.0, None, &[(0, 4096)]);
    let decisions = toy.periods(60);
    assert_eq!(binds(&decisions), [("db".to_owned(), "0".to_owned())]);
    assert_eq!((decisions.len(), home(&toy, 0).as_deref()), (1, Some("0")));
    // 20 vCPUs have not: threads use both nodes, and its memory stays whole.
    let mut toy = Toy::new("numa:2(memory=16GiB) core:8 pu:2");
    toy.vm("db", 20, 18.0, None, &[(0, 4096)]);
    toy.periods(60);
    assert_eq!(home(&toy, 0).as_deref(), Some("0-1"));
    assert_eq!(toy.vms[0].clients[0].memory[&NodeId(0)], Bytes::from_mib(4096));
}

#[test]
fn a_vm_wider_than_a_nodes_cores_lives_on_one_node_while_it_works_little() {
    // 12 vCPUs on 8 cores of two threads, memory on both nodes. On both it loses 0.30 x 3 CPUs x
    // half of its accesses = 0.45 CPUs; on one node nothing of that, and crowding 0.20 x 3^2 / 8 =
    // 0.225 instead of 2 x 0.20 x 1.5^2 / 8 = 0.1125: 0.34 CPUs won.
    let with = |wants: f64| {
        let mut toy = Toy::new("numa:2(memory=16GiB) core:8 pu:2");
        toy.vm("db", 12, wants, None, &[(0, 2048), (1, 2048)]);
        let decisions = toy.periods(60);
        (binds(&decisions).len(), home(&toy, 0))
    };
    assert_eq!(with(3.0), (1, Some("0".to_owned())));
    // 11 CPUs of work on 8 cores are 137 %, over the core cap: both nodes are its home.
    assert_eq!(with(11.0), (0, Some("0-1".to_owned())));
}
