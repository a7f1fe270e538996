//! A machine from `/sys` and `/proc` (kernel: Documentation/ABI/stable/sysfs-devices-node, .../sysfs-devices-system-cpu,
//! Documentation/admin-guide/cputopology.rst).

use super::error::{ReadError, check_size};
use super::tree::Tree;
use super::{cpus, memory};
use crate::{Bytes, CpuSet, Distances, Machine, MemoryKind, Node, NodeId, NodeSet};
use std::path::Path;

pub(super) const CPUS: &str = "sys/devices/system/cpu";
pub(super) const NODES: &str = "sys/devices/system/node";

/// This host, with what this process may use of it.
///
/// # Errors
/// Where `/sys` is not mounted, or a file of it cannot be understood.
pub fn live() -> Result<Machine, ReadError> {
    let tree = Tree::in_directory("/".into());
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = if name.trim().is_empty() { "this host" } else { name.trim() };
    machine(&tree, name)
}

/// A machine from a directory that holds `sys` and `proc`, or that is itself a `/sys`.
///
/// Where the directory has a `proc/self/status`, the CPUs and nodes that it allows are the machine's allowed ones.
///
/// # Errors
/// Where the directory describes no machine, or a file of it cannot be understood.
pub fn from_root(root: &Path) -> Result<Machine, ReadError> {
    let name = root.file_name().map_or_else(|| root.display().to_string(), |name| name.to_string_lossy().into_owned());
    machine(&Tree::in_directory(root.to_owned()), &name)
}

/// Reads the machine that a tree describes.
pub(super) fn machine(tree: &Tree, name: &str) -> Result<Machine, ReadError> {
    let mut notes = Vec::new();
    let cpus = cpus::Cpus::read(tree)?;
    let nodes: Vec<NodeId> = tree.numbered(NODES, "node").into_iter().map(NodeId).collect();
    check_size(tree.place(), cpus.present.len(), nodes.len())?;
    let limits = Limits::read(tree)?;
    let nodes = if nodes.is_empty() {
        notes.push(
            "Linux lists no NUMA nodes here (/sys/devices/system/node is missing): all is taken as one node, 0."
                .to_owned(),
        );
        vec![NodeId(0)]
    } else {
        nodes
    };
    let (threads, llcs) = cpus::threads(tree, &cpus, &nodes, limits.cpus.as_ref(), &mut notes)?;
    let memory = memory::of_nodes(tree, &nodes, &mut notes)?;
    // Linux lists only nodes with memory as allowed; one without has nothing to deny.
    let allowed = |id: NodeId, memory| {
        memory == Some(Bytes(0)) || limits.nodes.as_ref().is_none_or(|allowed| allowed.contains(id))
    };
    let gpus = memory::of_gpus(tree, &nodes, &mut notes);
    let node = |(&id, memory): (&NodeId, memory::NodeMemory)| Node {
        id,
        memory: memory.total.filter(|_| !gpus.contains(id)).unwrap_or_default(),
        memory_kind: match memory.total {
            Some(size) if gpus.contains(id) => MemoryKind::Gpu { size },
            Some(_) => MemoryKind::Ram,
            None => MemoryKind::Unknown,
        },
        free: memory.free.filter(|_| !gpus.contains(id)),
        huge_pages: memory.huge_pages,
        allowed: allowed(id, memory.total),
    };
    let distances = distances(tree, &nodes, &mut notes)?;
    let listed = nodes.iter().zip(memory).map(node).collect();
    Ok(Machine { name: name.to_owned(), cpu_model: cpu_model(tree), nodes: listed, llcs, threads, distances, notes })
}

/// What the process that looks may use.
struct Limits {
    cpus: Option<CpuSet>,
    nodes: Option<NodeSet>,
}

impl Limits {
    fn read(tree: &Tree) -> Result<Self, ReadError> {
        const FILE: &str = "proc/self/status";
        const KEYS: [&str; 2] = ["Cpus_allowed_list", "Mems_allowed_list"];
        let lines = tree.lines(FILE, &KEYS, super::tree::LONGEST_FILE).unwrap_or_default();
        let value = |key: &str| lines.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str());
        let bad = |text: &str| tree.error(FILE, text, "a list of numbers and ranges such as `0-3,8`");
        let cpus = value(KEYS[0]).map(|text| text.parse().map_err(|_| bad(text))).transpose()?;
        let nodes = value(KEYS[1]).map(|text| text.parse().map_err(|_| bad(text))).transpose()?;
        Ok(Self { cpus, nodes })
    }
}

/// The model of the first CPU: `model name` on x86, `cpu` on POWER, `Processor` or `Model` on arm.
fn cpu_model(tree: &Tree) -> Option<String> {
    // The kernel writes the file as it is read; all of it, on a machine with 512 CPUs, takes longer than everything else.
    const FIRST_CPU: u64 = 8192;
    let keys = ["model name", "cpu", "Processor", "Model"];
    let lines = tree.lines("proc/cpuinfo", &keys, FIRST_CPU)?;
    lines.into_iter().find(|(key, _)| keys.contains(&key.as_str())).map(|(_, value)| value)
}

fn distances(tree: &Tree, nodes: &[NodeId], notes: &mut Vec<String>) -> Result<Distances, ReadError> {
    let mut rows = Vec::new();
    for node in nodes {
        let path = format!("{NODES}/node{node}/distance");
        let Some(text) = tree.read(&path) else { break };
        let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
        rows.push(row.map_err(|_| tree.error(&path, &text, "distances such as `10 21`"))?);
    }
    // ACPI reserves distances under 10.
    let valid = rows.iter().flatten().all(|&distance| distance >= Distances::LOCAL);
    if let Some(distances) = Distances::new(nodes.to_vec(), rows).filter(|_| valid) {
        return Ok(distances);
    }
    if nodes.len() > 1 {
        notes.push(format!(
            "No complete and valid table of distances: {} is assumed within a node and {} between nodes.",
            Distances::LOCAL,
            Distances::REMOTE
        ));
    }
    Ok(Distances::flat(nodes.to_vec()))
}
