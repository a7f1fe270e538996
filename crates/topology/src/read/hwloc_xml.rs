//! A machine from hwloc's XML (`lstopo --of xml`), as hwloc 1.x and 2.x write it.

use super::error::ReadError;
use super::shape::{Place, Shape, node};
use super::{hwloc_cpukinds, hwloc_distances, masks, no_distances, sockets, xml};
use crate::input::excerpt;
use crate::{Bytes, CoreId, CpuId, CpuSet, HugePages, Llc, LlcId, Machine, MemoryKind, NodeId, NodeSet, SocketId};
use roxmltree::{Document, Node as Element};

/// Objects inside objects; hwloc's deepest machines have about 15.
const DEEPEST: usize = 64;

/// A machine from the text of an hwloc XML file; `name` is what errors call it.
///
/// hwloc leaves out offline CPUs, so the machine has none. Entities that the document defines are
/// refused.
///
/// # Errors
/// Where the text is not XML of hwloc: the object, its attribute, and what would be valid.
pub fn from_hwloc_xml(text: &str, name: &str) -> Result<Machine, ReadError> {
    from_document(&xml::parse(text, name, "make one with `lstopo --of xml`")?, name)
}

/// As [`from_hwloc_xml`].
pub(super) fn from_document(document: &Document<'_>, name: &str) -> Result<Machine, ReadError> {
    let fail = |reason: String| ReadError::Document { file: name.to_owned(), reason };
    let root = document.root_element();
    let machine = root.children().find(|child| child.has_tag_name("object")).filter(|_| root.has_tag_name("topology"));
    let Some(machine) = machine else {
        return Err(fail(format!(
            "the root element is <{}>: expected <topology> with an <object>",
            root.tag_name().name()
        )));
    };
    let mut reader = Reader { shape: Shape::default(), local_cpus: Vec::new(), name };
    reader.object(machine, Place::default(), 0)?;
    reader.keep_last_level_caches();
    if reader.shape.nodes.is_empty() {
        // hwloc 1.x writes no NUMANode for a machine with one node; the machine itself has the
        // memory.
        let memory = reader.number(machine, "local_memory")?.map(Bytes);
        reader.shape.nodes.push(node(NodeId(0), memory, reader.huge_pages(machine)?));
        reader.shape.notes.push("The XML has no NUMA node: all is taken as one node, 0.".to_owned());
    }
    let order: Vec<NodeId> = reader.shape.nodes.iter().map(|node| node.id).collect();
    let distances = hwloc_distances::find(root, &order, &fail)?;
    if distances.is_none() && order.len() > 1 {
        reader.shape.notes.push(no_distances());
    }
    reader.settle_homes();
    let mut machine_read = reader.shape.finish(&super::stem(name), distances, fail)?;
    limit(&mut machine_read, machine);
    sockets::count_from_zero(&mut machine_read.threads, &mut machine_read.notes);
    hwloc_cpukinds::apply(root, &mut machine_read.threads, &mut machine_read.notes);
    Ok(machine_read)
}

/// Applies the CPUs and nodes that hwloc's process was allowed.
fn limit(machine: &mut Machine, object: Element<'_, '_>) {
    if let Some(cpus) = object.attribute("allowed_cpuset").and_then(masks::ids::<crate::CpuId>) {
        let cpus: CpuSet = cpus;
        machine.threads.iter_mut().for_each(|thread| thread.allowed = cpus.contains(thread.id));
    }
    if let Some(nodes) = object.attribute("allowed_nodeset").and_then(masks::ids::<crate::NodeId>) {
        let nodes: NodeSet = nodes;
        machine.nodes.iter_mut().for_each(|node| node.allowed = nodes.contains(node.id));
    }
}

struct Reader<'a> {
    shape: Shape,
    /// The CPUs that each node of [`Shape::nodes`] says are its own.
    local_cpus: Vec<Option<CpuSet>>,
    name: &'a str,
}

