//! The balancer on the modelled host, held to laws by checkers that share no arithmetic with it;
//! and balancers that break them.

use crate::modelled;
use crate::modelled::{Outcome, check, limits, look, model};
use scheduler::balance::{BalancePolicy, BalanceState, MoveKind, record, step};
use scheduler::{Act, Action, Moment, Observation, Observe, VmKey};
use simulator::checkers::{Checker, Limits, Violation};
use simulator::host::{KernelRules, SimulatedHost, VmShape};
use simulator::traces::{RecordedTrace, Replay, Trace, TraceRule, TracedHost};
use simulator::{MaxMin, Profile, rivals};
use std::collections::BTreeMap;
use topology::{Bytes, NodeId, NodeSet};

/// What a balancer did in a run.
struct Watched {
    host: SimulatedHost,
    checker: Checker,
    violations: Vec<Violation>,
    binds: BTreeMap<MoveKind, u32>,
}

/// A balancer as the tests see it: actions from an observation.
type Balancer<'a> = dyn FnMut(&mut SimulatedHost, &Observation) -> Vec<(Option<MoveKind>, Outcome)> + 'a;

fn watch(machine: &str, trace: &Trace, limits: Limits, balancer: &mut Balancer<'_>) -> Watched {
    let solver = Box::new(MaxMin::default());
    let mut host = SimulatedHost::new(model(machine), solver, KernelRules::default(), trace.seed.unwrap_or(0));
    let (mut replay, mut checker) = (Replay::new(trace), Checker::new(limits));
    let (mut violations, mut binds) = (Vec::new(), BTreeMap::new());
    let mut now = Moment(0);
    while now < trace.ends {
        now = Moment(now.0 + 2000);
        replay.advance(&mut host, now, |_, _| ()).expect("rates");
        let before = look(&mut host);
        let done = balancer(&mut host, &before);
        for (kind, (action, outcome)) in &done {
            if let (Some(kind), Action::Bind { .. }, Ok(_)) = (kind, action, outcome) {
                *binds.entry(*kind).or_default() += 1;
            }
        }
        violations.extend(check(&mut checker, &before, &done, &host.peek()));
    }
    Watched { host, checker, violations, binds }
}

fn homenode(policy: BalancePolicy) -> impl FnMut(&mut SimulatedHost, &Observation) -> Vec<(Option<MoveKind>, Outcome)> {
    let mut state = BalanceState::default();
    move |host, observation| {
        let decisions = step(host.machine(), &policy, &mut state, observation);
        let carried = decisions.into_iter().map(|decision| {
            let outcome = host.carry_out(&decision.action);
            record(&policy, &mut state, &decision, &outcome);
            (Some(decision.kind), (decision.action, outcome))
        });
        carried.collect()
    }
}

fn trace(machine: &str, rule: &TraceRule, seed: u64) -> Trace {
    let trace = rule.generate(model(machine).machine(), seed);
    trace.check().expect("a valid trace");
    trace
}

fn told(violations: &[Violation]) -> String {
    violations.iter().take(8).map(|violation| format!("\n  {violation}")).collect()
}

/// 40 VMs that come, go and change, for some minutes.
fn lively() -> TraceRule {
    TraceRule { seconds: 200.0, vms: 40, mean_life_s: Some(150.0), mean_phase_s: Some(60.0), ..TraceRule::default() }
}

#[test]
fn no_law_is_broken_while_vms_come_and_go() {
    for (machine, seed, load) in [("dell-r910", 1, 0.6), ("dell-r910", 2, 1.5), ("hp-dl380-g6", 3, 0.8)] {
        let rule = TraceRule { load, vms: if machine == "dell-r910" { 40 } else { 12 }, ..lively() };
        let policy = BalancePolicy::default();
        let trace = trace(machine, &rule, seed);
        let watched = watch(machine, &trace, limits(&policy), &mut homenode(policy));
        assert!(watched.violations.is_empty(), "{machine}, seed {seed}:{}", told(&watched.violations));
        assert!(watched.binds.get(&MoveKind::Adopt).copied().unwrap_or(0) >= rule.vms, "{:?}", watched.binds);
    }
}

