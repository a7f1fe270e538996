//! VMs whose homes are not as far apart as their guests were told.

use judge::{Finding, Known, ShapedNode, ShapedVm};
use scheduler::balance::{BalancePolicy, BalanceState, homes};
use scheduler::{
    ClientId, ClientObservation, GuestMachine, NodeObservation, Observation, Occupancy, VmKey, VmObservation,
};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Distances, Machine, NodeId, read};
use vm::qemu::GuestCpus;

/// Nodes 0-1 and 2-3 are near each other, 4 CPUs each.
fn machine() -> Machine {
    let mut machine = read::from_synthetic("pack:4 [numa(memory=16GiB)] core:4 pu:1").expect("a machine");
    let rows = [[10, 12, 32, 32], [12, 10, 32, 32], [32, 32, 10, 12], [32, 32, 12, 10]];
    let ids = machine.node_ids().iter().collect();
    machine.distances = Distances::new(ids, rows.iter().map(|row| row.to_vec()).collect()).expect("square");
    machine
}

/// A VM of two virtual nodes of 4 vCPUs on nodes 0 and 2, so busy, of which the guest was told 12.
fn moved_by_hand(machine: &Machine, busy: f64) -> Observation {
    let client = |id: u32| {
        let node = NodeId(id * 2);
        let cpus = machine.usable_cpus(node);
        ClientObservation {
            id: ClientId(id),
            virtual_node: Some(id),
            vcpus: 4,
            vcpu_cpus: (id * 4..id * 4 + 4).map(|vcpu| (vcpu, cpus.clone())).collect(),
            cpus,
            cpu_used: Some(busy),
            cpu_waited: Some(0.0),
            memory: Some(BTreeMap::from([(node, Bytes::GIB)])),
            memory_size: Bytes::GIB,
            ..ClientObservation::default()
        }
    };
    let distances = BTreeMap::from([(0, BTreeMap::from([(1, 12)])), (1, BTreeMap::from([(0, 12)]))]);
    let cpus = GuestCpus { sockets: 2, dies: 1, cores: 4, threads: 1, ..GuestCpus::default() };
    let key = VmKey { name: "moved".to_owned(), pid: 7, started: 1 };
    let vm = VmObservation {
        guest: Some(GuestMachine { cpus, distances }),
        ..VmObservation::of_clients(key, vec![client(0), client(1)])
    };
    let node = |node: &topology::Node| {
        let seen = NodeObservation {
            cpus: machine.usable_cpus(node.id),
            cpu_used: None,
            memory_free: Some(Bytes(12 << 30)),
            huge_pages_free: BTreeMap::new(),
        };
        (node.id, seen)
    };
    Observation { nodes: machine.nodes.iter().map(node).collect(), vms: vec![vm], ..Observation::default() }
}

fn found(machine: &Machine, host: &Observation, what: &str) -> Option<Finding> {
    let homes = homes(machine, &BalancePolicy::default(), &BalanceState::default(), host);
    let findings = judge::host(machine, host, &Known { homes, ..Known::default() });
    findings.into_iter().find(|finding| finding.what == what)
}

const PAIR: &str = "from virtual node 0 to 1 it is 32, and the guest was told 12";

#[test]
fn doctor_says_which_pair_misleads_a_guest_that_idles() {
    let machine = machine();
    let finding = found(&machine, &moved_by_hand(&machine, 0.0), "wrong_distances").expect("they are wrong");
    assert!(finding.seen.starts_with(PAIR), "{}", finding.seen);
    assert!(finding.cure.advice.contains("homes that are as far apart as it was told"), "{}", finding.cure.advice);
}

#[test]
fn a_busy_one_is_brought_to_homes_as_far_apart_as_told_and_doctor_says_so() {
    // 3 CPUs, 30 % of which wait, 20 % of that for the sibling: 0.18 x (2.2 - 0.2) = 0.36 for the
    // distance, as much for the difference, and the same for the sibling: 1.44 CPUs for 1 GiB.
    let machine = machine();
    let finding = found(&machine, &moved_by_hand(&machine, 3.0), "balancer_moves").expect("it moves");
    let said = "differ by 20.0 from those that its guest was told, then by 0.0";
    assert!(finding.seen.contains("wins 1.44 CPUs") && finding.seen.contains(said), "{}", finding.seen);
}

#[test]
fn check_says_it_of_a_definition() {
    let machine = machine();
    let node = |id: u32| ShapedNode {
        id,
        vcpus: (id * 4..id * 4 + 4).map(topology::CpuId).collect(),
        memory: Bytes::GIB,
        distances: [(1 - id, 12)].into(),
        ..ShapedNode::default()
    };
    let pin = |vcpu: u32| -> (u32, CpuSet) { (vcpu, machine.usable_cpus(NodeId(vcpu / 4 * 2))) };
    let vm = ShapedVm {
        name: "defined".to_owned(),
        vcpus: 8,
        memory: Bytes(2 << 30),
        guest: GuestCpus { sockets: 2, dies: 1, cores: 4, threads: 1, ..GuestCpus::default() },
        vnuma: true,
        pins: (0..8).map(pin).collect(),
        nodes: vec![node(0), node(1)],
        ..ShapedVm::default()
    };
    let judged = judge::definition(&machine, &Occupancy::default(), &vm);
    let finding = judged.findings.iter().find(|finding| finding.what == "wrong_distances").expect("they are wrong");
    assert!(finding.seen.starts_with(PAIR), "{}", finding.seen);
}
