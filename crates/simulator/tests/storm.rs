//! 200 VMs that start within a second on 8 nodes (ESXi's power-on storm, KB 430776): they end even,
//! through the planner and its ledger, and through the balancer alone.

use crate::modelled::{host, look, model, quiet};
use scheduler::balance::{BalancePolicy, BalanceState, record, step};
use scheduler::{Act, Moment, Observation, Observe, Occupancy, plan};
use simulator::Profile;
use simulator::host::VmShape;
use simulator::traces::Random;
use topology::{Bytes, NodeId};
use vm::Shape;

/// epyc-7742-2s-nps4: 8 nodes of 16 cores, 32 hardware threads and 64 GiB.
const MACHINE: &str = "epyc-7742-2s-nps4";
const VMS: usize = 200;
const SIZES: [u32; 4] = [1, 2, 4, 8];

/// vCPUs of each VM: about 750 in all, 94 for each node.
fn sizes(seed: u64) -> Vec<u32> {
    let mut random = Random::part(seed, 11);
    (0..VMS).map(|_| SIZES[random.below(SIZES.len())]).collect()
}

/// The most and the least vCPUs that a node has.
fn spread(by_node: &[u32]) -> u32 {
    by_node.iter().max().expect("nodes") - by_node.iter().min().expect("nodes")
}

/// Of two placements of a VM that lose the same otherwise, the planner takes the one that crowds
/// less. What a VM loses on a node rises with the vCPUs there, so that each goes to a node that has
/// the fewest (to the digits of a cost: an eighth of a vCPU). With L the fewest before a VM of w
/// comes, its node then has L + w, and all have L at least: no two nodes are ever farther apart
/// than the largest VM.
#[test]
fn planned_one_after_the_other_they_differ_by_the_largest_vm_at_most() {
    let machine = model(MACHINE).machine().clone();
    for (seed, latency_sensitive) in [(1, false), (2, false), (3, true), (4, true)] {
        let mut ledger = Occupancy::default();
        for (number, vcpus) in sizes(seed).into_iter().enumerate() {
            let mut shape = Shape { name: format!("vm{number}"), vcpus, memory: Bytes::GIB, ..Shape::default() };
            shape.policy.latency_sensitive = latency_sensitive;
            ledger.reserve(&plan(&machine, &ledger, &shape).expect("a plan"));
        }
        let held: Vec<u32> = (0..8).map(|node| ledger.of(NodeId(node)).vcpus).collect();
        assert!(spread(&held) <= 8, "seed {seed}: {held:?}");
        assert_eq!(held.iter().sum::<u32>(), sizes(seed).iter().sum::<u32>());
        let busy: u32 = (0..8).map(|node| ledger.of(NodeId(node)).always_busy).sum();
        assert_eq!(busy, if latency_sensitive { held.iter().sum() } else { 0 });
    }
}

/// vCPUs of the VMs that live on each node alone.
fn homes(seen: &Observation) -> Vec<u32> {
    let on = |node: u32| {
        let cpus = &seen.nodes[&NodeId(node)].cpus;
        seen.vms
            .iter()
            .flat_map(|vm| &vm.clients)
            .filter(|client| client.cpus == *cpus)
            .map(|client| client.vcpus)
            .sum()
    };
    (0..8).map(on).collect()
}

/// Starts the VMs within a second, floating, and balances for a minute; vCPUs by node. `busy`: the
/// part of its vCPUs that a VM keeps busy.
fn balanced(seed: u64, busy: f64, latency_sensitive: bool) -> Vec<u32> {
    let mut host = host(MACHINE, quiet(), seed);
    for (number, vcpus) in sizes(seed).into_iter().enumerate() {
        let demand = f64::from(vcpus) * busy;
        let shape =
            VmShape::steady(&format!("vm{number:03}"), vcpus, Bytes::from_mib(16), demand, Profile::computing());
        host.advance(Moment(number as u64 * 5)).expect("rates");
        // By size: with equal shares a vCPU of a small VM is worth more where CPUs are short.
        host.start(&VmShape { latency_sensitive, shares: 256 * vcpus, ..shape });
    }
    let (policy, mut state) = (BalancePolicy::default(), BalanceState::default());
    for period in 1..=30 {
        host.advance(Moment(period * 2000)).expect("rates");
        let seen = look(&mut host);
        for decision in step(host.machine(), &policy, &mut state, &seen) {
            let outcome = host.carry_out(&decision.action);
            record(&policy, &mut state, &decision, &outcome);
        }
    }
    homes(&look(&mut host))
}

/// A first home is the node that loses least, or one that loses at most max(0.05 CPUs, 2 % of the
/// vCPUs) more and has more of the memory; what moving memory costs is counted. A VM of m busy
/// vCPUs on a node with d of them loses at least 0.2 ((d + m)^2 - d^2) / 16 CPUs, which rises by
/// 0.025 m for each vCPU there. Memory of 16 MiB that is away costs 0.016 CPU s to copy, and while
/// 200 x 16 MiB (3.1 GiB at 256 MiB/s: 12.5 s) move, 0.3 m x 2.2 x 12.5 s = 8.25 m CPU s at the
/// largest distance; over 120 s that is 0.0001 + 0.069 m CPUs. So a node that is chosen has at most
/// (max(0.05, 0.02 m) + 0.0001 + 0.069 m) / 0.025 m = 4.8 vCPUs (m = 1) more than the least loaded;
/// with the VM itself 8 + 4.8: no two nodes are 13 apart or more.
const MOST_APART: u32 = 12;

#[test]
fn vms_that_float_and_are_busy_are_brought_to_even_homes() {
    for seed in [1, 2] {
        let held = balanced(seed, 1.0, false);
        assert_eq!(held.iter().sum::<u32>(), sizes(seed).iter().sum::<u32>(), "seed {seed}: {held:?}");
        assert!(spread(&held) <= MOST_APART, "seed {seed}: {held:?}");
    }
}

/// The same bound: each vCPU counts as busy, though they all idle.
#[test]
fn latency_sensitive_vms_that_idle_are_brought_to_homes_as_even() {
    for seed in [1, 2] {
        let held = balanced(seed, 0.0, true);
        assert_eq!(held.iter().sum::<u32>(), sizes(seed).iter().sum::<u32>(), "seed {seed}: {held:?}");
        assert!(spread(&held) <= MOST_APART, "seed {seed}: {held:?}");
    }
}
