//! Machine files: a machine in a few lines of TOML. All its nodes are alike; the caches of a node
//! may be unlike, as hybrid parts have them.

use super::error::{ReadError, check_size};
use super::shape::{Place, Shape, node};
use crate::rates::Rates;
use crate::{
    Bandwidths, Bytes, CoreId, CpuId, CpuSet, Distances, HugePages, Llc, LlcId, Machine, Node, NodeId, SocketId,
    TomlText,
};
use serde::Deserialize;

/// How Linux numbers the hardware threads.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CpuNumbering {
    /// First one thread of every core, then their siblings: x86.
    #[default]
    CoresFirst,
    /// All threads of a core, then the next core: POWER, arm.
    ThreadsFirst,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    name: Option<String>,
    cpu_model: Option<String>,
    sockets: u32,
    #[serde(default = "one")]
    nodes_per_socket: u32,
    #[serde(default = "one")]
    llcs_per_node: u32,
    cores_per_llc: Option<u32>,
    #[serde(default = "one")]
    threads_per_core: u32,
    /// The caches of each node, in order, where they are unlike.
    #[serde(default)]
    llc: Vec<CacheOfNode>,
    #[serde(default)]
    cpu_numbering: CpuNumbering,
    memory_per_node: Bytes,
    llc_size: Option<Bytes>,
    #[serde(default = "level_3")]
    llc_level: u8,
    distances: Option<Vec<Vec<u32>>>,
    /// CPUs that the kernel's load balancer leaves out (`isolcpus=`).
    isolated_cpus: Option<String>,
    /// Pools of huge pages; none: nobody says what pools there are.
    #[serde(default)]
    huge_pages: Vec<PoolOfNodes>,
    /// Size of huge pages for who names none.
    default_huge_page: Option<Bytes>,
    rates: Option<Rates>,
}

/// Pools of huge pages of one size, node by node.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolOfNodes {
    size: Bytes,
    pages: Pages,
    /// Left out: all of them.
    free: Option<Pages>,
}

/// A number of pages: the same on each node, or one for each.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Pages {
    OfEach(u64),
    ByNode(Vec<u64>),
}

impl Pages {
    /// Those of a node; `None` where the list is shorter.
    fn of(&self, node: usize) -> Option<u64> {
        match self {
            Self::OfEach(pages) => Some(*pages),
            Self::ByNode(pages) => pages.get(node).copied(),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::OfEach(pages) => pages.to_string(),
            Self::ByNode(pages) => format!("{pages:?}"),
        }
    }
}

/// A last-level cache of each node, with the cores under it.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheOfNode {
    cores: u32,
    threads_per_core: Option<u32>,
    size: Option<Bytes>,
    /// Relative to the largest core, which has 1024.
    core_capacity: Option<u32>,
}

/// Linux's value for the largest core of a machine (`SCHED_CAPACITY_SCALE`).
const LARGEST_CORE: u32 = 1024;

/// A machine file as a whole: the machine, and what its memory system can do where the file says
/// so.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// The machine.
    pub machine: Machine,
    /// Its table `[rates]`.
    pub rates: Option<Rates>,
}

fn one() -> u32 {
    1
}

fn level_3() -> u8 {
    3
}

/// A machine from a machine file; `file` is what errors call it, and without its extension the
/// machine's name unless the file gives one.
///
/// # Errors
/// Where a field is unknown, missing, of the wrong type or out of range: the file, the field, its
/// value, what would be valid.
pub fn from_toml(text: &str, file: &str) -> Result<Machine, ReadError> {
    described(text, file).map(|described| described.machine)
}

