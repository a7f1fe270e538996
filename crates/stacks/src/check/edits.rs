//! The difference between a domain and what would be right for it, as edits of its XML.

use crate::domain::{Edit, Step};
use judge::{Aspect, Change, NewPins, Part, XmlFacts};
use topology::CpuSet;

fn set(at: Vec<Step>, name: &str, value: &(impl ToString + ?Sized)) -> Edit {
    Edit::SetAttribute { at, name: name.to_owned(), value: value.to_string() }
}

fn path<const STEPS: usize>(names: [&str; STEPS]) -> Vec<Step> {
    names.into_iter().map(Step::new).collect()
}

fn keyed<const STEPS: usize>(names: [&str; STEPS], element: &str, key: &str, value: u32) -> Vec<Step> {
    let mut steps = path(names);
    steps.push(Step::keyed(element, key, value));
    steps
}

/// The edits of a domain's XML.
pub(super) fn edits(change: &Change<'_>) -> Vec<Edit> {
    let Some(xml) = &change.vm().xml else { return Vec::new() };
    let mut edits = Vec::new();
    let pins = change.pins();
    edits.extend(cell_edits(change, xml));
    edits.extend(presence_edits(change));
    edits.extend(distance_edits(change));
    edits.extend(topology_edits(change));
    edits.extend(cache_edits(change));
    edits.extend(pin_edits(change, xml, &pins));
    edits.extend(memory_edits(change));
    edits
}

fn cell_edits(change: &Change<'_>, xml: &XmlFacts) -> Vec<Edit> {
    let shape = change.has(&[Aspect::Shape]);
    let mut edits = Vec::new();
    if xml.cells_without_id && (shape || change.changes_distances()) {
        edits.push(Edit::Number { at: path(["cpu", "numa", "cell"]), name: "id".to_owned() });
    }
    if !shape {
        return edits;
    }
    let count = change.target.nodes.len() as u32;
    let old: Vec<u32> =
        if change.vm().vnuma { change.vm().nodes.iter().map(|node| node.id).collect() } else { Vec::new() };
    for &id in old.iter().filter(|&&id| id >= count) {
        edits.push(Edit::Remove { at: keyed(["cpu", "numa"], "cell", "id", id) });
        edits.push(Edit::Remove { at: keyed(["numatune"], "memnode", "cellid", id) });
    }
    for node in &change.target.nodes {
        let cell = || keyed(["cpu", "numa"], "cell", "id", node.id);
        edits.push(set(cell(), "cpus", &node.vcpus));
        edits.push(set(cell(), "memory", &(node.memory.0 >> 10)));
        edits.push(set(cell(), "unit", "KiB"));
        if !old.contains(&node.id) {
            edits.extend(xml.cell_extras.iter().map(|(name, value)| set(cell(), name, value)));
        }
    }
    edits
}

fn presence_edits(change: &Change<'_>) -> Vec<Edit> {
    change.absent().map(|absent| states(change.vm().vcpus, &absent)).unwrap_or_default()
}

/// Which vCPUs are there at the start. libvirt plugs all but vCPU 0 in before the guest runs; an
/// order of them is of no use any more, and it takes one for all or none.
pub(super) fn states(vcpus: u32, absent: &CpuSet) -> Vec<Edit> {
    let each = (0..vcpus).flat_map(|vcpu| {
        let at = || keyed(["vcpus"], "vcpu", "id", vcpu);
        let enabled = if absent.contains(topology::CpuId(vcpu)) { "no" } else { "yes" };
        let hotpluggable = if vcpu == 0 { "no" } else { "yes" };
        let order = Edit::RemoveAttribute { at: at(), name: "order".to_owned() };
        [set(at(), "enabled", enabled), set(at(), "hotpluggable", hotpluggable), order]
    });
    each.collect()
}

fn distance_edits(change: &Change<'_>) -> Vec<Edit> {
    if !change.changes_distances() {
        return Vec::new();
    }
    let ids: Vec<u32> = change.target.nodes.iter().map(|node| node.id).collect();
    let fresh = change.has(&[Aspect::Shape]);
    let written = |i: u32, j: u32| {
        let node = change.vm().nodes.iter().find(|node| change.vm().vnuma && node.id == i)?;
        node.distances.get(&j).copied()
    };
    let mut edits = Vec::new();
    for (i, row) in ids.iter().zip(&change.target.distances) {
        let has_own = ids.iter().any(|&j| written(*i, j).is_some());
        for (j, &value) in ids.iter().zip(row) {
            let itself = i == j && has_own && !fresh;
            if !itself && (fresh || written(*i, *j) != Some(value)) {
                let mut at = keyed(["cpu", "numa"], "cell", "id", *i);
                at.extend([Step::new("distances"), Step::keyed("sibling", "id", j)]);
                edits.push(set(at, "value", &value));
            }
        }
    }
    edits
}

