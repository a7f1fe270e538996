//! A VM that runs as it is defined has the findings of its definition; and what only shows when it
//! runs.

use judge::{Binding, Finding, Known, Severity, ShapedNode, ShapedVm};
use proptest::prelude::*;
use scheduler::balance::{BalancePolicy, BalanceState, homes, step};
use scheduler::{
    Backing, ClientId, ClientObservation, Mobility, NodeObservation, Observation, Occupancy, OtherThread,
    OtherThreadKind, PolicyOfMemory, SchedulingClass, VmKey, VmLimits, VmObservation,
};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuId, CpuSet, Machine, NodeId, NodeSet, read};
use vm::qemu::GuestCpus;

fn machines() -> Vec<Machine> {
    let synthetic = |text: &str| read::from_synthetic(text).expect(text);
    vec![
        synthetic("pack:2 [numa(memory=8GB)] l3:2 core:2 pu:2"),
        synthetic("pack:4 [numa(memory=8GB)] l3:1 core:2 pu:1"),
        synthetic("pack:1 [numa(memory=16GB)] l3:1 core:4 pu:1"),
    ]
}

#[derive(Clone, Debug)]
struct Drawn {
    machine: usize,
    /// vCPUs of each virtual node.
    nodes: Vec<usize>,
    gib: u64,
    /// For each vCPU: no pin, or a range of CPUs.
    pins: Vec<Option<(u32, u32)>>,
    emulator: Option<(u32, u32)>,
    iothread: Option<Option<(u32, u32)>>,
    /// For each virtual node: no policy, or its mode, first node and how many more.
    policies: Vec<Option<(usize, u32, u32)>>,
    sockets: u32,
    threads: u32,
    distance: Option<u32>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let range = || (0..4u32, 0..4u32).prop_map(|(first, more)| (first, first + more));
    let shape = (0..3usize, prop::collection::vec(1..5usize, 1..4), 1..4u64, 1..4u32, 1..3u32);
    let pins = (
        prop::collection::vec(prop::option::weighted(0.7, range()), 16),
        prop::option::of(range()),
        prop::option::of(prop::option::of(range())),
    );
    let policies = prop::collection::vec(prop::option::of((0..2usize, 0..4u32, 0..2u32)), 4);
    (shape, pins, policies, prop::option::of(11..40u32)).prop_map(|(shape, pins, policies, distance)| Drawn {
        machine: shape.0,
        nodes: shape.1,
        gib: shape.2,
        sockets: shape.3,
        threads: shape.4,
        pins: pins.0,
        emulator: pins.1,
        iothread: pins.2,
        policies,
        distance,
    })
}

fn cpus((first, last): (u32, u32)) -> CpuSet {
    (first..=last).map(CpuId).collect()
}

/// The definition. It names no node and no CPU that the machine lacks: such a VM does not run.
fn defined(drawn: &Drawn, machine: &Machine) -> ShapedVm {
    let mut next = 0;
    let nodes: Vec<ShapedNode> = (0..drawn.nodes.len())
        .map(|id| {
            let first = next;
            next += drawn.nodes[id] as u32;
            let binding = drawn.policies[id].and_then(|(mode, first, more)| {
                let nodes: NodeSet =
                    (first..=first + more).map(NodeId).filter(|&id| machine.node(id).is_some()).collect();
                let mode = ["strict", "interleave"][mode].to_owned();
                (!nodes.is_empty()).then_some(Binding { mode, nodes })
            });
            let distances = drawn.distance.filter(|_| id == 0 && drawn.nodes.len() > 1);
            ShapedNode {
                id: id as u32,
                vcpus: (first..next).map(CpuId).collect(),
                memory: Bytes(drawn.gib << 30),
                binding,
                own_binding: true,
                distances: distances.map(|value| (1, value)).into_iter().collect(),
                ..ShapedNode::default()
            }
        })
        .collect();
    let vcpus = next;
    let even = vcpus.is_multiple_of(drawn.sockets * drawn.threads);
    let (sockets, threads) = if even { (drawn.sockets, drawn.threads) } else { (1, 1) };
    let cores = vcpus / sockets / threads;
    ShapedVm {
        name: "drawn".to_owned(),
        vcpus,
        memory: nodes.iter().map(|node| node.memory).sum(),
        guest: GuestCpus { sockets, dies: 1, cores, threads, ..GuestCpus::default() },
        vnuma: nodes.len() > 1,
        pins: (0..vcpus).zip(&drawn.pins).filter_map(|(vcpu, pin)| Some((vcpu, cpus((*pin)?)))).collect(),
        emulator: drawn.emulator.map(cpus),
        iothreads: drawn.iothread.map(|pin| (1, pin.map(cpus))).into_iter().collect(),
        nodes,
        ..ShapedVm::default()
    }
}

