//! Which CPUs each thread of a workload runs on. Pure.

use anyhow::bail;
use std::collections::BTreeMap;
use topology::{CpuId, CpuSet, HardwareThread, Machine, NodeId};
use workloads::workload::Pinning;

/// The CPUs of each of `threads` threads; `None` where threads may go anywhere. With more threads
/// than CPUs the CPUs are used again, in the same order. `cpu_node` confines all threads to that
/// node; the error says which nodes have CPUs.
pub(crate) fn cpu_sets(
    machine: &Machine,
    pinning: Pinning,
    threads: usize,
    cpu_node: Option<NodeId>,
) -> anyhow::Result<Option<Vec<CpuSet>>> {
    let usable: Vec<&HardwareThread> =
        machine.usable_threads().filter(|thread| cpu_node.is_none_or(|node| thread.node == node)).collect();
    if usable.is_empty() {
        bail!(no_cpus(machine, cpu_node));
    }
    let order = match pinning {
        Pinning::None => {
            let node_cpus: CpuSet = usable.iter().map(|thread| thread.id).collect();
            return Ok(cpu_node.map(|_| vec![node_cpus; threads]));
        }
        Pinning::Compact => compact(&usable),
        Pinning::Scatter => round_robin(&usable, |thread| (thread.node.0, 0)),
        // A CPU without a known cache counts as its node's.
        Pinning::OnePerLlc => round_robin(&usable, |thread| thread.llc.map_or((thread.node.0, 0), |llc| (llc.0, 1))),
    };
    let one = |cpu: &CpuId| std::iter::once(*cpu).collect::<CpuSet>();
    Ok(Some(order.iter().cycle().take(threads).map(one).collect()))
}

fn no_cpus(machine: &Machine, cpu_node: Option<NodeId>) -> String {
    let with_cpus: topology::NodeSet = machine.usable_threads().map(|thread| thread.node).collect();
    match cpu_node {
        Some(node) => format!("`cpu_node` is {node}, which has no CPU that may be used; nodes with CPUs: {with_cpus}"),
        None => "no CPU may be used".to_owned(),
    }
}

/// A usable thread, and how many threads of its core come before it.
struct Ranked<'a> {
    thread: &'a HardwareThread,
    rank: usize,
}

/// Neighbours first: by socket, node, cache and core; the second hardware threads of cores after
/// all first ones where `rank` sorts first.
fn ranked<'a>(usable: &[&'a HardwareThread]) -> Vec<Ranked<'a>> {
    let mut threads: Vec<&HardwareThread> = usable.to_vec();
    threads.sort_by_key(|thread| thread.id);
    let mut seen = BTreeMap::<u32, usize>::new();
    let mut first_of_core = BTreeMap::<u32, CpuId>::new();
    let mut ranked: Vec<Ranked> = threads
        .into_iter()
        .map(|thread| {
            let rank = seen.entry(thread.core.0).or_insert(0);
            first_of_core.entry(thread.core.0).or_insert(thread.id);
            *rank += 1;
            Ranked { thread, rank: *rank - 1 }
        })
        .collect();
    ranked.sort_by_key(|Ranked { thread, .. }| {
        (thread.socket, thread.node, thread.llc, first_of_core.get(&thread.core.0).copied(), thread.id)
    });
    ranked
}

/// Fills a node before the next, and in a node one thread on every core before a second.
fn compact(usable: &[&HardwareThread]) -> Vec<CpuId> {
    let mut ranked = ranked(usable);
    // A stable sort keeps neighbours together within a rank.
    ranked.sort_by_key(|Ranked { thread, rank }| (thread.socket, thread.node, *rank));
    ranked.iter().map(|ranked| ranked.thread.id).collect()
}

/// Takes one CPU from every group in turn, one thread on every core before a second.
fn round_robin<K: Ord>(usable: &[&HardwareThread], group: impl Fn(&HardwareThread) -> K) -> Vec<CpuId> {
    let mut order = Vec::with_capacity(usable.len());
    let ranked = ranked(usable);
    let ranks = ranked.iter().map(|ranked| ranked.rank).max().map_or(0, |rank| rank + 1);
    for rank in 0..ranks {
        let mut groups = BTreeMap::<K, Vec<CpuId>>::new();
        for Ranked { thread, .. } in ranked.iter().filter(|ranked| ranked.rank == rank) {
            groups.entry(group(thread)).or_default().push(thread.id);
        }
        let longest = groups.values().map(Vec::len).max().unwrap_or(0);
        for turn in 0..longest {
            order.extend(groups.values().filter_map(|cpus| cpus.get(turn)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::read::from_synthetic;

    fn order(machine: &Machine, pinning: Pinning, threads: usize, node: Option<u32>) -> Vec<String> {
        let sets = cpu_sets(machine, pinning, threads, node.map(NodeId)).unwrap().unwrap();
        sets.iter().map(ToString::to_string).collect()
    }

    /// Two nodes, two caches in each, two cores in each cache, two hardware threads in each core.
    /// hwloc numbers the PUs depth first: node 0 is CPUs 0-7 (caches 0-3, 4-7; cores 0-1, 2-3,
    /// ...), node 1 is 8-15.
    fn machine() -> Machine {
        from_synthetic("pack:2 [numa] l3:2 core:2 pu:2").unwrap()
    }

    #[test]
    fn compact_fills_the_cores_of_a_node_then_its_second_threads_then_the_next_node() {
        let expected = ["0", "2", "4", "6", "1", "3", "5", "7", "8", "10"];
        assert_eq!(order(&machine(), Pinning::Compact, 10, None), expected);
    }

    #[test]
    fn scatter_takes_nodes_in_turn_and_cores_before_second_threads() {
        let expected = ["0", "8", "2", "10", "4", "12", "6", "14", "1", "9"];
        assert_eq!(order(&machine(), Pinning::Scatter, 10, None), expected);
    }

    #[test]
    fn one_per_llc_takes_caches_in_turn() {
        assert_eq!(order(&machine(), Pinning::OnePerLlc, 6, None), ["0", "4", "8", "12", "2", "6"]);
    }

    #[test]
    fn a_node_confines_all_and_cpus_are_used_again() {
        assert_eq!(order(&machine(), Pinning::Scatter, 3, Some(1)), ["8", "10", "12"]);
        let many = order(&machine(), Pinning::Compact, 18, Some(1));
        assert_eq!((many[8].as_str(), many[16].as_str()), (many[0].as_str(), many[0].as_str()));
    }

    #[test]
    fn without_pinning_only_a_node_binds() {
        assert_eq!(cpu_sets(&machine(), Pinning::None, 2, None).unwrap(), None);
        assert_eq!(order(&machine(), Pinning::None, 2, Some(1)), ["8-15", "8-15"]);
    }

    #[test]
    fn offline_and_forbidden_cpus_are_left_out() {
        let mut machine = machine();
        machine.threads[0].online = false;
        machine.threads[2].allowed = false;
        // CPU 1 is now the first thread of its core, and so is 3.
        assert_eq!(order(&machine, Pinning::Compact, 4, None), ["1", "3", "4", "6"]);
    }

    #[test]
    fn a_node_without_cpus_is_refused_with_those_that_have_some() {
        let error = cpu_sets(&machine(), Pinning::None, 1, Some(NodeId(7))).unwrap_err().to_string();
        assert!(error.contains("7") && error.contains("0-1"), "{error}");
    }
}
