//! Rules of huge pages (`hugepages`): they need NUMA, one host node for each virtual node, and
//! memory that is made of them.

use super::conf::{Conf, Setting, numa_key};
use super::numa::{HostNodes, NumaNode};
use super::of_numa::{fewer_sockets, nodes, of_sockets, written};
use super::refusals::{Known, Refusal};
use topology::{Bytes, NodeId, NodeSet};

pub(super) fn without_numa(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    (conf.huge_pages().is_some() && !conf.is_on("numa")).then(|| Refusal {
        sentence: "it is to have huge pages, and NUMA is off".to_owned(),
        says: "numa needs to be enabled to use hugepages".to_owned(),
        spots: conf.spots(["hugepages", "numa"]),
        advice: "switch NUMA on".to_owned(),
        settings: vec![Setting::new("numa", 1)],
    })
}

/// One host node of one digit: what qemu-server counts pages for.
fn is_countable(host: &HostNodes) -> bool {
    host.nodes.len() == 1 && host.nodes.iter().all(|node| node.0 < 10)
}

pub(super) fn one_host_node_each(conf: &Conf, known: &Known<'_>) -> Option<Refusal> {
    conf.huge_pages()?;
    let mut nodes = nodes(conf);
    let is_wrong = |node: &NumaNode| !node.hostnodes.as_ref().is_some_and(is_countable);
    let (&first, node) = nodes.iter().find(|(_, node)| is_wrong(node))?;
    let (sentence, says) = match &node.hostnodes {
        None => (
            format!("numa{first} names no host node to take huge pages from"),
            "numa hostnodes need to be defined to use hugepages",
        ),
        Some(host) => (
            format!("numa{first} takes huge pages, and names host nodes {}: it is to name one, of 0 to 9", host.nodes),
            "more than 1 hostnode value in numa node is not supported when hugepages are enabled",
        ),
    };
    let homes = (known.homes)(conf);
    let mut mended = true;
    for (id, node) in nodes.iter_mut().filter(|(_, node)| is_wrong(node)) {
        let one = |set: &NodeSet| set.first().filter(|node| node.0 < 10);
        let host = node.hostnodes.as_ref().and_then(|host| one(&host.nodes)).or_else(|| one(homes.get(id)?));
        mended &= host.is_some();
        if let Some(host) = host {
            node.hostnodes = Some(HostNodes { nodes: [host].into_iter().collect(), second: None });
            node.policy = Some("bind".to_owned());
        }
    }
    Some(Refusal {
        sentence,
        says: says.to_owned(),
        spots: conf.spots([numa_key(first).as_str(), "hugepages"]),
        advice: match mended {
            true => "name the host node of its home",
            false => {
                "Proxmox takes huge pages of host nodes 0 to 9 only: take the line `hugepages` out, or give it \
                smaller virtual nodes on those"
            }
        }
        .to_owned(),
        settings: if mended { written(&nodes) } else { Vec::new() },
    })
}

/// Without `numaN`, socket N takes its pages from host node N.
pub(super) fn sockets_without_host_node(conf: &Conf, known: &Known<'_>) -> Option<Refusal> {
    conf.huge_pages()?;
    let machine = known.machine?;
    if !conf.is_on("numa") || !nodes(conf).is_empty() {
        return None;
    }
    let exists = |id: u64| machine.node(NodeId(id as u32)).is_some();
    let missing = (0..conf.sockets()).find(|&id| !exists(id))?;
    let settings = fewer_sockets(conf, |conf| {
        let page = conf.sockets() * page(conf).unwrap_or(1);
        (0..conf.sockets()).all(exists) && of_sockets(conf).0.is_multiple_of(page)
    });
    Some(Refusal {
        sentence: format!(
            "it has huge pages and {} sockets, each a virtual node of the host node with its number, and {} has no \
            node {missing}",
            conf.sockets(),
            machine.name
        ),
        says: format!("host NUMA node{missing} doesn't exist"),
        spots: conf.spots(["sockets", "hugepages"]),
        advice: "give it as many sockets as the host has nodes, with the same vCPUs".to_owned(),
        settings,
    })
}

