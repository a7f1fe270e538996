//! Load moves, swaps, locality moves: taken just above each threshold, refused just below.

use super::toy::{Toy, binds};
use scheduler::Mobility;
use scheduler::balance::{BalancePolicy, Decision, MoveKind};
use topology::Bytes;

/// Two nodes of ten cores: one busy CPU is ten points of load.
const TEN: &str = "numa:2(memory=16GiB) core:10 pu:1";
const EIGHT: &str = "numa:2(memory=16GiB) core:8 pu:1";

/// Thresholds one by one: little load is moved as well as much.
fn without_floor() -> BalancePolicy {
    BalancePolicy { least_gain_cpus: 0.0, ..BalancePolicy::default() }
}

/// A host of these nodes without a floor.
fn light(machine: &str) -> Toy {
    Toy { policy: without_floor(), ..Toy::new(machine) }
}

fn fixed(toy: &mut Toy, name: &str, wants: f64, node: u32) {
    let vcpus = wants.ceil() as u32;
    toy.vm(name, vcpus, wants, Some(node), &[(node, 16)]).mobility = Mobility::Fixed { because: "a test".to_owned() };
}

/// Binds of the first two periods: figures of one period are there, and the second is one in which
/// moves are considered.
fn first_moves(toy: &mut Toy) -> Vec<(MoveKind, String, String)> {
    moves(&toy.periods(2))
}

fn moves(decisions: &[Decision]) -> Vec<(MoveKind, String, String)> {
    let binds = decisions.iter().filter_map(|decision| Some((decision.kind, super::toy::bind(decision)?)));
    binds.map(|(kind, (vm, home))| (kind, vm, home)).collect()
}

fn moved(kind: MoveKind, vm: &str, home: &str) -> Vec<(MoveKind, String, String)> {
    vec![(kind, vm.to_owned(), home.to_owned())]
}

/// The names of the thresholds that keep `vm` from `node`.
fn refused(toy: &mut Toy, vm: &str, node: u32) -> Vec<String> {
    let why = toy.why(vm);
    let candidate = why.clients[0].candidates.iter().find(|candidate| candidate.node.0 == node).expect("a node");
    candidate.refused.iter().map(|refusal| refusal.threshold.clone()).collect()
}

#[test]
fn a_difference_of_ten_points_is_acted_on() {
    // Node 0: 0.5 + 0.5 = 1.0 CPU of 10 cores, 10 points more than node 1. One of them moves: 5 and
    // 5 points.
    let mut toy = light(TEN);
    toy.vm("a", 1, 0.5, Some(0), &[(0, 16)]);
    toy.vm("b", 1, 0.5, Some(0), &[(0, 16)]);
    assert_eq!(first_moves(&mut toy), moved(MoveKind::Load, "a", "1"));
    // 0.5 + 0.49 = 0.99 CPUs: 9.9 points.
    let mut toy = light(TEN);
    toy.vm("a", 1, 0.5, Some(0), &[(0, 16)]);
    toy.vm("b", 1, 0.49, Some(0), &[(0, 16)]);
    assert_eq!(first_moves(&mut toy), []);
    assert!(refused(&mut toy, "a", 1).contains(&"imbalance_percent".to_owned()));
}

#[test]
fn a_move_must_shrink_the_difference_by_two_points() {
    // 1 CPU that moves shrinks the difference by 20 points: 0.125 CPUs by 2.5, 0.0625 CPUs by 1.25.
    // The thrash guard is off.
    let policy = BalancePolicy { thrash_percent: 100.0, ..without_floor() };
    let mut toy = Toy { policy: policy.clone(), ..Toy::new(TEN) };
    fixed(&mut toy, "rock", 2.0, 0);
    toy.vm("a", 1, 0.125, Some(0), &[(0, 16)]);
    assert_eq!(first_moves(&mut toy), moved(MoveKind::Load, "a", "1"));
    let mut toy = Toy { policy, ..Toy::new(TEN) };
    fixed(&mut toy, "rock", 2.0, 0);
    toy.vm("a", 1, 0.0625, Some(0), &[(0, 16)]);
    assert_eq!(first_moves(&mut toy), []);
    assert!(refused(&mut toy, "a", 1).contains(&"gain_percent".to_owned()));
}

