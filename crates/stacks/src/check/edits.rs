//! The difference between a domain and what would be right for it, as edits.

use super::finding::Aspect;
use super::rules;
use super::scene::Scene;
use super::target::{Target, TargetNode};
use super::vm::{GuestCpus, Part, ShapedVm, XmlFacts};
use crate::domain::{Edit, Step};
use std::collections::BTreeSet;
use topology::{CpuSet, NodeSet};

const RESTRICTIVE: &str = "restrictive";

/// What a set of aspects changes.
pub(super) struct Change<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) target: &'a Target,
    aspects: &'a BTreeSet<Aspect>,
}

/// Threads that get other CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NewPins {
    /// vCPUs and the CPUs of each, group by group.
    pub(super) vcpus: Vec<(CpuSet, CpuSet)>,
    /// The emulator's.
    pub(super) emulator: Option<CpuSet>,
    /// Those of iothreads.
    pub(super) iothreads: Vec<(u32, CpuSet)>,
}

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

impl<'a> Change<'a> {
    pub(super) fn new(scene: &'a Scene<'a>, target: &'a Target, aspects: &'a BTreeSet<Aspect>) -> Self {
        Self { scene, target, aspects }
    }

    fn has(&self, aspects: &[Aspect]) -> bool {
        aspects.iter().any(|aspect| self.aspects.contains(aspect))
    }

