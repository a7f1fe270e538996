//! vCPUs numbered in the order in which they come, for stacks that start the lowest numbers and
//! plug in the next.
//!
//! **Problem.** A plan numbers vCPUs by virtual node, and each node starts with some of its own: of
//! two nodes of 6 vCPUs that start with 2 each, numbers 0, 1, 6 and 7 are there. cloud-hypervisor
//! and Proxmox start 0 to 3.
//!
//! **Rule.** Those of power-on come first, node by node. Then one for each virtual node in turn, so
//! that the topology stays even, whatever number the VM is set to.
//!
//! **Example.** 2 of 6 vCPUs on each of two nodes: node 0 has 0, 1, 4, 6, 8, 10 and node 1 has 2,
//! 3, 5, 7, 9, 11.
//!
//! Sockets are ranges of numbers, and none may hold vCPUs of two virtual nodes: each vCPU then is a
//! socket of its own.

use super::Loss;
use std::collections::BTreeMap;
use vm::Plan;

/// The same plan with vCPUs in that order; `None` where they are so already.
pub(super) fn in_order(plan: &Plan) -> Option<Plan> {
    let nodes = &plan.topology.nodes;
    let present: Vec<u32> = nodes.iter().flat_map(|node| node.present()).collect();
    let count = present.len() as u32;
    if present.iter().all(|&vcpu| vcpu < count) {
        return None;
    }
    let rounds = nodes.iter().map(|node| node.absent.len()).max().unwrap_or_default();
    let absent = (0..rounds).flat_map(|round| nodes.iter().filter_map(move |node| node.absent.get(round).copied()));
    let numbers: BTreeMap<u32, u32> = present.iter().copied().chain(absent).zip(0..).collect();
    let number = |vcpu: &u32| numbers.get(vcpu).copied().unwrap_or(*vcpu);
    let mut plan = plan.clone();
    for node in &mut plan.topology.nodes {
        for vcpus in [&mut node.vcpus, &mut node.absent] {
            *vcpus = vcpus.iter().map(number).collect();
            vcpus.sort_unstable();
        }
    }
    for client in &mut plan.placement.clients {
        client.vcpu_cpus = client.vcpu_cpus.iter().map(|(vcpu, &cpu)| (number(vcpu), cpu)).collect();
        for group in &mut client.groups {
            group.vcpus = group.vcpus.iter().map(number).collect();
            group.vcpus.sort_unstable();
        }
    }
    let topology = &mut plan.topology;
    (topology.sockets, topology.cores_per_socket, topology.threads_per_core) = (topology.max_vcpus(), 1, 1);
    topology.dies_per_socket = 1;
    Some(plan)
}

/// What is lost by it.
pub(super) fn loss(stack: &str) -> Loss {
    Loss::new(
        format!("{stack} starts the vCPUs with the lowest numbers, which here lie on all virtual nodes."),
        "vCPUs are numbered in the order in which they come, and each is a virtual socket of its own: the guest sees \
        no last-level cache that several of them share.",
    )
}