#[test]
fn after_a_move_at_most_half_of_the_difference_is_left() {
    // 1.5 fixed + 0.5: 20 points before; 15 and 5 after, 10 points: half, just enough.
    let mut toy = light(TEN);
    fixed(&mut toy, "rock", 1.5, 0);
    toy.vm("a", 1, 0.5, Some(0), &[(0, 16)]);
    assert_eq!(first_moves(&mut toy), moved(MoveKind::Load, "a", "1"));
    // 1.75 fixed + 0.5: 22.5 points before; 17.5 and 5 after, 12.5 points: 55.6 %.
    let mut toy = light(TEN);
    fixed(&mut toy, "rock", 1.75, 0);
    toy.vm("a", 1, 0.5, Some(0), &[(0, 16)]);
    assert_eq!(first_moves(&mut toy), []);
    assert_eq!(refused(&mut toy, "a", 1), ["thrash_percent", "gain_percent"]);
}

#[test]
fn clients_that_wait_are_helped_although_the_difference_stays_large() {
    // 8 + 2 CPUs wanted on 8: two wait. Moving the small one leaves 100 % and 25 %: 75 of 125
    // points, more than half.
    let mut toy = Toy::new(EIGHT);
    toy.vm("large", 8, 8.0, Some(0), &[(0, 1024)]);
    toy.vm("small", 2, 2.0, Some(0), &[(0, 1024)]);
    assert_eq!(first_moves(&mut toy), moved(MoveKind::Load, "small", "1"));
    // Crowding 0.2 x 100 / 8 + 2 = 4.5 before, 0.2 x 64 / 8 + 0.2 x 4 / 8 = 1.7 after. 1 GiB: 1 CPU
    // s of copying, and 30 % of 2 CPUs wait during half of 4 s: 1.2 CPU s. 2.2 / 2.8 = 0.8 s.
    let because = &toy.log.iter().find(|(_, decision)| decision.kind == MoveKind::Load).expect("a move").1.because;
    assert!(because.contains("wins 2.80 CPUs, costs 2.2 CPU s, paid back in 1 s"), "{because}");
    // ESXi's rule leaves them waiting.
    let mut toy = Toy { policy: BalancePolicy::esxi_defaults(), ..Toy::new(EIGHT) };
    toy.vm("large", 8, 8.0, Some(0), &[(0, 1024)]);
    toy.vm("small", 2, 2.0, Some(0), &[(0, 1024)]);
    assert_eq!(first_moves(&mut toy), []);
}

#[test]
fn a_move_must_pay_back_in_time() {
    // 0.5 + 0.5 on node 0 lose 0.2 x 1^2 / 10 = 0.02 CPUs, apart 2 x 0.2 x 0.25 / 10 = 0.01: a gain
    // of 0.01 CPUs, 1.2 CPU s in 120 s. Copying 1 GiB takes 1 CPU s, and 30 % of 0.5 CPUs wait for
    // remote memory during half of the 4 s: 0.3 CPU s.
    let long = || Toy { policy: BalancePolicy { crowding_lasts: false, ..without_floor() }, ..Toy::new(TEN) };
    let mut toy = long();
    toy.vm("a", 1, 0.5, Some(0), &[(0, 1024)]);
    toy.vm("b", 1, 0.5, Some(0), &[(0, 1024)]);
    assert_eq!(first_moves(&mut toy), []);
    assert!(refused(&mut toy, "a", 1).contains(&"payback_seconds".to_owned()));
    // 896 MiB: 0.875 + 0.15 x 1.75 = 1.14 CPU s.
    let mut toy = long();
    toy.vm("a", 1, 0.5, Some(0), &[(0, 896)]);
    toy.vm("b", 1, 0.5, Some(0), &[(0, 896)]);
    assert_eq!(first_moves(&mut toy).len(), 1);
}