/// The host on which it runs just so: threads where they are pinned, memory in equal parts where it
/// is bound, none yet where it is not.
fn started(vm: &ShapedVm, machine: &Machine) -> Observation {
    let all: CpuSet = machine.usable_threads().map(|thread| thread.id).collect();
    let of = |pin: Option<&CpuSet>| pin.cloned().unwrap_or_else(|| all.clone());
    let client = |(id, node): (usize, &ShapedNode)| {
        let there = node.vcpus.difference(&vm.absent);
        let vcpu_cpus: BTreeMap<u32, CpuSet> = there.iter().map(|vcpu| (vcpu.0, of(vm.pins.get(&vcpu.0)))).collect();
        let (words, nodes) = match &node.binding {
            Some(binding) if binding.mode == "strict" => {
                (format!("bind:{}", binding.nodes), Some(binding.nodes.clone()))
            }
            Some(binding) => (format!("interleave:{}", binding.nodes), Some(binding.nodes.clone())),
            None => ("default".to_owned(), None),
        };
        let parts = nodes.as_ref().map_or(1, NodeSet::len) as u64;
        let resident: BTreeMap<NodeId, Bytes> =
            nodes.iter().flat_map(NodeSet::iter).map(|node_id| (node_id, Bytes(node.memory.0 / parts))).collect();
        let absent = node.memory.saturating_sub(resident.values().copied().sum());
        let policy =
            PolicyOfMemory { policy: words, nodes, backing: Backing::Anonymous, resident: resident.clone(), absent };
        let spread = node.binding.as_ref().filter(|binding| binding.mode == "interleave");
        ClientObservation {
            spread_nodes: spread.map(|binding| binding.nodes.clone()).unwrap_or_default(),
            id: ClientId(id as u32),
            virtual_node: vm.vnuma.then_some(node.id),
            vcpus: vcpu_cpus.len() as u32,
            cpus: vcpu_cpus.values().fold(CpuSet::new(), |all, cpus| all.union(cpus)),
            vcpu_cpus,
            memory: Some(resident),
            policies: Some(vec![policy]),
            memory_size: node.memory,
            ..ClientObservation::default()
        }
    };
    let thread =
        |thread_id, kind, cpus| OtherThread { thread_id, name: String::new(), kind, client: None, cpus: Some(cpus) };
    let mut other_threads = vec![thread(1, OtherThreadKind::Main, of(vm.emulator.as_ref()))];
    other_threads.extend(vm.iothreads.values().map(|pin| thread(2, OtherThreadKind::Io, of(pin.as_ref()))));
    let key = VmKey { name: vm.name.clone(), pid: 7, started: 1 };
    let distances = vm.nodes.iter().map(|node| (node.id, node.distances.clone())).collect();
    let guest = scheduler::GuestMachine { cpus: vm.guest, distances };
    let clients: Vec<ClientObservation> = vm.nodes.iter().enumerate().map(client).collect();
    let on = |node: NodeId| clients.iter().filter_map(move |client| client.memory.as_ref()?.get(&node)).copied().sum();
    let taken: BTreeMap<NodeId, Bytes> = machine.nodes.iter().map(|node| (node.id, on(node.id))).collect();
    let taken = |node: NodeId| taken[&node];
    let seen = VmObservation { guest: Some(guest), other_threads, ..VmObservation::of_clients(key, clients) };
    let node = |node: &topology::Node| {
        let seen = NodeObservation {
            cpus: machine.usable_cpus(node.id),
            cpu_used: None,
            memory_free: Some(node.memory.saturating_sub(taken(node.id))),
            huge_pages_free: BTreeMap::new(),
        };
        (node.id, seen)
    };
    Observation { nodes: machine.nodes.iter().map(node).collect(), vms: vec![seen], ..Observation::default() }
}

