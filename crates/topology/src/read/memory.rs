//! Memory and huge pages of each node.

use super::error::ReadError;
use super::sysfs::NODES;
use super::tree::{LONGEST_FILE, Tree};
use crate::{Bytes, HugePages, Machine, MemoryKind, Node, NodeId, NodeSet};
use std::collections::BTreeMap;
use std::path::Path;

/// What a node has.
pub(super) struct NodeMemory {
    /// `None` where the node's files do not say.
    pub(super) total: Option<Bytes>,
    pub(super) free: Option<Bytes>,
    pub(super) huge_pages: Vec<HugePages>,
}

/// What is read of `/proc/meminfo`; a capture keeps these lines.
const OF_THE_MACHINE: [&str; 3] = ["MemTotal", "MemAvailable", "Hugepagesize"];

/// `/proc/meminfo`: the whole machine.
struct WholeMachine {
    total: Bytes,
    available: Option<Bytes>,
}

/// Memory of each of `nodes`, in their order.
/// `is_partial`: Linux lists a part of the machine's nodes only.
pub(super) fn of_nodes(
    tree: &Tree,
    nodes: &[NodeId],
    is_partial: bool,
    notes: &mut Vec<String>,
) -> Result<Vec<NodeMemory>, ReadError> {
    let whole = whole_machine(tree)?.filter(|_| !is_partial);
    let mut memory = Vec::with_capacity(nodes.len());
    for &node in nodes {
        let huge_pages = huge_pages(tree, &format!("{NODES}/node{node}/hugepages"))?;
        memory.push(NodeMemory { huge_pages, ..of_node(tree, node)? });
    }
    if let [only] = memory.as_mut_slice()
        && only.huge_pages.is_empty()
    {
        only.huge_pages = huge_pages(tree, "sys/kernel/mm/hugepages")?;
    }
    reconcile(&mut memory, whole.as_ref(), notes);
    let unknown: NodeSet =
        nodes.iter().zip(&memory).filter(|(_, memory)| memory.total.is_none()).map(|(&node, _)| node).collect();
    if !unknown.is_empty() {
        notes.push(format!("Memory of nodes {unknown} is unknown (they have no meminfo): no VM can be placed there."));
    }
    Ok(memory)
}

/// [`Node::free`](crate::Node::free) of each node as it is now, for a machine that was read from
/// `root`; nothing for a node where it is not known. This reads a file a node; where one node has
/// all memory, `/proc/meminfo`.
pub fn free_memory(root: &Path, machine: &Machine) -> BTreeMap<NodeId, Bytes> {
    let tree = Tree::in_directory(root.to_owned());
    // Of a machine of one node the whole account says it better than the node's own.
    if let [node] = &machine.nodes[..]
        && let Ok(Some(WholeMachine { available: Some(available), .. })) = whole_machine(&tree)
    {
        return BTreeMap::from([(node.id, available)]);
    }
    let unknown = || NodeMemory { total: None, free: None, huge_pages: Vec::new() };
    let mut memory: Vec<NodeMemory> =
        machine.nodes.iter().map(|node| of_node(&tree, node.id).unwrap_or_else(|_| unknown())).collect();
    // Of several nodes with memory the sum would only be compared.
    if memory.iter().filter(|node| has_memory(node)).count() <= 1 {
        reconcile(&mut memory, whole_machine(&tree).ok().flatten().as_ref(), &mut Vec::new());
    }
    let of_gpu = |node: &Node| matches!(node.memory_kind, MemoryKind::Gpu { .. });
    let nodes = machine.nodes.iter().zip(memory).filter(|(node, _)| !of_gpu(node));
    nodes.filter_map(|(node, memory)| Some((node.id, memory.free?))).collect()
}

fn of_node(tree: &Tree, node: NodeId) -> Result<NodeMemory, ReadError> {
    let directory = format!("{NODES}/node{node}");
    let path = format!("{directory}/meminfo");
    let amounts = amounts(tree, &path, &["MemTotal", "MemFree", "Active(file)", "Inactive(file)", "SReclaimable"])?;
    let amount = |key: &str| amounts.iter().find(|(found, _)| found == key).map(|&(_, amount)| amount);
    let total = amount("MemTotal");
    // As the kernel's si_mem_available(), but for its watermarks, which a node does not show: free
    // pages, the page cache of files, and slabs that can be reclaimed.
    let free = amount("MemFree").map(|free| {
        let cache: Bytes = ["Active(file)", "Inactive(file)", "SReclaimable"].into_iter().filter_map(amount).sum();
        let sum = free.saturating_add(cache);
        total.map_or(sum, |total| sum.min(total))
    });
    Ok(NodeMemory { total, free, huge_pages: Vec::new() })
}