#[test]
fn a_crowd_that_has_just_come_may_go_as_soon() {
    // The small one wins 2.8 CPUs on the other node (docs/balancing.md). With 7 GiB it costs 7 CPU
    // s to copy and 0.6 x 14 = 8.4 of remote memory: paid back in 5.5 s. The first period finds
    // homes; node 0 has been crowded for 2 s in the second and for 6 s in the fourth.
    let mut toy = Toy::new(EIGHT);
    fixed(&mut toy, "large", 8.0, 0);
    toy.vm("small", 2, 2.0, Some(0), &[(0, 7168)]);
    assert_eq!(moves(&toy.periods(2)), []);
    let why = toy.why("small");
    let refusal = why.clients[0].candidates[1].refused.iter().find(|one| one.threshold == "payback_seconds");
    assert_eq!(refusal.map(|refusal| refusal.limit), Some(Some(4.0)));
    assert_eq!(moves(&toy.periods(2)), moved(MoveKind::Load, "small", "1"));
    // What cost little went at once.
    let mut toy = Toy::new(EIGHT);
    fixed(&mut toy, "large", 8.0, 0);
    toy.vm("small", 2, 2.0, Some(0), &[(0, 1024)]);
    assert_eq!(first_moves(&mut toy), moved(MoveKind::Load, "small", "1"));
}

#[test]
fn a_node_without_room_for_all_of_the_memory_is_no_target() {
    // 16 GiB, of which 2 % (327 MiB) stay free. A rock holds 14 GiB of node 1: 2048 - 327 = 1720
    // MiB are left.
    let with = |memory: u64, policy: BalancePolicy| {
        let mut toy = Toy { policy, ..Toy::new(EIGHT) };
        let rock = toy.vm("rock", 1, 0.0, Some(1), &[(1, 14 << 10)]);
        rock.mobility = Mobility::Fixed { because: "a test".to_owned() };
        toy.vm("a", 4, 4.0, Some(0), &[(0, memory)]);
        toy.vm("b", 6, 6.0, Some(0), &[(0, 8192)]);
        toy
    };
    assert_eq!(first_moves(&mut with(1700, BalancePolicy::default())), moved(MoveKind::Load, "a", "1"));
    let mut toy = with(1740, BalancePolicy::default());
    assert_eq!(first_moves(&mut toy), []);
    assert!(refused(&mut toy, "a", 1).contains(&"memory".to_owned()));
    // ESXi publishes no such rule: threads go, memory cannot follow.
    assert_eq!(first_moves(&mut with(1740, BalancePolicy::esxi_defaults())).len(), 1);
}

#[test]
fn a_node_without_room_for_what_is_promised_is_no_target() {
    // As above, 1720 MiB are left. 64 MiB are touched; the rest (`fill = "on_touch"`) still comes.
    let with = |size: u64| {
        let mut toy = Toy::new(EIGHT);
        toy.vm("rock", 1, 0.0, Some(1), &[(1, 14 << 10)]).mobility = Mobility::Fixed { because: "a test".to_owned() };
        toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]).clients[0].size = Bytes::from_mib(size);
        toy.vm("b", 6, 6.0, Some(0), &[(0, 8192)]);
        toy
    };
    assert_eq!(first_moves(&mut with(1700)), moved(MoveKind::Load, "a", "1"));
    let mut toy = with(1740);
    assert_eq!(first_moves(&mut toy), []);
    let refusals = &toy.why("a").clients[0].candidates[1].refused;
    let memory = refusals.iter().find(|refusal| refusal.threshold == "memory").expect("no room");
    assert_eq!(memory.because, "it needs 1.70 GiB there, and node 1 has 1.68 GiB left");
}