/// Like [`from_toml`], with the rates. That they are possible is for `simulator::MachineModel` to
/// say.
///
/// # Errors
/// Those of [`from_toml`].
pub fn described(text: &str, file: &str) -> Result<Described, ReadError> {
    let fail = |reason: String| ReadError::Document { file: file.to_owned(), reason };
    if let Some(fault) = super::rates::first_missing(text, file) {
        return Err(fault.into());
    }
    let file_content: MachineFile = TomlText::new(text, file).read()?;
    file_content.check(file)?;
    let mut shape = file_content.shape();
    shape.isolated = file_content.isolated(file, &shape)?;
    let nodes: Vec<NodeId> = shape.nodes.iter().map(|node| node.id).collect();
    let distances = file_content.distances.map(|rows| table(file, nodes, rows)).transpose()?;
    let name = file_content.name.unwrap_or_else(|| super::stem(file));
    let mut machine = shape.finish(&name, distances, fail)?;
    machine.default_huge_page = file_content.default_huge_page;
    if let Some(rates) = &file_content.rates {
        let nodes: Vec<NodeId> = machine.node_ids().iter().collect();
        machine.bandwidth = Bandwidths::of_rates(&nodes, rates);
        // The one rate of all nodes is that of their sockets' controllers, not of an expander.
        let expanders = machine.memory_only();
        machine.bandwidth.memory.retain(|&node, _| !expanders.contains(node));
    }
    Ok(Described { machine, rates: file_content.rates })
}

