//! Whether a guest sees the machine that was planned for it: a wrong SRAT or SLIT shows only there.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use topology::input::{cut, excerpt};
use topology::{Bytes, CpuId, CpuSet};
use vm::{CacheGroup, Plan, VirtualNode};
use workloads::protocol::{SeenMachine, SeenNode};

/// What a kernel keeps of a node's memory at most, whatever its size: its own image, the initial
/// RAM disk, per-CPU areas.
const KERNEL_KEEPS: Bytes = Bytes::from_mib(128);
/// And of each byte: 64 bytes of `struct page` in 4096, and some reserve.
const KERNEL_KEEPS_PERCENT: u64 = 3;

/// Most complaints of a guest that are told on, and the most characters of one: its init has a few
/// short ones.
const MOST_COMPLAINTS: usize = 16;
const LONGEST_COMPLAINT: usize = 300;

/// What the guest sees otherwise than planned, as sentences. Empty: all as planned.
pub fn differences(plan: &Plan, seen: &SeenMachine) -> Vec<String> {
    let mut found = Vec::new();
    let planned = &plan.topology.nodes;
    if planned.len() != seen.nodes.len() {
        found.push(format!("{} NUMA nodes planned, the guest sees {}", planned.len(), seen.nodes.len()));
    }
    for (node, seen_node) in planned.iter().zip(&seen.nodes) {
        compare_node(plan, node, seen_node, &mut found);
    }
    compare_sockets(plan, seen, &mut found);
    compare_cores(plan, seen, &mut found);
    compare_caches(plan, seen, &mut found);
    let complaints = seen.complaints.iter().take(MOST_COMPLAINTS);
    found.extend(complaints.map(|complaint| format!("the guest says: {}", cut(complaint, LONGEST_COMPLAINT))));
    found
}

fn compare_node(plan: &Plan, node: &VirtualNode, seen: &SeenNode, found: &mut Vec<String>) {
    let id = node.id;
    if seen.id != id {
        found.push(format!("node {id} planned, the guest calls it {}", seen.id));
    }
    let vcpus = plan.topology.guest_cpus(node);
    if parse(&seen.cpus).as_ref() != Some(&vcpus) {
        found.push(format!("node {id}: vCPUs {vcpus} planned, the guest sees `{}`", excerpt(&seen.cpus)));
    }
    let memory = Bytes(seen.memory_bytes);
    let keeps = KERNEL_KEEPS.saturating_add(Bytes(node.memory.0 / 100 * KERNEL_KEEPS_PERCENT));
    if memory > node.memory || memory < node.memory.saturating_sub(keeps) {
        found.push(format!("node {id}: {} planned, the guest sees {memory}", node.memory));
    }
    let distances = plan.topology.distances.get(id as usize);
    if plan.topology.exposed && distances != Some(&seen.distances) {
        let planned = distances.cloned().unwrap_or_default();
        found.push(format!(
            "node {id}: distances {planned:?} planned, the guest sees {}",
            excerpt(&format!("{:?}", seen.distances))
        ));
    }
}

fn compare_sockets(plan: &Plan, seen: &SeenMachine, found: &mut Vec<String>) {
    let planned = plan.topology.guest_sockets();
    if planned != seen.sockets.len() {
        found.push(format!("{planned} sockets planned, the guest sees {}", seen.sockets.len()));
    }
    for socket in seen.sockets.iter().take(planned) {
        if let Some(nodes) = spanned(plan, socket, seen) {
            found.push(format!("the socket of CPUs {} spans nodes {nodes}", excerpt(socket)));
        }
    }
}

/// vCPUs of a virtual core of several threads, as the guest has them side by side.
fn compare_cores(plan: &Plan, seen: &SeenMachine, found: &mut Vec<String>) {
    let threads = plan.topology.threads_per_core.max(1);
    let vcpus: u32 = plan.topology.nodes.iter().map(|node| node.present().count() as u32).sum();
    if threads < 2 || seen.cores.is_empty() {
        return;
    }
    let planned: BTreeSet<CpuSet> =
        (0..vcpus).step_by(threads as usize).map(|first| (first..first + threads).map(CpuId).collect()).collect();
    let told: BTreeSet<CpuSet> = seen.cores.iter().take(vcpus as usize).filter_map(|core| parse(core)).collect();
    if let Some(core) = planned.difference(&told).next() {
        found.push(format!("vCPUs {core} are threads of one core as planned, and the guest does not see them so"));
    }
}