#[test]
fn a_client_rests_after_a_move() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]);
    toy.vm("b", 4, 4.0, Some(0), &[(0, 64)]);
    toy.vm("c", 4, 2.0, Some(0), &[(0, 64)]);
    assert_eq!(first_moves(&mut toy).len(), 1);
    let (at, first) = toy.log.iter().find(|(_, decision)| decision.kind == MoveKind::Load).cloned().expect("a move");
    // Everything else on its new node becomes busy: it would be best to go on.
    let name = first.action.vm().name.clone();
    toy.policy.return_periods = 0;
    for wants in [8.0, 8.0] {
        let number = toy.vms.len();
        fixed(&mut toy, &format!("noise{number}"), wants, 1);
    }
    let next = toy
        .periods(40)
        .into_iter()
        .zip(0..)
        .find(|(decision, _)| decision.action.vm().name == name && super::toy::bind(decision).is_some());
    assert!(next.is_some());
    let again = toy
        .log
        .iter()
        .filter(|(_, decision)| decision.action.vm().name == name && super::toy::bind(decision).is_some())
        .nth(1)
        .expect("moved again")
        .0;
    assert!(again - at >= 15 * 2000, "{at} {again}");
}

#[test]
fn two_clients_change_places_where_no_move_alone_helps() {
    // Four cores a node: 3 + 2 = 5 (125 %) and 2 + 1 = 3 (75 %). Any move leaves at least as much:
    // 3 and 5. Changing the 3 for the 2, or the 2 for the 1, gives 4 and 4.
    let build = |swap_for_load: bool| {
        let policy = BalancePolicy { swap_for_load, ..BalancePolicy::default() };
        let mut toy = Toy { policy, ..Toy::new("numa:2(memory=16GiB) core:4 pu:1") };
        toy.vm("a3", 3, 3.0, Some(0), &[(0, 64)]);
        toy.vm("b2", 2, 2.0, Some(0), &[(0, 64)]);
        toy.vm("c2", 2, 2.0, Some(1), &[(1, 64)]);
        toy.vm("d1", 1, 1.0, Some(1), &[(1, 64)]);
        toy
    };
    let mut toy = build(true);
    let swapped = moves(&toy.periods(3));
    assert_eq!(swapped.len(), 2, "{swapped:?}");
    assert!(swapped.iter().all(|(kind, ..)| *kind == MoveKind::LoadSwap));
    assert_eq!((toy.wanted(0), toy.wanted(1)), (4.0, 4.0));
    assert_eq!(moves(&toy.periods(60)), []);
    let mut toy = build(false);
    assert!(moves(&toy.periods(4)).iter().all(|(kind, ..)| *kind != MoveKind::LoadSwap));
}

#[test]
fn threads_go_to_memory_that_cannot_come() {
    // 30 % of 1 CPU waits for memory that is twice as far, for good: 0.3 CPUs lost, 30 % of what it
    // uses.
    let mut toy = Toy::new(EIGHT);
    let vm = toy.vm("vfio", 2, 1.0, Some(0), &[(1, 2048)]);
    vm.mobility = Mobility::MemoryFixed { because: "VFIO pins all of its memory".to_owned() };
    assert_eq!(first_moves(&mut toy), moved(MoveKind::Locality, "vfio", "1"));
    assert_eq!(moves(&toy.periods(60)), []);
}

#[test]
fn threads_go_to_much_memory_and_little_memory_comes() {
    // 1 CPU used, 8 GiB away: to let it come costs 8 CPU s of copying and 0.3 x 32 s / 2 = 4.8 CPU
    // s of waiting: 12.8, more than 2 % of 1 CPU in 120 s = 2.4. With 1 GiB: 1 + 0.6 = 1.6 CPU s.
    // The memory comes. (Two steps have moved 2 x 256 MiB.)
    let with = |mib: u64| {
        let mut toy = Toy::new(EIGHT);
        toy.vm("a", 2, 1.0, Some(0), &[(1, mib)]);
        let binds = moves(&toy.periods(30));
        (binds, toy.vms[0].clients[0].memory.clone())
    };
    assert_eq!(with(8192).0, moved(MoveKind::Locality, "a", "1"));
    let (binds, memory) = with(1024);
    assert_eq!(binds, []);
    assert_eq!(memory[&topology::NodeId(0)], Bytes::GIB);
}

