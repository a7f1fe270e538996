//! Reading.

use super::document::{all, at, is, tree};
use super::error::{Fault, Problem, ValueError};
use super::plugged;
use super::values::{self, LIST_END};
use super::{Cell, Domain, DomainError, HugePages, MemoryTune};
use roxmltree::Node;
use std::collections::{BTreeMap, BTreeSet};
use topology::input::excerpt;
use topology::limits::{MOST_IOTHREADS, MOST_VCPUS};
use topology::{Bytes, CpuId, CpuSet, Id, IdSet, NodeSet};
use vm::Stated;
use vm::qemu::{GuestCaches, GuestCpus};

/// Most virtual nodes: QEMU's `MAX_NODES`.
pub(super) const MOST_CELLS: u32 = 128;

/// Reads a domain; what is not of NUMA is passed over, whatever it is. `file` is what errors call
/// the text.
///
/// Takes what a user wrote as well as what `virsh dumpxml` prints of a running VM. A text is at
/// most [`super::LONGEST_TEXT`] bytes.
///
/// # Errors
/// Not XML, no domain, hostile, or a value that libvirt itself would refuse.
pub fn parse(text: &str, file: &str) -> Result<Domain, DomainError> {
    let document = tree(text, file)?;
    read(document.root_element()).map_err(|problem| DomainError::new(file, problem))
}

/// A value of the XML, or what is wrong at its place.
type Read<T> = Result<T, Problem>;

fn read(root: Node<'_, '_>) -> Read<Domain> {
    let mut domain = Domain {
        name: text_of(root, "name").unwrap_or_default(),
        uuid: text_of(root, "uuid"),
        kind: root.attribute("type").unwrap_or_default().to_owned(),
        locked: !at(root, &["memoryBacking", "locked"]).is_empty(),
        stated: stated(root),
        cpu_mode: first(root, &["cpu"]).and_then(|cpu| cpu.attribute("mode")).map(str::to_owned),
        ..Domain::default()
    };
    if let Some(name) = first(root, &["name"]).filter(|_| domain.name.contains('\n')) {
        return Err(Fault::NameOfLines.at(name));
    }
    vcpus(root, &mut domain)?;
    pins(root, &mut domain)?;
    domain.cells = cells(root, domain.vcpus)?;
    domain.memory = match first(root, &["memory"]) {
        Some(memory) => amount(memory, &text_in(memory), "")?,
        None => domain.cells.iter().map(|cell| cell.memory).sum(),
    };
    if domain.memory == Bytes(0) {
        return Err(Fault::NoMemory.at(root));
    }
    plugged::read(root, &mut domain)?;
    numatune(root, &mut domain)?;
    let one_each = GuestCpus { sockets: domain.vcpus, dies: 1, cores: 1, threads: 1, ..GuestCpus::default() };
    let told = first(root, &["cpu", "topology"]).map(cpu_topology).transpose()?.unwrap_or(one_each);
    domain.guest = GuestCpus { caches: caches(root), ..told };
    domain.huge_pages = huge_pages(root)?;
    domain.host_devices = host_devices(root)?;
    Ok(domain)
}

pub(super) fn first<'a, 'i>(root: Node<'a, 'i>, path: &[&str]) -> Option<Node<'a, 'i>> {
    at(root, path).first().copied()
}

fn text_of(root: Node<'_, '_>, name: &str) -> Option<String> {
    first(root, &[name]).map(|element| text_in(element).trim().to_owned())
}

/// All of its text: comments may stand in it.
pub(super) fn text_in(element: Node<'_, '_>) -> String {
    element.children().filter(Node::is_text).filter_map(|text| text.text()).collect()
}

/// The text of an element that is the number of a cell.
pub(super) fn cell_number(element: Node<'_, '_>) -> Result<u32, Problem> {
    let text = text_in(element);
    values::number(&text, MOST_CELLS - 1).map_err(|error| wrong(element, "", &text, error))
}

/// The text of an element that is a list of nodes.
pub(super) fn node_list(element: Node<'_, '_>) -> Result<NodeSet, Problem> {
    let text = text_in(element);
    values::list(&text).map_err(|error| wrong(element, "", &text, error))
}