/// A last-level cache across nodes makes a guest's scheduler treat remote memory as near.
fn compare_caches(plan: &Plan, seen: &SeenMachine, found: &mut Vec<String>) {
    let vcpus = plan.topology.nodes.iter().map(|node| node.present().count()).sum();
    if seen.llcs.len() > vcpus {
        found.push(format!("the guest sees {} last-level caches of {vcpus} vCPUs", seen.llcs.len()));
    }
    let groups = told_groups(plan);
    let llcs = &seen.llcs[..seen.llcs.len().min(vcpus)];
    for llc in llcs {
        if let Some(nodes) = spanned(plan, llc, seen) {
            found.push(format!("the last-level cache of CPUs {} spans nodes {nodes}", excerpt(llc)));
        }
        if let Some(groups) = groups_of(&groups, llc) {
            found.push(format!("the last-level cache of CPUs {} spans the groups of vCPUs {groups}", excerpt(llc)));
        }
    }
    found.extend(groups.iter().filter_map(|group| unseen_group(group, llcs)));
}

/// Groups that the guest is told of, each as the vCPUs that are there and by the numbers that the
/// guest has for them. Groups that are no sockets or dies are none that it is told of; the plan
/// says so.
fn told_groups(plan: &Plan) -> Vec<(CpuSet, CpuSet)> {
    let present: BTreeSet<u32> = plan.topology.nodes.iter().flat_map(|node| node.present()).collect();
    let numbers: BTreeMap<u32, u32> = present.into_iter().zip(0..).collect();
    let size = plan.topology.vcpus_per_cache() as usize;
    let groups = plan.placement.clients.iter().flat_map(|client| &client.groups);
    let both = |group: &CacheGroup| {
        let there = group.vcpus.iter().filter_map(|vcpu| Some((CpuId(*vcpu), CpuId(*numbers.get(vcpu)?))));
        there.unzip()
    };
    groups.filter(|group| group.vcpus.len() == size).map(both).collect()
}

/// The vCPUs of each group that a cache of the guest holds any of, if those are several.
fn groups_of(groups: &[(CpuSet, CpuSet)], llc: &str) -> Option<String> {
    let cpus = parse(llc)?;
    let of = groups.iter().filter(|(_, seen)| !seen.intersection(&cpus).is_empty());
    let names: Vec<String> = of.map(|(vcpus, _)| vcpus.to_string()).collect();
    (names.len() > 1).then(|| names.join(" and "))
}

/// A group of which the guest does not know that it shares a cache.
fn unseen_group(group: &(CpuSet, CpuSet), llcs: &[String]) -> Option<String> {
    let (vcpus, numbers) = group;
    let holds = |llc: &CpuSet| numbers.iter().all(|cpu| llc.contains(cpu));
    let alone = numbers.len() < 2 || llcs.iter().filter_map(|llc| parse(llc)).any(|llc| holds(&llc));
    (!alone)
        .then(|| format!("the vCPUs {vcpus} share a last-level cache, and no cache that the guest sees has them all"))
}

/// The nodes that a list of CPUs lies in, if more than one. A guest may say of any number of nodes,
/// caches and sockets; no more of each are looked at than it can have.
fn spanned(plan: &Plan, cpus: &str, seen: &SeenMachine) -> Option<String> {
    let cpus = parse(cpus)?;
    let shares = |node: &&SeenNode| parse(&node.cpus).is_some_and(|of_node| !of_node.intersection(&cpus).is_empty());
    let nodes: Vec<String> =
        seen.nodes.iter().take(plan.topology.nodes.len()).filter(shares).map(|node| node.id.to_string()).collect();
    (nodes.len() > 1).then(|| nodes.join(" and "))
}

