//! What holds for every host and every load.

use super::toy::{self, Toy, ToyClient};
use proptest::prelude::*;
use scheduler::balance::{BalancePolicy, Decision, MoveKind, step};
use scheduler::{Action, Mobility, VmKey};
use std::collections::BTreeMap;
use topology::{Bytes, NodeId};

#[derive(Clone, Debug)]
struct RandomVm {
    clients: usize,
    vcpus: u32,
    busy: f64,
    bound: Option<u32>,
    memory_node: u32,
    memory_mib: u64,
    untouched_mib: u64,
    mobility: u8,
    shares: u32,
    choice: u8,
}

fn vm() -> impl Strategy<Value = RandomVm> {
    let home = prop_oneof![Just(None), (0u32..8).prop_map(Some)];
    let size = (0u32..8, 16u64..3000, 0u64..1000);
    (prop_oneof![5 => Just(1usize), 1 => Just(2)], 1u32..6, 0.0f64..1.0, home, size, 0u8..10, (1u32..4, 0u8..12))
        .prop_map(
            |(clients, vcpus, busy, bound, (memory_node, memory_mib, untouched_mib), mobility, (shares, choice))| {
                RandomVm {
                    clients,
                    vcpus,
                    busy,
                    bound,
                    memory_node,
                    memory_mib,
                    untouched_mib,
                    mobility,
                    shares: shares * 512,
                    choice,
                }
            },
        )
}

pub(super) fn toy() -> impl Strategy<Value = Toy> {
    let nodes = prop_oneof![Just(2u32), Just(3), Just(4), Just(8)];
    let distances = prop::collection::vec(11u32..=40, 64);
    (nodes, 2u32..9, 1u32..3, prop::collection::vec(vm(), 1..30), distances).prop_map(
        |(nodes, cores, smt, vms, distances)| {
            let mut toy = Toy::new(&format!("numa:{nodes}(memory=16GiB) core:{cores} pu:{smt}"));
            let entry = |i: u32, j: u32| if i == j { 10 } else { distances[(i.min(j) * 8 + i.max(j)) as usize] };
            toy.distance_rows((0..nodes).map(|i| (0..nodes).map(|j| entry(i, j)).collect()).collect());
            for (index, vm) in vms.iter().enumerate() {
                let (bound, memory) = (vm.bound.map(|node| node % nodes), vm.memory_node % nodes);
                let wants = f64::from(vm.vcpus) * vm.busy;
                if toy.free(NodeId(memory)) < Bytes::from_mib(vm.memory_mib * vm.clients as u64) {
                    continue;
                }
                let new = toy.vm(&format!("vm{index:02}"), vm.vcpus, wants, bound, &[(memory, vm.memory_mib)]);
                new.clients[0].size = Bytes::from_mib(vm.memory_mib + vm.untouched_mib);
                new.clients[0].chosen = (vm.choice < 2).then(|| [NodeId(memory)].into_iter().collect());
                new.clients[0].unknown = (vm.choice == 2).then(|| "random".to_owned());
                let client: ToyClient = new.clients[0].clone();
                new.clients = vec![client; vm.clients];
                new.shares = vm.shares;
                new.mobility = match vm.mobility {
                    0 => Mobility::Fixed { because: "random".to_owned() },
                    1 => Mobility::MemoryFixed { because: "random".to_owned() },
                    _ => Mobility::Movable,
                };
            }
            toy
        },
    )
}

fn is_bind(decision: &Decision) -> bool {
    matches!(decision.action, Action::Bind { .. })
}

