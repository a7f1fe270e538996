//! Rules of `numaN` lines and of the virtual nodes that are made of sockets.

use super::conf::{Conf, Setting, numa_key};
use super::numa::{HostNodes, NumaNode};
use super::refusals::{Known, Refusal};
use std::collections::BTreeMap;
use topology::words::{count, named};
use topology::{Bytes, CpuId, CpuSet, NodeSet};

/// `numaN` that count.
pub(super) fn nodes(conf: &Conf) -> BTreeMap<u32, NumaNode> {
    if conf.is_on("numa") { conf.numa_nodes() } else { BTreeMap::new() }
}

/// What writes virtual nodes anew.
pub(super) fn written(nodes: &BTreeMap<u32, NumaNode>) -> Vec<Setting> {
    nodes.iter().map(|(&id, node)| Setting::new(numa_key(id), node.text())).collect()
}

/// QEMU: `numa: Node ID missing: 0`.
pub(super) fn numbers_with_gaps(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let nodes = nodes(conf);
    let missing = (0..).zip(nodes.keys()).find(|(index, id)| index != *id)?.0;
    let anew: BTreeMap<u32, NumaNode> = (0..).zip(nodes.values().cloned()).collect();
    let gone = nodes.keys().filter(|id| !anew.contains_key(id)).map(|&id| Setting::gone(numa_key(id)));
    Some(Refusal {
        sentence: format!("its virtual nodes are not numbered from 0 without gaps: there is no numa{missing}"),
        says: format!("QEMU: numa: Node ID missing: {missing}"),
        spots: conf.numa_spots(),
        advice: "number them from numa0".to_owned(),
        settings: written(&anew).into_iter().chain(gone).collect(),
    })
}

pub(super) fn without_memory(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let mut nodes = nodes(conf);
    let first = nodes.iter().find(|(_, node)| node.memory.is_none()).map(|(&id, _)| id)?;
    let given: Bytes = nodes.values().filter_map(|node| node.memory).sum();
    let lacking = nodes.values().filter(|node| node.memory.is_none()).count() as u64;
    let rest = conf.memory().saturating_sub(given);
    let total = conf.memory().0;
    // Where the others have all of it, or none has any, all get equal parts.
    let whole = rest.mib() / lacking == 0;
    let shares = if whole { vec![1; nodes.len()] } else { Vec::new() };
    if whole {
        let parts = parts(total, &shares);
        nodes.values_mut().zip(parts).for_each(|(node, part)| node.memory = Some(part));
    } else {
        let parts = parts(rest.0, &vec![1; lacking as usize]);
        let without = nodes.values_mut().filter(|node| node.memory.is_none());
        without.zip(parts).for_each(|(node, part)| node.memory = Some(part));
    }
    Some(Refusal {
        sentence: format!("numa{first} has no memory"),
        says: format!("missing NUMA node{first} memory value"),
        spots: conf.spots([numa_key(first).as_str()]),
        advice: "give it what the others leave of the VM's memory".to_owned(),
        settings: written(&nodes),
    })
}

pub(super) fn sum_differs(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let mut nodes = nodes(conf);
    let sum: Bytes = nodes.values().filter_map(|node| node.memory).sum();
    let memory = conf.memory();
    if nodes.is_empty() || sum == memory {
        return None;
    }
    let shares: Vec<u64> = nodes.values().map(|node| node.memory.unwrap_or_default().mib().max(1)).collect();
    nodes.values_mut().zip(parts(memory.0, &shares)).for_each(|(node, part)| node.memory = Some(part));
    Some(Refusal {
        sentence: format!("its virtual nodes have {sum} together, and the VM has {memory} (`memory`)"),
        says: "total memory for NUMA nodes must be equal to vm static memory".to_owned(),
        spots: conf.spots(["memory"]).into_iter().chain(conf.numa_spots()).collect(),
        advice: format!("give them {memory} together, each its share; or set `memory`, if {sum} was meant"),
        settings: written(&nodes),
    })
}

/// Memory cut by shares into whole 2 MiB, the rest with the last.
pub(super) fn parts(bytes: u64, shares: &[u64]) -> Vec<Bytes> {
    let step = Bytes::from_mib(2).0;
    let all: u64 = shares.iter().sum::<u64>().max(1);
    let (mut until, mut given) = (0, 0);
    let part = |(index, share): (usize, &u64)| {
        until += share;
        let end = match index + 1 == shares.len() {
            true => bytes,
            false => (u128::from(bytes) * u128::from(until) / u128::from(all)) as u64 / step * step,
        };
        let part = end - given;
        given = end;
        Bytes(part)
    };
    shares.iter().enumerate().map(part).collect()
}

