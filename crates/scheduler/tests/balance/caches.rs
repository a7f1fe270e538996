//! Groups of vCPUs under last-level caches: inside a home and from home to home.

use super::toy::Toy;
use proptest::prelude::*;
use scheduler::balance::{Decision, MoveKind};
use scheduler::{Action, Mobility, VcpuGroup};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, LlcId, NodeId};

/// Two nodes of two caches of 4 cores: CPUs 0-3, 4-7; 8-11, 12-15.
const TWO: &str = "numa:2(memory=16GiB) l3:2(size=16MiB) core:4 pu:1";

fn groups(decision: &Decision) -> Vec<String> {
    let Action::Bind { groups, .. } = &decision.action else { return Vec::new() };
    groups.iter().map(|group| group.cpus.to_string()).collect()
}

fn now(toy: &Toy, vm: usize) -> Vec<String> {
    toy.vms[vm].clients[0].groups.iter().map(|(group, _)| group.cpus.to_string()).collect()
}

/// Decisions of this kind in so many periods.
fn of_kind(toy: &mut Toy, periods: usize, kind: MoveKind) -> Vec<Decision> {
    toy.periods(periods).into_iter().filter(|decision| decision.kind == kind).collect()
}

#[test]
fn two_groups_under_one_cache_go_apart() {
    let mut toy = Toy::new(TWO);
    toy.divided("one", &[("0-3", 4, 3.5)], 1000);
    toy.divided("two", &[("0-3", 4, 3.5)], 1000);
    let moved = of_kind(&mut toy, 4, MoveKind::Cache);
    assert_eq!(moved.len(), 1, "{moved:#?}");
    assert_eq!(groups(&moved[0]), ["4-7"]);
    // 7 CPUs on 4 cores: 0.2 x 49 / 4 + 3 that wait; then twice 0.2 x 12.25 / 4.
    let because = &moved[0].because;
    assert!(because.contains("loaded 175 %, to that of CPUs 4-7, 0 %: then 88 % and 88 %; wins 4.2"), "{because}");
    let Action::Bind { home, cpus, .. } = &moved[0].action else { panic!("{moved:?}") };
    assert_eq!((home.to_string(), cpus.to_string()), ("0".into(), "0-7".into()));
    // No memory moves for it, and nothing else is done.
    assert_eq!(toy.log.len(), 1, "{:#?}", toy.log);
    assert_eq!(toy.periods(40), []);
}

#[test]
fn a_group_rests_after_a_move() {
    let mut toy = Toy::new(TWO);
    toy.policy.newest_percent = 100.0;
    toy.divided("one", &[("0-3", 4, 3.0)], 100);
    toy.divided("two", &[("0-3", 4, 2.9)], 100);
    let first = toy.at;
    assert_eq!(of_kind(&mut toy, 4, MoveKind::Cache).len(), 1);
    let (at, _) = toy.log[0];
    assert!(at - first <= 6000);
    // Somebody else comes to where it went: it could go back at once.
    let went = now(&toy, 0);
    let busy: CpuSet = if went == ["4-7"] { "4-7" } else { "0-3" }.parse().unwrap();
    toy.vms[1].clients[0].groups[0].0.cpus = busy.clone();
    toy.vms[1].clients[0].cpus = busy;
    let mut moves: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    toy.periods(20);
    for (at, decision) in toy.log.iter().filter(|(_, decision)| decision.kind == MoveKind::Cache) {
        moves.entry(decision.action.vm().name.clone()).or_default().push(*at);
    }
    let rest = u64::from(toy.policy.cache_rest_periods) * toy.policy.period_ms;
    let apart = |times: &Vec<u64>| times.windows(2).all(|pair| pair[1] - pair[0] >= rest);
    assert!(moves.values().map(Vec::len).sum::<usize>() >= 2 && moves.values().all(apart), "{moves:?}");
}