#[test]
fn no_locality_move_to_a_node_that_would_be_too_loaded() {
    // Eight cores: 6.0 + 1 = 7.0 is 87.5 %, 6.5 + 1 = 7.5 is 93.75 %, over the 90 % of the cap.
    let with = |rock: f64| {
        let mut toy = Toy::new(EIGHT);
        fixed(&mut toy, "rock", rock, 1);
        fixed(&mut toy, "other", 6.0, 0);
        let vm = toy.vm("a", 1, 1.0, Some(0), &[(1, 2048)]);
        vm.mobility = Mobility::MemoryFixed { because: "VFIO".to_owned() };
        toy
    };
    assert_eq!(first_moves(&mut with(6.0)), moved(MoveKind::Locality, "a", "1"));
    let mut toy = with(6.5);
    assert_eq!(first_moves(&mut toy), []);
    assert!(refused(&mut toy, "a", 1).contains(&"core_cap_percent".to_owned()));
}

#[test]
fn two_clients_change_places_for_locality() {
    // Both nodes are loaded 87.5 %: with one more CPU 100 %, over the cap. Each has the other's
    // memory.
    let mut toy = Toy::new(EIGHT);
    fixed(&mut toy, "rock0", 6.0, 0);
    fixed(&mut toy, "rock1", 6.0, 1);
    toy.vm("a", 1, 1.0, Some(0), &[(1, 6000)]);
    toy.vm("b", 1, 1.0, Some(1), &[(0, 6000)]);
    let swapped = moves(&toy.periods(3));
    assert_eq!(swapped.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(), [MoveKind::LocalitySwap; 2]);
    assert_eq!(moves(&toy.periods(60)), []);
}

#[test]
fn without_figures_nothing_is_moved_for_load() {
    let mut toy = Toy { figures: false, ..Toy::new(EIGHT) };
    toy.vm("a", 8, 8.0, Some(0), &[(0, 64)]);
    toy.vm("b", 8, 8.0, Some(0), &[(0, 64)]);
    assert_eq!(binds(&toy.periods(20)), []);
    assert!(toy.why("a").clients[0].refused.iter().any(|refusal| refusal.threshold == "demand"));
    toy.figures = true;
    assert_eq!(first_moves(&mut toy).len(), 1);
}

#[test]
fn a_node_on_which_vms_are_being_started_is_no_target() {
    // 125 % and 0 %; a alone makes 50 % of node 1. With 7 starting vCPUs it would be 50 + 87.5 =
    // 137.5 %, with 6 it is 125 %.
    let with = |vcpus: u32| {
        let mut toy = Toy::new(EIGHT);
        toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]);
        fixed(&mut toy, "rock", 6.0, 0);
        toy.period();
        let mut observation = toy.observe();
        observation.reserved.insert(topology::NodeId(1), vm::NodeUse { vcpus, ..Default::default() });
        moves(&toy.step_on(&observation)).len()
    };
    assert_eq!((with(6), with(7)), (1, 0));
}

#[test]
fn memory_that_would_wait_too_long_keeps_its_client() {
    // 125 % and 50 %: a moves. But hog loses 1.2 CPUs to 4 GiB that are away, more than the 0.6 of
    // a: in the second period 3.5 GiB of it are left, and take 14 s.
    let with = |backlog_seconds: f64| {
        let policy = BalancePolicy { backlog_seconds, crowding_lasts: false, ..BalancePolicy::default() };
        let mut toy = Toy { policy, ..Toy::new(EIGHT) };
        fixed(&mut toy, "rock", 8.0, 0);
        toy.vm("a", 2, 2.0, Some(0), &[(0, 64)]);
        toy.vm("hog", 4, 4.0, Some(1), &[(0, 4096)]);
        toy.period();
        toy
    };
    let mut toy = with(13.0);
    assert_eq!(refused(&mut toy, "a", 1)[0], "backlog_seconds");
    assert_eq!(moves(&toy.period()), []);
    assert_eq!(moves(&with(15.0).period()), moved(MoveKind::Load, "a", "1"));
}

