//! A libvirt domain as a VM that somebody shaped.

use super::guest_system::guest_system;
use crate::domain::{self, Domain, MemoryModule, MemoryTune};
use judge::{Auto, Binding, BoundDevice, Part, ShapedNode, ShapedVm, Spot, Spots, XmlFacts};
use roxmltree::{Document, Node};
use std::collections::BTreeMap;
use topology::{Bytes, CpuId, CpuSet};

/// A domain as libvirt carries it out. `text` is what it was read from: lines and what cures must
/// keep are looked up there.
pub fn shaped(domain: &Domain, text: &str) -> ShapedVm {
    let pin = |vcpu| domain.vcpu_pins.get(&vcpu).or(domain.vcpu_cpuset.as_ref()).cloned();
    let iothread = |id| domain.iothread_pins.get(&id).or(domain.vcpu_cpuset.as_ref()).cloned();
    let nodes = nodes(domain);
    let document = Document::parse(text).ok();
    let root = document.as_ref().map(Document::root_element);
    ShapedVm {
        name: domain.name.clone(),
        vcpus: domain.vcpus,
        absent: domain.absent.clone(),
        // libvirt takes what the cells add up to.
        memory: nodes.iter().map(|node| node.memory).sum(),
        most_memory: domain.most_memory.unwrap_or_default(),
        guest: domain.guest,
        vnuma: !domain.cells.is_empty(),
        nodes,
        pins: (0..domain.vcpus).filter_map(|vcpu| Some((vcpu, pin(vcpu)?))).collect(),
        real_time: domain.real_time.clone(),
        emulator: domain.emulator_pin.clone().or_else(|| domain.vcpu_cpuset.clone()),
        bound_devices: bound_devices(domain, root),
        iothreads: domain.iothreads.iter().map(|&id| (id, iothread(id))).collect(),
        auto: Auto {
            vcpus: domain.vcpu_placement_auto,
            memory: domain.memory_tune.as_ref().is_some_and(|tune| tune.auto),
        },
        memory_tune: domain.memory_tune.as_ref().and_then(binding),
        huge_pages: domain.huge_pages.clone(),
        spots: root.map(|root| spots(root, domain)).unwrap_or_default(),
        guest_system: root.map(guest_system).unwrap_or_default(),
        xml: Some(root.map(|root| facts(root, domain)).unwrap_or_default()),
        ..ShapedVm::default()
    }
}

fn nodes(domain: &Domain) -> Vec<ShapedNode> {
    let whole = domain.memory_tune.as_ref().and_then(binding);
    let own = |id: u32| domain.memory_nodes.get(&id).and_then(binding);
    if domain.cells.is_empty() {
        let vcpus = (0..domain.vcpus).map(CpuId).collect();
        let (plugged, growth) = plugged(domain, None);
        let modules: Bytes = domain.memory_modules.iter().map(|module| module.size).sum();
        let memory = domain.memory.saturating_sub(modules);
        return vec![ShapedNode { vcpus, memory, plugged, growth, binding: whole, ..ShapedNode::default() }];
    }
    let mut nodes: Vec<ShapedNode> = domain
        .cells
        .iter()
        .map(|cell| (cell, plugged(domain, Some(cell.id))))
        .map(|(cell, (plugged, growth))| ShapedNode {
            id: cell.id,
            vcpus: cell.vcpus.clone(),
            memory: cell.memory,
            plugged,
            growth,
            binding: own(cell.id).or_else(|| whole.clone()),
            own_binding: own(cell.id).is_some(),
            distances: cell.distances.clone(),
            ..ShapedNode::default()
        })
        .collect();
    let named = nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.vcpus));
    // QEMU puts vCPUs that no cell names into the first.
    let rest: CpuSet = (0..domain.vcpus).map(CpuId).filter(|&vcpu| !named.contains(vcpu)).collect();
    if let Some(first) = nodes.first_mut() {
        first.vcpus.extend(rest.iter());
    }
    nodes
}

/// Memory devices with a `<nodemask>`. Without cells all there is belongs to the one virtual node.
fn bound_devices(domain: &Domain, root: Option<Node<'_, '_>>) -> Vec<BoundDevice> {
    let Some(root) = root else { return Vec::new() };
    let is_memory = |device: &Node<'_, '_>| matches!(device.attribute("model"), Some("dimm" | "virtio-mem"));
    let devices = at(root, "devices/memory").into_iter().filter(is_memory);
    let (line, path) = (lines(root), "source/nodemask");
    let spot = |device| {
        let mask = at(device, path).first().copied();
        mask.map(|mask| Spot { at: format!("devices/memory/{path}"), line: Some(line(mask)) })
    };
    let bound = |(module, device): (&MemoryModule, _)| {
        let nodes = module.nodeset.clone()?;
        let (virtual_node, given) = (module.node.unwrap_or_default(), module.given);
        Some(BoundDevice { virtual_node, given, nodes, spot: spot(device) })
    };
    domain.memory_modules.iter().zip(devices).filter_map(bound).collect()
}

/// What the memory devices of a cell give, and what more they may give. libvirt takes none without
/// a cell where there are cells.
fn plugged(domain: &Domain, cell: Option<u32>) -> (Bytes, Bytes) {
    let own = || domain.memory_modules.iter().filter(|module| cell.is_none() || module.node == cell);
    (own().map(|module| module.given).sum(), own().map(|module| module.size.saturating_sub(module.given)).sum())
}