/// What is found beside homes that were asked for as `doctor` does.
fn judged(machine: &Machine, host: &Observation) -> Vec<Finding> {
    let homes = homes(machine, &BalancePolicy::default(), &BalanceState::default(), host);
    judge::host(machine, host, &Known { homes, ..Known::default() })
}

fn kinds(findings: &[Finding]) -> Vec<(&'static str, Severity)> {
    let mut kinds: Vec<_> = findings.iter().map(|finding| (finding.what, finding.severity)).collect();
    kinds.sort_unstable_by_key(|(what, _)| *what);
    kinds
}

properties::properties! {
    #![cases(400)]

    #[test]
    fn a_vm_that_runs_as_it_is_defined_has_the_findings_of_its_definition(drawn in drawn()) {
        let machine = &machines()[drawn.machine];
        let vm = defined(&drawn, machine);
        let definition = judge::definition(machine, &Occupancy::default(), &vm);
        let none = BTreeSet::new();
        let planned = definition.change(&none).filter(|change| !change.target.reshaped);
        let planned = planned.map(|change| change.target.nodes.iter().map(|node| node.home.clone()).collect::<Vec<_>>());
        let mut definition = definition.findings;
        let host = started(&vm, machine);
        let mut running = judged(machine, &host);
        // No definition shows what a balancer would do.
        running.retain(|finding| finding.what != "balancer_moves");
        // A start plans all its homes anew; what runs is brought home client by client.
        let homes = homes(machine, &BalancePolicy::default(), &BalanceState::default(), &host);
        let homes: Option<Vec<NodeSet>> = homes.into_values().map(|home| home.should).collect();
        if planned.is_some() && planned != homes {
            let by_home = ["shared_home", "helpers_float", "wrong_distances"];
            definition.retain(|finding| !by_home.contains(&finding.what));
            running.retain(|finding| !by_home.contains(&finding.what));
        }
        prop_assert_eq!(kinds(&definition), kinds(&running), "{:#?}\n{:#?}\n{:#?}", vm, definition, running);
    }
}

/// Two nodes of four CPUs and 8 GiB: CPUs 0-3 and 4-7.
fn two() -> Machine {
    read::from_synthetic("pack:2 [numa(memory=8GiB)] l3:1 core:4 pu:1").expect("a machine")
}

/// One virtual node of two vCPUs and 1 GiB on node 0, bound and filled there.
fn settled(machine: &Machine) -> Observation {
    let cpus: CpuSet = "0-3".parse().expect("CPUs");
    let binding = Some(Binding { mode: "strict".to_owned(), nodes: "0".parse().expect("a set") });
    let node =
        ShapedNode { vcpus: "0-1".parse().expect("vCPUs"), memory: Bytes::GIB, binding, ..ShapedNode::default() };
    let vm = ShapedVm {
        name: "web".to_owned(),
        vcpus: 2,
        memory: Bytes::GIB,
        guest: GuestCpus { sockets: 1, dies: 1, cores: 2, threads: 1, ..GuestCpus::default() },
        nodes: vec![node],
        pins: [(0, cpus.clone()), (1, cpus.clone())].into(),
        emulator: Some(cpus),
        ..ShapedVm::default()
    };
    started(&vm, machine)
}

