//! What a cure changes: the difference between a VM and what would be right for it, as data. Stacks
//! write it in their languages.

use crate::finding::Aspect;
use crate::scene::Scene;
use crate::shaped::{Running, ShapedVm};
use crate::target::{Target, TargetNode};
use scheduler::{OtherThread, OtherThreadKind, VcpuGroup};
use std::collections::{BTreeMap, BTreeSet};
use topology::{CpuId, CpuSet, Machine, NodeSet};
use vm::qemu::GuestCpus;

const RESTRICTIVE: &str = "restrictive";

/// What a set of aspects changes.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub(crate) scene: &'a Scene<'a>,
    /// What would be right.
    pub target: &'a Target,
    aspects: &'a BTreeSet<Aspect>,
}

/// Threads that get other CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPins {
    /// vCPUs and the CPUs of each, group by group.
    pub vcpus: Vec<(CpuSet, CpuSet)>,
    /// The emulator's.
    pub emulator: Option<CpuSet>,
    /// Those of iothreads.
    pub iothreads: Vec<(u32, CpuSet)>,
}

impl<'a> Change<'a> {
    pub(crate) fn new(scene: &'a Scene<'a>, target: &'a Target, aspects: &'a BTreeSet<Aspect>) -> Self {
        Self { scene, target, aspects }
    }

    /// Whether it changes one of these.
    pub fn has(&self, aspects: &[Aspect]) -> bool {
        aspects.iter().any(|aspect| self.aspects.contains(aspect))
    }