impl MachineFile {
    fn check(&self, file: &str) -> Result<(), ReadError> {
        let field = |field: &'static str, value: String, valid: &str| {
            Err(ReadError::Field { file: file.to_owned(), field, value, valid: valid.to_owned() })
        };
        let regular = self.llc.is_empty();
        if regular && self.cores_per_llc.is_none() {
            return field(
                "cores_per_llc",
                "nothing".to_owned(),
                "it must be given, or [[llc]] for each cache of a node",
            );
        }
        if !regular && (self.cores_per_llc, self.llcs_per_node, self.llc_size) != (None, 1, None) {
            let valid = "remove cores_per_llc, llcs_per_node and llc_size: [[llc]] says all of each cache of a node";
            return field("llc", format!("{} tables", self.llc.len()), valid);
        }
        let counts = [
            ("sockets", self.sockets),
            ("nodes_per_socket", self.nodes_per_socket),
            ("llcs_per_node", self.llcs_per_node),
            ("cores_per_llc", self.cores_per_llc.unwrap_or(1)),
            ("threads_per_core", self.threads_per_core),
        ];
        let of_caches = self.llc.iter().flat_map(|cache| {
            [("llc.cores", cache.cores), ("llc.threads_per_core", cache.threads_per_core.unwrap_or(1))]
        });
        if let Some((name, count)) = counts.into_iter().chain(of_caches).find(|&(_, count)| count == 0) {
            return field(name, count.to_string(), "expected a whole number from 1 up");
        }
        let capacities = || self.llc.iter().filter_map(|cache| cache.core_capacity);
        if let Some(wrong) = capacities().find(|capacity| !(1..=LARGEST_CORE).contains(capacity)) {
            return field("llc.core_capacity", wrong.to_string(), "expected 1 to 1024, the largest core's");
        }
        if !(1..=5).contains(&self.llc_level) {
            return field("llc_level", self.llc_level.to_string(), "expected a cache level from 1 to 5");
        }
        let nodes = (self.sockets as usize).saturating_mul(self.nodes_per_socket as usize);
        self.check_pools(file, nodes)?;
        let threads = self.caches_of_a_node().fold(0_usize, |all, (count, cache)| {
            let of_cache = (cache.cores as usize).saturating_mul(self.threads_of(&cache) as usize);
            all.saturating_add(of_cache.saturating_mul(count as usize))
        });
        check_size(file, nodes.saturating_mul(threads), nodes)
    }

    fn isolated(&self, file: &str, shape: &Shape) -> Result<CpuSet, ReadError> {
        let Some(text) = &self.isolated_cpus else { return Ok(CpuSet::new()) };
        super::shape::parse_isolated_cpus(text, shape).map_err(|error| ReadError::Field {
            file: file.to_owned(),
            field: "isolated_cpus",
            value: crate::input::excerpt(text),
            valid: error.to_string(),
        })
    }

    fn check_pools(&self, file: &str, nodes: usize) -> Result<(), ReadError> {
        let field = |field: &'static str, value: String, valid: String| {
            Err(ReadError::Field { file: file.to_owned(), field, value, valid })
        };
        let is_size = |size: Bytes| size.0.is_power_of_two() && size >= Bytes::from_kib(64);
        if let Some(size) = self.default_huge_page.filter(|size| !is_size(*size)) {
            return field("default_huge_page", size.to_string(), "expected a size such as \"2 MiB\"".to_owned());
        }
        for (index, pool) in self.huge_pages.iter().enumerate() {
            let again = self.huge_pages[..index].iter().any(|other| other.size == pool.size);
            if !is_size(pool.size) || again {
                let valid = "expected a size such as \"2 MiB\", each in one table".to_owned();
                return field("huge_pages.size", pool.size.to_string(), valid);
            }
            for (name, pages) in [("huge_pages.pages", Some(&pool.pages)), ("huge_pages.free", pool.free.as_ref())] {
                if let Some(pages @ Pages::ByNode(list)) = pages
                    && list.len() != nodes
                {
                    return field(name, pages.shown(), format!("expected one number, or {nodes}: one for each node"));
                }
            }
            let beyond = |node: &usize| pool.free.as_ref().is_some_and(|free| free.of(*node) > pool.pages.of(*node));
            if let (Some(free), Some(node)) = (&pool.free, (0..nodes).find(beyond)) {
                return field("huge_pages.free", free.shown(), format!("node {node} would have more free than it has"));
            }
        }
        let too_large = |node: &usize| self.in_pools(*node) > self.memory_per_node.0;
        match (0..nodes).find(too_large) {
            None => Ok(()),
            Some(node) => field(
                "huge_pages.pages",
                format!("{} on node {node}", Bytes(self.in_pools(node))),
                format!("a node has memory_per_node = \"{}\" for all its pools", self.memory_per_node),
            ),
        }
    }

    /// Bytes of a node that are in its pools.
    fn in_pools(&self, node: usize) -> u64 {
        let of = |pool: &PoolOfNodes| pool.pages.of(node).unwrap_or(0).saturating_mul(pool.size.0);
        self.huge_pages.iter().map(of).fold(0, u64::saturating_add)
    }

    fn node(&self, index: u32) -> Node {
        let at = index as usize;
        let pool = |pool: &PoolOfNodes| {
            let total = pool.pages.of(at).unwrap_or(0);
            let free = pool.free.as_ref().and_then(|free| free.of(at)).unwrap_or(total);
            HugePages { page_size: pool.size, total, free }
        };
        let mut node = node(NodeId(index), Some(self.memory_per_node), self.huge_pages.iter().map(pool).collect());
        // What is set aside is nobody else's.
        let in_pools = Bytes(self.in_pools(at));
        node.free = (in_pools.0 > 0).then(|| self.memory_per_node.saturating_sub(in_pools));
        node
    }

    /// The caches of each node in order, and how many there are of each in a row.
    fn caches_of_a_node(&self) -> impl Iterator<Item = (u32, CacheOfNode)> {
        let cores = self.cores_per_llc.unwrap_or(0);
        let alike = CacheOfNode { cores, threads_per_core: None, size: self.llc_size, core_capacity: None };
        let regular = self.llc.is_empty().then_some((self.llcs_per_node, alike));
        regular.into_iter().chain(self.llc.iter().map(|cache| (1, *cache)))
    }

    fn threads_of(&self, cache: &CacheOfNode) -> u32 {
        cache.threads_per_core.unwrap_or(self.threads_per_core)
    }

    fn shape(&self) -> Shape {
        let nodes = self.sockets * self.nodes_per_socket;
        let mut shape = Shape { cpu_model: self.cpu_model.clone(), ..Shape::default() };
        shape.nodes = (0..nodes).map(|id| self.node(id)).collect();
        let mut cores = Vec::new();
        for node in 0..nodes {
            let each = self.caches_of_a_node().flat_map(|(count, cache)| (0..count).map(move |_| cache));
            for cache in each {
                let llc = LlcId(shape.llcs.len() as u32);
                shape.llcs.push(Llc { id: llc, level: self.llc_level, size: cache.size });
                for _ in 0..cache.cores {
                    let place = Place {
                        socket: Some(SocketId(node / self.nodes_per_socket)),
                        llc: Some(llc),
                        core: Some(CoreId(cores.len() as u32)),
                        node: Some(node as usize),
                        capacity: cache.core_capacity,
                    };
                    cores.push((place, self.threads_of(&cache)));
                }
            }
        }
        let places = numbered(&cores, self.cpu_numbering);
        shape.threads = (0..).map(CpuId).zip(places).collect();
        shape
    }
}