fn found(change: impl FnOnce(&mut VmObservation)) -> Vec<(&'static str, Severity)> {
    let machine = two();
    let mut host = settled(&machine);
    change(&mut host.vms[0]);
    kinds(&judged(&machine, &host))
}

#[test]
fn a_vm_at_home_has_no_findings() {
    assert_eq!(found(|_| ()), []);
}

/// Two virtual nodes of four vCPUs, of which the first two are there: together no more than the
/// CPUs that they may use, and each socket in a virtual node of its own.
#[test]
fn a_vm_that_has_not_grown_yet_is_judged_by_what_is_there() {
    let machine = two();
    for homes in [["0", "0"], ["0", "1"]] {
        let node = |(id, home): (u32, &&str)| ShapedNode {
            id,
            vcpus: (4 * id..4 * id + 4).map(CpuId).collect(),
            memory: Bytes::GIB,
            binding: Some(Binding { mode: "strict".to_owned(), nodes: home.parse().expect("a set") }),
            own_binding: true,
            ..ShapedNode::default()
        };
        let of = |home: &str| machine.usable_cpus(NodeId(home.parse().expect("a number")));
        let vm = ShapedVm {
            name: "web".to_owned(),
            vcpus: 8,
            absent: "2-3,6-7".parse().expect("vCPUs"),
            memory: Bytes(2 << 30),
            guest: GuestCpus { sockets: 2, dies: 1, cores: 4, threads: 1, ..GuestCpus::default() },
            vnuma: true,
            nodes: (0..).zip(&homes).map(node).collect(),
            pins: (0..8).map(|vcpu| (vcpu, of(homes[vcpu as usize / 4]))).collect(),
            emulator: Some(of(homes[0]).union(&of(homes[1]))),
            ..ShapedVm::default()
        };
        let definition = judge::definition(&machine, &Occupancy::default(), &vm);
        assert_eq!(kinds(&definition.findings), [], "{homes:?}: {:#?}", definition.findings);
        let mut running = judged(&machine, &started(&vm, &machine));
        // What may come is not seen of a VM that runs: now one node would hold it.
        running.retain(|finding| finding.what != "over_several");
        assert_eq!(kinds(&running), [], "{homes:?}: {running:#?}");
    }
}

#[test]
fn a_plain_vm_on_a_host_of_one_node_has_none() {
    let machine = read::from_synthetic("pack:1 [numa(memory=8GiB)] l3:2 core:2 pu:1").expect("a machine");
    let guest = GuestCpus { sockets: 1, dies: 1, cores: 2, threads: 1, ..GuestCpus::default() };
    let node = ShapedNode { vcpus: "0-1".parse().expect("vCPUs"), memory: Bytes::GIB, ..ShapedNode::default() };
    let (memory, nodes) = (Bytes::GIB, vec![node]);
    let vm = ShapedVm { name: "web".to_owned(), vcpus: 2, memory, guest, nodes, ..ShapedVm::default() };
    assert_eq!(kinds(&judged(&machine, &started(&vm, &machine))), []);
}

/// On any host: two virtual nodes in one virtual socket, told to be 40 apart. Where they live is no
/// matter where there is one node.
#[test]
fn a_guest_that_is_told_what_is_not_so_hears_it_on_a_host_of_one_node() {
    let machine = read::from_synthetic("pack:1 [numa(memory=8GiB)] l3:1 core:4 pu:1").expect("a machine");
    let node = |id: u32, vcpus: &str| ShapedNode {
        id,
        vcpus: vcpus.parse().expect("vCPUs"),
        memory: Bytes::GIB,
        distances: [(1 - id, 40)].into(),
        ..ShapedNode::default()
    };
    let vm = ShapedVm {
        name: "web".to_owned(),
        vcpus: 4,
        memory: Bytes(2 << 30),
        guest: GuestCpus { sockets: 1, dies: 1, cores: 4, threads: 1, ..GuestCpus::default() },
        vnuma: true,
        nodes: vec![node(0, "0-1"), node(1, "2-3")],
        ..ShapedVm::default()
    };
    let wrong = |findings: Vec<Finding>| {
        let wrong = findings.into_iter().filter(|finding| finding.severity > Severity::Note).collect::<Vec<_>>();
        assert!(wrong.iter().all(|finding| finding.harm == judge::Harm::Misled), "{wrong:#?}");
        wrong.iter().map(|finding| finding.what).collect::<Vec<_>>()
    };
    let expected = ["cache_over_nodes", "wrong_distances"];
    assert_eq!(wrong(judge::definition(&machine, &Occupancy::default(), &vm).findings), expected);
    assert_eq!(wrong(judged(&machine, &started(&vm, &machine))), expected);
}

