//! What strangers claim, whatever they claim.

use crate::balance::toy::{Toy, binds};
use crate::random;
use proptest::prelude::*;
use scheduler::{ClientObservation, Observation, Occupancy, VmKey, VmObservation, plan};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, NodeId};

/// A stranger's VM: where its memory is, in MiB by node, and what it says that it has.
#[derive(Clone, Debug)]
struct Stranger {
    user: Option<u32>,
    resident: Vec<u64>,
    vcpus: u32,
    threads: u32,
    claim: u64,
    mapped: Option<u64>,
}

fn stranger() -> impl Strategy<Value = Stranger> {
    let resident = prop::collection::vec(0u64..512, 1..4);
    let of = (prop::option::of(1000u32..1003), 0u32..=4096, 0u32..64, 0u64..=1 << 40, prop::option::of(any::<u64>()));
    (resident, of).prop_map(|(resident, (user, vcpus, threads, claim, mapped))| Stranger {
        user,
        resident,
        vcpus,
        threads,
        claim,
        mapped,
    })
}

impl Stranger {
    /// The VM on the first of these nodes; with what it claims, or with what it holds.
    fn vm(&self, nodes: &[NodeId], cpus: &CpuSet, claims: bool) -> VmObservation {
        let memory: BTreeMap<NodeId, Bytes> =
            nodes.iter().zip(&self.resident).map(|(&node, &mib)| (node, Bytes::from_mib(mib))).collect();
        let resident = memory.values().copied().sum();
        let client = ClientObservation {
            vcpus: self.vcpus,
            vcpu_threads: Some(self.threads),
            cpus: cpus.clone(),
            memory_size: if claims { Bytes::from_mib(self.claim).max(resident) } else { resident },
            memory: Some(memory),
            ..ClientObservation::default()
        };
        let (stranger, owner_uid, mapped) = (true, self.user, self.mapped.map(Bytes));
        VmObservation { stranger, owner_uid, mapped, ..VmObservation::of_clients(VmKey::default(), vec![client]) }
    }
}

properties::properties! {
    #![cases(128)]

    #[test]
    fn a_claim_of_a_stranger_refuses_no_plan_and_hides_nothing_resident(
        case in random::case(1..=4, 16),
        strangers in prop::collection::vec(stranger(), 1..5),
    ) {
        let nodes: Vec<NodeId> = case.machine.nodes.iter().map(|node| node.id).collect();
        let cpus: CpuSet = case.machine.threads.iter().map(|thread| thread.id).collect();
        let held = |claims: bool| {
            let vms = strangers.iter().map(|stranger| stranger.vm(&nodes, &cpus, claims)).collect();
            let reserved = case.occupancy.nodes.clone();
            Occupancy::of_observation(&Observation { vms, reserved, ..Observation::default() }, &case.machine)
        };
        let (with, without) = (held(true), held(false));
        let fits = plan(&case.machine, &without, &case.spec).is_ok();
        prop_assert_eq!(plan(&case.machine, &with, &case.spec).is_ok(), fits);
        for node in &case.machine.nodes {
            let (claimed, holds) = (with.of(node.id), without.of(node.id));
            prop_assert_eq!(claimed.resident, holds.resident);
            prop_assert!(claimed.memory >= holds.memory && with.without_claims().of(node.id).memory == holds.memory);
            prop_assert!(with.free_memory(node) <= without.free_memory(node));
        }
    }
}

const EIGHT: &str = "numa:2(memory=16GiB) core:8 pu:1";

/// Decisions on a VM whose memory is on node 0 and a new one, beside VMs on node 0 that claim much.
fn decided(strangers: bool) -> Vec<(String, String)> {
    let mut toy = Toy::new(EIGHT);
    for index in 0..20 {
        // 20 x 8 vCPUs that idle, and 20 x 4 GiB that nobody has touched.
        let vm = toy.vm(&format!("fake{index}"), 8, 0.0, Some(0), &[(0, 16)]);
        vm.clients[0].size = Bytes::from_mib(4096);
    }
    toy.vm("ours", 4, 1.0, None, &[(0, 2000)]);
    toy.vm("new", 4, 1.0, None, &[(0, 16), (1, 15)]);
    let mut observation = toy.observe();
    for vm in observation.vms.iter_mut().filter(|vm| vm.vm.name.starts_with("fake")) {
        (vm.stranger, vm.owner_uid) = (strangers, Some(1001));
    }
    let mut binds = binds(&toy.step_on(&observation));
    binds.retain(|(vm, _)| !vm.starts_with("fake"));
    binds
}

#[test]
fn a_node_that_strangers_claim_is_not_full_to_the_balancer() {
    let at = |home: &str| ["ours", "new"].map(|vm| (vm.to_owned(), home.to_owned())).to_vec();
    let (mut believed, mut claimed) = (decided(false), decided(true));
    believed.sort();
    claimed.sort();
    let mut expected = [at("0"), at("1")];
    expected.iter_mut().for_each(|binds| binds.sort());
    assert_eq!([claimed, believed], expected);
}