/// VMs that all start at once, stay, and always do the same.
fn constant(load: f64) -> TraceRule {
    TraceRule {
        seconds: 300.0,
        vms: 30,
        mean_life_s: None,
        mean_phase_s: None,
        storm_s: 5.0,
        load,
        ..TraceRule::default()
    }
}

/// Seconds after which nothing may move under constant load: memory has been touched and has
/// followed by then.
const SETTLED_S: u64 = 150;

#[test]
fn under_constant_load_it_comes_to_rest() {
    for (seed, load) in [(1, 0.4), (2, 0.7), (3, 0.9)] {
        let policy = BalancePolicy::default();
        let trace = trace("dell-r910", &constant(load), seed);
        let watched = watch("dell-r910", &trace, limits(&policy), &mut homenode(policy));
        assert!(watched.violations.is_empty(), "seed {seed}:{}", told(&watched.violations));
        let (bind, moved) = (watched.checker.last_bind().expect("adopted"), watched.checker.last_move());
        println!("seed {seed}, load {load}: last bind {bind:?}, last move {moved:?}, {:?}", watched.binds);
        assert!(
            bind.0 < SETTLED_S * 1000,
            "seed {seed}: threads are still bound anew at {bind:?}, {:?}",
            watched.binds
        );
        assert!(moved.is_none_or(|moved| moved.0 < SETTLED_S * 1000), "seed {seed}: memory still moves at {moved:?}");
        assert!(!watched.host.accounts().is_empty());
    }
}

#[test]
fn every_rival_conserves_cpus_and_bytes() {
    // Rivals act on the host themselves: what they did is the difference, so that only sums are
    // checked here.
    let open = Limits {
        moved_bytes_per_second: None,
        rebinds_per_period: None,
        return_s: 0.0,
        turn_s: 0.0,
        least_part: 0.0,
        window_s: 60.0,
    };
    let trace = trace(
        "dell-r910",
        &TraceRule { seconds: 60.0, vms: 20, storm_s: 10.0, mean_life_s: Some(60.0), ..lively() },
        5,
    );
    for name in rivals::OURS.iter().chain(&rivals::NAMES) {
        let mut rival = rivals::named(name, &BalancePolicy::default()).expect(name);
        let solver = Box::new(MaxMin::default());
        let mut host = SimulatedHost::new(model("dell-r910"), solver, rival.kernel(), 5);
        let (mut replay, mut checker, mut now) = (Replay::new(&trace), Checker::new(open.clone()), Moment(0));
        while now < trace.ends {
            now = Moment(now.0 + rival.period_ms());
            replay.advance(&mut host, now, |host, vm| rival.started(host, vm)).expect("rates");
            rival.period(&mut host);
            let seen = host.peek();
            let found = check(&mut checker, &seen, &[], &seen);
            assert!(found.is_empty(), "{}:{}", rival.name(), told(&found));
        }
    }
}

