//! Where memory goes, and what it is made of.

use super::{Refusal, at, first, is_of_qemu, keyed, number, set, steps, unset};
use crate::domain::{self, Domain, Edit};
use roxmltree::Node;
use topology::{Bytes, NodeId, NodeSet};

pub(super) fn refusals(root: Node<'_, '_>, domain: &Domain) -> Vec<Refusal> {
    let mut found = memory_nodes(root, domain);
    found.extend(nowhere(root, domain));
    found.extend(restrictive(root, domain));
    found.extend(pages(root, domain));
    if is_of_qemu(domain) {
        found.extend(backing(root, domain));
        found.extend(empty_cell(root, domain));
    }
    found
}

/// `<memnode>` for cells that are not there.
fn memory_nodes(root: Node<'_, '_>, domain: &Domain) -> Vec<Refusal> {
    let elements = at(root, "numatune/memnode");
    let Some(first) = elements.first().copied() else { return Vec::new() };
    let remove = |id: u32| Edit::Remove { at: keyed("numatune/memnode", "cellid", id) };
    let path = |id: u32| format!("numatune/memnode[@cellid='{id}']");
    if domain.cells.is_empty() {
        let mut edits: Vec<Edit> = domain.memory_nodes.keys().map(|&id| remove(id)).collect();
        let only = domain.memory_nodes.values().next().filter(|_| domain.memory_nodes.len() == 1);
        if let (Some(tune), None) =
            (only.and_then(|tune| Some((&tune.mode, tune.nodeset.as_ref()?))), &domain.memory_tune)
        {
            let whole = || steps("numatune/memory");
            edits.extend([set(whole(), "mode", tune.0), set(whole(), "nodeset", tune.1)]);
        }
        let says = "Element 'memnode' is invalid without any guest NUMA cells";
        let refusal = Refusal::new("memory of a cell is bound, and it has no cells", says);
        let id = number(first, "cellid").unwrap_or_default();
        return vec![refusal.at(path(id), first).mend("bind the memory of the whole VM", edits)];
    }
    let is_there = |id: u32| domain.cells.iter().any(|cell| cell.id == id);
    let missing = elements.into_iter().filter_map(|element| Some((number::<u32>(element, "cellid")?, element)));
    let says = "Argument 'cellid' in memnode element must correspond to existing guest's NUMA cell";
    let refusal = |(id, element): (u32, Node<'_, '_>)| {
        let sentence = format!("memory of cell {id} is bound, and there is no such cell");
        Refusal::new(sentence, says).at(path(id), element).mend("take it away", [remove(id)])
    };
    missing.filter(|(id, _)| !is_there(*id)).map(refusal).collect()
}

/// A policy without nodes, where nobody chooses them.
fn nowhere(root: Node<'_, '_>, domain: &Domain) -> Option<Refusal> {
    let element = first(root, "numatune/memory")?;
    let tune = domain.memory_tune.as_ref().filter(|tune| tune.nodeset.is_none() && !tune.auto)?;
    let says = "nodeset for NUMA memory tuning must be set if 'placement' is 'static'";
    let refusal = Refusal::new(format!("its memory is {}, and no nodes are named", tune.mode), says);
    let remove = Edit::Remove { at: steps("numatune/memory") };
    Some(refusal.at("numatune/memory", element).mend("take it away: it says nothing", [remove]))
}

/// Of `restrictive` policies libvirt takes all or none.
fn restrictive(root: Node<'_, '_>, domain: &Domain) -> Option<Refusal> {
    const RESTRICTIVE: &str = "restrictive";
    let nodes = &domain.memory_nodes;
    let others: Vec<u32> = nodes.iter().filter(|(_, tune)| tune.mode != RESTRICTIVE).map(|(&id, _)| id).collect();
    let whole = domain.memory_tune.as_ref().map(|tune| tune.mode == RESTRICTIVE);
    if domain.cells.is_empty() || nodes.is_empty() || (others.len() == nodes.len() && whole != Some(true)) {
        return None;
    }
    if others.is_empty() && whole != Some(false) {
        return None;
    }
    let element = first(root, "numatune")?;
    let cells = others.iter().map(|id| set(keyed("numatune/memnode", "cellid", id), "mode", RESTRICTIVE));
    let memory = (whole == Some(false)).then(|| set(steps("numatune/memory"), "mode", RESTRICTIVE));
    const SAYS: &str = "'restrictive' mode is required in memnode element when mode is 'restrictive' in memory element";
    let refusal = Refusal::new("some of its memory policies are restrictive, and others are not", SAYS);
    let refusal = if whole == Some(true) { refusal } else { refusal.since("9.4") };
    Some(refusal.at("numatune", element).mend("make all of them restrictive", cells.chain(memory)))
}