/// Every action is one that the host can carry out.
fn check_actions(toy: &Toy, decisions: &[Decision]) -> Result<(), TestCaseError> {
    let mut coming: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut moving = 0;
    for decision in decisions {
        let vm = toy.vms.iter().find(|vm| vm.key == *decision.action.vm()).expect("a VM that is there");
        let client = &vm.clients[decision.action.client().0 as usize];
        prop_assert!(!matches!(vm.mobility, Mobility::Fixed { .. }), "{decision:?}");
        prop_assert!(!decision.because.is_empty());
        match &decision.action {
            Action::Bind { home, cpus, .. } => {
                prop_assert!(client.chosen.as_ref().is_none_or(|chosen| home.is_subset(chosen)), "{decision:?}");
                prop_assert!(client.unknown.is_none() || decision.kind == MoveKind::Evacuate, "{decision:?}");
                let all: topology::CpuSet =
                    home.iter().flat_map(|node| toy.cpus(node.0).iter().collect::<Vec<_>>()).collect();
                prop_assert!(!cpus.is_empty() && *cpus == all, "{decision:?}");
                prop_assert!(*cpus != client.cpus, "{decision:?}");
            }
            Action::MoveMemory { from, to, at_most, .. } => {
                prop_assert!(client.chosen.as_ref().is_none_or(|chosen| chosen.contains(*to)), "{decision:?}");
                prop_assert!(matches!(vm.mobility, Mobility::Movable));
                prop_assert!(from != to && client.memory.get(from).is_some_and(|here| here >= at_most), "{decision:?}");
                *coming.entry(*to).or_default() += at_most.0;
                moving += at_most.0;
            }
        }
    }
    for (node, bytes) in coming {
        prop_assert!(bytes <= toy.free(node).0, "node {node}");
    }
    prop_assert!(moving <= toy.policy.move_bytes_per_second.0 * toy.policy.period_ms / 1000);
    let optional =
        |decision: &&Decision| is_bind(decision) && !matches!(decision.kind, MoveKind::Adopt | MoveKind::Evacuate);
    prop_assert!(decisions.iter().filter(optional).count() as u32 <= toy.policy.moves_per_period);
    Ok(())
}

/// A client that was moved is left alone for the rest, and does not go back for load or locality.
fn check_rest(log: &[(u64, Decision)], policy: &BalancePolicy) -> Result<(), TestCaseError> {
    let mut last: BTreeMap<(VmKey, u32), (u64, String)> = BTreeMap::new();
    let mut homes: BTreeMap<(VmKey, u32), Vec<(u64, String)>> = BTreeMap::new();
    for (at, decision) in log.iter().filter(|(_, decision)| is_bind(decision)) {
        let Action::Bind { vm, client, home, .. } = &decision.action else { continue };
        let key = (vm.clone(), client.0);
        if let Some((before, _)) = last.insert(key.clone(), (*at, home.to_string())) {
            prop_assert!(at - before >= u64::from(policy.rest_periods) * policy.period_ms, "{decision:?}");
        }
        homes.entry(key).or_default().push((*at, home.to_string()));
    }
    Ok(())
}

/// Clients that were moved to one node and whose memory has not come: the balancer started what it
/// could not finish.
fn behind(toy: &Toy) -> Vec<(String, u64)> {
    let mut behind = Vec::new();
    for vm in toy.vms.iter().filter(|vm| vm.mobility == Mobility::Movable) {
        for (id, client) in (0..).map(scheduler::ClientId).zip(&vm.clients) {
            let known = toy.state.client(&vm.key, id).expect("every client is known");
            let Some(home) = known.home.first().filter(|_| known.home.len() == 1 && known.bound.is_some()) else {
                continue;
            };
            let all: u64 = client.memory.values().map(|bytes| bytes.0).sum();
            let away = all - client.memory.get(&home).map_or(0, |bytes| bytes.0);
            if away > (all / 50).max(2 << 20) {
                behind.push((vm.key.name.clone(), away));
            }
        }
    }
    behind
}

/// Every action can be carried out, and a constant load comes to rest.
pub(super) fn comes_to_rest(mut toy: Toy) -> Result<(), TestCaseError> {
    for _ in 0..200 {
        let decisions = toy.decide();
        check_actions(&toy, &decisions)?;
        for decision in &decisions {
            let outcome = toy.carry_out(&decision.action);
            scheduler::balance::record(&toy.policy, &mut toy.state, decision, &outcome);
            prop_assert!(outcome.is_ok_and(|done| done.left.0 == 0), "{decision:?}");
            toy.log.push((toy.at, decision.clone()));
        }
        toy.at += toy.policy.period_ms;
    }
    check_rest(&toy.log, &toy.policy)?;
    let turns = toy.log.iter().any(|(_, decision)| decision.kind == MoveKind::Fairness);
    prop_assert!(turns || behind(&toy).is_empty(), "{:?}", behind(&toy));
    // Those that wait take turns for ever; everything else has ended.
    let late = |decision: &&Decision| is_bind(decision) && decision.kind != MoveKind::Fairness;
    let moves = toy.periods(40);
    prop_assert!(turns || moves.iter().filter(late).count() == 0, "{:#?}", moves);
    Ok(())
}

