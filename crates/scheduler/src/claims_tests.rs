use super::*;
use crate::{ClientId, Observation, PlanError, VmKey, plan};
use vm::{NodeUse, VmSpec};

/// Two nodes of two CPUs with 16 GiB each, 10 of which are free.
fn machine() -> Machine {
    let mut machine = topology::read::from_synthetic("pack:2 [numa(memory=16GiB)] core:2 pu:1").expect("a machine");
    machine.nodes.iter_mut().for_each(|node| node.free = Some(gib(10)));
    machine
}

fn gib(gib: u64) -> Bytes {
    Bytes(gib << 30)
}

/// A VM of user 1001 on node 0.
fn stranger(vcpus: u32, claims_gib: u64, mapped_gib: u64, resident_gib: u64) -> VmObservation {
    let client = ClientObservation {
        id: ClientId(0),
        vcpus,
        vcpu_threads: Some(vcpus),
        cpus: "0-1".parse().expect("CPUs"),
        memory_size: gib(claims_gib),
        memory: Some(BTreeMap::from([(NodeId(0), gib(resident_gib))])),
        ..ClientObservation::default()
    };
    let key = VmKey { name: "theirs".to_owned(), pid: 7, started: 1 };
    let (stranger, owner_uid, mapped) = (true, Some(1001), Some(gib(mapped_gib)));
    VmObservation { stranger, owner_uid, mapped, ..VmObservation::of_clients(key, vec![client]) }
}

fn held(vms: Vec<VmObservation>) -> Occupancy {
    Occupancy::of_observation(&Observation { vms, ..Observation::default() }, &machine())
}

fn spec(gib: u64) -> VmSpec {
    VmSpec::from_toml(&format!("name = \"ours\"\nvcpus = 2\nmemory = \"{gib} GiB\"\n"), "vm.toml").expect("a spec")
}

#[test]
fn a_claim_counts_as_far_as_it_is_mapped_and_the_machine_has_it() {
    let counted = |claims, mapped| {
        memory(&stranger(1, claims, mapped, 1), &stranger(1, claims, mapped, 1).clients[0], &machine())
    };
    // All of it is mapped; a quarter is; nothing but a stack is (1 GiB is resident all the same);
    // no machine of 32 GiB gives 100 TiB.
    assert_eq!([counted(8, 20), counted(8, 2), counted(8, 0), counted(100 << 10, 100 << 10)], [8, 2, 1, 32].map(gib));
    let mut limited = stranger(1, 8, 20, 1);
    limited.limits = Some(crate::VmLimits { memory_max: Some(gib(3)), ..crate::VmLimits::default() });
    assert_eq!(memory(&limited, &limited.clients[0], &machine()), gib(3));
    // Two clients of 8 GiB, 10 GiB mapped, 4 touched: 6 of 12 untouched GiB count, 3 for each of 6.
    let mut two = stranger(1, 8, 10, 4);
    two.clients.push(ClientObservation { memory: Some(BTreeMap::new()), ..two.clients[0].clone() });
    let counted: Vec<Bytes> = two.clients.iter().map(|client| memory(&two, client, &machine())).collect();
    assert_eq!(counted, [gib(6), gib(4)]); // 4 + 4 * 6 / 12, 0 + 8 * 6 / 12
    two.stranger = false;
    assert_eq!(memory(&two, &two.clients[0], &machine()), gib(8));
}

#[test]
fn vcpus_count_as_far_as_they_have_threads_and_cpus() {
    let of = |claimed, threads| {
        let mut vm = stranger(claimed, 1, 1, 0);
        vm.clients[0].vcpu_threads = threads;
        vcpus(&vm, &vm.clients[0], 4)
    };
    assert_eq!([of(4096, Some(0)), of(4096, Some(3)), of(4096, Some(4096)), of(2, None)], [1, 3, 4, 2]);
    // A hundred VMs of two vCPUs on a node of two CPUs.
    let many = held((0..100).map(|_| stranger(2, 1, 1, 0)).collect());
    assert_eq!(many.of(NodeId(0)).vcpus, 2);
}

#[test]
fn claims_of_strangers_stop_no_plan_and_what_they_hold_counts() {
    let all = held(vec![stranger(4096, 100 << 10, 100 << 10, 1)]);
    // 1 GiB is resident; the machine's other 31 are claimed.
    assert_eq!(all.of(NodeId(0)), NodeUse { vcpus: 2, memory: gib(32), resident: gib(1), ..NodeUse::default() });
    assert_eq!(
        all.without_claims().of(NodeId(0)),
        NodeUse { vcpus: 2, memory: gib(1), resident: gib(1), ..NodeUse::default() }
    );
    // 10 GiB are free on either node: 12 GiB fit beside what the stranger holds, not beside what he
    // claims.
    let plan_of = |gib| plan(&machine(), &all, &spec(gib));
    let expected = "it does not fit beside what others claim: user 1001's VMs claim 100 TiB and hold 1 GiB: counted at \
        what they hold";
    let warnings = plan_of(12).expect("a plan").warnings; // 12 GiB need both nodes: the first warning says so
    assert_eq!(warnings[1..], [expected]);
    assert_eq!(plan_of(8).expect("a plan").warnings, [""; 0], "node 1 has 10 GiB that nobody claims");
    assert!(matches!(plan_of(24), Err(PlanError::Memory { .. })));
}

#[test]
fn a_warning_names_the_largest_claims() {
    let one = |user: u32| Claims { user: Some(user), said: gib(u64::from(user)), ..Claims::default() };
    let said = left_out(&[1, 2, 3, 4, 5].map(one)).expect("claims");
    assert!(said.contains("user 5's VMs claim 5 GiB and hold 0 B; user 4's"), "{said}");
    assert!(said.ends_with("; so do VMs of 2 more users: counted at what they hold"), "{said}");
    assert_eq!(left_out(&[Claims { said: gib(1), resident: gib(1), ..Claims::default() }]), None);
}