/// QEMU: vCPUs that the VM does not have, or that two virtual nodes name.
pub(super) fn vcpus_that_are_none(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let nodes = nodes(conf);
    let most = conf.most_vcpus();
    let all: CpuSet = (0..most as u32).map(CpuId).collect();
    let named_all = nodes.values().fold(CpuSet::new(), |sum, node| sum.union(&node.cpus));
    let beyond = named_all.difference(&all);
    let twice = twice(&nodes);
    let (sentence, says) = if !beyond.is_empty() {
        let sentence =
            format!("its virtual nodes name {}, and it has {}", named("vCPU", &beyond), count(most as usize, "vCPU"));
        let first = beyond.first()?;
        (sentence, format!("QEMU: CPU index ({first}) should be smaller than maxcpus ({most})"))
    } else if !twice.is_empty() {
        let says = "QEMU: CPU is already assigned to node-id".to_owned();
        (format!("two of its virtual nodes name {}", named("vCPU", &twice)), says)
    } else {
        return None;
    };
    Some(Refusal {
        sentence,
        says,
        spots: conf.numa_spots().into_iter().chain(conf.spots(["sockets", "cores"])).collect(),
        advice: "name each vCPU once".to_owned(),
        settings: named_anew(conf),
    })
}

fn twice(nodes: &BTreeMap<u32, NumaNode>) -> CpuSet {
    let (mut seen, mut twice) = (CpuSet::new(), CpuSet::new());
    for node in nodes.values() {
        twice = twice.union(&seen.intersection(&node.cpus));
        seen = seen.union(&node.cpus);
    }
    twice
}

/// vCPUs of virtual nodes in a row, each as many as its share of those that it names now.
pub(super) fn named_anew(conf: &Conf) -> Vec<Setting> {
    let mut nodes = nodes(conf);
    let most = conf.most_vcpus() as u32;
    let shares: Vec<u64> = nodes.values().map(|node| (node.cpus.len() as u64).max(1)).collect();
    let all: u64 = shares.iter().sum::<u64>().max(1);
    let (mut until, mut from) = (0, 0);
    for (index, (node, share)) in nodes.values_mut().zip(shares).enumerate() {
        until += share;
        // Each has one at least, where there are as many.
        let end = (u64::from(most) * until / all) as u32;
        let end = end.max(index as u32 + 1).min(most);
        node.cpus = (from..end).map(CpuId).collect();
        from = end;
    }
    let (kept, empty): (BTreeMap<u32, NumaNode>, _) = nodes.into_iter().partition(|(_, node)| !node.cpus.is_empty());
    let mut kept = kept;
    let left: Bytes = empty.values().filter_map(|node: &NumaNode| node.memory).sum();
    if let Some(last) = kept.values_mut().last() {
        last.memory = last.memory.map(|memory| memory.saturating_add(left));
    }
    let gone = empty.into_keys().map(|id| Setting::gone(numa_key(id)));
    written(&kept).into_iter().chain(gone).collect()
}

pub(super) fn without_policy(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let mut nodes = nodes(conf);
    let lacks = |node: &NumaNode| node.hostnodes.is_some() && node.policy.is_none();
    let (&first, node) = nodes.iter().find(|(_, node)| lacks(node))?;
    let host = node.hostnodes.as_ref().map(|host| host.nodes.to_string()).unwrap_or_default();
    nodes.values_mut().filter(|node| lacks(node)).for_each(|node| node.policy = Some("bind".to_owned()));
    Some(Refusal {
        sentence: format!("numa{first} names host nodes ({host}) and no policy for its memory there"),
        says: format!("you need to define a policy for hostnode {host}"),
        spots: conf.spots([numa_key(first).as_str()]),
        advice: "bind its memory to them".to_owned(),
        settings: written(&nodes),
    })
}