/// An attribute that must be there.
fn required<'a>(element: Node<'a, '_>, name: &str) -> Read<&'a str> {
    element.attribute(name).ok_or_else(|| Fault::Missing(name.to_owned()).at(element))
}

/// `error` with the element and the attribute that it is about.
fn wrong(element: Node<'_, '_>, name: &str, value: &str, error: ValueError) -> Problem {
    let value = excerpt(value);
    let shown = if name.is_empty() { format!("{value:?}") } else { format!("{name}={value:?}") };
    Fault::Value { shown, error }.at(element)
}

fn number(element: Node<'_, '_>, name: &str, most: u32) -> Read<u32> {
    let text = required(element, name)?;
    values::number(text, most).map_err(|error| wrong(element, name, text, error))
}

fn list_in<T: Id>(element: Node<'_, '_>, name: &str) -> Read<Option<IdSet<T>>> {
    let read = |text: &str| values::list(text).map_err(|error| wrong(element, name, text, error));
    element.attribute(name).map(read).transpose()
}

fn required_list<T: Id>(element: Node<'_, '_>, name: &str) -> Read<IdSet<T>> {
    required(element, name)?;
    Ok(list_in(element, name)?.unwrap_or_default())
}

pub(super) fn amount(element: Node<'_, '_>, text: &str, name: &str) -> Read<Bytes> {
    values::memory(text, element.attribute("unit")).map_err(|error| wrong(element, name, text, error))
}

/// The amount that an element holds; `None` where that is none.
pub(crate) fn amount_in(element: Node<'_, '_>) -> Option<Bytes> {
    amount(element, &text_in(element), "").ok()
}

/// A list such as `0-3,^2` as libvirt reads it; `None` where it is none.
pub(crate) fn list<T: Id>(text: &str) -> Option<IdSet<T>> {
    values::list(text).ok()
}

fn vcpus(root: Node<'_, '_>, domain: &mut Domain) -> Read<()> {
    domain.vcpus = 1;
    if let Some(vcpu) = first(root, &["vcpu"]) {
        let text = text_in(vcpu);
        domain.vcpus = values::number(&text, MOST_VCPUS).map_err(|error| wrong(vcpu, "", &text, error))?;
        if domain.vcpus == 0 {
            return Err(Fault::NoVcpu.at(vcpu));
        }
        domain.absent = absent(root, vcpu, domain.vcpus)?;
        domain.vcpu_placement_auto = vcpu.attribute("placement") == Some("auto");
        domain.vcpu_cpuset = list_in(vcpu, "cpuset")?;
    }
    domain.iothreads = iothreads(root)?;
    Ok(())
}

/// vCPUs that may be plugged in later. Where `<vcpus>` says which are there, `current` is only
/// their number.
fn absent(root: Node<'_, '_>, vcpu: Node<'_, '_>, vcpus: u32) -> Read<CpuSet> {
    let mut there = CpuSet::new();
    let each = at(root, &["vcpus", "vcpu"]);
    for &one in &each {
        let id = number(one, "id", vcpus - 1)?;
        if one.attribute("enabled") == Some("yes") {
            there.insert(CpuId(id));
        }
    }
    if each.is_empty() {
        let current = vcpu.attribute("current").map(|_| number(vcpu, "current", vcpus)).transpose()?;
        if current == Some(0) {
            return Err(wrong(vcpu, "current", "0", ValueError::Zero));
        }
        there = (0..current.unwrap_or(vcpus)).map(CpuId).collect();
    }
    Ok((0..vcpus).map(CpuId).filter(|&vcpu| !there.contains(vcpu)).collect())
}

/// Those of `<iothreadids>`; as many more as `<iothreads>` asks for get the lowest numbers that are
/// left, from 1.
fn iothreads(root: Node<'_, '_>) -> Read<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    for element in at(root, &["iothreadids", "iothread"]) {
        let id = number(element, "id", u32::MAX)?;
        if id == 0 {
            return Err(wrong(element, "id", "0", ValueError::Iothread));
        }
        if !ids.insert(id) {
            return Err(Fault::There { what: "an iothread", number: id }.at(element));
        }
        if ids.len() > MOST_IOTHREADS as usize {
            return Err(Fault::Iothreads.at(element));
        }
    }
    let asked = first(root, &["iothreads"]).map(|element| {
        let text = text_in(element);
        values::number(&text, MOST_IOTHREADS).map_err(|error| wrong(element, "", &text, error))
    });
    let more = (asked.transpose()?.unwrap_or_default() as usize).saturating_sub(ids.len());
    let left: Vec<u32> = (1..).filter(|id| !ids.contains(id)).take(more).collect();
    ids.extend(left);
    Ok(ids)
}