properties::properties! {
    #![cases(16)]

    #[test]
    fn every_action_can_be_carried_out_and_constant_load_comes_to_rest(toy in toy()) {
        comes_to_rest(toy)?;
    }

    #[test]
    fn the_order_of_the_vms_does_not_matter(mut toy in toy(), turn in 0usize..30) {
        let mut other = toy.clone();
        let count = other.vms.len();
        other.vms.rotate_left(turn % count);
        other.vms.reverse();
        for _ in 0..12 {
            prop_assert_eq!(toy.period(), other.period());
        }
        prop_assert_eq!(&toy.state, &other.state);
    }

    #[test]
    fn the_same_state_and_observation_give_the_same_decisions(mut toy in toy()) {
        toy.periods(3);
        let (mut one, mut two) = (toy.state.clone(), toy.state.clone());
        let observation = toy.observe();
        let first = step(&toy.machine, &toy.policy, &mut one, &observation);
        prop_assert_eq!(first, step(&toy.machine, &toy.policy, &mut two, &observation));
        prop_assert_eq!(one, two);
    }

    #[test]
    fn a_restart_of_a_host_at_rest_binds_nothing(mut toy in toy()) {
        toy.policy.fairness_periods = 0;
        toy.periods(200);
        let binds = |toy: &Toy| -> Vec<String> {
            let of = |decision: Decision| is_bind(&decision).then(|| format!("{:?} {:?} \
                {}", decision.kind, toy::bind(&decision), decision.because));
            toy.clone().periods(30).into_iter().filter_map(of).collect()
        };
        prop_assume!(binds(&toy).is_empty());
        // A home of all nodes looks like none: what floats gets a home as soon as one has room.
        let nodes = toy.machine.nodes.len();
        let fixed = |key: &VmKey| toy.vms.iter().any(|vm| vm.key == *key && matches!(vm.mobility, Mobility::Fixed { .. }));
        prop_assume!(toy.state.homes().all(|(vm, _, home)| home.len() < nodes || fixed(vm)));
        toy.forget();
        prop_assert_eq!(binds(&toy), Vec::<String>::new());
    }

    #[test]
    fn waiting_never_grows(mut toy in toy()) {
        let waits = |toy: &Toy| -> f64 {
            let used: f64 = toy.used().iter().flatten().sum();
            toy.vms.iter().flat_map(|vm| &vm.clients).map(|client| client.wants).sum::<f64>() - used
        };
        // The toy gives a VM that floats the same part of each node; a kernel, and the balancer's
        // sums, what is left there.
        let nodes = toy.machine.nodes.len();
        let floats = |client: &ToyClient| toy.nodes_of(&client.cpus).len() == nodes;
        let fixed: Vec<VmKey> = toy.vms.iter().filter(|vm| matches!(vm.mobility, Mobility::Fixed { .. }) && vm.clients.iter().any(floats)).map(|vm| vm.key.clone()).collect();
        toy.vms.retain(|vm| !fixed.contains(&vm.key));
        // On a host that has less than all want, some wait for what they are not entitled to, and
        // nobody minds how much.
        let cpus = toy.machine.usable_threads().count() as f64;
        let wanted: f64 = toy.vms.iter().flat_map(|vm| &vm.clients).map(|client| client.wants).sum();
        let part = (0.9 * cpus / wanted).min(1.0);
        toy.vms.iter_mut().flat_map(|vm| &mut vm.clients).for_each(|client| client.wants *= part);
        // Homes first: a VM that floats over idle nodes waits less than any that has a home.
        toy.policy.fairness_periods = 0;
        // Nearer memory may be worth some waiting.
        toy.policy.locality_weight = 0.0;
        toy.period();
        let before = waits(&toy);
        let mut story = Vec::new();
        for _ in 0..100 {
            let decisions = toy.period();
            let binds = decisions.iter().filter(|decision| is_bind(decision));
            story.extend(binds.map(|one| format!("{:?} {:?}: {}", one.kind, toy::bind(one), one.because)));
            if decisions.iter().any(is_bind) {
                story.push(format!("at {} s {:.2} CPUs wait", toy.at / 1000, waits(&toy)));
            }
        }
        prop_assert!(waits(&toy) <= before + 0.3, "{before:.2} CPUs waited\n{}", story.join("\n"));
    }
}
