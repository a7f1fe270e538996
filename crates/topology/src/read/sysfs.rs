//! A machine from `/sys` and `/proc` (kernel: Documentation/ABI/stable/sysfs-devices-node,
//! .../sysfs-devices-system-cpu, Documentation/admin-guide/cputopology.rst).

use super::error::{ReadError, check_size};
use super::limits::Limits;
use super::tree::Tree;
use super::{cards, cpu_model, cpus, hmat, homes, isolation, memory};
use crate::{Bytes, Distances, Machine, MemoryKind, Node, NodeId};
use std::path::Path;

pub(super) const CPUS: &str = "sys/devices/system/cpu";
pub(super) const NODES: &str = "sys/devices/system/node";
/// Bytes of a host's name (Linux: `__NEW_UTS_LEN`).
const LONGEST_HOST_NAME: usize = 64;

/// This host, with what this process may use of it.
///
/// # Errors
/// Where `/sys` is not mounted, or a file of it cannot be understood.
pub fn live() -> Result<Machine, ReadError> {
    let tree = Tree::in_directory("/".into());
    machine(&tree, &host_name())
}

/// This host's name, as it names itself; `this host` where it does not.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = crate::input::one_line(name.trim(), LONGEST_HOST_NAME);
    if name.is_empty() { "this host".to_owned() } else { name }
}

/// A machine from a directory that holds `sys` and `proc`, or that is itself a `/sys`.
///
/// Where the directory has a `proc/self/status`, the CPUs and nodes that it allows are the
/// machine's allowed ones.
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
    let limits = Limits::read(tree, &mut notes)?;
    let info = cpu_model::read(tree);
    let nodes = if nodes.is_empty() {
        notes.push(
            "Linux lists no NUMA nodes here (/sys/devices/system/node is missing): all is taken as one node, 0."
                .to_owned(),
        );
        vec![NodeId(0)]
    } else {
        nodes
    };
    let (homes, is_partial) = homes::of_cpus(tree, &cpus, &nodes, &mut notes)?;
    let (mut threads, llcs) = cpus::threads(tree, &cpus, &homes, limits.cpus.as_ref(), info.is_intel, &mut notes)?;
    if threads.iter().all(|thread| !thread.online) {
        return Err(ReadError::NotAMachine {
            place: tree.place().to_owned(),
            missing: format!("{NODES}/node*/cpulist of a CPU that is online"),
        });
    }
    let memory = memory::of_nodes(tree, &nodes, is_partial, &mut notes)?;
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
    let (name, cpu_model) = (name.to_owned(), info.model);
    let default_huge_page = memory::default_huge_page(tree)?;
    let (cards, bandwidth) = (cards::read(tree, &nodes), hmat::read(tree, &nodes));
    let (isolated, nohz_full) = isolation::read(tree, &mut threads, &mut notes)?;
    let nodes = listed;
    Ok(Machine {
        name,
        cpu_model,
        nodes,
        llcs,
        threads,
        distances,
        cards,
        bandwidth,
        isolated,
        nohz_full,
        default_huge_page,
        notes,
    })
}

fn distances(tree: &Tree, nodes: &[NodeId], notes: &mut Vec<String>) -> Result<Distances, ReadError> {
    let mut rows = Vec::new();
    for node in nodes {
        let path = format!("{NODES}/node{node}/distance");
        let Some(text) = tree.read(&path) else { break };
        let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
        rows.push(row.map_err(|_| tree.error(&path, &text, "distances such as `10 21`"))?);
    }
    if let Some(distances) = Distances::plausible(nodes.to_vec(), rows) {
        return Ok(distances);
    }
    if nodes.len() > 1 {
        notes.push(super::no_distances());
    }
    Ok(Distances::flat(nodes.to_vec()))
}