/// Pages of cells that are not there, or of two sizes for one.
fn pages(root: Node<'_, '_>, domain: &Domain) -> Vec<Refusal> {
    let mut found = Vec::new();
    let elements = at(root, "memoryBacking/hugepages/page");
    let cells: NodeSet = match domain.cells.is_empty() {
        true => std::iter::once(NodeId(0)).collect(),
        false => domain.cells.iter().map(|cell| NodeId(cell.id)).collect(),
    };
    let path = "memoryBacking/hugepages/page";
    let mut before: Vec<(Bytes, Option<&NodeSet>)> = Vec::new();
    for (element, pages) in elements.into_iter().zip(&domain.huge_pages) {
        let size = pages.size.unwrap_or_default();
        if size == Bytes(0) {
            let refusal = Refusal::new("its huge pages have no size", "hugepage size can't be zero").at(path, element);
            found.push(refusal.mend("2 MiB or 1 GiB, as the host has", []));
        }
        if let Some(missing) = pages.cells.as_ref().and_then(|named| named.difference(&cells).first()) {
            let refusal = Refusal::new(
                format!("huge pages are meant for cell {missing}, and there is no such cell"),
                format!("hugepages: node {missing} not found"),
            );
            let named = pages.cells.iter().fold(NodeSet::new(), |all, named| all.union(named));
            let rest = named.intersection(&cells);
            let keyed = || keyed(path, "size", element.attribute("size").unwrap_or_default());
            let edit = if rest.is_empty() { unset(keyed(), "nodeset") } else { set(keyed(), "nodeset", &rest) };
            found.push(refusal.at(path, element).mend("name cells that are there", [edit]));
        }
        let mine = pages.cells.as_ref();
        let clash = before.iter().find(|(_, theirs)| match (mine, theirs) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => !mine.intersection(theirs).is_empty(),
            _ => false,
        });
        if let Some((other, theirs)) = clash {
            let (one, two) = (size.0.max(other.0) >> 10, size.0.min(other.0) >> 10);
            let says = match theirs {
                None => format!("two master hugepages detected: {one} and {two}"),
                Some(_) => format!("nodeset attribute of hugepages of sizes {one} and {two} intersect"),
            };
            let refusal =
                Refusal::new("the same memory is to be made of huge pages of two sizes", says).at(path, element);
            found.push(refusal.mend("one size for each cell", []));
        }
        before.push((size, mine));
    }
    found
}

/// What cannot be made of huge pages.
fn backing(root: Node<'_, '_>, domain: &Domain) -> Vec<Refusal> {
    if domain.huge_pages.is_empty() {
        return Vec::new();
    }
    let combined = |path: &str, name: &str, value: &str, says: &str, sentence: &str| {
        let element = first(root, path).filter(|element| element.attribute(name) == Some(value))?;
        let refusal = Refusal::new(sentence, says).at(path, element);
        let others = element.attributes().len() > 1;
        let edit = if others { unset(steps(path), name) } else { Edit::Remove { at: steps(path) } };
        Some(refusal.mend("leave that out: libvirt chooses it", [edit]))
    };
    let anonymous = combined(
        "memoryBacking/source",
        "type",
        "anonymous",
        "hugepages are not allowed with anonymous memory source",
        "its memory is anonymous, and made of huge pages",
    );
    let on_demand = combined(
        "memoryBacking/allocation",
        "mode",
        "ondemand",
        "hugepages are not allowed with memory allocation ondemand",
        "its memory is taken on demand, and made of huge pages",
    );
    anonymous.into_iter().chain(on_demand).collect()
}

fn empty_cell(root: Node<'_, '_>, domain: &Domain) -> Option<Refusal> {
    let cell = domain.cells.iter().find(|cell| cell.memory == Bytes(0))?;
    let elements = at(root, "cpu/numa/cell");
    let by_id = elements.iter().find(|element| number(**element, "id") == Some(cell.id));
    let element = by_id.or_else(|| elements.get(cell.id as usize))?;
    let says = "QEMU: property 'size' of memory-backend-ram doesn't take value '0'";
    let refusal = Refusal::new(format!("cell {} has no memory", cell.id), says);
    let advice = "give it memory, or its vCPUs to another cell";
    Some(refusal.at(format!("cpu/numa/cell[@id='{}']", cell.id), *element).mend(advice, []))
}

/// All that a domain starts with: cells, or `<memory>`, and devices.
pub(super) fn all_memory(domain: &Domain) -> Bytes {
    let devices: Bytes = domain.memory_modules.iter().map(|module| module.size).sum();
    match domain.cells.is_empty() {
        true => domain.memory,
        false => domain.cells.iter().map(|cell| cell.memory).sum::<Bytes>().saturating_add(devices),
    }
}

/// An amount of memory in an element, with libvirt's units.
pub(super) fn amount(element: Node<'_, '_>) -> Option<Bytes> {
    domain::amount_in(element)
}