impl Reader<'_> {
    fn fail(&self, object: Element<'_, '_>, reason: &str) -> ReadError {
        let kind = object.attribute("type").unwrap_or("?");
        let line = xml::line(object);
        ReadError::Document { file: self.name.to_owned(), reason: format!("line {line}: object {kind}: {reason}") }
    }

    fn number(&self, object: Element<'_, '_>, attribute: &str) -> Result<Option<u64>, ReadError> {
        let parse = |text: &str| {
            text.trim()
                .parse()
                .map_err(|_| self.fail(object, &format!("{attribute}=\"{}\": expected a number", excerpt(text))))
        };
        object.attribute(attribute).map(parse).transpose()
    }

    fn id(&self, object: Element<'_, '_>) -> Result<Option<u32>, ReadError> {
        let Some(text) = object.attribute("os_index") else { return Ok(None) };
        match text.trim().parse::<u32>() {
            // hwloc writes -1, as unsigned, for an unknown number.
            Ok(u32::MAX) => Ok(None),
            Ok(id) => Ok(Some(id)),
            Err(_) => Err(self.fail(object, &format!("os_index=\"{}\": expected a number", excerpt(text)))),
        }
    }

    /// The number of a hardware thread or node, which Linux bounds.
    fn required_id(&self, object: Element<'_, '_>) -> Result<u32, ReadError> {
        let id = self.id(object)?.ok_or_else(|| self.fail(object, "os_index is missing"))?;
        if id as usize >= super::MOST_THREADS {
            let reason = format!("os_index=\"{id}\": expected a number under {}", super::MOST_THREADS);
            return Err(self.fail(object, &reason));
        }
        Ok(id)
    }

    fn object(&mut self, object: Element<'_, '_>, mut place: Place, depth: usize) -> Result<(), ReadError> {
        if depth > DEEPEST {
            return Err(self.fail(object, &format!("objects are nested deeper than {DEEPEST}")));
        }
        match object.attribute("type").unwrap_or_default() {
            "PU" => {
                self.shape.threads.push((CpuId(self.required_id(object)?), place));
                return Ok(());
            }
            "Package" | "Socket" => place.socket = Some(self.socket(object)?),
            "Core" => place.core = Some(CoreId(self.next_core())),
            "NUMANode" => place.node = Some(self.node(object)?),
            kind => {
                if let Some(level) = self.cache_level(object, kind)? {
                    place.llc = self.cache(object, level, place.llc)?;
                }
            }
        }
        self.children(object, place, depth)
    }

    fn children(&mut self, object: Element<'_, '_>, mut place: Place, depth: usize) -> Result<(), ReadError> {
        let objects = || object.children().filter(|child| child.has_tag_name("object"));
        let has_cpus = objects().any(|child| !is_memory(child));
        let first = self.shape.nodes.len();
        // hwloc 2.x hangs nodes beside the CPUs that are local to them; the first is the one Linux
        // gives to the CPUs.
        for memory in objects().filter(|&child| is_memory(child) && has_cpus && !has_normal_children(child)) {
            self.object(memory, place, depth + 1)?;
        }
        if self.shape.nodes.len() > first {
            place.node = Some(first);
        }
        for child in objects().filter(|&child| !(is_memory(child) && has_cpus && !has_normal_children(child))) {
            self.object(child, place, depth + 1)?;
        }
        Ok(())
    }

    /// A CPU's node is the one that the tree says, unless that node's own set lacks it: then the
    /// first whose set has it, or none. An export from inside a container may hold CPUs of nodes
    /// that it lacks.
    fn settle_homes(&mut self) {
        if self.local_cpus.is_empty() {
            return;
        }
        for (cpu, place) in &mut self.shape.threads {
            let has = |cpus: &Option<CpuSet>| cpus.as_ref().is_some_and(|cpus| cpus.contains(*cpu));
            let agrees = |&node: &usize| self.local_cpus[node].as_ref().is_none_or(|cpus| cpus.contains(*cpu));
            place.node = place.node.filter(agrees).or_else(|| self.local_cpus.iter().position(has));
        }
    }

    fn socket(&mut self, object: Element<'_, '_>) -> Result<SocketId, ReadError> {
        let info =
            |name| object.children().find(|child| child.has_tag_name("info") && child.attribute("name") == Some(name));
        if let Some(model) = info("CPUModel").and_then(|info| info.attribute("value")) {
            self.shape.cpu_model.get_or_insert_with(|| model.trim().to_owned());
        }
        let given = self.id(object)?.map(SocketId);
        Ok(self.shape.new_socket(given))
    }

    fn next_core(&self) -> u32 {
        // Threads come core by core, so the last one's core is the highest so far.
        self.shape.threads.last().and_then(|(_, place)| place.core).map_or(0, |core| core.0 + 1)
    }

    fn node(&mut self, object: Element<'_, '_>) -> Result<usize, ReadError> {
        let id = NodeId(self.required_id(object)?);
        let memory = self.number(object, "local_memory")?.map(Bytes);
        let huge_pages = self.huge_pages(object)?;
        let mut node = node(id, memory, huge_pages);
        // hwloc's name for what NVIDIA's driver shows as a node.
        if object.attribute("subtype") == Some("GPUMemory") {
            node.memory_kind = MemoryKind::Gpu { size: std::mem::take(&mut node.memory) };
            self.shape.notes.push(format!("Node {id} is memory of a GPU, not RAM: no VM is placed there."));
        }
        self.shape.nodes.push(node);
        self.local_cpus.push(object.attribute("cpuset").and_then(masks::ids));
        Ok(self.shape.nodes.len() - 1)
    }

    /// Pools of pages larger than the machine's ordinary ones. hwloc does not say how many pages
    /// are free: none is in use.
    fn huge_pages(&self, object: Element<'_, '_>) -> Result<Vec<HugePages>, ReadError> {
        let mut pools = Vec::new();
        for page in object.children().filter(|child| child.has_tag_name("page_type")) {
            let (size, count) = (self.number(page, "size")?, self.number(page, "count")?.unwrap_or(0));
            if let Some(size) = size {
                pools.push(HugePages { page_size: Bytes(size), total: count, free: count });
            }
        }
        pools.sort_by_key(|pool| pool.page_size);
        Ok(pools.into_iter().skip(1).collect())
    }

    /// The level of a cache that holds data; `None` for any other object.
    fn cache_level(&self, object: Element<'_, '_>, kind: &str) -> Result<Option<u8>, ReadError> {
        const INSTRUCTIONS: u64 = 2;
        let named = kind.strip_prefix('L').and_then(|rest| rest.strip_suffix("Cache"));
        let level = match named {
            Some(level) => level.parse::<u8>().ok(),
            None if kind == "Cache" => self.number(object, "depth")?.and_then(|depth| u8::try_from(depth).ok()),
            None => None,
        };
        let instructions = self.number(object, "cache_type")? == Some(INSTRUCTIONS);
        Ok(level.filter(|_| !instructions))
    }

    /// Takes a cache as the last-level one unless it is inside a cache of a higher level.
    fn cache(&mut self, object: Element<'_, '_>, level: u8, outer: Option<LlcId>) -> Result<Option<LlcId>, ReadError> {
        if outer.is_some() {
            return Ok(outer);
        }
        let id = LlcId(self.shape.llcs.len() as u32);
        let size = self.number(object, "cache_size")?.filter(|&size| size > 0).map(Bytes);
        self.shape.llcs.push(Llc { id, level, size });
        Ok(Some(id))
    }

    /// Drops caches that no thread names.
    fn keep_last_level_caches(&mut self) {
        let named: std::collections::BTreeSet<LlcId> =
            self.shape.threads.iter().filter_map(|(_, place)| place.llc).collect();
        self.shape.llcs.retain(|llc| named.contains(&llc.id));
    }
}

