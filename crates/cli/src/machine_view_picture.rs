//! A machine as a picture: boxes for sockets, nodes and caches, with the cores inside. Parts that
//! are alike are drawn once where the machine is too large to draw each.

use crate::machine_view::{self, cache_name};
use crate::text::{count, width};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuSet, HardwareThread, Machine, MemoryKind, Node};

/// A picture higher than this is drawn with parts that are alike put together.
const MOST_LINES: usize = 36;

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Socket,
    Node,
    Cache,
}

/// A part of the machine, or several that are alike.
struct Part {
    level: Level,
    ids: BTreeSet<u32>,
    /// A cache's kind.
    label: String,
    /// Memory of the nodes, different amounts once, each as it is printed.
    memory: BTreeSet<(Bytes, String)>,
    lines: Vec<String>,
    /// Equal for parts that are alike.
    likeness: String,
    parts: Vec<Part>,
}

/// How much is drawn.
#[derive(Clone, Copy)]
struct Detail {
    /// Each core with its CPUs, or only how many cores there are.
    each_core: bool,
    /// Levels from this one on, outermost 0, are drawn once for all parts that are alike.
    merged_from: usize,
}

/// Draws the machine at most [`width`] columns wide.
pub(crate) fn picture(machine: &Machine) -> String {
    let order = order(machine);
    let online: Vec<&HardwareThread> = machine.threads.iter().filter(|thread| thread.online).collect();
    let draw = |detail: Detail| {
        let mut parts = parts(machine, &order, &online, 0, detail);
        parts.extend(nodes_without_cpus(machine, detail.merged_from < order.len()));
        beside_each_other(&parts.iter().map(|part| boxed(part, 1, width())).collect::<Vec<_>>(), width())
    };
    // First everything; then cores by their number; then caches that are alike as one, then nodes,
    // then sockets.
    let details = [(true, 3), (false, 3), (false, 2), (false, 1), (false, 0)];
    let mut lines = Vec::new();
    for (each_core, merged_from) in details {
        lines = draw(Detail { each_core, merged_from });
        if lines.len() <= MOST_LINES && lines.iter().all(|line| line.chars().count() <= width()) {
            break;
        }
    }
    let offline: CpuSet = machine.threads.iter().filter(|thread| !thread.online).map(|thread| thread.id).collect();
    if !offline.is_empty() {
        lines.push(format!("offline: CPUs {offline}"));
    }
    if machine.threads.iter().any(|thread| !thread.allowed) {
        lines.push("(n): CPU n is not allowed to this process".to_owned());
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Outermost level first: a node may hold several sockets or be part of one, and so may a cache.
fn order(machine: &Machine) -> Vec<Level> {
    let groups = |level: Level| {
        let ids: BTreeSet<Option<u32>> =
            machine.threads.iter().filter(|thread| thread.online).map(|thread| id(thread, level)).collect();
        ids.len()
    };
    let mut order = vec![Level::Socket, Level::Node, Level::Cache];
    if machine.llcs.is_empty() {
        order.pop();
    }
    order.sort_by_key(|&level| groups(level));
    order
}

fn id(thread: &HardwareThread, level: Level) -> Option<u32> {
    match level {
        Level::Socket => Some(thread.socket.0),
        Level::Node => Some(thread.node.0),
        Level::Cache => thread.llc.map(|llc| llc.0),
    }
}

/// The parts of level `order[depth]` that `threads` belong to; parts are merged where alike from
/// `detail.merged_from` on.
fn parts(machine: &Machine, order: &[Level], threads: &[&HardwareThread], depth: usize, detail: Detail) -> Vec<Part> {
    let Some(&level) = order.get(depth) else { return Vec::new() };
    let mut members = BTreeMap::<Option<u32>, Vec<&HardwareThread>>::new();
    for thread in threads {
        members.entry(id(thread, level)).or_default().push(thread);
    }
    let part = |(id, threads): (Option<u32>, Vec<&HardwareThread>)| {
        let inner = parts(machine, order, &threads, depth + 1, detail);
        let shape = core_shape(&threads);
        let lines = match detail.each_core {
            _ if !inner.is_empty() => Vec::new(),
            true => vec![cores(&threads)],
            false => vec![shape.clone()],
        };
        let label = if level == Level::Cache { cache_label(machine, id) } else { String::new() };
        let likeness = likeness(level, &label, &shape, &inner);
        let memory = if level == Level::Node { memory(machine, id) } else { BTreeSet::new() };
        Part { level, ids: id.into_iter().collect(), label, memory, lines, likeness, parts: inner }
    };
    let parts: Vec<Part> = members.into_iter().map(part).collect();
    if depth >= detail.merged_from { merged(parts) } else { parts }
}

fn cache_label(machine: &Machine, id: Option<u32>) -> String {
    let cache = machine.llcs.iter().find(|llc| Some(llc.id.0) == id);
    cache.map_or_else(|| "no cache known".to_owned(), cache_name)
}

fn memory(machine: &Machine, id: Option<u32>) -> BTreeSet<(Bytes, String)> {
    machine.nodes.iter().filter(|node| Some(node.id.0) == id).map(amount).collect()
}

fn amount(node: &Node) -> (Bytes, String) {
    (node.memory, machine_view::memory(node))
}

/// Nodes that hold memory only, or nothing.
fn nodes_without_cpus(machine: &Machine, merge: bool) -> Vec<Part> {
    let with_cpus: BTreeSet<u32> =
        machine.threads.iter().filter(|thread| thread.online).map(|thread| thread.node.0).collect();
    let bare = machine.nodes.iter().filter(|node| !with_cpus.contains(&node.id.0));
    let part = |node: &Node| Part {
        level: Level::Node,
        ids: BTreeSet::from([node.id.0]),
        label: String::new(),
        memory: BTreeSet::from([amount(node)]),
        lines: vec!["no CPUs".to_owned()],
        likeness: if node.memory_kind == MemoryKind::Ram { String::new() } else { machine_view::memory(node) },
        parts: Vec::new(),
    };
    let parts: Vec<Part> = bare.map(part).collect();
    if merge { merged(parts) } else { parts }
}

/// What makes two parts alike: everything but their numbers.
fn likeness(level: Level, label: &str, shape: &str, inner: &[Part]) -> String {
    let inner: Vec<&str> = inner.iter().map(|part| part.likeness.as_str()).collect();
    format!("{level:?} {label} {shape} [{}]", inner.join(" "))
}

/// Parts that are alike become one, with the numbers of all; what is inside is then shown by its
/// shape.
fn merged(parts: Vec<Part>) -> Vec<Part> {
    let mut kinds: Vec<Part> = Vec::new();
    for part in parts {
        match kinds.iter_mut().find(|kind| kind.likeness == part.likeness) {
            Some(kind) => kind.absorb(part),
            None => kinds.push(part),
        }
    }
    kinds
}

impl Part {
    fn absorb(&mut self, other: Part) {
        self.ids.extend(other.ids);
        self.memory.extend(other.memory);
        for (mine, theirs) in self.parts.iter_mut().zip(other.parts) {
            mine.absorb(theirs);
        }
    }

    /// What it is; `parents` parts that are alike hold it.
    fn title(&self, parents: usize) -> String {
        let ids: topology::IdSet<topology::CpuId> = self.ids.iter().map(|&id| topology::CpuId(id)).collect();
        let many = self.ids.len() > 1;
        match self.level {
            Level::Socket if many => format!("sockets {ids}, each"),
            Level::Socket => format!("socket {ids}"),
            Level::Node if many => format!("nodes {ids}: {} each", self.memory_range()),
            Level::Node => format!("node {ids}: {}", self.memory_range()),
            Level::Cache if self.ids.len() > parents => format!("{} x {}", self.ids.len() / parents, self.label),
            Level::Cache => self.label.clone(),
        }
    }

    fn memory_range(&self) -> String {
        match (self.memory.first(), self.memory.last()) {
            (Some((_, least)), Some((_, most))) if least != most => format!("{least} to {most}"),
            (Some((_, memory)), _) => memory.clone(),
            _ => String::new(),
        }
    }
}

fn by_core<'a>(threads: &[&'a HardwareThread]) -> BTreeMap<u32, Vec<&'a HardwareThread>> {
    let mut cores = BTreeMap::<u32, Vec<&HardwareThread>>::new();
    for thread in threads {
        cores.entry(thread.core.0).or_default().push(thread);
    }
    cores
}

