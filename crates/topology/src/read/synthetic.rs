//! A machine from a string in hwloc's synthetic grammar.

use super::error::{ReadError, check_size};
use super::shape::{Place, Shape, node};
use super::synthetic_grammar::{At, Attached, Attributes, Description, Kind, Level, error, parse};
use super::synthetic_indexes;
use crate::input::excerpt;
use crate::{Bytes, CoreId, CpuId, Llc, LlcId, Machine, NodeId, SocketId};

/// Memory of a NUMA node that states none. hwloc gives it to `numa:N` levels; here `[numa]` has it
/// too.
pub const DEFAULT_NODE_MEMORY: Bytes = Bytes(1 << 30);

/// A machine from a string such as `pack:2 [numa(memory=48GiB)] l3:2(size=32MiB) core:4 pu:2`.
///
/// The grammar is hwloc's (`hwloc(7)`, "Synthetic topologies"); each level must name its type. CPUs
/// and nodes are numbered as hwloc numbers them: CPUs depth first, a node after the nodes inside
/// its object.
///
/// # Errors
/// Where a word is wrong: its text, its place, and what would be valid.
pub fn from_synthetic(text: &str) -> Result<Machine, ReadError> {
    let mut description = parse(text)?;
    add_missing_node(&mut description);
    let numbers = Numbers::of(text, &description)?;
    let mut build = Build {
        shape: Shape::default(),
        counts: vec![0; description.levels.len()],
        next_node: 0,
        numbers: &numbers,
        levels: &description.levels,
    };
    build.object(0, Place::default(), &description.attached, &numbers.root_nodes);
    let whole = At { word: text.to_owned(), start: 0 };
    let stated = description.levels.last().and_then(|level| Some((level, level.attributes.isolated_cpus.as_ref()?)));
    if let Some((level, cpus)) = stated {
        let valid = |why| error(text, &level.at, format!("isolated_cpus={}: {why}", excerpt(cpus)));
        build.shape.isolated = super::shape::parse_isolated_cpus(cpus, &build.shape).map_err(valid)?;
    }
    build.shape.finish(&crate::input::name(text), None, |reason| error(text, &whole, reason))
}

/// A machine without NUMA has one node, as hwloc adds one.
fn add_missing_node(description: &mut Description) {
    let levels = &description.levels;
    let none = description.attached.is_empty()
        && levels.iter().all(|level| level.attached.is_empty() && level.kind != Kind::Numa);
    if none {
        description
            .attached
            .push(Attached { attributes: Attributes::default(), at: At { word: String::new(), start: 0 } });
    }
}

/// Numbers of objects where `indexes=` gives them, level by level.
struct Numbers {
    levels: Vec<Option<Vec<u32>>>,
    attached: Vec<Vec<Option<Vec<u32>>>>,
    root_nodes: Vec<Option<Vec<u32>>>,
}

impl Numbers {
    fn of(text: &str, description: &Description) -> Result<Self, ReadError> {
        let mut numbers = Self { levels: Vec::new(), attached: Vec::new(), root_nodes: Vec::new() };
        let mut objects = 1_usize;
        let mut nodes = description.attached.len();
        numbers.root_nodes = attached_numbers(text, &description.attached, 1, description)?;
        for level in &description.levels {
            objects = objects.saturating_mul(level.count);
            let own = usize::from(level.kind == Kind::Numa) + level.attached.len();
            nodes = nodes.saturating_add(objects.saturating_mul(own));
            check_size(text, objects, nodes)?;
            let parse =
                |indexes: &String| synthetic_indexes::parse(text, &level.at, indexes, objects, &description.levels);
            numbers.levels.push(level.attributes.indexes.as_ref().map(parse).transpose()?);
            numbers.attached.push(attached_numbers(text, &level.attached, objects, description)?);
        }
        Ok(numbers)
    }
}