fn topology_edits(change: &Change<'_>) -> Vec<Edit> {
    let (now, then) = (change.vm().guest, change.guest());
    if now == then {
        return Vec::new();
    }
    let at = || path(["cpu", "topology"]);
    let mut edits = vec![set(at(), "sockets", &then.sockets)];
    if now.dies != then.dies {
        edits.push(set(at(), "dies", &then.dies));
    }
    edits.extend([set(at(), "cores", &then.cores), set(at(), "threads", &then.threads)]);
    // Their cores are counted among those of the die.
    let groups = ["clusters", "modules"].map(str::to_owned);
    edits.extend(groups.map(|name| Edit::RemoveAttribute { at: at(), name }));
    edits
}

fn cache_edits(change: &Change<'_>) -> Vec<Edit> {
    if !change.has(&[Aspect::Cache]) {
        return Vec::new();
    }
    vec![set(path(["cpu", "cache"]), "mode", "emulate"), set(path(["cpu", "cache"]), "level", &3)]
}

fn pin_edits(change: &Change<'_>, xml: &XmlFacts, pins: &NewPins) -> Vec<Edit> {
    let mut edits = Vec::new();
    let vm = change.vm();
    let places = change.has(&[Aspect::Shape, Aspect::Home, Aspect::Pins, Aspect::Siblings]);
    if places && vm.auto.vcpus {
        edits.push(set(path(["vcpu"]), "placement", "static"));
    }
    let homes = change.target.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    // One home and no pins: one attribute says it for vCPUs, emulator and iothreads together, where
    // there is an element for it. To make one would take the number of vCPUs too.
    let has_element = vm.spots.of(Part::Vcpus).is_some();
    let by_cpuset = has_element
        && change.target.nodes.len() == 1
        && xml.pinned.is_empty()
        && !pins.vcpus.is_empty()
        && pins.vcpus.iter().all(|(_, cpus)| *cpus == homes);
    let beyond = xml.vcpu_cpuset.as_ref().is_some_and(|cpus| !cpus.is_subset(change.usable().0));
    if by_cpuset || (places && beyond) {
        edits.push(set(path(["vcpu"]), "cpuset", &homes));
    }
    if !by_cpuset {
        for (vcpus, cpus) in &pins.vcpus {
            let pin = |vcpu: topology::CpuId| set(keyed(["cputune"], "vcpupin", "vcpu", vcpu.0), "cpuset", cpus);
            edits.extend(vcpus.iter().map(pin));
        }
    }
    let written = |part: Part, path: &str| vm.spots.of(part).is_some_and(|spot| spot.at.starts_with(path));
    let emulator_follows = by_cpuset && !written(Part::Emulator, "cputune/emulatorpin");
    if let Some(cpus) = pins.emulator.as_ref().filter(|_| !emulator_follows) {
        edits.push(set(path(["cputune", "emulatorpin"]), "cpuset", cpus));
    }
    for (id, cpus) in &pins.iothreads {
        if !by_cpuset || written(Part::Iothread(*id), "cputune/iothreadpin") {
            edits.push(set(keyed(["cputune"], "iothreadpin", "iothread", *id), "cpuset", cpus));
        }
    }
    edits
}

fn memory_edits(change: &Change<'_>) -> Vec<Edit> {
    let bindings = change.bindings();
    let vm = change.vm();
    let places = change.has(&[Aspect::Home, Aspect::Pins, Aspect::Shape]);
    if bindings.is_empty() && !(places && (vm.auto.memory || change.whole_changes())) {
        return Vec::new();
    }
    let mut edits = Vec::new();
    let whole = || path(["numatune", "memory"]);
    let cells = vm.vnuma || change.target.reshaped;
    let homes = change.homes();
    if change.whole_changes() {
        edits.push(set(whole(), "nodeset", &homes));
    }
    if vm.auto.memory {
        edits.push(set(whole(), "placement", "static"));
    }
    for (id, mode, nodes) in &bindings {
        let at = || if cells { keyed(["numatune"], "memnode", "cellid", *id) } else { whole() };
        edits.push(set(at(), "mode", mode));
        edits.push(set(at(), "nodeset", nodes));
    }
    edits
}