fn binding(tune: &MemoryTune) -> Option<Binding> {
    Some(Binding { mode: tune.mode.clone(), nodes: tune.nodeset.clone()? })
}

/// The elements at the end of a path such as `cputune/vcpupin`.
fn at<'a, 'i>(root: Node<'a, 'i>, path: &str) -> Vec<Node<'a, 'i>> {
    domain::at(root, &path.split('/').collect::<Vec<_>>())
}

/// The line of an element. A domain has thousands of pins: each of `text_pos_at` looks through the
/// text up to its own.
fn lines(root: Node<'_, '_>) -> impl Fn(Node<'_, '_>) -> u32 {
    let ends: Vec<usize> = root.document().input_text().match_indices('\n').map(|(end, _)| end).collect();
    move |element| ends.partition_point(|&end| end < element.range().start) as u32 + 1
}

/// The place of every part that is written.
fn spots(root: Node<'_, '_>, domain: &Domain) -> Spots {
    let mut found = BTreeMap::new();
    let line = lines(root);
    let mut add = |part: Part, path: String, element: Node<'_, '_>| {
        found.entry(part).or_insert_with(|| Spot { at: path, line: Some(line(element)) });
    };
    let single = [
        (Part::Memory, "memory"),
        (Part::MostMemory, "maxMemory"),
        (Part::Vcpus, "vcpu"),
        (Part::Emulator, "cputune/emulatorpin"),
        (Part::MemoryTune, "numatune/memory"),
        (Part::Topology, "cpu/topology"),
        (Part::Cache, "cpu/cache"),
        (Part::HugePages, "memoryBacking/hugepages"),
    ];
    for (part, path) in single {
        for element in at(root, path) {
            add(part, path.to_owned(), element);
        }
    }
    type Numbered = (&'static str, &'static str, fn(u32) -> Part);
    let numbered: [Numbered; 3] = [
        ("cputune/vcpupin", "vcpu", Part::VcpuPin),
        ("cputune/iothreadpin", "iothread", Part::Iothread),
        ("numatune/memnode", "cellid", Part::MemoryNode),
    ];
    for (path, key, part) in numbered {
        for element in at(root, path) {
            if let Some(number) = element.attribute(key).and_then(|text| text.trim().parse().ok()) {
                add(part(number), format!("{path}[@{key}='{number}']"), element);
            }
        }
    }
    for (index, element) in (0..).zip(at(root, "cpu/numa/cell")) {
        let id = element.attribute("id").and_then(|text| text.trim().parse().ok()).unwrap_or(index);
        add(Part::Cell(id), format!("cpu/numa/cell[@id='{id}']"), element);
        for distances in domain::all(element, "distances") {
            add(Part::Distances(id), format!("cpu/numa/cell[@id='{id}']/distances"), distances);
        }
    }
    // vCPUs without a pin of their own are where <vcpu cpuset> says.
    if let Some(spot) = found.get(&Part::Vcpus).cloned() {
        for vcpu in (0..domain.vcpus).filter(|vcpu| !domain.vcpu_pins.contains_key(vcpu)) {
            found.insert(Part::VcpuPin(vcpu), spot.clone());
        }
        found.entry(Part::Emulator).or_insert(spot);
    }
    Spots(found)
}

fn facts(root: Node<'_, '_>, domain: &Domain) -> XmlFacts {
    let cells = at(root, "cpu/numa/cell");
    let extras = |cell: &Node<'_, '_>| {
        let meant = |name: &str| matches!(name, "memAccess" | "discard");
        let attributes = cell.attributes().filter(|attribute| meant(attribute.name()));
        attributes.map(|attribute| (attribute.name().to_owned(), attribute.value().to_owned())).collect()
    };
    XmlFacts {
        cell_extras: cells.first().map(extras).unwrap_or_default(),
        cells_without_id: cells.iter().any(|cell| !cell.has_attribute("id")),
        vcpu_cpuset: domain.vcpu_cpuset.clone(),
        pinned: domain.vcpu_pins.keys().map(|&vcpu| CpuId(vcpu)).collect(),
        memory_nodes: domain.memory_nodes.keys().copied().collect(),
        memory_tune_mode: domain.memory_tune.as_ref().map(|tune| tune.mode.clone()),
        nodes_named_by: names_nodes(root, domain),
    }
}

/// What else than cells and `<memnode>` names virtual nodes.
fn names_nodes(root: Node<'_, '_>, domain: &Domain) -> Option<String> {
    // A device of memory without a node is memory that cells would be given a second time.
    let target = |device: &&Node<'_, '_>| device.has_tag_name("memory") || !at(**device, "target/node").is_empty();
    let devices = at(root, "devices").into_iter().flat_map(|devices| devices.children()).collect::<Vec<_>>();
    if let Some(device) = devices.iter().find(target) {
        return Some(format!("<{}> of <devices>", device.tag_name().name()));
    }
    if domain.huge_pages.iter().any(|pages| pages.cells.is_some()) {
        return Some("<page nodeset> of <hugepages>".to_owned());
    }
    (!at(root, "cpu/numa/interconnects").is_empty()).then(|| "<interconnects>".to_owned())
}
