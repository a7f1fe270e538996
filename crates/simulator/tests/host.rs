//! The modelled host by worked examples: CPUs, first touch, moving, what remote memory costs.

use crate::modelled;
use crate::modelled::{cpus, host, look, quiet, resident_mib};
use scheduler::{Act, Action, ActionError, ClientId, Done, Mobility, Moment, VmKey};
use simulator::host::{KernelRules, Phase, SimulatedHost, VmShape};
use simulator::{Profile, rivals};
use topology::{Bytes, CpuSet, NodeId, NodeSet};

const GIB: Bytes = Bytes::GIB;

/// dell-r910: 4 nodes, 8 cores of 2 threads and 64 GiB each.
const MACHINE: &str = "dell-r910";

fn bind(host: &mut SimulatedHost, vm: &VmKey, nodes: &[u32]) -> Result<Done, ActionError> {
    let home: NodeSet = nodes.iter().copied().map(NodeId).collect();
    let cpus = cpus(host, nodes);
    host.carry_out(&Action::Bind { vm: vm.clone(), client: ClientId(0), home, cpus, groups: Vec::new() })
}

fn move_memory(host: &mut SimulatedHost, vm: &VmKey, from: u32, to: u32, at_most: Bytes) -> Result<Done, ActionError> {
    let (client, from, to) = (ClientId(0), NodeId(from), NodeId(to));
    host.carry_out(&Action::MoveMemory { vm: vm.clone(), client, from, to, at_most })
}

fn vm(name: &str, vcpus: u32, gib: u64, busy: f64) -> VmShape {
    VmShape::steady(name, vcpus, Bytes(gib * GIB.0), busy, Profile::chasing())
}

#[test]
fn a_bound_vm_touches_memory_where_it_runs() {
    let mut host = host(MACHINE, quiet(), 1);
    let key = host.start(&vm("a", 4, 8, 4.0));
    bind(&mut host, &key, &[2]).expect("bound");
    host.advance(Moment(4000)).expect("rates");
    assert_eq!(resident_mib(&host, 0), [(2, 8192)]);
    // 64 GiB less the kernel's 1 / 32 and the VM's 8.
    assert_eq!(host.peek().nodes[&NodeId(2)].memory_free, Some(Bytes(54 * GIB.0)));
}

#[test]
fn memory_that_does_not_fit_comes_from_the_nearest_node() {
    let mut host = host(MACHINE, quiet(), 1);
    let key = host.start(&vm("a", 4, 80, 4.0));
    bind(&mut host, &key, &[1]).expect("bound");
    host.advance(Moment(4000)).expect("rates");
    let resident = resident_mib(&host, 0);
    assert_eq!(resident.iter().map(|(_, mib)| mib).sum::<u64>(), 80 * 1024);
    assert!(resident.contains(&(1, 62 * 1024)), "{resident:?}");
}

#[test]
fn cpus_are_shared_by_weight_and_the_wait_is_seen() {
    let mut host = host(MACHINE, quiet(), 1);
    // 16 hardware threads; two VMs that want 16 each, one of double weight: 5.33 and 10.67.
    let light = host.start(&vm("light", 16, 1, 16.0));
    let heavy = host.start(&VmShape { shares: 2048, ..vm("heavy", 16, 1, 16.0) });
    for key in [&light, &heavy] {
        bind(&mut host, key, &[0]).expect("bound");
    }
    look(&mut host);
    host.advance(Moment(2000)).expect("rates");
    let seen = look(&mut host);
    let of = |name: &str| seen.vms.iter().find(|vm| vm.vm.name == name).expect(name).clients[0].clone();
    assert!((of("light").cpu_used.expect("used") - 16.0 / 3.0).abs() < 1e-9);
    assert!((of("heavy").cpu_used.expect("used") - 32.0 / 3.0).abs() < 1e-9);
    assert!((of("heavy").cpu_waited.expect("waited") - 16.0 / 3.0).abs() < 1e-9);
    assert!((seen.nodes[&NodeId(0)].cpu_used.expect("used") - 16.0).abs() < 1e-9);
}

/// Throughput of a VM of 4 busy vCPUs on node 0 with its memory on a node.
fn throughput(memory: u32, profile: Profile) -> f64 {
    let mut host = host(MACHINE, quiet(), 1);
    let key = host.start(&VmShape::steady("a", 4, GIB, 4.0, profile));
    bind(&mut host, &key, &[memory]).expect("bound");
    host.advance(Moment(1)).expect("rates");
    bind(&mut host, &key, &[0]).expect("bound");
    let before = host.accounts()[0].clone();
    host.advance(Moment(60_001)).expect("rates");
    let after = host.accounts()[0].clone();
    (after.progress_s - before.progress_s) / (after.wanted_s - before.wanted_s)
}