/// Laws that a balancer breaks.
fn broken(balancer: &mut Balancer<'_>) -> Vec<&'static str> {
    let trace = trace("hp-dl380-g6", &TraceRule { vms: 6, seconds: 200.0, storm_s: 1.0, ..constant(0.9) }, 9);
    let limits = Limits {
        moved_bytes_per_second: Some(100 << 20),
        rebinds_per_period: Some(2),
        return_s: 30.0,
        turn_s: 30.0,
        least_part: 0.5,
        window_s: 60.0,
    };
    let mut laws: Vec<&str> =
        watch("hp-dl380-g6", &trace, limits, balancer).violations.iter().map(|one| one.law).collect();
    laws.sort_unstable();
    laws.dedup();
    laws
}

fn bind_all(host: &mut SimulatedHost, seen: &Observation, node: u32) -> Vec<(Option<MoveKind>, Outcome)> {
    let cpus = modelled::cpus(host, &[node]);
    let clients = seen.vms.iter().flat_map(|vm| vm.clients.iter().map(|client| (vm.vm.clone(), client.id)));
    let bind = |(vm, client): (VmKey, _)| {
        let home: NodeSet = [NodeId(node)].into_iter().collect();
        let action = Action::Bind { vm, client, home, cpus: cpus.clone(), groups: Vec::new() };
        let outcome = host.carry_out(&action);
        (None, (action, outcome))
    };
    clients.map(bind).collect()
}

#[test]
fn a_balancer_that_goes_to_and_fro_is_caught() {
    let mut turn = 0;
    let laws = broken(&mut |host, seen| {
        turn += 1;
        bind_all(host, seen, turn % 2)
    });
    assert!(laws.contains(&"to and fro") && laws.contains(&"moves in a period"), "{laws:?}");
}

/// Laws that are broken where a client goes from node 0 to 1 and `back_s` later to 0 again. CPUs of
/// node 0 go offline at 20 s, if `loses_node`, and come back at 30 s; the move to node 1 is at 100
/// s.
fn broken_by_a_return(loses_node: bool, back_s: u64) -> Vec<&'static str> {
    let mut host = modelled::host("dell-r910", modelled::quiet(), 1);
    host.start(&VmShape::steady("one", 2, Bytes::GIB, 1.0, Profile::mixed()));
    let (mut checker, mut laws) = (Checker::new(limits(&BalancePolicy::default())), Vec::new());
    for second in (10..300).step_by(10) {
        host.advance(Moment(second * 1000)).expect("rates");
        if loses_node && (second == 20 || second == 30) {
            host.set_cpus_online(NodeId(0), second == 30);
        }
        let seen = look(&mut host);
        let node = [(10, 0), (100, 1), (100 + back_s, 0)].into_iter().find(|(at, _)| *at == second);
        let actions = node.map_or_else(Vec::new, |(_, node)| bind_all(&mut host, &seen, node));
        laws.extend(check(&mut checker, &seen, &actions, &host.peek()).iter().map(|one| one.law));
    }
    laws
}

#[test]
fn who_was_taken_off_its_home_left_it_then() {
    // Nobody goes back within 60 s. Bound to node 0 until 100 s: at 130 s that is 30 s ago.
    assert!(broken_by_a_return(false, 30).contains(&"to and fro"));
    assert!(!broken_by_a_return(false, 60).contains(&"to and fro"));
    // The kernel let it run on nodes 1 to 3 at 20 s, when node 0 lost its CPUs: at 130 s that is
    // 110 s ago.
    assert!(!broken_by_a_return(true, 30).contains(&"to and fro"));
}

#[test]
fn a_balancer_that_piles_all_on_one_node_starves_some() {
    // 6 VMs that want 90 % of 8 cores, on the 8 hardware threads of 4 cores.. with shares that
    // differ, somebody gets less than half.
    let rule = TraceRule { vms: 12, seconds: 200.0, storm_s: 1.0, ..constant(2.0) };
    let trace = trace("hp-dl380-g6", &rule, 9);
    let limits = Limits {
        moved_bytes_per_second: None,
        rebinds_per_period: None,
        return_s: 0.0,
        turn_s: 0.0,
        least_part: 0.75,
        window_s: 60.0,
    };
    let watched = watch("hp-dl380-g6", &trace, limits, &mut |host, seen| bind_all(host, seen, 0));
    assert!(watched.violations.iter().any(|one| one.law == "starved"), "{}", told(&watched.violations));
}

#[test]
fn a_balancer_that_moves_too_much_is_caught() {
    let mut to = 0;
    let laws = broken(&mut |host, seen| {
        to = 1 - to;
        let clients = seen.vms.iter().flat_map(|vm| vm.clients.iter().map(|client| (vm.vm.clone(), client.id)));
        let moves = clients.map(|(vm, client)| {
            let (from, to) = (NodeId(1 - to), NodeId(to));
            let action = Action::MoveMemory { vm, client, from, to, at_most: Bytes(4 << 30) };
            let outcome = host.carry_out(&action);
            (None, (action, outcome))
        });
        moves.collect()
    });
    assert!(laws.contains(&"bytes moved in a period"), "{laws:?}");
}