#[test]
fn small_hosts_and_switched_off_rebalancing_move_nothing() {
    for policy in [
        BalancePolicy { rebalance: false, ..BalancePolicy::default() },
        BalancePolicy { least_cores_host: 17, ..BalancePolicy::default() },
        BalancePolicy { least_cores_node: 9, ..BalancePolicy::default() },
    ] {
        let mut toy = Toy { policy, ..Toy::new(EIGHT) };
        toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]);
        toy.vm("b", 4, 4.0, Some(0), &[(0, 64)]);
        assert_eq!(first_moves(&mut toy), []);
    }
}

#[test]
fn of_equal_targets_the_one_near_the_vm_s_other_half_is_taken() {
    // Nodes 0 and 1 are near each other, 2 and 3 are far away. One half of the VM is on node 0, the
    // other on crowded node 3.
    let mut toy = Toy::new("numa:4(memory=16GiB) core:8 pu:1");
    toy.distances(&[[10, 12, 32, 32], [12, 10, 32, 32], [32, 32, 10, 12], [32, 32, 12, 10]]);
    toy.vm("wide", 4, 4.0, Some(0), &[(0, 64)]);
    let second = super::toy::ToyClient {
        cpus: toy.cpus(3),
        memory: [(topology::NodeId(3), Bytes::from_mib(64))].into(),
        ..toy.vms[0].clients[0].clone()
    };
    toy.vms[0].clients.push(second);
    fixed(&mut toy, "rock3", 8.0, 3);
    fixed(&mut toy, "rock1", 1.0, 1);
    fixed(&mut toy, "rock2", 1.0, 2);
    assert_eq!(first_moves(&mut toy), moved(MoveKind::Load, "wide", "1"));
    let mut blind = Toy { policy: BalancePolicy { distance_aware: false, ..BalancePolicy::default() }, ..toy.clone() };
    blind.forget();
    blind.vms[0].clients[1].cpus = blind.cpus(3);
    // A little less load on node 2: without distances that decides.
    blind.vms.retain(|vm| vm.key.name != "rock2");
    assert_eq!(first_moves(&mut blind), moved(MoveKind::Load, "wide", "2"));
}

/// Two VMs at home on node 0, one of them busy while it starts; when it appears, and what the next
/// `periods` do.
fn busy_start(appears_first: bool, periods: usize) -> (Vec<(MoveKind, String, String)>, Toy) {
    let mut toy = light(TEN);
    toy.vm("old", 1, 0.5, Some(0), &[(0, 16)]);
    if !appears_first {
        toy.periods(1);
    }
    toy.vm("starts", 2, 2.0, Some(0), &[(0, 16)]);
    fixed(&mut toy, "rock", 1.0, 0);
    let decided = toy.periods(periods);
    (moves(&decided), toy)
}

#[test]
fn a_vm_that_appeared_at_home_is_not_moved_for_the_load_of_its_start() {
    // 35 points on node 0, none on node 1: moving the new VM would leave 15 and 20. It rests 15
    // periods first.
    let (moved, toy) = busy_start(false, 12);
    assert!(moved.iter().all(|(_, vm, _)| vm != "starts"), "{moved:?}");
    let rests =
        toy.why("starts").clients[0].refused.iter().find(|refusal| refusal.threshold == "rest_periods").cloned();
    assert!(rests.unwrap().because.contains("it appeared"));
    // What was there at the first look may have run for days.
    let (moved, _) = busy_start(true, 2);
    assert_eq!(moved.first(), Some(&(MoveKind::Load, "starts".to_owned(), "1".to_owned())));
    // ESXi knows no such rest.
    let policy = BalancePolicy { rest_periods: 0, ..without_floor() };
    let mut toy = Toy { policy, ..Toy::new(TEN) };
    toy.periods(1);
    fixed(&mut toy, "rock", 1.0, 0);
    toy.vm("starts", 2, 2.0, Some(0), &[(0, 16)]);
    let decided = toy.periods(6);
    assert_eq!(moves(&decided).first(), Some(&(MoveKind::Load, "starts".to_owned(), "1".to_owned())));
}