/// The place of each hardware thread, in the order of their numbers, of cores with so many threads.
fn numbered(cores: &[(Place, u32)], numbering: CpuNumbering) -> Vec<Place> {
    match numbering {
        CpuNumbering::ThreadsFirst => {
            cores.iter().flat_map(|&(place, threads)| (0..threads).map(move |_| place)).collect()
        }
        CpuNumbering::CoresFirst => {
            let most = cores.iter().map(|(_, threads)| *threads).max().unwrap_or(0);
            let nth = |nth: u32| cores.iter().filter(move |(_, threads)| *threads > nth).map(|(place, _)| *place);
            (0..most).flat_map(nth).collect()
        }
    }
}

fn table(file: &str, nodes: Vec<NodeId>, rows: Vec<Vec<u32>>) -> Result<Distances, ReadError> {
    let field =
        |value: String, valid: String| ReadError::Field { file: file.to_owned(), field: "distances", value, valid };
    let count = nodes.len();
    for (from, row) in rows.iter().enumerate() {
        let wrong = |(to, &distance): (usize, &u32)| {
            if from == to { distance != Distances::LOCAL } else { !(11..255).contains(&distance) }
        };
        if row.iter().enumerate().any(wrong) {
            let valid =
                format!("row {from} must have 10 for node {from} itself, and 11 to 254 for the others (ACPI's SLIT)");
            return Err(field(format!("{row:?}"), valid));
        }
    }
    let shown = format!("{} rows", rows.len());
    Distances::new(nodes, rows)
        .ok_or_else(|| field(shown, format!("expected {count} rows of {count} numbers, one for each node")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "sockets = 2\ncores_per_llc = 2\nthreads_per_core = 2\nmemory_per_node = \"4 GiB\"\n";

    #[test]
    fn cpus_are_numbered_cores_first_or_threads_first() {
        let cpus = |more: &str| {
            let machine = from_toml(&format!("{SMALL}{more}"), "m.toml").expect("a machine");
            machine.usable_cpus(NodeId(1)).to_string()
        };
        // 2 sockets x 2 cores: CPUs 0-3 are the cores' first threads, 4-7 the second; node 1 has
        // cores 2 and 3.
        assert_eq!(cpus(""), "2-3,6-7");
        assert_eq!(cpus("cpu_numbering = \"threads-first\""), "4-7");
    }

    #[test]
    fn pools_are_stated_node_by_node_or_alike() {
        let pools = "default_huge_page = \"1 GiB\"\n[[huge_pages]]\nsize = \"2 MiB\"\npages = [512, 0]\nfree = [12, 0]\n\
            [[huge_pages]]\nsize = \"1 GiB\"\npages = 2\n";
        let machine = from_toml(&format!("{SMALL}{pools}"), "m.toml").expect("a machine");
        let of = |node: usize, size: u64| {
            machine.nodes[node].pool(Bytes::from_mib(size)).map(|pool| (pool.total, pool.free))
        };
        assert_eq!(
            [of(0, 2), of(1, 2), of(1, 1024), of(0, 512)],
            [Some((512, 12)), Some((0, 0)), Some((2, 2)), Some((0, 0))]
        );
        // 4 GiB less 1 GiB in small pages, less 2 GiB in large ones.
        assert_eq!(
            machine.nodes.iter().map(|node| node.free).collect::<Vec<_>>(),
            [1, 2].map(|gib| Some(Bytes(gib << 30)))
        );
        assert_eq!(machine.default_huge_page, Some(Bytes::from_mib(1024)));
        let unsaid = from_toml(SMALL, "m.toml").expect("a machine");
        assert_eq!((unsaid.nodes[0].pool(Bytes::from_mib(2)), unsaid.nodes[0].free), (None, None));
        for (pools, place, valid) in [
            ("[[huge_pages]]\nsize = \"3 MiB\"\npages = 1", "huge_pages.size = 3 MiB", "2 MiB"),
            ("[[huge_pages]]\nsize = \"2 MiB\"\npages = [1]", "huge_pages.pages = [1]", "or 2: one for each node"),
            ("[[huge_pages]]\nsize = \"2 MiB\"\npages = 1\nfree = 2", "huge_pages.free = 2", "more free than it has"),
            ("[[huge_pages]]\nsize = \"1 GiB\"\npages = 5", "huge_pages.pages = 5 GiB on node 0", "4 GiB"),
            ("default_huge_page = \"3 KiB\"", "default_huge_page", "2 MiB"),
        ] {
            let error = from_toml(&format!("{SMALL}{pools}\n"), "m.toml").expect_err(pools).to_string();
            assert!(error.contains("m.toml") && error.contains(place) && error.contains(valid), "{error}");
        }
    }

    const HYBRID: &str = "sockets = 1\nmemory_per_node = \"32 GiB\"\n\
        [[llc]]\ncores = 2\nthreads_per_core = 2\nsize = \"16 MiB\"\n\
        [[llc]]\ncores = 4\nsize = \"8 MiB\"\ncore_capacity = 700\n";

    #[test]
    fn caches_of_a_node_may_be_unlike() {
        let of = |text: &str| {
            let machine = from_toml(text, "m.toml").expect("a machine");
            let cpus = |llc: u32| -> crate::CpuSet {
                machine.threads.iter().filter(|thread| thread.llc == Some(LlcId(llc))).map(|thread| thread.id).collect()
            };
            (cpus(0).to_string(), cpus(1).to_string(), machine)
        };
        // Cores 0 and 1 have two threads: CPUs 0-5 are the first ones, 6 and 7 their second.
        let (large, small, machine) = of(HYBRID);
        assert_eq!((large.as_str(), small.as_str()), ("0-1,6-7", "2-5"));
        let sizes: Vec<_> = machine.llcs.iter().map(|llc| llc.size.map(|size| size.mib())).collect();
        assert_eq!(sizes, [Some(16), Some(8)]);
        assert_eq!((machine.threads[0].capacity, machine.threads[2].capacity), (None, Some(700)));
        let numbered = HYBRID.replacen("sockets = 1", "sockets = 1\ncpu_numbering = \"threads-first\"", 1);
        let (large, small, _) = of(&numbered);
        assert_eq!((large.as_str(), small.as_str()), ("0-3", "4-7"));
    }

    #[test]
    fn an_error_names_file_field_value_and_what_is_valid() {
        let cases = [
            (SMALL.replace("sockets = 2", "sockets = 0"), "sockets = 0", "from 1 up"),
            (SMALL.replace("sockets = 2", "sockets = -2"), "sockets = -2", "whole number from 0"),
            (SMALL.replace("4 GiB", "4 GB"), "4 GB", "4 GiB"),
            (SMALL.replace("sockets", "sokets"), "sokets", "sockets"),
            (format!("{SMALL}distances = [[10, 21]]"), "distances = 1 rows", "2 rows of 2"),
            (format!("{SMALL}distances = [[10, 9], [21, 10]]"), "[10, 9]", "11 to 254"),
            (SMALL.replace("cores_per_llc = 2", ""), "cores_per_llc = nothing", "[[llc]]"),
            (SMALL.replace("cores_per_llc = 2", "cores_per_llc = 0"), "cores_per_llc = 0", "from 1 up"),
            (format!("{SMALL}[[llc]]\ncores = 4"), "llc = 1 tables", "remove cores_per_llc"),
            (HYBRID.replace("cores = 4", "cores = 0"), "llc.cores = 0", "from 1 up"),
            (HYBRID.replace("= 700", "= 2048"), "llc.core_capacity = 2048", "1 to 1024"),
            (format!("{SMALL}llc_level = 9"), "llc_level = 9", "1 to 5"),
            (format!("{SMALL}llcs_per_node = 4000000000"), "hardware threads", "8192"),
        ];
        for (text, place, valid) in cases {
            let error = from_toml(&text, "m.toml").expect_err(&text).to_string();
            assert!(error.contains("m.toml") && error.contains(place) && error.contains(valid), "{error}");
        }
    }
}
