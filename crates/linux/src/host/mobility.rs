//! Whether a VM may be moved, and why not.

use super::tracked::{Around, Tracked};
use crate::capabilities::NEEDS_NICE;
use crate::pins;
use crate::root::Root;
use crate::sys;
use scheduler::Mobility;
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
    let threads = vm.clients.iter().flat_map(|client| &client.thread_ids);
    threads.filter_map(|&thread| sys::affinity(thread).ok()).find_map(|cpus| part_of_a_node(&cpus, around.machine))
}

/// Why threads with these CPUs stay where they are: the balancer only ever binds to whole nodes;
/// who bound to less had a reason.
pub fn part_of_a_node(cpus: &CpuSet, machine: &Machine) -> Option<String> {
    let nodes: NodeSet = cpus.iter().filter_map(|cpu| Some(machine.thread(cpu)?.node)).collect();
    let whole = nodes.iter().fold(CpuSet::new(), |all, node| all.union(&machine.usable_cpus(node)));
    (!whole.is_subset(cpus)).then(|| {
        format!(
            "its threads may use only CPUs {cpus} of nodes {nodes}: bound so by policy.vcpu_binding = \
            \"core\", by policy.cache, by another program or by its cpuset"
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
