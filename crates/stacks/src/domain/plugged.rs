//! Memory that a domain may get beside its cells: `<maxMemory>` and `<devices><memory>`.
//!
//! **Rule.** A device of model `dimm` gives its guest all of `<size>`; `virtio-mem` gives
//! `<requested>` and may give `<size>`. Other models are no memory that a guest's kernel allocates
//! from.

use super::document::at;
use super::error::{Fault, Problem};
use super::read::{amount, cell_number, first, node_list, text_in};
use super::{Domain, MemoryModule};
use roxmltree::Node;
use topology::Bytes;

/// Reads both; `domain` has its cells and its memory.
pub(super) fn read(root: Node<'_, '_>, domain: &mut Domain) -> Result<(), Problem> {
    for element in at(root, &["devices", "memory"]) {
        domain.memory_modules.extend(module(element, domain)?);
    }
    let Some(element) = first(root, &["maxMemory"]) else { return Ok(()) };
    let most = amount(element, &text_in(element), "")?;
    let sizes: Bytes = domain.memory_modules.iter().map(|module| module.size).sum();
    let cells: Bytes = domain.cells.iter().map(|cell| cell.memory).sum();
    // `<memory>` counts devices too; where there are cells they decide.
    let all = if domain.cells.is_empty() { domain.memory } else { cells.saturating_add(sizes) };
    if most < all {
        return Err(Fault::MostMemory { most, all }.at(element));
    }
    domain.most_memory = Some(most);
    Ok(())
}

fn module(element: Node<'_, '_>, domain: &Domain) -> Result<Option<MemoryModule>, Problem> {
    let at_start = match element.attribute("model") {
        Some("dimm") => None,
        Some("virtio-mem") => first(element, &["target", "requested"]),
        _ => return Ok(None),
    };
    let size = first(element, &["target", "size"]).ok_or_else(|| Fault::Without("<target><size>").at(element))?;
    let read = |element| amount(element, &text_in(element), "");
    let (whole, given) = (read(size)?, at_start.map(read).transpose()?);
    if let (Some(element), Some(given)) = (at_start, given.filter(|given| *given > whole)) {
        return Err(Fault::Requested { given, whole }.at(element));
    }
    let node =
        first(element, &["target", "node"]).map(|node| Ok::<_, Problem>((node, cell_number(node)?))).transpose()?;
    // Without cells libvirt tells the guest of one node, 0.
    let is_there =
        |id: u32| if domain.cells.is_empty() { id == 0 } else { domain.cells.iter().any(|cell| cell.id == id) };
    if let Some((node, id)) = node.filter(|(_, id)| !is_there(*id)) {
        return Err(Fault::NoSuchCell { cell: id, cells: domain.cells.len() }.at(node));
    }
    let nodeset = first(element, &["source", "nodemask"]).map(node_list).transpose()?;
    Ok(Some(MemoryModule { node: node.map(|(_, id)| id), size: whole, given: given.unwrap_or(whole), nodeset }))
}