#[test]
fn a_vm_that_appeared_goes_to_its_memory_without_rest() {
    let mut toy = Toy::new(TEN);
    toy.periods(1);
    toy.vm("starts", 1, 0.0, Some(0), &[(1, 4096)]);
    let decided = toy.periods(4);
    assert_eq!(moves(&decided).first(), Some(&(MoveKind::Locality, "starts".to_owned(), "1".to_owned())));
}

#[test]
fn what_wins_little_is_not_worth_memory() {
    // Eight cores, all busy: 7.75 + 0.25 CPUs lose 0.2 x 8^2 / 8 = 1.6; without the small one 0.2 x
    // 7.75^2 / 8 = 1.502, and it loses 0.2 x 0.25^2 / 8 = 0.002 elsewhere. 0.096 CPUs are won; with
    // 0.1 CPUs of 8, 0.2 x (8^2 - 7.9^2 - 0.1^2) / 8 = 0.0395.
    let with = |small: f64, floor: f64| {
        let policy =
            BalancePolicy { least_gain_cpus: floor, gain_percent: 1.0, thrash_percent: 100.0, ..without_floor() };
        let mut toy = Toy { policy, ..Toy::new(EIGHT) };
        fixed(&mut toy, "rock", 8.0 - small, 0);
        toy.vm("a", 1, small, Some(0), &[(0, 16)]);
        toy
    };
    assert_eq!(first_moves(&mut with(0.25, 0.05)), moved(MoveKind::Load, "a", "1"));
    let mut toy = with(0.1, 0.05);
    assert_eq!(first_moves(&mut toy), []);
    assert!(refused(&mut toy, "a", 1).contains(&"least_gain_cpus".to_owned()), "{:?}", refused(&mut toy, "a", 1));
    assert_eq!(first_moves(&mut with(0.1, 0.03)), moved(MoveKind::Load, "a", "1"));
}

#[test]
fn where_nobody_waits_or_shares_a_core_no_load_is_moved() {
    // 3.5 + 3.5 of 8 CPUs are 88 points, and would win 0.2 x 7^2 / 8 - 2 x 0.2 x 3.5^2 / 8 = 0.61
    // CPUs of caches and clock.
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 4, 3.5, Some(0), &[(0, 192)]);
    toy.vm("b", 4, 3.5, Some(0), &[(0, 192)]);
    assert_eq!(first_moves(&mut toy), []);
    let why = toy.why("a");
    let refused = &why.clients[0].candidates[1].refused;
    assert_eq!(refused[0].because, "nobody on node 0 waits for a CPU or shares a core", "{refused:?}");
    // All cores are busy: one goes.
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 4, 4.0, Some(0), &[(0, 192)]);
    toy.vm("b", 4, 4.0, Some(0), &[(0, 192)]);
    assert_eq!(first_moves(&mut toy).len(), 1);
}

#[test]
fn the_halves_of_an_idle_wide_vm_stay_where_their_memory_is() {
    // Two and two nodes are neighbours; the halves are on nodes 0 and 2, with 48 MiB each. Together
    // they would win 20 % of 30 % of 0.05 CPUs for each unit of distance: nothing.
    let mut toy = Toy::new("numa:4(memory=16GiB) core:8 pu:1");
    toy.distances(&[[10, 12, 20, 20], [12, 10, 20, 20], [20, 20, 10, 12], [20, 20, 12, 10]]);
    let half = toy.vm("other", 2, 0.05, Some(2), &[(2, 48)]).clients.remove(0);
    toy.vms.clear();
    toy.vm("wide", 2, 0.05, Some(0), &[(0, 48)]).clients.push(half);
    let decisions = toy.periods(60);
    assert_eq!(moves(&decisions), []);
    assert_eq!(decisions, []);
}