/// The CPUs of each core, cores parted by two spaces: `0,8  1,9`.
fn cores(threads: &[&HardwareThread]) -> String {
    let cpu =
        |thread: &&HardwareThread| if thread.allowed { thread.id.to_string() } else { format!("({})", thread.id) };
    let core = |threads: Vec<&HardwareThread>| threads.iter().map(cpu).collect::<Vec<_>>().join(",");
    by_core(threads).into_values().map(core).collect::<Vec<_>>().join("  ")
}

/// `4 cores x 2 threads`, for each kind of core.
fn core_shape(threads: &[&HardwareThread]) -> String {
    let mut kinds = BTreeMap::<(Option<u32>, usize), usize>::new();
    for threads in by_core(threads).into_values() {
        *kinds.entry((threads[0].capacity, threads.len())).or_default() += 1;
    }
    let kind = |((capacity, threads), cores): ((Option<u32>, usize), usize)| {
        let capacity = capacity.map(|capacity| format!(" (capacity {capacity})")).unwrap_or_default();
        format!("{} x {}{capacity}", count(cores, "core"), count(threads, "thread"))
    };
    kinds.into_iter().rev().map(kind).collect::<Vec<_>>().join(", ")
}

/// A part as lines: a box with its title in the upper edge.
fn boxed(part: &Part, parents: usize, width: usize) -> Vec<String> {
    let inner = width.saturating_sub(4);
    let alike = part.ids.len().max(1);
    let children: Vec<Vec<String>> = part.parts.iter().map(|child| boxed(child, alike, inner)).collect();
    let mut content: Vec<String> = part.lines.iter().flat_map(|line| wrapped(line, inner)).collect();
    content.extend(beside_each_other(&children, inner));
    let title = part.title(parents);
    let longest = content.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(title.chars().count() + 1);
    let mut lines = vec![format!("┌ {title} {}┐", "─".repeat((longest + 1).saturating_sub(title.chars().count() + 1)))];
    lines.extend(content.iter().map(|line| format!("│ {line}{} │", " ".repeat(longest - line.chars().count()))));
    lines.push(format!("└{}┘", "─".repeat(longest + 2)));
    lines
}