#[test]
fn books_that_do_not_add_up_are_caught() {
    // The host is honest; what it is said to have done is not.
    let laws = broken(&mut |host, seen| {
        let vm = seen.vms[0].vm.clone();
        let client = seen.vms[0].clients[0].id;
        let action = Action::MoveMemory { vm, client, from: NodeId(0), to: NodeId(1), at_most: Bytes(1 << 20) };
        let mut outcome = host.carry_out(&action);
        if let Ok(done) = &mut outcome {
            done.moved = Bytes(done.moved.0 * 2);
        }
        vec![(None, (action, outcome))]
    });
    assert!(laws.contains(&"bytes of an action") && laws.contains(&"at most so much"), "{laws:?}");
}

#[test]
fn what_a_look_gets_wrong_is_caught() {
    let policy = BalancePolicy::default();
    let trace = trace("hp-dl380-g6", &TraceRule { vms: 6, seconds: 60.0, ..constant(0.9) }, 9);
    let mut host = modelled::host("hp-dl380-g6", KernelRules::default(), 1);
    let mut replay = Replay::new(&trace);
    let (mut checker, mut laws) = (Checker::new(limits(&policy)), Vec::new());
    for second in (2..60).step_by(2) {
        replay.advance(&mut host, Moment(second * 1000), |_, _| ()).expect("rates");
        let mut seen = look(&mut host);
        if second == 40 {
            seen.vms[0].clients[0].cpu_used = seen.vms[0].clients[0].cpu_used.map(|used| used + 20.0);
            let memory = seen.vms[1].clients[0].memory.as_mut().expect("memory");
            memory.values_mut().for_each(|bytes| bytes.0 /= 2);
        }
        laws.extend(check(&mut checker, &seen, &[], &seen).iter().map(|one| one.law));
    }
    for law in ["CPUs of a client", "CPUs counted twice", "bytes of a node", "memory of a VM"] {
        assert!(laws.contains(&law), "{law} is not among {laws:?}");
    }
}

#[test]
fn a_trace_is_the_same_from_its_seed() {
    let trace = trace("dell-r910", &lively(), 11);
    assert!(trace == lively().generate(model("dell-r910").machine(), 11));
    assert!(trace != lively().generate(model("dell-r910").machine(), 12));
    let mut wrong = trace;
    wrong.arrivals[0].vm.clients[0].held_part = 1.5;
    let message = wrong.check().expect_err("1.5 is no part").to_string();
    assert!(message.contains("held_part: 1.5") && message.contains("arrival["), "{message}");
}

#[test]
fn what_was_seen_of_a_host_is_a_trace_of_it() {
    // A host runs a trace; what is seen of it becomes a trace again: the same VMs, coming, going
    // and wanting the same.
    let text = "seconds = 200\n[[vm]]\nname = \"web\"\nvcpus = 4\nmemory = \"1 GiB\"\nbusy = 2.5\n\n[[vm]]\nname = \
        \"db\"\narrives = 40\nends = 160\nvcpus = 6\nvirtual_nodes = 2\nmemory = \"2 GiB\"\n[[vm.phase]]\nbusy = \
        1\n[[vm.phase]]\nafter = 60\nbusy = 4\n";
    let written = Trace::from_toml(text, "day.toml").expect("a trace");
    let mut host = TracedHost::new(model("hp-dl380-g6"), Box::new(MaxMin::default()), &written, 2000);
    let mut recorded = RecordedTrace::default();
    while !host.has_ended() {
        recorded.add(&host.observe().expect("a look"));
    }
    let (trace, left_out) = recorded.finish("seen");
    assert_eq!((trace.check(), left_out, trace.arrivals.len()), (Ok(()), Vec::new(), 2));
    let [web, db] = &trace.arrivals[..] else { panic!() };
    assert_eq!((web.vm.name.as_str(), web.at, web.leaves), ("web", Moment(0), None));
    assert!(web.vm.clients[0].phases.iter().all(|phase| (phase.busy - 2.5).abs() < 0.01), "{:?}", web.vm);
    // It came between the looks at 38 and 40 s after the first one, which was 2 s after the
    // beginning.
    assert_eq!((db.at, db.leaves, db.vm.clients.len()), (Moment(38_000), Some(Moment(158_000)), 2));
    let busy: Vec<f64> = db.vm.clients[0].phases.iter().map(|phase| phase.busy).collect();
    assert!((busy[0] - 0.5).abs() < 0.01 && (busy[3] - 2.0).abs() < 0.01, "{busy:?}");
    assert_eq!(db.vm.clients[0].memory, Bytes::GIB);
}