fn attached_numbers(
    text: &str,
    attached: &[Attached],
    objects: usize,
    description: &Description,
) -> Result<Vec<Option<Vec<u32>>>, ReadError> {
    let parse = |memory: &Attached| {
        let indexes = memory.attributes.indexes.as_ref();
        indexes
            .map(|indexes| synthetic_indexes::parse(text, &memory.at, indexes, objects, &description.levels))
            .transpose()
    };
    attached.iter().map(parse).collect()
}

struct Build<'a> {
    shape: Shape,
    /// Objects made so far, by level.
    counts: Vec<usize>,
    next_node: u32,
    numbers: &'a Numbers,
    levels: &'a [Level],
}

impl Build<'_> {
    /// Makes what is inside an object: its memory, and the objects of level `depth`.
    fn object(&mut self, depth: usize, mut place: Place, attached: &[Attached], numbers: &[Option<Vec<u32>>]) {
        let ordinal = depth.checked_sub(1).map_or(0, |level| self.counts[level] - 1);
        let first = self.shape.nodes.len();
        for memory in attached {
            self.shape.nodes.push(node(NodeId(0), memory.attributes.memory.or(Some(DEFAULT_NODE_MEMORY)), Vec::new()));
        }
        if !attached.is_empty() {
            // Threads are local to the first memory; the others have no CPUs of their own.
            place.node = Some(first);
        }
        if let Some(level) = self.levels.get(depth) {
            for _ in 0..level.count {
                self.member(depth, level, place);
            }
        }
        for (offset, given) in (0..attached.len()).zip(numbers) {
            self.number_node(first + offset, given.as_ref(), ordinal);
        }
    }

    fn number_node(&mut self, index: usize, given: Option<&Vec<u32>>, ordinal: usize) {
        self.shape.nodes[index].id = match given {
            Some(numbers) => NodeId(numbers[ordinal]),
            None => NodeId(self.next_node),
        };
        self.next_node += 1;
    }

    /// Makes one object of a level.
    fn member(&mut self, depth: usize, level: &Level, mut place: Place) {
        let ordinal = self.counts[depth];
        self.counts[depth] += 1;
        let number = self.numbers.levels[depth].as_ref().map_or(ordinal as u32, |numbers| numbers[ordinal]);
        let mut own_node = None;
        match level.kind {
            Kind::Socket => place.socket = Some(SocketId(number)),
            Kind::Core => place.core = Some(CoreId(number)),
            Kind::Cache(cache) if self.is_last_level(cache) => {
                let size = level.attributes.size.or_else(|| default_size(cache));
                self.shape.llcs.push(Llc { id: LlcId(number), level: cache, size });
                place.llc = Some(LlcId(number));
            }
            Kind::Numa => {
                own_node = Some(self.shape.nodes.len());
                place.node = own_node;
                self.shape.nodes.push(node(
                    NodeId(0),
                    level.attributes.memory.or(Some(DEFAULT_NODE_MEMORY)),
                    Vec::new(),
                ));
            }
            Kind::Thread => self.shape.threads.push((CpuId(number), place)),
            Kind::Die | Kind::Group | Kind::Cache(_) | Kind::Instructions => {}
        }
        let numbers = self.numbers;
        if level.kind != Kind::Thread || !level.attached.is_empty() {
            self.object(depth + 1, place, &level.attached, &numbers.attached[depth]);
        }
        if let Some(index) = own_node {
            self.number_node(index, numbers.levels[depth].as_ref(), ordinal);
        }
    }

    fn is_last_level(&self, cache: u8) -> bool {
        self.levels.iter().all(|level| !matches!(level.kind, Kind::Cache(other) if other > cache))
    }
}