/// Breaks a line between words.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split("  ") {
        let last = lines.last_mut().map_or(0, |line| line.chars().count());
        if last > 0 && last + 2 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(word);
        }
    }
    lines
}

/// Sets blocks in rows of at most `width` columns, the rows about equally long.
fn beside_each_other(blocks: &[Vec<String>], width: usize) -> Vec<String> {
    let width_of = |block: &Vec<String>| block.first().map_or(0, |line| line.chars().count());
    let widest = blocks.iter().map(width_of).max().unwrap_or(0);
    let fitting = ((width + 1) / (widest + 1)).max(1);
    let rows = blocks.len().div_ceil(fitting).max(1);
    blocks.chunks(blocks.len().div_ceil(rows).max(1)).flat_map(joined).collect()
}

fn joined(row: &[Vec<String>]) -> Vec<String> {
    let height = row.iter().map(Vec::len).max().unwrap_or(0);
    let line = |index: usize| {
        let cell = |block: &Vec<String>| {
            let width = block.first().map_or(0, |line| line.chars().count());
            let text = block.get(index).map_or("", String::as_str);
            // A format's own width ends at 65535, and a line may be longer before a smaller picture
            // is drawn.
            format!("{text}{}", " ".repeat(width.saturating_sub(text.chars().count())))
        };
        row.iter().map(cell).collect::<Vec<_>>().join(" ")
    };
    (0..height).map(line).collect()
}
