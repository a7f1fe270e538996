//! A machine from libvirt's capabilities (`virsh capabilities`): `<host><topology>`, as libvirt
//! writes it (<https://libvirt.org/formatcaps.html>).

use super::cpus::{group, numbered, place_offline};
use super::error::{ReadError, check_size};
use super::libvirt_capabilities_caches as caches;
use super::shape::{Place, Shape, node};
use super::xml;
use crate::input::excerpt;
use crate::{Bytes, CoreId, CpuId, CpuSet, Distances, HugePages, Machine, NodeId, SocketId};
use roxmltree::{Document, Node as Element};
use std::collections::BTreeMap;

/// Hardware threads of one core: 8 on POWER, the most that is known.
const MOST_SIBLINGS: usize = 256;

/// A machine from the text of `virsh capabilities`; `name` is what errors call it.
///
/// libvirt tells of caches from level 3 on, and only from version 3.4 on: where it names none, no
/// last-level cache is known. Of huge pages it tells how many there are, not how many are free:
/// none is taken as in use.
///
/// # Errors
/// Where the text is not XML of libvirt's capabilities: the line and element, what it says, and
/// what would be valid.
pub fn from_libvirt_capabilities(text: &str, name: &str) -> Result<Machine, ReadError> {
    from_document(&xml::parse(text, name, "make one with `virsh capabilities`")?, name)
}

/// As [`from_libvirt_capabilities`].
pub(super) fn from_document(document: &Document<'_>, name: &str) -> Result<Machine, ReadError> {
    let values = Values { name };
    let root = document.root_element();
    if !root.has_tag_name("capabilities") {
        return Err(values.fail(root, "expected <capabilities>, which `virsh capabilities` writes"));
    }
    let host = values.child(root, "host")?;
    let topology = values.child(host, "topology").map_err(|_| {
        values.fail(host, "it has no <topology>: this libvirt driver does not say which CPUs and nodes its host has")
    })?;
    let mut reader = Reader { values, shape: Shape::default(), cpus: BTreeMap::new(), distances: BTreeMap::new() };
    reader.shape.cpu_model = cpu_model(host);
    let cells = reader.values.child(topology, "cells")?;
    for cell in cells.children().filter(|child| child.has_tag_name("cell")) {
        reader.cell(cell)?;
    }
    if reader.cpus.is_empty() {
        return Err(reader.values.fail(cells, "no <cell> in it has a <cpu>"));
    }
    let banks = caches::read(&reader.values, host, &mut reader.shape.notes)?;
    reader.threads(banks)?;
    reader.finish(cells)
}

/// libvirt's name for the CPU (the model of its own list that comes nearest), with the vendor.
fn cpu_model(host: Element<'_, '_>) -> Option<String> {
    let cpu = host.children().find(|child| child.has_tag_name("cpu"))?;
    let text = |name| {
        let text = cpu.children().find(|child| child.has_tag_name(name))?.text()?.trim();
        (!text.is_empty()).then(|| excerpt(text))
    };
    match (text("vendor"), text("model")) {
        (Some(vendor), Some(model)) => Some(format!("{vendor} {model}")),
        (_, model) => model.or_else(|| text("arch")),
    }
}

/// What the document says of a CPU.
struct Cpu {
    /// Index of its cell.
    cell: usize,
    socket: Option<u32>,
    die: Option<u32>,
    core: Option<u32>,
    siblings: Option<CpuSet>,
}

impl Cpu {
    /// Whether libvirt says more of it than its number: of an offline CPU it does not.
    fn is_described(&self) -> bool {
        self.socket.is_some() || self.core.is_some() || self.siblings.is_some()
    }
}

struct Reader<'a> {
    values: Values<'a>,
    shape: Shape,
    cpus: BTreeMap<CpuId, Cpu>,
    distances: BTreeMap<NodeId, BTreeMap<NodeId, u32>>,
}