#[test]
fn remote_memory_costs_what_its_latency_says() {
    let model = modelled::model(MACHINE);
    let (near, far) = (model.latency_ns(NodeId(0), NodeId(0)), model.latency_ns(NodeId(0), NodeId(3)));
    // One load in flight and 20 ns of work on each: the time of a line is the latency and the work.
    let expected = (near + 20.0) / (far + 20.0);
    assert!((throughput(0, Profile::chasing()) - 1.0).abs() < 0.01);
    let remote = throughput(3, Profile::chasing());
    assert!((remote - expected).abs() < 0.02, "{remote} against {expected}");
    assert!(throughput(3, Profile::computing()) > remote, "who works in caches suffers less");
}

#[test]
fn two_threads_on_a_core_yield_less_than_two_cores() {
    let smt_yield = modelled::model(MACHINE).rates().smt_yield.as_ref().expect("SMT").value;
    let mut host = host(MACHINE, quiet(), 1);
    // Never waits for memory worth a word: 200 ns of work a line, so that the core's speed is all.
    let key = host.start(&VmShape::steady("a", 16, GIB, 16.0, Profile::computing()));
    bind(&mut host, &key, &[0]).expect("bound");
    host.advance(Moment(60_000)).expect("rates");
    let account = &host.accounts()[0];
    // Ideal: 16 vCPUs on the 16 cores of two nodes. Here: 8 cores with two threads each.
    let reached = account.throughput().expect("busy");
    assert!((reached - smt_yield / 2.0).abs() < 0.02, "{reached} against {}", smt_yield / 2.0);
}

#[test]
fn moving_memory_takes_what_was_asked_and_costs_a_cpu() {
    let mut host = host(MACHINE, quiet(), 1);
    let key = host.start(&vm("a", 4, 8, 4.0));
    bind(&mut host, &key, &[0]).expect("bound");
    host.advance(Moment(2000)).expect("rates");
    let done = move_memory(&mut host, &key, 0, 1, Bytes(2 * GIB.0)).expect("moved");
    assert_eq!(done, Done { moved: Bytes(2 * GIB.0), left: Bytes(0), because: None });
    assert_eq!(resident_mib(&host, 0), [(0, 6144), (1, 2048)]);
    look(&mut host);
    host.advance(Moment(4000)).expect("rates");
    let seen = look(&mut host);
    // 2 GiB at 2 GiB/s are one second of one CPU of the target, in a look of two seconds.
    assert!((seen.nodes[&NodeId(1)].cpu_used.expect("used") - 0.5).abs() < 1e-6, "{seen:?}");
    // The copier is 2 s behind at most: of 6 GiB asked for at once, 4 go.
    let done = move_memory(&mut host, &key, 0, 1, Bytes(6 * GIB.0)).expect("moved");
    assert_eq!((done.moved, done.left), (Bytes(4 * GIB.0), Bytes(2 * GIB.0)));
    assert!(done.because.expect("a reason").contains("lags"));
}

#[test]
fn what_is_pinned_or_does_not_fit_stays_and_is_told() {
    let rules = KernelRules { copy_bytes_per_second: 1 << 40, ..quiet() };
    let mut host = host(MACHINE, rules, 1);
    let because = "VFIO pins all of its memory".to_owned();
    let device = host.start(&VmShape { mobility: Mobility::MemoryFixed { because }, ..vm("device", 2, 2, 2.0) });
    let mut shape = vm("held", 2, 2, 2.0);
    shape.clients[0].held_part = 0.25;
    let held = host.start(&shape);
    let large = host.start(&vm("large", 2, 61, 2.0));
    for (key, node) in [(&device, 0), (&held, 0), (&large, 1)] {
        bind(&mut host, key, &[node]).expect("bound");
    }
    host.advance(Moment(2000)).expect("rates");
    let done = move_memory(&mut host, &device, 0, 2, GIB).expect("told");
    assert_eq!((done.moved, done.left), (Bytes(0), GIB));
    // A quarter of its 2 GiB is held for good, however often one asks.
    for _ in 0..3 {
        move_memory(&mut host, &held, 0, 2, Bytes(2 * GIB.0)).expect("told");
    }
    assert_eq!(resident_mib(&host, 1), [(0, 512), (2, 1536)]);
    // Node 1 has 62 GiB for VMs: 1 is left.
    let done = move_memory(&mut host, &held, 2, 1, Bytes(1536 << 20)).expect("told");
    assert_eq!((done.moved, done.left), (GIB, Bytes(512 << 20)));
    assert!(done.because.expect("a reason").contains("free memory"));
}