fn pins(root: Node<'_, '_>, domain: &mut Domain) -> Read<()> {
    domain.vcpu_pins = pins_of(root, "vcpupin", "vcpu")?;
    domain.iothread_pins = pins_of(root, "iothreadpin", "iothread")?;
    for sched in at(root, &["cputune", "vcpusched"]) {
        // `batch` and `idle` are other classes (libvirt: formatdomain.rst, `vcpusched`).
        if matches!(sched.attribute("scheduler"), Some("fifo" | "rr")) {
            domain.real_time.extend(required_list::<CpuId>(sched, "vcpus")?.iter());
        }
    }
    let emulator = first(root, &["cputune", "emulatorpin"]);
    domain.emulator_pin = emulator.map(|pin| required_list(pin, "cpuset")).transpose()?;
    Ok(())
}

fn pins_of(root: Node<'_, '_>, element: &str, key: &str) -> Read<BTreeMap<u32, CpuSet>> {
    let mut pins = BTreeMap::new();
    for pin in at(root, &["cputune", element]) {
        let thread = number(pin, key, LIST_END)?;
        if pins.insert(thread, required_list::<CpuId>(pin, "cpuset")?).is_some() {
            return Err(Fault::Twice { of: key.to_owned(), number: thread, what: "pin" }.at(pin));
        }
    }
    Ok(pins)
}

fn numatune(root: Node<'_, '_>, domain: &mut Domain) -> Read<()> {
    let auto = domain.vcpu_placement_auto;
    domain.memory_tune = first(root, &["numatune", "memory"]).map(|memory| memory_tune(memory, auto)).transpose()?;
    for node in at(root, &["numatune", "memnode"]) {
        let cell = number(node, "cellid", MOST_CELLS - 1)?;
        required(node, "nodeset")?;
        if domain.memory_nodes.insert(cell, memory_tune(node, false)?).is_some() {
            return Err(Fault::Twice { of: "cell".to_owned(), number: cell, what: "<memnode>" }.at(node));
        }
    }
    Ok(())
}

/// Without `placement` and without nodes, memory is placed as the vCPUs are.
fn memory_tune(element: Node<'_, '_>, vcpus_auto: bool) -> Read<MemoryTune> {
    let nodeset = list_in(element, "nodeset")?;
    let mode = element.attribute("mode").unwrap_or("strict");
    if !["strict", "preferred", "interleave", "restrictive"].contains(&mode) {
        return Err(wrong(element, "mode", mode, ValueError::Mode));
    }
    let auto = match element.attribute("placement") {
        Some(placement) => placement == "auto",
        None => nodeset.is_none() && vcpus_auto,
    };
    Ok(MemoryTune { mode: mode.to_owned(), nodeset, auto })
}

fn caches(root: Node<'_, '_>) -> GuestCaches {
    match first(root, &["cpu", "cache"]).and_then(|cache| cache.attribute("mode")) {
        Some("passthrough") => GuestCaches::Passthrough,
        Some("disable") => GuestCaches::Disabled,
        _ => GuestCaches::OnePerDie,
    }
}

/// What is left out is 1.
fn cpu_topology(element: Node<'_, '_>) -> Read<GuestCpus> {
    let count = |name| match element.attribute(name) {
        Some(_) => number(element, name, MOST_VCPUS)
            .and_then(|count| if count == 0 { Err(wrong(element, name, "0", ValueError::Zero)) } else { Ok(count) }),
        None => Ok(1),
    };
    // Clusters and modules of newer libvirt hold cores.
    let parts = ["sockets", "dies", "clusters", "modules", "cores", "threads"];
    let [sockets, dies, clusters, modules, cores, threads] = parts.map(count);
    let (sockets, dies, clusters, modules, cores, threads) = (sockets?, dies?, clusters?, modules?, cores?, threads?);
    let all = [sockets, dies, clusters, modules, cores, threads].into_iter().try_fold(1_u32, u32::checked_mul);
    if all.is_none_or(|all| all > MOST_VCPUS) {
        return Err(Fault::Product.at(element));
    }
    Ok(GuestCpus { sockets, dies, cores: clusters * modules * cores, threads, ..GuestCpus::default() })
}