/// `hostnodes=0;2` becomes `host-nodes=0,2`, which QEMU takes for another option.
pub(super) fn several_ranges(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let mut nodes = nodes(conf);
    let written_so = |node: &NumaNode| node.hostnodes.clone().filter(|host| host.second.is_some());
    let (first, host) = nodes.iter().find_map(|(&id, node)| Some((id, written_so(node)?)))?;
    let second = host.second.unwrap_or_default();
    let pages = conf.huge_pages().is_some();
    let mut gap = false;
    for node in nodes.values_mut() {
        let Some(host) = node.hostnodes.as_mut().filter(|host| host.second.is_some()) else { continue };
        let is_range = !crate::emit::proxmox::has_gap(&host.nodes);
        gap |= !is_range;
        if is_range || pages {
            let nodes = if is_range { host.nodes.clone() } else { host.nodes.first().into_iter().collect() };
            *host = HostNodes { nodes, second: None };
        } else {
            (node.hostnodes, node.policy) = (None, None);
        }
    }
    let advice = match gap {
        true => {
            "Proxmox can bind a virtual node to one range of host nodes only: it is left unbound, and `homenode \
            balance` on that host keeps it at home"
        }
        false => "write them as one range",
    };
    Some(Refusal {
        sentence: format!("numa{first} names its host nodes in several parts ({})", host.nodes),
        says: format!("QEMU: Invalid parameter '{second}'"),
        spots: conf.spots([numa_key(first).as_str()]),
        advice: advice.to_owned(),
        settings: written(&nodes),
    })
}

/// QEMU takes virtual nodes only that are all of the memory together, to the byte.
pub(super) fn memory_of_sockets(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let (sockets, memory) = (conf.sockets(), of_sockets(conf));
    if !conf.is_on("numa") || !nodes(conf).is_empty() || memory.0.is_multiple_of(sockets) {
        return None;
    }
    let settings = fewer_sockets(conf, |conf| of_sockets(conf).0.is_multiple_of(conf.sockets()));
    Some(Refusal {
        sentence: format!("{memory} cannot be cut into {sockets} equal virtual nodes, one for each socket"),
        says: "QEMU: total memory for NUMA nodes should equal RAM size".to_owned(),
        spots: conf.spots(["memory", "sockets"]),
        advice: "give it sockets that divide it, with the same vCPUs".to_owned(),
        settings,
    })
}

/// Memory that is cut into equal parts, one for each socket: all but DIMMs.
pub(super) fn of_sockets(conf: &Conf) -> Bytes {
    if super::dimms::is_on(conf) { Bytes::from_mib(super::dimms::fixed_mib(conf)) } else { conf.memory() }
}

/// The most sockets below those that it has, with the same vCPUs, for which something holds.
pub(super) fn fewer_sockets(conf: &Conf, holds: impl Fn(&Conf) -> bool) -> Vec<Setting> {
    let vcpus = conf.most_vcpus();
    let settings = |sockets| [Setting::new("sockets", sockets), Setting::new("cores", vcpus / sockets)];
    let fewer = (1..conf.sockets()).rev().filter(|&sockets| vcpus.is_multiple_of(sockets)).map(settings);
    fewer.into_iter().find(|settings| holds(&conf.with(settings))).map(Vec::from).unwrap_or_default()
}

/// Nodes that the machine does not have: the cure that names the home mends that, where one is
/// known.
pub(super) fn no_such_host_node(conf: &Conf, known: &Known<'_>) -> Option<Refusal> {
    let machine = known.machine?;
    let there = machine.node_ids();
    let mut nodes = nodes(conf);
    let lost = |node: &NumaNode| -> NodeSet {
        node.hostnodes.iter().flat_map(|host| host.nodes.iter()).filter(|node| !there.contains(*node)).collect()
    };
    let (&first, missing) = nodes.iter().map(|(id, node)| (id, lost(node))).find(|(_, lost)| !lost.is_empty())?;
    let number = missing.first()?;
    let homes = (known.homes)(conf);
    for (id, node) in nodes.iter_mut().filter(|(_, node)| !lost(node).is_empty()) {
        match homes.get(id).filter(|home| !crate::emit::proxmox::has_gap(home)) {
            Some(home) => node.hostnodes = Some(HostNodes { nodes: home.clone(), second: None }),
            None => (node.hostnodes, node.policy) = (None, None),
        }
    }
    Some(Refusal {
        sentence: format!("numa{first} names {}, which {} does not have", named("host node", &missing), machine.name),
        says: format!("host NUMA node{number} doesn't exist"),
        spots: conf.spots([numa_key(first).as_str()]),
        advice: "name the nodes of its home".to_owned(),
        settings: written(&nodes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cut_by_shares_into_whole_pairs_of_mib() {
        let mib = |parts: Vec<Bytes>| parts.iter().map(|part| part.mib()).collect::<Vec<_>>();
        assert_eq!(mib(parts(16384 << 20, &[4096, 4096])), [8192, 8192]);
        assert_eq!(mib(parts(1001 << 20, &[1, 1])), [500, 501]);
        assert_eq!(mib(parts(1000 << 20, &[1, 3])), [250, 750]);
    }
}