#[test]
fn limits_below_the_vm_are_found() {
    let limited = |limits: VmLimits| found(|vm| vm.limits = Some(limits));
    let half = Some(Bytes::from_mib(512));
    assert_eq!(
        limited(VmLimits { memory_max: half, ..VmLimits::default() }),
        [("memory_max_below_vm", Severity::Problem)]
    );
    assert_eq!(
        limited(VmLimits { memory_high: half, ..VmLimits::default() }),
        [("memory_high_below_vm", Severity::Problem)]
    );
    assert_eq!(limited(VmLimits { memory_max: Some(Bytes::GIB), ..VmLimits::default() }), []);
    // 1.5 CPUs for 2 vCPUs.
    assert_eq!(
        limited(VmLimits { cpu_milli_max: Some(1500), ..VmLimits::default() }),
        [("cpu_max_below_vcpus", Severity::Warning)]
    );
    assert_eq!(limited(VmLimits { cpu_milli_max: Some(2000), ..VmLimits::default() }), []);
    assert_eq!(limited(VmLimits { nice: Some(5), ..VmLimits::default() }), [("nice", Severity::Warning)]);
    assert_eq!(limited(VmLimits { nice: Some(-5), ..VmLimits::default() }), []);
    let idle = VmLimits { class: Some(SchedulingClass::Idle), ..VmLimits::default() };
    assert_eq!(limited(idle), [("idle_class", Severity::Problem)]);
}

#[test]
fn a_policy_that_disagrees_with_where_the_pages_are_is_a_warning() {
    let moved = |vm: &mut VmObservation| {
        let client = &mut vm.clients[0];
        client.policies.as_mut().expect("policies")[0].nodes = "1".parse().ok();
        client.policies.as_mut().expect("policies")[0].policy = "bind:1".to_owned();
    };
    assert_eq!(found(moved), [("policy_elsewhere", Severity::Warning)]);
}

#[test]
fn unknown_memory_is_a_warning_with_its_reason() {
    let machine = two();
    let mut host = settled(&machine);
    let client = &mut host.vms[0].clients[0];
    client.memory = None;
    client.memory_unknown_because = Some("a pc-dimm was plugged in".to_owned());
    let findings = judged(&machine, &host);
    assert_eq!(kinds(&findings), [("memory_unknown", Severity::Warning)]);
    assert_eq!(findings[0].seen, "a pc-dimm was plugged in");
}

#[test]
fn threads_that_serve_the_vm_from_another_node_are_found() {
    let far: CpuSet = "4-7".parse().expect("CPUs");
    let main = |vm: &mut VmObservation| vm.other_threads[0].cpus = Some(far.clone());
    assert_eq!(found(main), [("other_threads_away", Severity::Problem)]);
    let vhost = |vm: &mut VmObservation| {
        let (kind, cpus) = (OtherThreadKind::Vhost, Some(far.clone()));
        vm.other_threads.push(OtherThread {
            thread_id: 9,
            name: "vhost-7".to_owned(),
            kind,
            client: Some(ClientId(0)),
            cpus,
        });
    };
    assert_eq!(found(vhost), [("other_threads_away", Severity::Problem)]);
}