/// hwloc's size for a cache that states none: 32 KiB, then 4 MiB for L2 and four times more each
/// level.
fn default_size(level: u8) -> Option<Bytes> {
    match level {
        1 => Some(Bytes(32 << 10)),
        2..=5 => Some(Bytes(256 << (10 + 2 * u64::from(level)))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Machine {
        from_synthetic(text).expect(text)
    }

    #[test]
    fn the_example_of_the_documentation() {
        let machine = read("pack:2 [numa(memory=48GiB)] l3:2(size=32MiB) core:4 pu:2");
        // 2 sockets x 2 caches x 4 cores x 2 threads = 32 threads.
        assert_eq!(machine.threads.len(), 32);
        assert_eq!(machine.nodes.len(), 2);
        assert_eq!(machine.nodes[1].memory, Bytes(48 << 30));
        assert_eq!(machine.llcs.len(), 4);
        assert_eq!(machine.llcs[3].size, Some(Bytes(32 << 20)));
        assert_eq!(machine.usable_cpus(NodeId(1)).to_string(), "16-31");
        assert_eq!(machine.threads_per_core(), 2);
    }

    #[test]
    fn nodes_are_numbered_as_hwloc_numbers_them() {
        // `lstopo -i '[numa] pack:2 [numa] pu:2'` shows the machine's own node as P#2.
        let machine = read("[numa(memory=3GiB)] pack:2 [numa] pu:2");
        assert_eq!(machine.nodes[2].memory, Bytes(3 << 30));
        assert_eq!(machine.usable_cpus(NodeId(1)).to_string(), "2-3");
        assert!(machine.usable_cpus(NodeId(2)).is_empty());
    }

    #[test]
    fn a_second_memory_has_no_cpus() {
        let machine = read("pack:2 [numa] [numa(memory=16GiB)] core:2 pu:1");
        assert_eq!(machine.nodes.len(), 4);
        assert_eq!(machine.usable_cpus(NodeId(2)).to_string(), "2-3");
        assert!(machine.usable_cpus(NodeId(3)).is_empty());
    }

    #[test]
    fn cpus_are_numbered_as_hwloc_numbers_them() {
        let cores = |text| {
            let machine = read(text);
            machine.threads.iter().map(|thread| thread.core.0).collect::<Vec<_>>()
        };
        // `lstopo -i` of both: core 0 holds P#0 and P#4, core 1 P#1 and P#5 ...
        assert_eq!(cores("numa:2 core:2 pu:2(indexes=2*4:1*2)"), [0, 1, 2, 3, 0, 1, 2, 3]);
        // ... and here core 0 holds P#0 and P#4, core 1 P#2 and P#6.
        assert_eq!(cores("numa:2 core:2 pu:2(indexes=numa:core)"), [0, 2, 1, 3, 0, 2, 1, 3]);
    }

    #[test]
    fn an_error_names_the_word_its_place_and_what_is_valid() {
        let cases = [
            ("pack:2 foo:2 pu:1", "`foo:2` at character 8", "pack, die"),
            ("pack:0 pu:1", "`pack:0` at character 1", "from 1 up"),
            ("pack:2 core:4", "`core:4`", "pu:1"),
            ("pack:2 [numa] numa:2 pu:1", "`[numa]` at character 8", "not both"),
            ("pack:2 [core] pu:1", "`[core]`", "[numa]"),
            ("pack:2 [numa pu:1", "`[numa pu:1`", "not closed"),
            ("pack:2 [numa(memory=4)x] pu:1", "`[numa(memory=4)x]`", "nothing may follow"),
            ("pack:2 [numa(memory=4GQ)] pu:1", "4GQ", "GiB"),
            ("pack:2 [numa(colour=4)] pu:1", "colour", "memory="),
            ("pack:2 pack:2 pu:1", "`pack:2` at character 8", "once"),
            ("pu:2(indexes=0,0)", "indexes", "once"),
            ("pu:2 core:2", "`core:2`", "last level"),
            ("core:4000000000 pu:4000000000", "hardware threads", "8192"),
        ];
        for (text, place, valid) in cases {
            let error = from_synthetic(text).expect_err(text).to_string();
            assert!(error.contains(place) && error.contains(valid), "{text}: {error}");
        }
    }
}
