//! A machine as tables for people.

use crate::machine_view_picture::picture;
use crate::text::{count, lines, table, table_of, width, wrapped};
use std::collections::BTreeSet;
use topology::{Bytes, Llc, LlcId, Machine, MemoryKind, Node};

/// The whole view: summary, nodes, distances, picture, notes.
pub(crate) fn view(machine: &Machine) -> String {
    let mut parts = vec![summary(machine), nodes(machine)];
    if machine.nodes.len() > 1 {
        parts.push(distances(machine));
    }
    parts.push(picture(machine));
    let notes: Vec<String> = machine.notes.iter().cloned().chain(numa_off(machine)).collect();
    if !notes.is_empty() {
        let notes: Vec<String> =
            notes.iter().map(|note| wrapped(&format!("Note: {note}"), width() - 6).join("\n      ")).collect();
        parts.push(notes.join("\n"));
    }
    parts.join("\n\n") + "\n"
}

/// What `check` and `doctor` call `numa_off`.
fn numa_off(machine: &Machine) -> Option<String> {
    let (node, sockets) = machine.node_of_several_sockets()?;
    Some(format!(
        "{sockets} sockets are one NUMA node, {node}: NUMA is switched off, most often by node interleaving in the \
        BIOS. Most memory accesses are then remote, and no placement mends that."
    ))
}

fn summary(machine: &Machine) -> String {
    let online = machine.threads.iter().filter(|thread| thread.online);
    let cores: BTreeSet<_> = online.clone().map(|thread| thread.core).collect();
    let memory: Bytes = machine.nodes.iter().map(|node| node.memory).sum();
    let mut facts = vec![
        count(machine.sockets().len(), "socket"),
        count(machine.nodes.len(), "NUMA node"),
        caches(machine),
        count(cores.len(), "core"),
        count(online.clone().count(), "hardware thread"),
        if machine.memory_is_known() { memory.to_string() } else { "memory unknown".to_owned() },
    ];
    facts.retain(|fact| !fact.is_empty());
    let mut lines = vec![machine.name.clone()];
    lines.extend(machine.cpu_model.clone());
    lines.extend(wrapped(&facts.join(", "), width()));
    let offline = machine.threads.iter().filter(|thread| !thread.online).count();
    let denied = online.filter(|thread| !thread.allowed).count();
    if offline + denied > 0 {
        let usable = count(machine.usable_threads().count(), "hardware thread");
        lines.push(format!("{usable} usable: {offline} offline, {denied} not allowed to this process"));
    }
    if !machine.isolated.is_empty() {
        let named = topology::words::named("CPU", &machine.isolated);
        let said = format!("isolated: {named}; the kernel puts nothing there by itself, and homes do not count them");
        lines.extend(wrapped(&said, width()));
    }
    if !machine.nohz_full.is_empty() {
        lines.push(format!("without a tick (nohz_full): {}", topology::words::named("CPU", &machine.nohz_full)));
    }
    lines.join("\n")
}

fn caches(machine: &Machine) -> String {
    let kinds: BTreeSet<String> = machine.llcs.iter().map(cache_name).collect();
    if kinds.is_empty() {
        String::new()
    } else {
        format!("{} ({})", count(machine.llcs.len(), "LLC"), kinds.into_iter().collect::<Vec<_>>().join(", "))
    }
}

/// `L3 32 MiB`.
pub(crate) fn cache_name(llc: &Llc) -> String {
    match llc.size {
        Some(size) => format!("L{} {size}", llc.level),
        None => format!("L{}", llc.level),
    }
}

fn nodes(machine: &Machine) -> String {
    let header = ["Node", "Socket", "LLCs", "Cores", "Threads", "Memory", "Free", "Huge pages", "CPUs"];
    let mut table = table(header, &[0, 3, 4, 5, 6]);
    for node in &machine.nodes {
        table.add_row(node_row(machine, node));
    }
    lines(&table)
}

fn node_row(machine: &Machine, node: &Node) -> Vec<String> {
    let threads = || machine.threads.iter().filter(|thread| thread.node == node.id && thread.online);
    let cores: BTreeSet<_> = threads().map(|thread| thread.core).collect();
    let llcs: BTreeSet<LlcId> = threads().filter_map(|thread| thread.llc).collect();
    let cpus: topology::CpuSet = threads().map(|thread| thread.id).collect();
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let free = node.free.map(|free| free.to_string()).unwrap_or_default();
    let id = if node.allowed { node.id.to_string() } else { format!("({})", node.id) };
    vec![
        id,
        or_dash(if cpus.is_empty() { String::new() } else { machine.sockets_of(node.id).to_string() }),
        or_dash(cache_counts(machine, &llcs)),
        cores.len().to_string(),
        cpus.len().to_string(),
        memory(node),
        or_dash(free),
        or_dash(huge_pages(node)),
        or_dash(shortened(&cpus.to_string())),
    ]
}

/// `124 GiB`, `unknown`, or `GPU 15 GiB`.
pub(crate) fn memory(node: &Node) -> String {
    match node.memory_kind {
        MemoryKind::Ram => node.memory.to_string(),
        MemoryKind::Unknown => "unknown".to_owned(),
        MemoryKind::Gpu { size } => format!("GPU {size}"),
    }
}

/// `2 x L3 16 MiB`.
fn cache_counts(machine: &Machine, llcs: &BTreeSet<LlcId>) -> String {
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for llc in machine.llcs.iter().filter(|llc| llcs.contains(&llc.id)) {
        *kinds.entry(cache_name(llc)).or_default() += 1;
    }
    kinds.into_iter().map(|(name, number)| format!("{number} x {name}")).collect::<Vec<_>>().join(", ")
}

/// Pools that hold pages: `512 x 2 MiB (500 free)`.
fn huge_pages(node: &Node) -> String {
    let pools = node.huge_pages.iter().filter(|pool| pool.total > 0);
    let pool = |pool: &topology::HugePages| format!("{} x {} ({} free)", pool.total, pool.page_size, pool.free);
    pools.map(pool).collect::<Vec<_>>().join(", ")
}

/// A list of CPUs cut to the width that the other columns leave.
fn shortened(list: &str) -> String {
    const LONGEST: usize = 32;
    match list.char_indices().nth(LONGEST) {
        None => list.to_owned(),
        Some(_) => {
            let whole_ranges = list[..LONGEST].rfind(',').unwrap_or(LONGEST);
            format!("{},...", &list[..whole_ranges])
        }
    }
}

fn distances(machine: &Machine) -> String {
    let ids = machine.distances.nodes();
    // A column is five characters, the first one ten.
    if ids.len() > (width() - 10) / 5 {
        let values: BTreeSet<u32> = machine.distances.rows().iter().flatten().copied().collect();
        let values: Vec<String> = values.iter().map(u32::to_string).collect();
        let values = values.join(", ");
        let said = format!("Distances between {} nodes: {values}; the whole table with --json", ids.len());
        return wrapped(&said, width()).join("\n");
    }
    let mut header = vec!["Distance".to_owned()];
    header.extend(ids.iter().map(ToString::to_string));
    let columns: Vec<usize> = (0..header.len()).collect();
    let mut table = table_of(header, &columns);
    for (id, row) in ids.iter().zip(machine.distances.rows()) {
        let mut cells = vec![id.to_string()];
        cells.extend(row.iter().map(u32::to_string));
        table.add_row(cells);
    }
    lines(&table)
}