    /// The VM as it is.
    pub fn vm(&self) -> &'a ShapedVm {
        self.scene.vm
    }

    /// Whether a virtual node keeps its vCPUs where they are.
    fn stays(&self, index: usize) -> bool {
        if self.target.reshaped || self.has(&[Aspect::Pins, Aspect::Siblings]) {
            return false;
        }
        let (view, node) = (&self.scene.views[index], &self.target.nodes[index]);
        view.node.vcpus.is_empty() || (view.bound && !view.cpus.is_empty() && view.runs_on.is_subset(&node.home))
    }

    /// Threads that get other CPUs.
    pub fn pins(&self) -> NewPins {
        let mut pins = NewPins::default();
        if self.has(&[Aspect::Shape, Aspect::Home, Aspect::Pins, Aspect::Siblings]) {
            let moved = self.target.nodes.iter().enumerate().filter(|(index, _)| !self.stays(*index));
            pins.vcpus = moved.flat_map(|(_, node)| self.new_pins(node)).collect();
        } else if !self.has(&[Aspect::OtherThreads]) {
            return pins;
        }
        let taken = self.taken(&pins);
        let beside = self.beside(&taken);
        let needs = |cpus: &Option<CpuSet>| self.must_move(cpus.as_ref(), &taken);
        pins.emulator = needs(&self.vm().emulator).then(|| beside.clone());
        let iothreads = self.vm().iothreads.iter().filter(|(_, cpus)| needs(cpus));
        pins.iothreads = iothreads.map(|(&id, _)| (id, beside.clone())).collect();
        pins
    }

    /// vCPUs of a virtual node that get other CPUs: one each where pins stay pins, else all of its
    /// home.
    fn new_pins(&self, node: &TargetNode) -> Vec<(CpuSet, CpuSet)> {
        let written = |vcpu: CpuId| self.vm().pins.get(&vcpu.0);
        if let Some(single) = self.single_cpus() {
            let new = |vcpu: CpuId| Some((vcpu, CpuSet::from_iter([*single.get(&vcpu.0)?])));
            let differs = |(vcpu, cpus): &(CpuId, CpuSet)| written(*vcpu) != Some(cpus);
            return node
                .vcpus
                .iter()
                .filter_map(new)
                .filter(differs)
                .map(|(vcpu, cpus)| (CpuSet::from_iter([vcpu]), cpus))
                .collect();
        }
        // Without a pin it may use every CPU.
        let as_free = |vcpu: CpuId| written(vcpu).is_none() && self.scene.cpus.balanced == node.cpus;
        let differs = |vcpu: &CpuId| written(*vcpu) != Some(&node.cpus) && !as_free(*vcpu);
        let vcpus: CpuSet = node.vcpus.iter().filter(differs).collect();
        if vcpus.is_empty() { Vec::new() } else { vec![(vcpus, node.cpus.clone())] }
    }

    /// The vCPUs of a virtual node with the one CPU of each; empty where pins do not stay pins.
    pub(crate) fn groups_of_one(&self, node: &TargetNode) -> Vec<VcpuGroup> {
        let of = |single: &BTreeMap<u32, CpuId>| {
            let group = |vcpu: CpuId| {
                let cpus = CpuSet::from_iter([*single.get(&vcpu.0)?]);
                Some(VcpuGroup { vcpus: vec![vcpu.0], cpus })
            };
            node.vcpus.iter().filter_map(group).collect()
        };
        self.single_cpus().map(of).unwrap_or_default()
    }

    /// Whether vCPUs get one CPU each, which a stack that binds whole VMs cannot write.
    pub fn binds_each_vcpu(&self) -> bool {
        self.single_cpus().is_some() && !self.pins().vcpus.is_empty()
    }

    /// The one CPU of each vCPU, where pins stay pins.
    fn single_cpus(&self) -> Option<&'a BTreeMap<u32, CpuId>> {
        let pinned = self.scene.pinned.as_ref()?;
        if self.has(&[Aspect::Siblings]) { pinned.in_pairs.as_ref() } else { pinned.right.as_ref() }
    }

    /// Threads of a VM that runs which run no vCPU and get other CPUs, with these.
    pub(crate) fn other_threads(&self, running: &Running) -> Vec<(u32, CpuSet)> {
        let pins = self.pins();
        let beside = || self.has(&[Aspect::OtherThreads]).then(|| self.beside(&self.taken(&pins)));
        let of = |thread: &OtherThread| {
            let cpus = match thread.kind {
                OtherThreadKind::Main | OtherThreadKind::Worker => pins.emulator.clone(),
                OtherThreadKind::Io => pins.iothreads.first().map(|(_, cpus)| cpus.clone()),
                OtherThreadKind::Vhost | OtherThreadKind::Helper => beside(),
            };
            let moves = |cpus: &CpuSet| !thread.cpus.as_ref().is_some_and(|now| now.is_subset(cpus));
            cpus.filter(moves).map(|cpus| (thread.thread_id, cpus))
        };
        running.seen.other_threads.iter().filter_map(of).collect()
    }

    /// CPUs to which one vCPU alone is bound afterwards.
    fn taken(&self, pins: &NewPins) -> CpuSet {
        let moved = pins.vcpus.iter().fold(CpuSet::new(), |all, (vcpus, _)| all.union(vcpus));
        let new = pins.vcpus.iter().filter(|(_, cpus)| cpus.len() == 1).flat_map(|(_, cpus)| cpus.iter());
        crate::rules::taken(self.vm(), &moved).union(&new.collect())
    }

    /// CPUs of the nodes where the vCPUs run, best on cores that none of them is bound to alone.
    fn beside(&self, taken: &CpuSet) -> CpuSet {
        let nodes = self.places().unwrap_or_else(|| {
            let vcpus = self.target.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
            self.scene.nodes_of(&vcpus)
        });
        let home: CpuSet = self.scene.cpus.balanced.iter().filter(|&cpu| self.scene.is_on(cpu, &nodes)).collect();
        let others = home.difference(taken);
        let apart = self.scene.off_cores(&others, taken);
        [apart, others].into_iter().find(|cpus| !cpus.is_empty()).unwrap_or(home)
    }

    /// Whether the CPUs of a thread without a vCPU are not of the home, or only such on whose cores
    /// vCPUs are bound alone, though there are others.
    fn must_move(&self, cpus: Option<&CpuSet>, taken: &CpuSet) -> bool {
        let homes = self.places().unwrap_or_else(|| self.homes());
        let Some(cpus) = cpus else { return !self.scene.cpu_nodes.is_subset(&homes) };
        let usable = self.scene.cpus.used(cpus);
        let beyond = cpus.iter().any(|cpu| !self.scene.all.contains(cpu));
        let apart = |cpus: &CpuSet| !self.scene.off_cores(cpus, taken).is_empty();
        let on_cores = !apart(&usable) && apart(&self.beside(taken));
        beyond || usable.is_subset(taken) || on_cores || !self.scene.nodes_of(&usable).is_subset(&homes)
    }

    /// vCPUs that are plugged in later, where others are there afterwards than now.
    pub fn absent(&self) -> Option<CpuSet> {
        let then = self.target.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.absent));
        (self.has(&[Aspect::Shape, Aspect::Presence]) && then != self.vm().absent).then_some(then)
    }

    /// Nodes where the vCPUs stay, whatever home would be better; `None` where a cure moves them.
    fn places(&self) -> Option<NodeSet> {
        let moves = self.has(&[Aspect::Shape, Aspect::Home, Aspect::Pins]) || crate::rules::moves_vcpus(self.scene);
        let runs_on = self.scene.nodes_of(&self.scene.all_vcpus_cpus());
        (!moves && self.scene.is_bound() && !runs_on.is_empty()).then_some(runs_on)
    }

    /// All home nodes.
    pub fn homes(&self) -> NodeSet {
        self.target.nodes.iter().fold(NodeSet::new(), |all, node| all.union(&node.home))
    }

    /// What the guest is told of its CPUs afterwards.
    pub fn guest(&self) -> GuestCpus {
        let mut guest = if self.has(&[Aspect::Shape, Aspect::Topology]) { self.target.guest } else { self.vm().guest };
        if self.has(&[Aspect::Shape, Aspect::Threads]) {
            guest.cores *= guest.threads.max(1);
            guest.threads = 1;
        } else if self.has(&[Aspect::Siblings]) && guest.threads == 1 && guest.cores.is_multiple_of(2) {
            (guest.cores, guest.threads) = (guest.cores / 2, 2);
        }
        guest
    }

    /// Virtual nodes whose memory goes elsewhere, with its mode and its nodes.
    pub fn bindings(&self) -> Vec<(u32, String, NodeSet)> {
        if !self.has(&[Aspect::Shape, Aspect::Home, Aspect::Pins]) {
            return Vec::new();
        }
        let mut bindings = Vec::new();
        for (index, node) in self.target.nodes.iter().enumerate() {
            let now = if self.target.reshaped { None } else { self.scene.views[index].node.binding.as_ref() };
            let mode = self.mode(node, now.map(|binding| binding.mode.as_str()));
            let same = now.is_some_and(|binding| binding.nodes == node.home && binding.mode == mode);
            // A cure of pins alone leaves memory alone that nobody bound, and that numad does not
            // bind.
            let meant = now.is_some() || self.vm().auto.memory || self.has(&[Aspect::Shape, Aspect::Home]);
            let inherits = now.is_some() && self.whole_changes() && !self.scene.views[index].node.own_binding;
            if meant && (!same || inherits) {
                bindings.push((node.id, mode, node.home.clone()));
            }
        }
        bindings
    }

    /// Where the memory of a virtual node goes, also that of its devices; `None`: it stays.
    pub fn home_of(&self, virtual_node: u32) -> Option<&NodeSet> {
        let moves = self.has(&[Aspect::Shape, Aspect::Home, Aspect::Pins]);
        let node = self.target.nodes.iter().find(|node| node.id == virtual_node).filter(|_| moves)?;
        Some(&node.home)
    }

    /// Mode of `<numatune><memory>`, where that is written.
    pub fn whole_mode(&self) -> Option<&str> {
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

    /// Distances change with the homes, too.
    pub fn changes_distances(&self) -> bool {
        let several = self.target.nodes.len() > 1;
        let moves = |index: usize| !self.scene.views[index].runs_on.is_subset(&self.target.nodes[index].home);
        let moved = self.vm().vnuma
            && self.has(&[Aspect::Home, Aspect::Pins])
            && !self.target.reshaped
            && (0..self.scene.views.len()).any(moves);
        several && (self.has(&[Aspect::Shape, Aspect::Distances]) || (moved && self.told_differs()))
    }

    fn told_differs(&self) -> bool {
        crate::rules::told(self.scene) != self.target.distances
    }

    /// Whether the policy of the VM as a whole, written beside that of its nodes, leaves out a home
    /// or names what is not there.
    pub fn whole_changes(&self) -> bool {
        let vm = self.vm();
        let nodes = vm.memory_tune.as_ref().map(|binding| &binding.nodes);
        let there = self.scene.machine.node_ids();
        let suffices = nodes.is_some_and(|nodes| self.homes().is_subset(nodes) && nodes.is_subset(&there));
        (vm.vnuma || self.target.reshaped) && self.whole_mode().is_some() && !suffices
    }

    /// The machine.
    pub(crate) fn machine(&self) -> &'a Machine {
        self.scene.machine
    }

    /// Whether memory goes to its home.
    pub(crate) fn moves_memory(&self) -> bool {
        self.has(&[Aspect::Shape, Aspect::Home])
    }

    /// CPUs and nodes of the machine that can be used.
    pub fn usable(&self) -> (&CpuSet, NodeSet) {
        (&self.scene.all, self.scene.machine.node_ids())
    }
}