/// Bytes of a page; of `any`, of the smaller ones.
fn page(conf: &Conf) -> Option<u64> {
    Some(Bytes::from_mib(if conf.huge_pages()? == "1024" { 1024 } else { 2 }).0)
}

/// Memory of each virtual node is whole pages.
pub(super) fn whole_pages(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let page = page(conf)?;
    if !conf.is_on("numa") || super::dimms::is_on(conf) {
        return None;
    }
    let mut custom = nodes(conf);
    let sockets = conf.sockets();
    let odd = match custom.is_empty() {
        true => Some(Bytes(conf.memory().0 / sockets)).filter(|_| !conf.memory().0.is_multiple_of(sockets * page)),
        false => custom.values().filter_map(|node| node.memory).find(|memory| !memory.0.is_multiple_of(page)),
    }?;
    let (memory, whole) = (conf.memory().0, conf.memory().0.is_multiple_of(page));
    let smaller = conf.huge_pages() == Some("1024")
        && match custom.is_empty() {
            true => memory.is_multiple_of(sockets * Bytes::from_mib(2).0),
            false => {
                custom.values().filter_map(|node| node.memory).all(|part| part.0.is_multiple_of(Bytes::from_mib(2).0))
            }
        };
    let (advice, settings) = if smaller && !whole {
        ("use pages of 2 MiB, which its memory is made of", vec![Setting::new("hugepages", 2)])
    } else if custom.is_empty() {
        let fewer = fewer_sockets(conf, |conf| memory.is_multiple_of(conf.sockets() * page));
        ("give it sockets that divide it, with the same vCPUs", fewer)
    } else if whole && memory / page >= custom.len() as u64 {
        let shares: Vec<u64> = custom.values().map(|node| node.memory.unwrap_or_default().mib().max(1)).collect();
        let pages = pages(memory / page, &shares);
        custom.values_mut().zip(pages).for_each(|(node, pages)| node.memory = Some(Bytes(pages * page)));
        ("cut its memory into whole pages", written(&custom))
    } else {
        ("set `memory` to whole pages", Vec::new())
    };
    let advice = if settings.is_empty() { "set `memory` to whole pages" } else { advice };
    let (odd, size) = (odd.0 as f64 / Bytes::MIB.0 as f64, page >> 20);
    Some(Refusal {
        sentence: format!("a virtual node of it has {odd} MiB, which is no number of whole pages of {size} MiB"),
        says: match size {
            2 => format!("memory size '{odd}' is not a positive even integer; cannot use for hugepages"),
            _ => format!("Memory size {odd} is not a multiple of the requested hugepages size {size}"),
        },
        spots: conf.spots(["hugepages", "memory"]).into_iter().chain(conf.numa_spots()).collect(),
        advice: advice.to_owned(),
        settings,
    })
}

/// Pages by shares, one at least for each.
fn pages(pages: u64, shares: &[u64]) -> Vec<u64> {
    let spare = pages - shares.len() as u64;
    let all: u64 = shares.iter().sum::<u64>().max(1);
    let mut given: Vec<u64> = shares.iter().map(|share| 1 + spare * share / all).collect();
    let rest = pages - given.iter().sum::<u64>();
    let count = given.len();
    (0..rest as usize).for_each(|index| given[index % count] += 1);
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_cut_by_shares_and_none_is_lost() {
        assert_eq!(pages(8, &[1, 1]), [4, 4]);
        assert_eq!(pages(9, &[1, 1]), [5, 4]);
        assert_eq!(pages(10, &[3, 1]), [7, 3]);
        assert_eq!(pages(2, &[100, 1]), [1, 1]);
    }
}