#[test]
fn one_vcpu_pinned_alone_in_a_vm_that_floats_is_found() {
    let machine = read::from_synthetic("pack:1 [numa(memory=8GiB)] l3:1 core:4 pu:1").expect("a machine");
    let guest = GuestCpus { sockets: 1, dies: 1, cores: 2, threads: 1, ..GuestCpus::default() };
    let node = ShapedNode { vcpus: "0-1".parse().expect("vCPUs"), memory: Bytes::GIB, ..ShapedNode::default() };
    let pins = [(1, "3".parse().expect("a CPU"))].into();
    let (memory, nodes) = (Bytes::GIB, vec![node]);
    let vm = ShapedVm { name: "web".to_owned(), vcpus: 2, memory, guest, nodes, pins, ..ShapedVm::default() };
    let host = started(&vm, &machine);
    assert_eq!(kinds(&judged(&machine, &host)), [("pinned_alone", Severity::Warning)]);
}

#[test]
fn a_cpuset_bounds_the_home() {
    let machine = two();
    let mut host = settled(&machine);
    let limits = VmLimits { memory_nodes: "1".parse().ok(), ..VmLimits::default() };
    host.vms[0].limits = Some(limits);
    let findings = judged(&machine, &host);
    let forbids = findings.iter().find(|finding| finding.what == "cpuset_forbids_home").expect("the finding");
    // It is bound to node 1, which the cpuset allows, never to node 0 again.
    for repair in findings.iter().flat_map(|finding| &finding.cure.repairs) {
        if let judge::Repair::Act { action: scheduler::Action::Bind { home, .. } } = repair {
            assert_eq!(home.to_string(), "1", "{findings:#?}");
        }
    }
    assert!(!forbids.cure.repairs.is_empty(), "{forbids:#?}");
}

/// As in the lab: a balancer decided on node 0, then the owner wrote a cpuset with node 1 alone,
/// and the kernel took all of it there.
#[test]
fn a_home_that_a_cpuset_forbids_since_then_is_no_home() {
    let machine = two();
    let mut host = settled(&machine);
    let vm = &mut host.vms[0];
    vm.limits = Some(VmLimits { memory_nodes: "1".parse().ok(), ..VmLimits::default() });
    let client = &mut vm.clients[0];
    client.cpus = machine.usable_cpus(NodeId(1));
    client.vcpu_cpus.values_mut().for_each(|cpus| *cpus = client.cpus.clone());
    client.memory = Some([(NodeId(1), Bytes::GIB)].into());
    client.policies = None;
    client.chosen_nodes = None;
    vm.other_threads.iter_mut().for_each(|thread| thread.cpus = Some(machine.usable_cpus(NodeId(1))));
    let (policy, mut state) = (BalancePolicy::default(), BalanceState::default());
    step(&machine, &policy, &mut state, &settled(&machine));
    assert_eq!(state.home(&host.vms[0].vm, ClientId(0)).map(ToString::to_string).as_deref(), Some("0"));
    let homes = homes(&machine, &policy, &state, &host);
    let findings = judge::host(&machine, &host, &Known { homes, ..Known::default() });
    assert!(findings.iter().all(|finding| finding.severity <= Severity::Note), "{findings:#?}");
}

#[test]
fn memory_that_cannot_move_is_not_asked_to() {
    let machine = two();
    let mut host = settled(&machine);
    let client = &mut host.vms[0].clients[0];
    client.memory = Some([(NodeId(1), Bytes::GIB)].into());
    host.vms[0].mobility = Mobility::MemoryFixed { because: "VFIO pins all of its memory".to_owned() };
    let findings = judged(&machine, &host);
    assert!(findings.iter().any(|finding| finding.what == "memory_pinned"), "{findings:#?}");
    let moves =
        |repair: &&judge::Repair| matches!(repair, judge::Repair::Act { action: scheduler::Action::MoveMemory { .. } });
    assert_eq!(findings.iter().flat_map(|finding| &finding.cure.repairs).filter(moves).count(), 0);
}