impl Reader<'_> {
    fn cell(&mut self, cell: Element<'_, '_>) -> Result<(), ReadError> {
        let id = NodeId(self.values.id(cell, "id", super::MOST_THREADS)?);
        if self.shape.nodes.iter().any(|node| node.id == id) {
            return Err(self.values.fail(cell, &format!("id=\"{id}\" is there twice")));
        }
        check_size(self.values.name, self.cpus.len(), self.shape.nodes.len() + 1)?;
        let mut memory = None;
        let mut pages = Vec::new();
        for child in cell.children().filter(Element::is_element) {
            match child.tag_name().name() {
                "memory" => memory = Some(self.values.amount(child, child.text().unwrap_or_default(), "KiB")?),
                "pages" => pages.push(self.pages(child)?),
                "distances" => self.distances_of(id, child)?,
                "cpus" => self.cpus_of(child)?,
                _ => {}
            }
        }
        pages.sort_by_key(|pool| pool.page_size);
        // The smallest are the ordinary pages.
        self.shape.nodes.push(node(id, memory, pages.into_iter().skip(1).collect()));
        Ok(())
    }

    fn pages(&self, pages: Element<'_, '_>) -> Result<HugePages, ReadError> {
        let size = pages.attribute("size").ok_or_else(|| self.values.fail(pages, "size is missing"))?;
        let page_size = self.values.amount(pages, size, "KiB")?;
        let text = pages.text().unwrap_or_default();
        let total = text
            .trim()
            .parse()
            .map_err(|_| self.values.fail(pages, &format!("says `{}`: expected a number of pages", excerpt(text))))?;
        Ok(HugePages { page_size, total, free: total })
    }

    fn distances_of(&mut self, from: NodeId, distances: Element<'_, '_>) -> Result<(), ReadError> {
        let mut row = BTreeMap::new();
        for sibling in distances.children().filter(|child| child.has_tag_name("sibling")) {
            let to = NodeId(self.values.id(sibling, "id", super::MOST_THREADS)?);
            let value = self.values.number(sibling, "value")?;
            row.insert(to, value.ok_or_else(|| self.values.fail(sibling, "value is missing"))?);
        }
        self.distances.insert(from, row);
        Ok(())
    }

    fn cpus_of(&mut self, cpus: Element<'_, '_>) -> Result<(), ReadError> {
        let cell = self.shape.nodes.len();
        for element in cpus.children().filter(|child| child.has_tag_name("cpu")) {
            let id = CpuId(self.values.id(element, "id", super::MOST_THREADS)?);
            let cpu = Cpu {
                cell,
                socket: self.values.number(element, "socket_id")?,
                die: self.values.number(element, "die_id")?,
                core: self.values.number(element, "core_id")?,
                siblings: self.values.set(element, "siblings", MOST_SIBLINGS)?,
            };
            if self.cpus.insert(id, cpu).is_some() {
                return Err(self.values.fail(element, &format!("id=\"{id}\" is there twice")));
            }
        }
        Ok(())
    }

    /// Gives every CPU its place, numbered as the reader of `/sys` numbers cores and caches: by
    /// their first CPUs.
    fn threads(&mut self, banks: Vec<caches::Bank>) -> Result<(), ReadError> {
        let any = self.cpus.values().any(Cpu::is_described);
        let online: CpuSet =
            self.cpus.iter().filter(|(_, cpu)| !any || cpu.is_described()).map(|(&id, _)| id).collect();
        let mut alike = BTreeMap::<_, CpuSet>::new();
        for id in online.iter() {
            let cpu = &self.cpus[&id];
            alike.entry((cpu.socket, cpu.die, cpu.core)).or_default().insert(id);
        }
        let cores = group(&online, true, |id| {
            let cpu = &self.cpus[&id];
            let numbered_alike = || cpu.core.map(|_| alike[&(cpu.socket, cpu.die, cpu.core)].clone());
            Ok(cpu.siblings.clone().or_else(numbered_alike))
        })?;
        let core_numbers = numbered(&cores);
        let llc_of = caches::last_level(banks, &online, &mut self.shape.llcs, &mut self.shape.notes);
        for (&id, cpu) in &self.cpus {
            // An offline CPU gets the socket of its node's others at the end.
            let place = Place {
                socket: if online.contains(id) { cpu.socket } else { Some(u32::MAX) }.map(SocketId),
                llc: llc_of.get(&id).copied(),
                core: cores.get(&id).map(|leader| CoreId(core_numbers[leader])),
                node: Some(cpu.cell),
                ..Place::default()
            };
            self.shape.threads.push((id, place));
        }
        Ok(())
    }

    fn finish(mut self, cells: Element<'_, '_>) -> Result<Machine, ReadError> {
        let any = self.cpus.values().any(Cpu::is_described);
        let mut nodes: Vec<NodeId> = self.shape.nodes.iter().map(|node| node.id).collect();
        nodes.sort_unstable();
        let distances = self.table(nodes);
        let name = super::stem(self.values.name);
        let mut machine = self.shape.finish(&name, Some(distances), |reason| self.values.fail(cells, &reason))?;
        for thread in &mut machine.threads {
            thread.online = !any || self.cpus[&thread.id].is_described();
        }
        place_offline(&mut machine.threads, &mut machine.notes);
        super::sockets::count_from_zero(&mut machine.threads, &mut machine.notes);
        Ok(machine)
    }

    /// The whole table, or what Linux assumes without one.
    fn table(&mut self, nodes: Vec<NodeId>) -> Distances {
        let row = |from: &NodeId| {
            let row = self.distances.get(from)?;
            nodes.iter().map(|to| row.get(to).copied()).collect::<Option<Vec<u32>>>()
        };
        let rows: Option<Vec<Vec<u32>>> = nodes.iter().map(row).collect();
        if let Some(table) = rows.and_then(|rows| Distances::plausible(nodes.clone(), rows)) {
            return table;
        }
        if nodes.len() > 1 {
            self.shape.notes.push(super::no_distances());
        }
        Distances::flat(nodes)
    }
}