#[test]
fn small_differences_pins_and_the_switch_keep_groups_where_they_are() {
    let crowded = || {
        let mut toy = Toy::new(TWO);
        toy.divided("one", &[("0-3", 4, 3.5)], 100);
        toy.divided("two", &[("0-3", 4, 3.5)], 100);
        toy
    };
    let mut toy = crowded();
    toy.vms.iter_mut().for_each(|vm| vm.mobility = Mobility::Fixed { because: "a test".into() });
    assert_eq!(toy.periods(10), []);
    let mut toy = crowded();
    toy.policy.move_between_caches = false;
    assert_eq!(of_kind(&mut toy, 10, MoveKind::Cache), []);
    // 60 % and 45 %: 15 points.
    let mut toy = Toy::new(TWO);
    toy.divided("one", &[("0-3", 2, 1.2), ("4-7", 2, 1.8)], 100);
    toy.divided("two", &[("0-3", 2, 1.2)], 100);
    assert_eq!(toy.periods(10), []);
    // One large group alone: it would only change places with nobody.
    let mut toy = Toy::new(TWO);
    toy.divided("one", &[("0-3", 4, 4.0)], 100);
    assert_eq!(toy.periods(10), []);
}

#[test]
fn a_client_that_changes_its_home_takes_its_groups_along() {
    let mut toy = Toy::new(TWO);
    // Node 0 has 12 CPUs of load on 8 cores; node 1 has a busy group under its first cache.
    toy.divided("wide", &[("0-3", 4, 4.0), ("4-7", 4, 4.0)], 500);
    toy.divided("goes", &[("0-3", 2, 2.0), ("4-7", 2, 2.0)], 100);
    toy.divided("there", &[("8-11", 2, 2.0)], 100);
    let moved = of_kind(&mut toy, 30, MoveKind::Load);
    assert_eq!(moved.len(), 1, "{moved:#?}");
    assert_eq!(moved[0].action.vm().name, "goes");
    // Apart, as they were, and the state knows them still.
    let mut caches = groups(&moved[0]);
    caches.sort();
    assert_eq!(caches, ["12-15", "8-11"]);
    assert_eq!(now(&toy, 1).len(), 2);
    assert_eq!(toy.vms[1].clients[0].memory[&NodeId(1)], Bytes::from_mib(100));
}

#[test]
fn a_node_whose_caches_are_too_small_is_refused() {
    // Node 1 has two caches of 2 cores.
    let mut toy = Toy::new("numa:2(memory=16GiB) l3:2 core:4 pu:1");
    let small: Vec<(u32, LlcId)> = vec![(12, LlcId(7)), (13, LlcId(7)), (14, LlcId(8)), (15, LlcId(8))];
    for (cpu, llc) in small {
        toy.machine.threads.iter_mut().filter(|thread| thread.id.0 == cpu).for_each(|thread| thread.llc = Some(llc));
    }
    toy.machine.threads.iter_mut().filter(|thread| (8..10).contains(&thread.id.0)).for_each(|t| t.llc = Some(LlcId(9)));
    toy.divided("wide", &[("0-3", 4, 4.0), ("4-7", 4, 4.0)], 100);
    toy.divided("goes", &[("0-3", 4, 4.0)], 100);
    assert_eq!(of_kind(&mut toy, 20, MoveKind::Load), []);
    let why = toy.why("goes");
    let refused = &why.clients[0].candidates[1].refused;
    let said = "4 of its vCPUs keep to one last-level cache, and node 1 has none as large";
    assert!(refused.iter().any(|refusal| refusal.because == said), "{refused:#?}");
}

#[test]
fn a_home_of_one_cache_takes_a_client_whole_and_its_groups_come_back() {
    let mut toy = Toy::new(TWO);
    for thread in toy.machine.threads.iter_mut().filter(|thread| thread.node == NodeId(1)) {
        thread.llc = Some(LlcId(2));
    }
    toy.divided("two", &[("0-3", 2, 1.0), ("4-7", 2, 1.0)], 10);
    toy.period();
    // It may live on node 1 only from now on, then on node 0 only.
    toy.vms[0].node_affinity = "1".parse().ok();
    let gone = of_kind(&mut toy, 3, MoveKind::Evacuate);
    assert_eq!((gone.len(), groups(&gone[0])), (1, Vec::new()));
    assert_eq!(toy.vms[0].clients[0].cpus.to_string(), "8-15");
    toy.vms[0].node_affinity = "0".parse().ok();
    let back = of_kind(&mut toy, 3, MoveKind::Evacuate);
    assert_eq!(groups(&back[0]), ["0-3", "4-7"]);
}

