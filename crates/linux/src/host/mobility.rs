//! Whether a VM may be moved, and why not.

use super::tracked::{Around, Tracked};
use crate::capabilities::NEEDS_NICE;
use crate::pins;
use crate::root::Root;
use crate::sys;
use crate::vm::{RunningVm, VmClient};
use scheduler::{Mobility, VcpuGroup};
use topology::{CpuSet, Machine, NodeSet};

pub(super) fn of(root: &Root, tracked: &Tracked, around: &Around<'_>) -> Mobility {
    let vm = &tracked.vm;
    if let Some(because) = threads_fixed(root, tracked, around).or_else(|| tracked.torn_apart(around.machine)) {
        return Mobility::Fixed { because };
    }
    if let Some(because) = pins::why_fixed(root, vm) {
        return Mobility::MemoryFixed { because };
    }
    match vm.clients.iter().find_map(|client| client.memory_unknown_because.clone()) {
        Some(because) => Mobility::MemoryFixed { because },
        None => Mobility::Movable,
    }
}

fn threads_fixed(root: &Root, tracked: &Tracked, around: &Around<'_>) -> Option<String> {
    let vm = &tracked.vm;
    if vm.clients.iter().any(|client| client.thread_ids.is_empty() && !client.vcpus.is_empty()) {
        return Some(
            "its vCPU threads cannot be told from its other threads (QEMU names them with -name NAME,debug-threads=on)"
                .to_owned(),
        );
    }
    if !root.is_live() {
        return None;
    }
    if !around.rights.nice && vm.owner_uid.is_some_and(|owner| owner != around.rights.user) {
        return Some(format!("missing: {NEEDS_NICE}"));
    }
    vm.clients.iter().find_map(|client| {
        let each = client.thread_ids.iter().map(|&thread| sys::affinity(thread));
        let each: Vec<CpuSet> = each.filter_map(Result::ok).collect();
        let divided = || vm.origin.by_homenode && !groups(vm, client, &each, around.machine).is_empty();
        let part = each.iter().find_map(|cpus| part_of_a_node(cpus, around.machine));
        part.filter(|_| !divided())
    })
}

/// The groups of a client whose threads may use these CPUs, thread by thread; empty where they are
/// not divided, or not all known.
pub(super) fn groups(vm: &RunningVm, client: &VmClient, each: &[CpuSet], machine: &Machine) -> Vec<VcpuGroup> {
    if each.len() != client.thread_ids.len() || each.len() != client.vcpus.len() {
        return Vec::new();
    }
    let vcpu = |thread: u32| vm.threads.vcpus.iter().find(|one| one.thread_id == thread).map(|one| one.index);
    let known = client.thread_ids.iter().zip(each).map(|(&thread, cpus)| Some((vcpu(thread)?, cpus.clone())));
    let guest = &vm.guest.cpus;
    let die = guest.cores.saturating_mul(guest.threads);
    known.collect::<Option<_>>().map_or_else(Vec::new, |cpus| scheduler::vcpu_groups(machine, &cpus, die))
}

/// Why threads with these CPUs stay where they are: the balancer binds to whole nodes, and to whole
/// caches only what homenode divided so; who bound to less had a reason.
pub fn part_of_a_node(cpus: &CpuSet, machine: &Machine) -> Option<String> {
    let nodes: NodeSet = cpus.iter().filter_map(|cpu| Some(machine.thread(cpu)?.node)).collect();
    let whole = nodes.iter().fold(CpuSet::new(), |all, node| all.union(&machine.usable_cpus(node)));
    (!whole.is_subset(cpus)).then(|| {
        format!(
            "its threads may use only CPUs {cpus} of nodes {nodes}: bound so by policy.vcpu_binding = \
            \"core\", by another program or by its cpuset"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_nodes_are_nobodys_pin_and_parts_are() {
        let machine = topology::read::from_synthetic("numa:2 core:2 pu:2").unwrap();
        let part = |cpus: &str| part_of_a_node(&cpus.parse().unwrap(), &machine);
        for cpus in ["0-3", "4-7", "0-7", ""] {
            assert_eq!(part(cpus), None, "{cpus}");
        }
        assert!(part("2").unwrap().contains("only CPUs 2 of nodes 0"));
        assert!(part("0-5").is_some());
    }
}
