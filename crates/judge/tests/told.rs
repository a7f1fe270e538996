//! VMs whose homes are not as far apart as their guests were told.

use judge::{Cost, Finding, Known, ShapedNode, ShapedVm};
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
    lives(machine, busy, [0, 2], 12)
}

/// The same on these nodes, told this.
fn lives(machine: &Machine, busy: f64, nodes: [u32; 2], told: u32) -> Observation {
    let client = |id: u32| {
        let node = NodeId(nodes[id as usize]);
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
    let distances = BTreeMap::from([(0, BTreeMap::from([(1, told)])), (1, BTreeMap::from([(0, told)]))]);
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
fn doctor_says_how_much_longer_accesses_take_than_the_guest_was_told() {
    let machine = machine();
    let finding = found(&machine, &moved_by_hand(&machine, 0.0), "wrong_distances").expect("they are wrong");
    // Each vCPU finds half of all memory 10 away, as told, and half of it 32 away, told 12:
    // (10 + 32) / (10 + 12) = 1.91.
    assert_eq!(finding.cost, Some(Cost::AgainstTold { longer_share: 0.5, factor: 42.0 / 22.0 }));
    let text = finding.cost.expect("a cost").to_string();
    assert!(text.starts_with("≈ 1.91 times the latency that its guest was told"), "{text}");
    assert!(text.contains("50 % of accesses take longer than told"), "{text}");
    // On 0 and 1, told 32, it is nearer: (10 + 12) / (10 + 32) = 0.52.
    let finding = found(&machine, &lives(&machine, 0.0, [0, 1], 32), "wrong_distances").expect("they are wrong");
    assert_eq!(finding.cost, Some(Cost::AgainstTold { longer_share: 0.0, factor: 22.0 / 42.0 }));
}

#[test]
fn memory_that_lies_apart_counts_where_it_lies() {
    let machine = machine();
    let mut host = moved_by_hand(&machine, 0.0);
    let half = Bytes(Bytes::GIB.0 / 2);
    host.vms[0].clients[1].memory = Some(BTreeMap::from([(NodeId(2), half), (NodeId(3), half)]));
    let finding = found(&machine, &host, "wrong_distances").expect("they are wrong");
    // Half of virtual node 1's memory is 12 away from its vCPUs, which were told 10. From node 0:
    // 10 and 32, half of it longer than told; from node 2: 32 and (10 + 12) / 2, three quarters.
    let (longer_share, factor) = ((0.5 + 0.75) / 2.0, (10.0 + 32.0 + 32.0 + 11.0) / (2.0 * (10.0 + 12.0)));
    assert_eq!(finding.cost, Some(Cost::AgainstTold { longer_share, factor }));
}

#[test]
fn a_busy_one_is_brought_to_homes_as_far_apart_as_told_and_doctor_says_so() {
    // 3 CPUs, 30 % of which wait, 20 % of that for the sibling: 0.18 x (2.2 - 0.2) = 0.36 for the
    // distance, as much for the difference, and the same for the sibling: 1.44 CPUs for 1 GiB.
    let machine = machine();
    let finding = found(&machine, &moved_by_hand(&machine, 3.0), "balancer_moves").expect("it moves");
    let said = "differ by 20.0 from those that its guest was told, then by 0.0";
    assert!(finding.seen.contains("wins 1.44 CPUs") && finding.seen.contains(said), "{}", finding.seen);
    // What it pays until then.
    assert_eq!(finding.cost, Some(Cost::AgainstTold { longer_share: 0.5, factor: 42.0 / 22.0 }));
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