#[test]
fn why_says_how_loaded_caches_are_and_what_refuses_another() {
    let mut toy = Toy::new(TWO);
    toy.divided("one", &[("0-3", 2, 1.0), ("4-7", 2, 1.4)], 10);
    toy.periods(2);
    let why = toy.why("one");
    let [first, second] = &why.clients[0].groups[..] else { panic!("{why:#?}") };
    assert_eq!((first.cpus.to_string().as_str(), first.vcpus.as_slice()), ("0-3", &[0, 1][..]));
    assert!((first.load_percent - 25.0).abs() < 0.1 && (second.load_percent - 35.0).abs() < 0.1, "{why:#?}");
    let other = second.other.as_ref().expect("another cache");
    assert_eq!(other.cpus.to_string(), "0-3");
    assert_eq!(other.refused[0].threshold, "cache_imbalance_percent");
    assert_eq!(why.decisions, []);
}

#[derive(Clone, Debug)]
struct RandomVm {
    first: u32,
    groups: Vec<(u32, f64)>,
    fixed: bool,
}

fn random_vm() -> impl Strategy<Value = RandomVm> {
    (0u32..64, prop::collection::vec((1u32..5, 0.0f64..1.0), 1..5), 0u32..10)
        .prop_map(|(first, groups, fixed)| RandomVm { first, groups, fixed: fixed == 0 })
}

fn host() -> impl Strategy<Value = (Toy, u32)> {
    (1u32..4, 2u32..5, 2u32..5, 1u32..3, prop::collection::vec(random_vm(), 1..10)).prop_map(
        |(nodes, caches, cores, smt, vms)| {
            let mut toy =
                Toy::new(&format!("numa:{nodes}(memory=64GiB) l3:{caches}(size=16MiB) core:{cores} pu:{smt}"));
            let sets = cache_sets(&toy);
            for (index, vm) in vms.iter().enumerate() {
                let node = (vm.first % nodes * caches) as usize;
                let cpus = |group: usize| sets[node + (vm.first as usize + group * 3) % caches as usize].to_string();
                let texts: Vec<String> = (0..vm.groups.len()).map(cpus).collect();
                let group = |(text, &(vcpus, busy)): (&'_ String, &(u32, f64))| -> (String, u32, f64) {
                    let vcpus = vcpus.min(cores * smt);
                    (text.clone(), vcpus, f64::from(vcpus) * busy)
                };
                let groups: Vec<(String, u32, f64)> = texts.iter().zip(&vm.groups).map(group).collect();
                let groups: Vec<(&str, u32, f64)> = groups.iter().map(|(t, v, w)| (t.as_str(), *v, *w)).collect();
                let new = toy.divided(&format!("vm{index:02}"), &groups, 64);
                if vm.fixed {
                    new.mobility = Mobility::Fixed { because: "random".to_owned() };
                }
            }
            (toy, nodes)
        },
    )
}

/// CPUs under each cache, node by node.
fn cache_sets(toy: &Toy) -> Vec<CpuSet> {
    let mut sets: BTreeMap<(NodeId, LlcId), CpuSet> = BTreeMap::new();
    for thread in toy.machine.usable_threads() {
        sets.entry((thread.node, thread.llc.expect("a cache"))).or_default().insert(thread.id);
    }
    sets.into_values().collect()
}

fn spread(loads: &[f64]) -> f64 {
    let most = loads.iter().copied().fold(f64::MIN, f64::max);
    most - loads.iter().copied().fold(f64::MAX, f64::min)
}

