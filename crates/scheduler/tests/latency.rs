//! Latency-sensitive VMs count with all of their vCPUs, whatever these do.

use scheduler::balance::{BalancePolicy, BalanceState, step, why};
use scheduler::{
    Action, ClientId, ClientObservation, Moment, NodeObservation, Observation, Occupancy, VmKey, VmObservation, plan,
};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId};
use vm::spec::VcpuBinding;
use vm::{NodeUse, Shape};

/// Two nodes of 8 cores without hyper-threading and 16 GiB.
fn machine() -> Machine {
    topology::read::from_synthetic("pack:2 [numa(memory=16GiB)] core:8 pu:1").expect("a machine")
}

fn shape(vcpus: u32) -> Shape {
    Shape { name: "a".to_owned(), vcpus, memory: Bytes::GIB, ..Shape::default() }
}

#[test]
fn a_plan_holds_its_vcpus_as_busy_and_says_so() {
    let mut by_word = shape(3);
    by_word.policy.latency_sensitive = true;
    let mut one_to_one = shape(3);
    one_to_one.policy.vcpu_binding = VcpuBinding::Core;
    for (shape, busy) in [(shape(3), 0), (by_word, 3), (one_to_one, 3)] {
        let plan = plan(&machine(), &Occupancy::default(), &shape).expect("a plan");
        let held = plan.holdings[&NodeId(0)];
        assert_eq!((held.vcpus, held.always_busy), (3, busy));
        let said = plan.reasons.iter().any(|reason| reason.choice == "counts with 3 busy vCPUs from its start");
        assert_eq!(said, busy > 0, "{:?}", plan.reasons);
    }
}

/// Node 0 has 6 vCPUs, node 1 has 8, of 8 cores each. A VM of 4 has 2 of 4 vCPUs without a core on
/// node 0 and 4 on node 1, where the others are busy: half of that is counted, 1 and 2 CPUs. Where
/// those of node 0 are latency-sensitive all of it is counted, 2 CPUs on both; then node 0 is still
/// less crowded. With 7 of them it is 3 CPUs against 2.
#[test]
fn what_always_runs_is_not_halved() {
    let lost = |vcpus: u32, always_busy: u32| {
        let held = NodeUse { vcpus, always_busy, ..NodeUse::default() };
        let other = NodeUse { vcpus: 8, ..NodeUse::default() };
        let occupancy =
            Occupancy { nodes: BTreeMap::from([(NodeId(0), held), (NodeId(1), other)]), ..Occupancy::default() };
        let plan = plan(&machine(), &occupancy, &shape(4)).expect("a plan");
        (plan.placement.clients[0].home.to_string(), plan.lost_milli_cpus)
    };
    assert_eq!(lost(6, 0), ("0".to_owned(), 1000));
    assert_eq!(lost(6, 6), ("0".to_owned(), 2000));
    assert_eq!(lost(7, 7), ("1".to_owned(), 2000));
}

fn client(cpus: &CpuSet, vcpus: u32, used: f64, on: u32) -> ClientObservation {
    ClientObservation {
        id: ClientId(0),
        vcpus,
        cpus: cpus.clone(),
        cpu_used: Some(used),
        cpu_waited: Some(0.0),
        memory: Some(BTreeMap::from([(NodeId(on), Bytes::from_mib(64))])),
        memory_size: Bytes::from_mib(64),
        ..ClientObservation::default()
    }
}

/// A VM of 6 vCPUs on node 0 that idles, one of 2 vCPUs on node 1 that idles, and one of 4 that
/// floats.
fn observation(machine: &Machine, latency_sensitive: Option<&str>, stranger: bool) -> Observation {
    let key = |name: &str, pid: u32| VmKey { name: name.to_owned(), pid, started: 1 };
    let cpus = |node: u32| machine.usable_cpus(NodeId(node));
    let all = cpus(0).union(&cpus(1));
    let quiet = VmObservation {
        latency_sensitive: latency_sensitive.map(str::to_owned),
        stranger,
        ..VmObservation::of_clients(key("quiet", 1), vec![client(&cpus(0), 6, 0.0, 0)])
    };
    let other = VmObservation::of_clients(key("other", 2), vec![client(&cpus(1), 2, 1.0, 1)]);
    let new = VmObservation::of_clients(key("new", 3), vec![client(&all, 4, 0.0, 0)]);
    let node = |node: u32| {
        let seen = NodeObservation {
            cpus: cpus(node),
            cpu_used: None,
            memory_free: Some(Bytes(15 << 30)),
            huge_pages_free: BTreeMap::new(),
        };
        (NodeId(node), seen)
    };
    let vms = vec![quiet, other, new];
    Observation { at: Moment(1000), nodes: [0, 1].map(node).into(), vms, ..Observation::default() }
}