/// Values of elements; what is wrong is told with the line and the element.
pub(super) struct Values<'a> {
    pub(super) name: &'a str,
}

impl Values<'_> {
    pub(super) fn fail(&self, element: Element<'_, '_>, reason: &str) -> ReadError {
        let (line, tag) = (xml::line(element), element.tag_name().name());
        ReadError::Document { file: self.name.to_owned(), reason: format!("line {line}: <{}>: {reason}", excerpt(tag)) }
    }

    fn child<'a>(&self, element: Element<'a, 'a>, tag: &str) -> Result<Element<'a, 'a>, ReadError> {
        let child = element.children().find(|child| child.has_tag_name(tag));
        child.ok_or_else(|| self.fail(element, &format!("it has no <{tag}>")))
    }

    /// A number; `None` where the attribute is missing or stands for "unknown" (-1, which libvirt
    /// also writes unsigned).
    pub(super) fn number(&self, element: Element<'_, '_>, attribute: &str) -> Result<Option<u32>, ReadError> {
        let Some(text) = element.attribute(attribute) else { return Ok(None) };
        match text.trim().parse::<i64>() {
            Ok(-1) => Ok(None),
            Ok(number) if number == i64::from(u32::MAX) => Ok(None),
            Ok(number) if (0..i64::from(u32::MAX)).contains(&number) => Ok(Some(number as u32)),
            _ => Err(self.fail(element, &format!("{attribute}=\"{}\": expected a number", excerpt(text)))),
        }
    }

    /// A number under `end` that must be there.
    pub(super) fn id(&self, element: Element<'_, '_>, attribute: &str, end: usize) -> Result<u32, ReadError> {
        let text =
            element.attribute(attribute).ok_or_else(|| self.fail(element, &format!("{attribute} is missing")))?;
        let id = text.trim().parse::<u32>().ok().filter(|&id| (id as usize) < end);
        id.ok_or_else(|| {
            self.fail(element, &format!("{attribute}=\"{}\": expected a number under {end}", excerpt(text)))
        })
    }

    /// A list such as `0-3,8` of at most `most` CPUs.
    pub(super) fn set(
        &self,
        element: Element<'_, '_>,
        attribute: &str,
        most: usize,
    ) -> Result<Option<CpuSet>, ReadError> {
        let Some(text) = element.attribute(attribute) else { return Ok(None) };
        let valid = |set: &CpuSet| (1..=most).contains(&set.len());
        let set = text.parse::<CpuSet>().ok().filter(valid).ok_or_else(|| {
            let expected = format!("expected a list such as `0-3,8` of 1 to {most} CPUs");
            self.fail(element, &format!("{attribute}=\"{}\": {expected}", excerpt(text)))
        })?;
        Ok(Some(set))
    }

    /// An amount of memory: a number, with the unit in the attribute `unit`.
    pub(super) fn amount(&self, element: Element<'_, '_>, text: &str, default_unit: &str) -> Result<Bytes, ReadError> {
        let unit = element.attribute("unit").unwrap_or(default_unit);
        let unit = if matches!(unit, "b" | "bytes") { "B" } else { unit };
        format!("{} {unit}", text.trim()).parse::<Bytes>().map_err(|_| {
            let expected = "expected a whole number, and one of B, KiB, MiB, GiB, TiB as unit";
            self.fail(element, &format!("says `{}`, unit `{}`: {expected}", excerpt(text), excerpt(unit)))
        })
    }
}

#[cfg(test)]
#[path = "libvirt_capabilities_tests.rs"]
mod tests;