fn parse(list: &str) -> Option<CpuSet> {
    list.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// What a guest with two nodes of two vCPUs and 512 MiB sees if all is right.
    fn seen() -> SeenMachine {
        let node = |id: u32, cpus: &str, distances: [u32; 2]| SeenNode {
            id,
            cpus: cpus.into(),
            memory_bytes: Bytes::from_mib(480).0,
            distances: distances.into(),
        };
        SeenMachine {
            nodes: vec![node(0, "0-1", [10, 20]), node(1, "2-3", [20, 10])],
            llcs: vec!["0-1".into(), "2-3".into()],
            llc_bytes: Some(16 << 20),
            sockets: vec!["0-1".into(), "2-3".into()],
            cores: vec!["0".into(), "1".into(), "2".into(), "3".into()],
            online: "0-3".into(),
            complaints: Vec::new(),
        }
    }

    fn found(seen: &SeenMachine) -> String {
        differences(&samples::plan("a", 2, 2, 512), seen).join("; ")
    }

    #[test]
    fn a_guest_that_sees_the_plan_has_no_difference() {
        assert_eq!(found(&seen()), "");
    }

    #[test]
    fn vcpus_that_come_later_are_not_missed() {
        // Of vCPUs 0-3 and 4-7 the first two are there, which the guest calls 0-1 and 2-3.
        let mut plan = samples::plan("a", 2, 4, 512);
        (plan.topology.nodes[0].absent, plan.topology.nodes[1].absent) = (vec![2, 3], vec![6, 7]);
        assert_eq!(differences(&plan, &seen()), Vec::<String>::new());
    }

    #[test]
    fn threads_of_a_core_are_looked_for() {
        let mut plan = samples::plan("a", 2, 2, 512);
        (plan.topology.cores_per_socket, plan.topology.threads_per_core) = (1, 2);
        let told = differences(&plan, &seen()).join("; ");
        assert!(told.contains("vCPUs 0-1 are threads of one core as planned"), "{told}");
        let right = SeenMachine { cores: vec!["0-1".into(), "2-3".into()], ..seen() };
        assert_eq!(differences(&plan, &right), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let mut other = seen();
        other.nodes.pop();
        assert!(found(&other).contains("2 NUMA nodes planned, the guest sees 1"));
        let mut other = seen();
        other.nodes[1].cpus = "3".into();
        assert!(found(&other).contains("node 1: vCPUs 2-3 planned, the guest sees `3`"));
        let mut other = seen();
        other.nodes[0].distances = vec![10, 21];
        assert!(found(&other).contains("node 0: distances [10, 20] planned, the guest sees [10, 21]"));
        let mut other = seen();
        other.nodes[0].memory_bytes = Bytes::from_mib(300).0; // 512 - 128 - 3 % = 368 MiB is the least
        assert!(found(&other).contains("node 0: 512 MiB planned, the guest sees 300 MiB"));
        let mut other = seen();
        other.llcs = vec!["0-3".into()];
        assert!(found(&other).contains("cache of CPUs 0-3 spans nodes 0 and 1"));
        let mut other = seen();
        other.sockets = vec!["0-3".into()];
        assert!(
            found(&other).contains("2 sockets planned, the guest sees 1; the socket of CPUs 0-3 spans nodes 0 and 1")
        );
        let mut other = seen();
        other.complaints = vec!["x".into()];
        assert_eq!(found(&other), "the guest says: x");
    }

    #[test]
    fn a_guest_knows_the_caches_of_its_groups() {
        // One node of 4 vCPUs, a socket for each group of 2.
        let mut plan = samples::plan("vm", 1, 4, 512);
        (plan.topology.sockets, plan.topology.cores_per_socket) = (2, 2);
        let group = |first: u32| vm::CacheGroup {
            vcpus: vec![first, first + 1],
            llc: topology::LlcId(first),
            cpus: "0-1".parse().expect("a set"),
        };
        plan.placement.clients[0].groups = vec![group(0), group(2)];
        let mut other = seen();
        other.nodes.pop();
        (other.nodes[0].cpus, other.nodes[0].distances) = ("0-3".into(), vec![10]);
        assert_eq!(differences(&plan, &other), Vec::<String>::new());
        other.llcs = vec!["0-3".into()];
        let found = differences(&plan, &other).join("; ");
        assert_eq!(found, "the last-level cache of CPUs 0-3 spans the groups of vCPUs 0-1 and 2-3");
        other.llcs = vec!["0-1".into(), "2".into(), "3".into()];
        let found = differences(&plan, &other).join("; ");
        assert_eq!(found, "the vCPUs 2-3 share a last-level cache, and no cache that the guest sees has them all");
        // One socket of two dies says the same.
        (plan.topology.sockets, plan.topology.cores_per_socket, plan.topology.dies_per_socket) = (1, 4, 2);
        (other.sockets, other.llcs) = (vec!["0-3".into()], vec!["0-1".into(), "2-3".into()]);
        assert_eq!(differences(&plan, &other), Vec::<String>::new());
    }
}
