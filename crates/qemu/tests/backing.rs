//! Huge pages, memory that is taken on touch and one CPU for each vCPU, with a real QEMU: what the
//! kernel says of them. On several nodes: `crates/cli/tests/lab/memory.sh`.

use crate::common::{empty_disk, launch, machine, no_qemu, start, unique};
use std::path::Path;
use std::time::Duration;
use topology::{Bytes, CpuId, LlcId};
use vm::spec::{Backing, Fill, VcpuBinding};
use vm::{Accelerator, Backend, CacheGroup, Launch, MemoryResidence, Residence, TcgThreads, Vm, VmSpec};

/// Where a VM of two virtual nodes of one vCPU and 32 MiB is, once it runs; `change` changes its
/// spec before it is planned.
fn residence(name: &str, change: impl FnOnce(&mut VmSpec)) -> (Launch, Residence) {
    let directory = tempfile::tempdir().expect("a directory");
    let launch = planned(name, &empty_disk(directory.path()), change);
    let mut vm = start(&launch).expect("a VM");
    let residence = vm.residence(&launch.plan).expect("a residence");
    Box::new(vm).stop(Duration::ZERO).expect("an end");
    (launch, residence)
}

fn planned(name: &str, disk: &Path, change: impl FnOnce(&mut VmSpec)) -> Launch {
    let mut launch = launch(&unique(name), 2, disk);
    change(&mut launch.spec);
    launch.plan = scheduler::plan(&machine(), &scheduler::Occupancy::default(), &launch.spec).expect("a plan");
    launch
}

fn bytes(memory: &MemoryResidence) -> u64 {
    memory.pages_by_node.values().sum::<u64>() * memory.page_bytes
}

#[test]
fn memory_on_touch_prefers_its_home_and_is_not_there_before() {
    if no_qemu("memory_on_touch_prefers_its_home_and_is_not_there_before") {
        return;
    }
    let (launch, residence) = residence("test-touch", |spec| spec.shape.backing.fill = Fill::OnTouch);
    // The firmware takes some of the first virtual node, and of the one that memory ends in.
    for memory in residence.memory.iter().filter(|memory| memory.unknown.is_none()) {
        let home = launch.plan.placement.clients[memory.virtual_node as usize].home.clone();
        assert_eq!(memory.policy, Some(format!("prefer:{home}")), "{memory:?}");
        assert!(bytes(memory) < 32 << 20 && memory.at_home, "{memory:?}");
    }
}

#[test]
fn each_vcpu_has_a_cpu_of_its_own() {
    const TEST: &str = "each_vcpu_has_a_cpu_of_its_own";
    if no_qemu(TEST) {
        return;
    }
    if machine().usable_threads().count() < 2 {
        eprintln!("SKIPPED {TEST}: this machine has one usable CPU");
        return;
    }
    let (launch, residence) = residence("test-core", |spec| spec.shape.policy.vcpu_binding = VcpuBinding::Core);
    let bound = launch.plan.bound_cpus();
    assert_eq!(bound.len(), 2);
    for vcpu in &residence.vcpus {
        let cpu = launch.plan.placement.clients[vcpu.virtual_node as usize].cpus_of(vcpu.index);
        assert_eq!((vcpu.affinity.clone(), vcpu.at_home), (cpu, true));
    }
    assert_eq!(residence.vcpus.iter().fold(topology::CpuSet::new(), |all, vcpu| all.union(&vcpu.affinity)), bound);
}

/// This machine may have one cache: the groups are written into the plan, a CPU for each.
#[test]
fn the_threads_of_a_group_keep_to_the_cpus_of_its_cache() {
    const TEST: &str = "the_threads_of_a_group_keep_to_the_cpus_of_its_cache";
    if no_qemu(TEST) {
        return;
    }
    let cpus: Vec<CpuId> = machine().usable_threads().map(|thread| thread.id).collect();
    let [first, second, ..] = cpus[..] else { return eprintln!("SKIPPED {TEST}: this machine has one usable CPU") };
    let directory = tempfile::tempdir().expect("a directory");
    let one_node = |spec: &mut VmSpec| spec.shape.policy.virtual_nodes = None;
    let mut launch = planned("test-groups", &empty_disk(directory.path()), one_node);
    let client = &mut launch.plan.placement.clients[0];
    let group = |vcpu: u32, cpu| CacheGroup { vcpus: vec![vcpu], llc: LlcId(vcpu), cpus: [cpu].into_iter().collect() };
    client.groups = vec![group(0, second), group(1, first)];
    let mut vm = start(&launch).expect("a VM");
    let residence = vm.residence(&launch.plan).expect("a residence");
    let affinities: Vec<String> = residence.vcpus.iter().map(|vcpu| vcpu.affinity.to_string()).collect();
    assert_eq!(affinities, [second.to_string(), first.to_string()]);
    assert!(residence.vcpus.iter().all(|vcpu| vcpu.at_home));
    // Who is bound to the other's CPU is not at home.
    let client = &mut launch.plan.placement.clients[0];
    client.groups = vec![group(0, first), group(1, first)];
    let residence = vm.residence(&launch.plan).expect("a residence");
    assert_eq!(residence.vcpus.iter().map(|vcpu| vcpu.at_home).collect::<Vec<_>>(), [false, true]);
    assert!(!residence.at_home);
    Box::new(vm).stop(Duration::ZERO).expect("an end");
}

#[test]
fn huge_pages_are_those_of_the_pool() {
    const TEST: &str = "huge_pages_are_those_of_the_pool";
    if no_qemu(TEST) {
        return;
    }
    let page = Bytes::from_mib(2);
    let free: u64 =
        machine().nodes.iter().map(|node| scheduler::Occupancy::default().free_huge_pages(node, page).0).sum();
    if free < 64 << 20 {
        eprintln!("SKIPPED {TEST}: this machine has no pool of 32 free pages of {page}; the lab has");
        return;
    }
    let (_, residence) =
        residence("test-huge", |spec| spec.shape.backing = Backing { huge_pages: Some(page), ..Backing::default() });
    for memory in residence.memory.iter().filter(|memory| memory.unknown.is_none()) {
        assert_eq!((memory.page_bytes, bytes(memory), memory.at_home), (page.0, 32 << 20, true), "{memory:?}");
    }
}

/// Threads are chosen once, when QEMU starts: for all vCPUs that may be plugged in.
#[test]
fn an_emulated_guest_that_may_grow_wide_begins_on_one_thread() {
    if qemu::accelerator(1).is_hardware() {
        return eprintln!("SKIPPED an_emulated_guest_that_may_grow_wide_begins_on_one_thread: there is KVM");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let threads = |most: u32| {
        let grows = |spec: &mut VmSpec| {
            spec.shape.max_vcpus = Some(most);
            spec.shape.policy.virtual_nodes = None;
        };
        let launch = planned("test-threads", &empty_disk(directory.path()), grows);
        match qemu::Attached.check(&launch).expect("it can be started") {
            Accelerator::Tcg { threads, .. } => threads,
            Accelerator::Kvm => panic!("no KVM"),
        }
    };
    assert_eq!((threads(31), threads(32)), (TcgThreads::Multi, TcgThreads::Single));
}