fn cells(root: Node<'_, '_>, vcpus: u32) -> Read<Vec<Cell>> {
    let elements = at(root, &["cpu", "numa", "cell"]);
    let count = elements.len() as u32;
    let mut cells = BTreeMap::new();
    let mut taken = CpuSet::new();
    for (&element, index) in elements.iter().zip(0..) {
        if index >= MOST_CELLS {
            return Err(Fault::Cells.at(element));
        }
        let cell = cell(element, index, count)?;
        if let Some(beyond) = cell.vcpus.iter().find(|vcpu| vcpu.0 >= vcpus) {
            return Err(Fault::NoSuchVcpu { vcpu: beyond.0, vcpus }.at(element));
        }
        if let Some(twice) = cell.vcpus.intersection(&taken).first() {
            return Err(Fault::InAnotherCell(twice.0).at(element));
        }
        taken = taken.union(&cell.vcpus);
        if let Some(twice) = cells.insert(cell.id, cell) {
            return Err(Fault::There { what: "a cell", number: twice.id }.at(element));
        }
    }
    Ok(cells.into_values().collect())
}

/// libvirt numbers cells without an id in their order, and wants ids from 0 without a gap.
fn cell(element: Node<'_, '_>, index: u32, count: u32) -> Read<Cell> {
    let id = match element.attribute("id") {
        Some(_) => number(element, "id", count - 1)?,
        None => index,
    };
    let mut distances = BTreeMap::new();
    for sibling in at(element, &["distances", "sibling"]) {
        let other = number(sibling, "id", count - 1)?;
        let value = number(sibling, "value", 255)?;
        if value < 10 || (other == id) != (value == 10) {
            return Err(wrong(sibling, "value", &value.to_string(), ValueError::Distance));
        }
        distances.insert(other, value);
    }
    let memory = amount(element, required(element, "memory")?, "memory")?;
    Ok(Cell { id, vcpus: list_in(element, "cpus")?.unwrap_or_default(), memory, distances })
}

fn huge_pages(root: Node<'_, '_>) -> Read<Vec<HugePages>> {
    let mut found = Vec::new();
    for element in at(root, &["memoryBacking", "hugepages"]) {
        let before = found.len();
        for page in all(element, "page") {
            let size = amount(page, required(page, "size")?, "size")?;
            found.push(HugePages { size: Some(size), cells: list_in(page, "nodeset")? });
        }
        if found.len() == before {
            found.push(HugePages { size: None, cells: None });
        }
    }
    Ok(found)
}

/// The words of the first serial port whose alias has a mark of homenode's.
fn stated(root: Node<'_, '_>) -> Stated {
    let aliases = at(root, &["devices", "serial", "alias"]);
    aliases.into_iter().find_map(|alias| Stated::from_id(alias.attribute("name")?)).unwrap_or_default()
}

/// PCI devices of the host, as `<hostdev>` or as a network card that is one.
fn host_devices(root: Node<'_, '_>) -> Read<Vec<String>> {
    let mut found = Vec::new();
    for device in at(root, &["devices"]).into_iter().flat_map(|devices| devices.children()) {
        let kind = device.attribute("type");
        let passed =
            (is(device, "hostdev") && kind == Some("pci")) || (is(device, "interface") && kind == Some("hostdev"));
        if !passed {
            continue;
        }
        for address in at(device, &["source", "address"]) {
            let part = |name: &str, most| match address.attribute(name) {
                Some(text) => values::address(text, most).map_err(|error| wrong(address, name, text, error)),
                None => Ok(0),
            };
            let (domain, bus) = (part("domain", 0xffff_ffff)?, part("bus", 0xff)?);
            let (slot, function) = (part("slot", 0x1f)?, part("function", 7)?);
            found.push(format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}"));
        }
    }
    Ok(found)
}