/// Whether an object is a node or a memory-side cache around one.
fn is_memory(object: Element<'_, '_>) -> bool {
    matches!(object.attribute("type"), Some("NUMANode" | "MemCache"))
}

/// Whether CPUs are inside an object, as inside hwloc 1.x's nodes.
fn has_normal_children(object: Element<'_, '_>) -> bool {
    let mut objects = object.children().filter(|child| child.has_tag_name("object"));
    objects.any(|child| {
        !is_memory(child) && !matches!(child.attribute("type"), Some("Bridge" | "PCIDev" | "OSDev" | "Misc"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        from_hwloc_xml(text, "host.xml").expect_err(text).to_string()
    }

    #[test]
    fn what_is_not_hwloc_is_refused() {
        assert!(error_of("nonsense").contains("host.xml: not XML"));
        assert!(error_of("<html/>").contains("<html>"));
        assert!(error_of("<!DOCTYPE a [<!ENTITY b \"c\">]><topology/>").contains("entities"));
        assert!(error_of("<topology><object type=\"Machine\"/></topology>").contains("no hardware thread"));
        let bad = "<topology>\n<object type=\"Machine\"><object type=\"PU\" os_index=\"x\"/></object></topology>";
        assert!(error_of(bad).contains("line 2: object PU: os_index=\"x\""), "{}", error_of(bad));
        let deep = format!("<topology>{}{}</topology>", "<object type=\"Group\">".repeat(100), "</object>".repeat(100));
        assert!(error_of(&deep).contains("nested deeper"));
    }
}