/// Each group of a bind keeps to one cache of the home, and each vCPU is in one group.
fn check_groups(toy: &Toy, decision: &Decision) -> Result<(), TestCaseError> {
    let Action::Bind { vm, cpus, groups, .. } = &decision.action else { return Ok(()) };
    let sets = cache_sets(toy);
    for group in groups {
        prop_assert!(group.cpus.is_subset(cpus) && sets.contains(&group.cpus), "{decision:?}");
    }
    let known = toy.vms.iter().find(|known| known.key == *vm).expect("a VM");
    let mut vcpus: Vec<u32> = groups.iter().flat_map(|group: &VcpuGroup| group.vcpus.iter().copied()).collect();
    vcpus.sort_unstable();
    prop_assert_eq!(vcpus, (0..known.clients[0].vcpus).collect::<Vec<_>>());
    prop_assert!(!matches!(known.mobility, Mobility::Fixed { .. }), "{decision:?}");
    Ok(())
}

properties::properties! {
    #![cases(24)]

    #[test]
    fn caches_get_no_less_even_and_groups_rest(
        (mut toy, nodes) in host(),
        restless in any::<bool>(),
        seed in any::<u32>(),
    ) {
        // What is seen is then what counts.
        toy.policy.newest_percent = 100.0;
        let mut last: BTreeMap<(String, Vec<u32>), u64> = BTreeMap::new();
        for period in 0..60u32 {
            if restless {
                for (index, client) in (0u32..).zip(toy.vms.iter_mut().flat_map(|vm| &mut vm.clients)) {
                    for (nth, (group, wants)) in (0u32..).zip(&mut client.groups) {
                        let drawn = (seed ^ (period / 5) << 16 ^ index << 8 ^ nth).wrapping_mul(2_654_435_761) >> 8;
                        *wants = group.vcpus.len() as f64 * f64::from(drawn % 1000) / 1000.0;
                    }
                    client.wants = client.groups.iter().map(|(_, wants)| wants).sum();
                }
            }
            let decisions = toy.decide();
            for decision in &decisions {
                check_groups(&toy, decision)?;
            }
            let (inside, others): (Vec<_>, Vec<_>) = decisions.iter().partition(|one| one.kind == MoveKind::Cache);
            for decision in others {
                let done = toy.carry_out(&decision.action);
                prop_assert!(done.is_ok());
            }
            // Where all wants fit, loads are what groups want.
            let wanted: f64 = toy.vms.iter().flat_map(|vm| &vm.clients).map(|client| client.wants).sum();
            let fits = wanted <= toy.machine.usable_threads().count() as f64;
            let before: Vec<f64> = (0..nodes).map(|node| spread(&toy.cache_loads(node))).collect();
            for decision in inside {
                let vm = toy.vms.iter().find(|vm| vm.key == *decision.action.vm()).expect("a VM");
                let Action::Bind { groups, .. } = &decision.action else { continue };
                let moved: Vec<&VcpuGroup> = groups.iter()
                    .filter(|group| !vm.clients[0].groups.iter().any(|(known, _)| known == *group)).collect();
                prop_assert_eq!(moved.len(), 1, "{:?}", decision);
                let key = (vm.key.name.clone(), moved[0].vcpus.clone());
                if let Some(before) = last.insert(key, toy.at) {
                    let rest = u64::from(toy.policy.cache_rest_periods) * toy.policy.period_ms;
                    prop_assert!(toy.at - before >= rest, "{:?}", decision);
                }
                let done = toy.carry_out(&decision.action);
                prop_assert!(done.is_ok());
            }
            for (node, before) in (0..nodes).zip(before) {
                let after = spread(&toy.cache_loads(node));
                prop_assert!(!fits || after <= before + 0.5, "node {node}: {before} then {after}");
            }
            toy.at += toy.policy.period_ms;
            if !restless && period >= 50 {
                let late = decisions.iter().filter(|one| one.kind == MoveKind::Cache).count();
                prop_assert!(late == 0 || !fits, "{:#?}", decisions);
            }
        }
    }
}