#[test]
fn what_was_never_known_is_left_out_and_said() {
    let mut host = modelled::host("hp-dl380-g6", KernelRules::default(), 1);
    let shape = VmShape::steady("dark", 2, Bytes::GIB, 1.0, Profile::mixed());
    host.start(&shape);
    let mut recorded = RecordedTrace::default();
    for second in 1..5 {
        host.advance(Moment(second * 2000)).expect("rates");
        let mut seen = look(&mut host);
        seen.vms[0].clients[0].memory = None;
        recorded.add(&seen);
    }
    let (trace, left_out) = recorded.finish("seen");
    assert_eq!((trace.arrivals.len(), left_out.len()), (0, 1));
    assert!(left_out[0].contains("VM dark"), "{left_out:?}");
}

#[test]
fn a_generated_trace_is_what_its_rule_says() {
    let model = model("dell-r910");
    let rule = TraceRule { seconds: 6.0 * 3600.0, ..TraceRule::default() };
    let trace = rule.generate(model.machine(), 4);
    let there = |at: u64| {
        let is_there = |arrival: &&simulator::traces::Arrival| {
            arrival.at.0 <= at && arrival.leaves.is_none_or(|leaves| leaves.0 > at)
        };
        trace.arrivals.iter().filter(is_there).collect::<Vec<_>>()
    };
    let counts: Vec<usize> = (1..6).map(|hour| there(hour * 3_600_000).len()).collect();
    let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    assert!((25.0..=55.0).contains(&mean), "{counts:?} of {} VMs", rule.vms);
    for hour in 1..6 {
        let memory: u64 = there(hour * 3_600_000).iter().map(|arrival| arrival.vm.memory().0).sum();
        assert!(memory as f64 <= 0.71 * (256u64 << 30) as f64, "{memory}");
    }
    assert!(trace.arrivals.iter().any(|arrival| arrival.vm.clients.len() > 1), "no wide VM");
    assert!(trace.arrivals.iter().any(|arrival| arrival.vm.vcpus() <= 2), "no small VM");
}

/// Moves of two VMs that prefer hardware threads, one of which goes idle after five minutes.
fn moves_of_two_that_prefer(threads: bool) -> BTreeMap<MoveKind, u32> {
    let vm = |name: &str, later: f64| {
        format!(
            "[[vm]]\nname = \"{name}\"\nvcpus = 8\nmemory = \"8 GiB\"\nkind = \"streaming\"\nprefer_ht = {threads}\n\
            [[vm.phase]]\nbusy = 8\n[[vm.phase]]\nafter = 300\nbusy = {later}\n"
        )
    };
    let text = format!("seconds = 900\n{}{}", vm("one", 8.0), vm("two", 0.05));
    let trace = Trace::from_toml(&text, "two").expect("a trace");
    watch("hp-dl380-g6", &trace, limits(&BalancePolicy::default()), &mut homenode(BalancePolicy::default())).binds
}

#[test]
fn a_vm_that_prefers_hardware_threads_stays_where_the_other_goes_idle() {
    // A node has 4 cores of two threads: the same VMs get both nodes where they do not prefer that.
    assert_eq!(moves_of_two_that_prefer(true), BTreeMap::from([(MoveKind::Adopt, 2)]));
    assert!(moves_of_two_that_prefer(false).contains_key(&MoveKind::Load));
}