    fn vm(&self) -> &'a ShapedVm {
        self.scene.vm
    }

    /// Whether a virtual node keeps its vCPUs where they are.
    fn stays(&self, index: usize) -> bool {
        if self.target.reshaped || self.has(&[Aspect::Pins]) {
            return false;
        }
        let (view, node) = (&self.scene.views[index], &self.target.nodes[index]);
        view.node.vcpus.is_empty() || (view.bound && !view.cpus.is_empty() && view.runs_on.is_subset(&node.home))
    }

    /// Threads that get other CPUs.
    pub(super) fn pins(&self) -> NewPins {
        let mut pins = NewPins::default();
        if self.has(&[Aspect::Shape, Aspect::Home, Aspect::Pins]) {
            for (index, node) in self.target.nodes.iter().enumerate().filter(|(index, _)| !self.stays(*index)) {
                let differs = |vcpu: &topology::CpuId| self.vm().pins.get(&vcpu.0) != Some(&node.cpus);
                let vcpus: CpuSet = self.target.nodes[index].vcpus.iter().filter(differs).collect();
                if !vcpus.is_empty() {
                    pins.vcpus.push((vcpus, node.cpus.clone()));
                }
            }
        } else if !self.has(&[Aspect::Helpers]) {
            return pins;
        }
        let home = self.target.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
        let moved = pins.vcpus.iter().fold(CpuSet::new(), |all, (vcpus, _)| all.union(vcpus));
        let taken = rules::taken(self.vm(), &moved);
        let others = home.difference(&taken);
        let helpers = if others.is_empty() { home } else { others };
        let needs = |cpus: &Option<CpuSet>| self.helper_needs(cpus.as_ref(), &taken);
        pins.emulator = needs(&self.vm().emulator).then(|| helpers.clone());
        let iothreads = self.vm().iothreads.iter().filter(|(_, cpus)| needs(cpus));
        pins.iothreads = iothreads.map(|(&id, _)| (id, helpers.clone())).collect();
        pins
    }

    /// Whether a helper's CPUs are not of the home, or only such to which vCPUs are pinned.
    fn helper_needs(&self, cpus: Option<&CpuSet>, taken: &CpuSet) -> bool {
        let homes = self.homes();
        let Some(cpus) = cpus else { return !self.scene.cpu_nodes.is_subset(&homes) };
        let usable = cpus.intersection(&self.scene.all);
        let beyond = usable.len() < cpus.len();
        beyond || usable.is_subset(taken) || !self.scene.nodes_of(&usable).is_subset(&homes)
    }

    /// All home nodes.
    fn homes(&self) -> NodeSet {
        self.target.nodes.iter().fold(NodeSet::new(), |all, node| all.union(&node.home))
    }

    /// What the guest is told of its CPUs afterwards.
    pub(super) fn guest(&self) -> GuestCpus {
        let mut guest = if self.has(&[Aspect::Shape, Aspect::Topology]) { self.target.guest } else { self.vm().guest };
        if self.has(&[Aspect::Shape, Aspect::Threads]) {
            guest.cores *= guest.threads.max(1);
            guest.threads = 1;
        }
        guest
    }

    /// Virtual nodes whose memory goes elsewhere, with its mode and its nodes.
    pub(super) fn bindings(&self) -> Vec<(u32, String, NodeSet)> {
        if !self.has(&[Aspect::Shape, Aspect::Home, Aspect::Pins]) {
            return Vec::new();
        }
        let mut bindings = Vec::new();
        for (index, node) in self.target.nodes.iter().enumerate() {
            let now = if self.target.reshaped { None } else { self.scene.views[index].node.binding.as_ref() };
            let mode = self.mode(node, now.map(|binding| binding.mode.as_str()));
            let same = now.is_some_and(|binding| binding.nodes == node.home && binding.mode == mode);
            // A cure of pins alone leaves memory alone that nobody bound, and that numad does not bind.
            let meant = now.is_some() || self.vm().auto.memory || self.has(&[Aspect::Shape, Aspect::Home]);
            let inherits = now.is_some() && self.whole_changes() && !self.scene.views[index].node.own_binding;
            if meant && (!same || inherits) {
                bindings.push((node.id, mode, node.home.clone()));
            }
        }
        bindings
    }

    /// Mode of `<numatune><memory>`, where that is written.
    fn whole_mode(&self) -> Option<&str> {
        self.vm().xml.as_ref()?.memory_tune_mode.as_deref()
    }

    fn mode(&self, node: &TargetNode, now: Option<&str>) -> String {
        // Beside a `<memory>` of this mode libvirt takes no `<memnode>` of another.
        let whole = self.whole_mode();
        if whole == Some(RESTRICTIVE) {
            return RESTRICTIVE.to_owned();
        }
        let kept = now.or(whole).filter(|mode| ["strict", "preferred", RESTRICTIVE].contains(mode));
        if node.home.len() > 1 && node.interleave {
            return "interleave".to_owned();
        }
        kept.unwrap_or("strict").to_owned()
    }

    /// The edits of a domain's XML.
    pub(super) fn edits(&self) -> Vec<Edit> {
        let Some(xml) = &self.vm().xml else { return Vec::new() };
        let mut edits = Vec::new();
        let pins = self.pins();
        edits.extend(self.cell_edits(xml));
        edits.extend(self.distance_edits(xml));
        edits.extend(self.topology_edits());
        edits.extend(self.cache_edits());
        edits.extend(self.pin_edits(xml, &pins));
        edits.extend(self.memory_edits());
        edits
    }

    fn cell_edits(&self, xml: &XmlFacts) -> Vec<Edit> {
        let shape = self.has(&[Aspect::Shape]);
        let whole = xml.cells_without_id && (shape || self.changes_distances());
        let mut edits = Vec::new();
        if whole {
            edits.push(Edit::Remove { at: path(["cpu", "numa"]) });
        }
        if !shape && !whole {
            return edits;
        }
        let count = self.target.nodes.len() as u32;
        let old: Vec<u32> =
            if self.vm().vnuma { self.vm().nodes.iter().map(|node| node.id).collect() } else { Vec::new() };
        for &id in old.iter().filter(|&&id| id >= count) {
            edits.push(Edit::Remove { at: keyed(["cpu", "numa"], "cell", "id", id) });
            edits.push(Edit::Remove { at: keyed(["numatune"], "memnode", "cellid", id) });
        }
        for node in &self.target.nodes {
            let cell = || keyed(["cpu", "numa"], "cell", "id", node.id);
            edits.push(set(cell(), "cpus", &node.vcpus));
            edits.push(set(cell(), "memory", &(node.memory.0 >> 10)));
            edits.push(set(cell(), "unit", "KiB"));
            if whole || !old.contains(&node.id) {
                edits.extend(xml.cell_extras.iter().map(|(name, value)| set(cell(), name, value)));
            }
        }
        edits
    }

    /// Distances change with the homes, too.
    fn changes_distances(&self) -> bool {
        let several = self.target.nodes.len() > 1;
        let moves = |index: usize| !self.scene.views[index].runs_on.is_subset(&self.target.nodes[index].home);
        let moved = self.vm().vnuma
            && self.has(&[Aspect::Home, Aspect::Pins])
            && !self.target.reshaped
            && (0..self.scene.views.len()).any(moves);
        several && (self.has(&[Aspect::Shape, Aspect::Distances]) || (moved && self.told_differs()))
    }

    fn told_differs(&self) -> bool {
        rules::told(self.scene) != self.target.distances
    }

    fn distance_edits(&self, xml: &XmlFacts) -> Vec<Edit> {
        if !self.changes_distances() {
            return Vec::new();
        }
        let ids: Vec<u32> = self.target.nodes.iter().map(|node| node.id).collect();
        let fresh = self.has(&[Aspect::Shape]) || xml.cells_without_id;
        let written = |i: u32, j: u32| {
            let node = self.vm().nodes.iter().find(|node| self.vm().vnuma && node.id == i)?;
            node.distances.get(&j).copied()
        };
        let mut edits = Vec::new();
        for (i, row) in ids.iter().zip(&self.target.distances) {
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

    fn topology_edits(&self) -> Vec<Edit> {
        let (now, then) = (self.vm().guest, self.guest());
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

    fn cache_edits(&self) -> Vec<Edit> {
        if !self.has(&[Aspect::Cache]) {
            return Vec::new();
        }
        vec![set(path(["cpu", "cache"]), "mode", "emulate"), set(path(["cpu", "cache"]), "level", &3)]
    }

    fn pin_edits(&self, xml: &XmlFacts, pins: &NewPins) -> Vec<Edit> {
        let mut edits = Vec::new();
        let vm = self.vm();
        let places = self.has(&[Aspect::Shape, Aspect::Home, Aspect::Pins]);
        if places && vm.auto.vcpus {
            edits.push(set(path(["vcpu"]), "placement", "static"));
        }
        let homes = self.target.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
        // One home and no pins: one attribute says it for vCPUs, emulator and iothreads together.
        let by_cpuset = self.target.nodes.len() == 1 && xml.pinned.is_empty() && !pins.vcpus.is_empty();
        let beyond = xml.vcpu_cpuset.as_ref().is_some_and(|cpus| !cpus.is_subset(&self.scene.all));
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

    /// Whether the policy of the VM as a whole, written beside that of its nodes, leaves out a home or names what is not there.
    fn whole_changes(&self) -> bool {
        let vm = self.vm();
        let nodes = vm.memory_tune.as_ref().map(|binding| &binding.nodes);
        let there = self.scene.machine.node_ids();
        let suffices = nodes.is_some_and(|nodes| self.homes().is_subset(nodes) && nodes.is_subset(&there));
        (vm.vnuma || self.target.reshaped) && self.whole_mode().is_some() && !suffices
    }

    fn memory_edits(&self) -> Vec<Edit> {
        let bindings = self.bindings();
        let vm = self.vm();
        let places = self.has(&[Aspect::Home, Aspect::Pins, Aspect::Shape]);
        if bindings.is_empty() && !(places && (vm.auto.memory || self.whole_changes())) {
            return Vec::new();
        }
        let mut edits = Vec::new();
        let whole = || path(["numatune", "memory"]);
        let cells = vm.vnuma || self.target.reshaped;
        let homes = self.homes();
        if self.whole_changes() {
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
}