/// The nodes that are memory of GPUs: NVIDIA's driver on POWER9 and Grace shows it as nodes and
/// says so in `/proc`.
pub(super) fn of_gpus(tree: &Tree, nodes: &[NodeId], notes: &mut Vec<String>) -> NodeSet {
    const GPUS: &str = "proc/driver/nvidia/gpus";
    let of_gpu = |gpu: &String| {
        let lines = tree.lines(&format!("{GPUS}/{gpu}/numa_status"), &["Node"], LONGEST_FILE)?;
        // -1 where the GPU's memory is no node.
        lines.first()?.1.parse().ok().map(NodeId)
    };
    let found: NodeSet = tree.names(GPUS).iter().filter_map(of_gpu).filter(|node| nodes.contains(node)).collect();
    if !found.is_empty() {
        notes.push(format!(
            "Nodes {found} are memory of GPUs (NVIDIA's driver says so), not RAM: no VM is placed there."
        ));
    }
    found
}

/// Size of the huge pages that the kernel gives to who names none.
pub(super) fn default_huge_page(tree: &Tree) -> Result<Option<Bytes>, ReadError> {
    let amounts = amounts(tree, "proc/meminfo", &OF_THE_MACHINE)?;
    let size = amounts.iter().find(|(key, _)| key == "Hugepagesize").map(|&(_, size)| size);
    Ok(size.filter(|size| size.0 > 0))
}

fn whole_machine(tree: &Tree) -> Result<Option<WholeMachine>, ReadError> {
    let amounts = amounts(tree, "proc/meminfo", &OF_THE_MACHINE)?;
    let amount = |key: &str| amounts.iter().find(|(found, _)| found == key).map(|&(_, amount)| amount);
    Ok(amount("MemTotal").map(|total| WholeMachine { total, available: amount("MemAvailable") }))
}

fn has_memory(node: &NodeMemory) -> bool {
    node.total.is_some_and(|total| total > Bytes(0))
}

/// Where all memory is on one node, `/proc/meminfo` is the better source: node files miss memory
/// that was added by a balloon, and `MemAvailable` knows the watermarks. Where several nodes have
/// memory it can only be compared.
fn reconcile(memory: &mut [NodeMemory], whole: Option<&WholeMachine>, notes: &mut Vec<String>) {
    let Some(whole) = whole else { return };
    if memory.len() > 1 && memory.iter().any(|node| node.total.is_none()) {
        return;
    }
    let sum: Bytes = memory.iter().filter_map(|node| node.total).sum();
    // Pages that the kernel reserves at boot make them differ by a little.
    let differ = sum.0.abs_diff(whole.total.0) > whole.total.0 / 50;
    if memory.iter().filter(|node| has_memory(node)).count() > 1 {
        if differ {
            notes.push(format!(
                "The nodes' memory adds up to {sum}, and /proc/meminfo says {}: memory was added or taken at run time. \
                Free memory per node may be off by as much.",
                whole.total
            ));
        }
        return;
    }
    let holder = memory.iter().position(has_memory).unwrap_or(0);
    let Some(node) = memory.get_mut(holder) else { return };
    if let Some(total) = node.total.filter(|total| differ && *total > Bytes(0)) {
        notes.push(format!(
            "The node's own meminfo says {total}, /proc/meminfo {}: memory was added or taken at run time (a balloon, \
            hot-add, or a limit). /proc/meminfo is used.",
            whole.total
        ));
    }
    node.total = Some(whole.total);
    node.free = whole.available.or(node.free);
}

/// Lines such as `MemTotal: 5335244 kB`, the unit optional.
fn amounts(tree: &Tree, path: &str, keys: &[&str]) -> Result<Vec<(String, Bytes)>, ReadError> {
    let lines = tree.lines(path, keys, LONGEST_FILE).unwrap_or_default();
    let parse = |(key, value): (String, String)| {
        let kib = value.trim_end_matches("kB").trim().parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024));
        kib.map(|bytes| (key.clone(), Bytes(bytes)))
            .ok_or_else(|| tree.error(path, &format!("{key}: {value}"), "an amount such as `5335244 kB`"))
    };
    lines.into_iter().map(parse).collect()
}

/// Pools of huge pages in a directory of `hugepages-<n>kB`, by rising size.
fn huge_pages(tree: &Tree, directory: &str) -> Result<Vec<HugePages>, ReadError> {
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let mut sizes: Vec<u64> = tree.names(directory).iter().filter_map(|name| size(name)).collect();
    sizes.sort_unstable();
    let mut pools = Vec::new();
    for kib in sizes {
        let pool = format!("{directory}/hugepages-{kib}kB");
        let pages = |file: &str| tree.number::<u64>(&format!("{pool}/{file}"), "a number of pages");
        let (total, free) = (pages("nr_hugepages")?.unwrap_or(0), pages("free_hugepages")?.unwrap_or(0));
        pools.push(HugePages { page_size: Bytes(kib.saturating_mul(1024)), total, free });
    }
    Ok(pools)
}