fn home_of_new(observation: &Observation) -> String {
    let decisions = step(&machine(), &BalancePolicy::default(), &mut BalanceState::default(), observation);
    let mut binds = decisions.iter().filter_map(|decision| match &decision.action {
        Action::Bind { vm, home, .. } if vm.name == "new" => Some(home.to_string()),
        _ => None,
    });
    binds.next_back().expect("it gets a home")
}

/// Idle vCPUs count a quarter: node 0 has 1.5 CPUs, node 1 has 1. The VM's own memory is on node 0,
/// and 0.2 x 2 x 0.5 x 1 / 8 = 0.025 CPUs is less than a move is worth: it stays there. As
/// latency-sensitive VM the first counts 6: 0.2 x 2 x 5 x 1 / 8 = 0.25 CPUs, and node 1 is taken.
#[test]
fn a_first_home_sees_them_busy() {
    let machine = machine();
    assert_eq!(home_of_new(&observation(&machine, None, false)), "0");
    assert_eq!(home_of_new(&observation(&machine, Some("it says so"), false)), "1");
    // A stranger's word, and his threads, fill no node for others.
    assert_eq!(home_of_new(&observation(&machine, Some("it says so"), true)), "0");
}

#[test]
fn the_load_of_a_node_has_all_of_them_and_why_says_it() {
    let machine = machine();
    let load = |latency_sensitive: Option<&str>| {
        let seen = observation(&machine, latency_sensitive, false);
        let key = seen.vms[0].vm.clone();
        let explained = why(&machine, &BalancePolicy::default(), &BalanceState::default(), &seen, &key).expect("a VM");
        let client = explained.clients[0].clone();
        (client.candidates[0].load_percent, client.always_busy)
    };
    assert_eq!(load(None), (0.0, None));
    // 6 vCPUs of 8 cores.
    assert_eq!(load(Some("it says so")), (75.0, Some("it says so".to_owned())));
}

/// CPUs that VMs on 16 CPUs are entitled to, to the thousandth. Of each VM: name, vCPUs, CPUs
/// wanted, whether it is latency-sensitive.
fn entitled(vms: &[(&str, u32, f64, bool)]) -> Vec<f64> {
    let machine = machine();
    let all = machine.usable_cpus(NodeId(0)).union(&machine.usable_cpus(NodeId(1)));
    let vm = |(pid, &(name, vcpus, wanted, sensitive)): (usize, &(&str, u32, f64, bool))| {
        let key = VmKey { name: name.to_owned(), pid: pid as u32, started: 1 };
        let waits = ClientObservation { cpu_waited: Some(wanted / 2.0), ..client(&all, vcpus, wanted / 2.0, 0) };
        let latency_sensitive = sensitive.then(|| "it says so".to_owned());
        VmObservation { latency_sensitive, ..VmObservation::of_clients(key, vec![waits]) }
    };
    let quiet = observation(&machine, None, false);
    let seen = Observation { vms: vms.iter().enumerate().map(vm).collect(), ..quiet };
    let of = |vm: &VmObservation| {
        let explained = why(&machine, &BalancePolicy::default(), &BalanceState::default(), &seen, &vm.vm);
        (explained.expect("a VM").clients[0].entitled.expect("figures") * 1000.0).round() / 1000.0
    };
    seen.vms.iter().map(of).collect()
}

/// 16 CPUs, equal shares. What latency-sensitive VMs want comes first; what they do not want is for
/// the others.
#[test]
fn who_is_latency_sensitive_comes_first_with_what_it_wants() {
    let [a, b] = [("a", 8, 8.0, false), ("b", 8, 8.0, false)];
    // It idles: the others have all.
    assert_eq!(entitled(&[("quiet", 12, 0.0, true), a, b]), [0.0, 8.0, 8.0]);
    // It works: 4 CPUs are left, 2 for each. Without the word, 16 / 3 for each.
    assert_eq!(entitled(&[("quiet", 12, 12.0, true), a, b]), [12.0, 2.0, 2.0]);
    assert_eq!(entitled(&[("quiet", 12, 12.0, false), a, b]), [5.333; 3]);
    // 24 vCPUs are more than there are cores: no reservation would hold them, and shares divide.
    assert_eq!(entitled(&[("one", 12, 12.0, true), ("two", 12, 12.0, true), a, b]), [4.0; 4]);
    // As long as they idle the others have all, however many they are.
    assert_eq!(entitled(&[("one", 12, 0.0, true), ("two", 12, 0.0, true), a, b]), [0.0, 0.0, 8.0, 8.0]);
}