#[test]
fn actions_that_cannot_be_carried_out_say_why_and_change_nothing() {
    let mut host = host(MACHINE, quiet(), 1);
    let because = "its administrator opted out".to_owned();
    let fixed = host.start(&VmShape { mobility: Mobility::Fixed { because }, ..vm("fixed", 2, 2, 2.0) });
    let gone = host.start(&vm("gone", 2, 2, 2.0));
    assert!(host.end(&gone) && !host.end(&gone));
    let before = host.peek();
    let error = bind(&mut host, &fixed, &[0]).expect_err("fixed");
    assert!(error.to_string().contains("its administrator opted out"), "{error}");
    assert_eq!(bind(&mut host, &gone, &[0]), Err(ActionError::Gone { vm: "gone".to_owned() }));
    let other = host.start(&vm("other", 2, 2, 2.0));
    let nowhere = Action::Bind {
        vm: other.clone(),
        client: ClientId(0),
        home: NodeSet::new(),
        cpus: CpuSet::new(),
        groups: Vec::new(),
    };
    assert!(host.carry_out(&nowhere).is_err());
    let second = Action::Bind {
        vm: other.clone(),
        client: ClientId(1),
        home: NodeSet::new(),
        cpus: CpuSet::new(),
        groups: Vec::new(),
    };
    assert!(host.carry_out(&second).expect_err("one client").to_string().contains("client 1 of 1"));
    assert!(host.end(&other));
    assert_eq!(host.peek(), before);
}

#[test]
fn at_first_sight_nothing_is_known_of_the_past() {
    let mut host = host(MACHINE, quiet(), 1);
    host.start(&vm("a", 2, 2, 2.0));
    host.advance(Moment(1000)).expect("rates");
    assert_eq!(look(&mut host).vms[0].clients[0].cpu_used, None);
    host.advance(Moment(2000)).expect("rates");
    assert_eq!(look(&mut host).vms[0].clients[0].cpu_used, Some(2.0));
}

#[test]
fn phases_begin_at_their_moment() {
    let mut host = host(MACHINE, quiet(), 1);
    let mut shape = vm("a", 2, 2, 2.0);
    let first = shape.clients[0].phases[0];
    shape.clients[0].phases.push(Phase { after_ms: 500, busy: 0.5, ..first });
    host.start(&shape);
    look(&mut host);
    host.advance(Moment(1000)).expect("rates");
    // Half a second of 2 and half a second of 0.5: the client was there when the host was first
    // looked at.
    assert_eq!(look(&mut host).vms[0].clients[0].cpu_used, Some(1.25));
}

#[test]
fn threads_leave_a_node_whose_cpus_go_offline() {
    let mut host = host(MACHINE, quiet(), 1);
    let key = host.start(&vm("a", 4, 4, 4.0));
    bind(&mut host, &key, &[1]).expect("bound");
    host.advance(Moment(2000)).expect("rates");
    assert!(host.set_cpus_online(NodeId(1), false));
    // Linux lets a thread run anywhere when none of its CPUs is left.
    assert_eq!(host.peek().vms[0].clients[0].cpus, cpus(&host, &[0, 2, 3]));
    assert!(host.peek().nodes[&NodeId(1)].cpus.is_empty());
    assert!(host.take_away(NodeId(1)));
    assert!(!host.peek().nodes.contains_key(&NodeId(1)));
    assert_eq!(resident_mib(&host, 0).iter().map(|(_, mib)| mib).sum::<u64>(), 4096);
    assert!(host.bring_back(NodeId(1)) && host.peek().nodes.contains_key(&NodeId(1)));
    for node in [0, 1, 2] {
        assert!(host.set_cpus_online(NodeId(node), false));
    }
    assert!(!host.set_cpus_online(NodeId(3), false), "the last CPUs stay");
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_last_bit() {
    let model = modelled::model(MACHINE);
    let rule = simulator::traces::TraceRule { seconds: 300.0, vms: 30, ..Default::default() };
    let trace = rule.generate(model.machine(), 7);
    let run = || {
        let solver = Box::new(simulator::MaxMin::default());
        let host = rivals::run(&model, solver, &trace, &mut rivals::KernelAutoNuma).expect("rates");
        (host.accounts(), host.peek())
    };
    assert_eq!(run(), run());
}

#[test]
fn the_kernels_numa_balancing_brings_memory_to_the_threads() {
    let rules = |auto_numa| KernelRules { auto_numa, ..KernelRules::default() };
    let remote = |auto_numa| {
        let mut host = host(MACHINE, rules(auto_numa), 3);
        let key = host.start(&vm("a", 4, 4, 4.0));
        bind(&mut host, &key, &[0]).expect("bound");
        host.advance(Moment(10_000)).expect("rates");
        bind(&mut host, &key, &[1]).expect("bound");
        host.advance(Moment(300_000)).expect("rates");
        resident_mib(&host, 0)
    };
    assert_eq!(remote(None), [(0, 4096)]);
    let with = remote(Some(Default::default()));
    assert!(with.iter().any(|&(node, mib)| node == 1 && mib > 3 * 1024), "{with:?}");
}
