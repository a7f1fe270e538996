//! QEMU's own threads: the emulator and iothreads.

use super::cpus;
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::{Scene, named};
use crate::shaped::{Part, ShapedVm};
use topology::{CpuSet, NodeSet};

const TRADE: &str = "give them CPUs of the home. Its vCPUs have all of these, so that each disk request then stops one \
    of them for a moment: better still is one core of the home for QEMU, with two vCPUs fewer";

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    if !scene.is_bound() || scene.all_vcpus_cpus().is_empty() {
        return Vec::new();
    }
    let threads = of(scene);
    let found = [on_vcpus(scene, &threads), away(scene, &threads), floating(scene, &threads)];
    found.into_iter().flatten().collect()
}

/// A thread, or some alike, that run no vCPU.
pub(super) struct Thread {
    pub(super) name: String,
    /// CPUs that they may use; `None`: every CPU.
    pub(super) cpus: Option<CpuSet>,
    /// Where that is written.
    pub(super) part: Option<Part>,
    /// Where they ought to run.
    home: NodeSet,
}

pub(super) fn of(scene: &Scene<'_>) -> Vec<Thread> {
    let (vm, home) = (scene.vm, home(scene));
    let own = |name: String, cpus: &Option<CpuSet>, part| Thread {
        name,
        cpus: cpus.clone(),
        part: Some(part),
        home: home.clone(),
    };
    let mut all = vec![own("the emulator's threads".to_owned(), &vm.emulator, Part::Emulator)];
    all.extend(vm.iothreads.iter().map(|(&id, set)| own(format!("iothread {id}"), set, Part::Iothread(id))));
    let of_node = |node: usize| Some(scene.target.as_ref().ok()?.nodes.get(node)?.home.clone());
    for (node, cpus) in &vm.vhost {
        let home = node.and_then(of_node).unwrap_or_else(|| home.clone());
        let name = "a vhost thread".to_owned();
        // A VM has as many as queues: those that are alike are one.
        if !all.iter().any(|other| other.name == name && other.cpus == *cpus && other.home == home) {
            all.push(Thread { name, cpus: cpus.clone(), part: None, home });
        }
    }
    for (name, cpus) in &vm.helpers {
        all.push(Thread { name: name.clone(), cpus: cpus.clone(), part: None, home: home.clone() });
    }
    all
}

/// CPUs to which a vCPU is pinned that may use no other, but for the vCPUs `moved`.
pub(crate) fn taken(vm: &ShapedVm, moved: &CpuSet) -> CpuSet {
    let stays = |(vcpu, set): &(&u32, &CpuSet)| set.len() == 1 && !moved.contains(topology::CpuId(**vcpu));
    vm.pins.iter().filter(stays).filter_map(|(_, set)| set.first()).collect()
}

fn on_vcpus(scene: &Scene<'_>, threads: &[Thread]) -> Option<Finding> {
    let taken = taken(scene.vm, &CpuSet::new());
    let only_there = |set: &CpuSet| !set.is_empty() && set.is_subset(&taken);
    let those: Vec<&Thread> = threads.iter().filter(|thread| thread.cpus.as_ref().is_some_and(only_there)).collect();
    let names: Vec<String> = those.iter().map(|thread| thread.name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let sentence = format!("{} may run only on hardware threads to which vCPUs are pinned", super::list(&names));
    let seen: Vec<String> =
        those.iter().filter_map(|thread| Some(format!("{}: {}", thread.name, cpus(thread.cpus.as_ref()?)))).collect();
    let because = "each interrupt and each disk request that QEMU serves stops a vCPU that cannot go elsewhere";
    let found = Finding::new("other_threads_on_vcpus", Harm::Waits, sentence, because).seen(seen.join("; "));
    let mut found = found.at(scene.spots(those.iter().filter_map(|thread| thread.part)));
    let homes = scene.target.as_ref().ok()?.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    if homes.is_subset(&taken) {
        found.cure.advice = "the vCPUs take every hardware thread of the home: leave one core to QEMU".to_owned();
        return Some(found.note());
    }
    Some(found.cure("give them the other CPUs of the home", &[Aspect::OtherThreads]))
}

/// Where the vCPUs run; all of the homes that they are to have where that is within them.
fn home(scene: &Scene<'_>) -> NodeSet {
    let (runs_on, homes) = (scene.nodes_of(&scene.all_vcpus_cpus()), homes(scene));
    if runs_on.is_subset(&homes) { homes } else { runs_on }
}

/// The homes that the vCPUs are to have.
fn homes(scene: &Scene<'_>) -> NodeSet {
    let nodes = scene.target.as_ref().map(|target| target.nodes.as_slice()).unwrap_or_default();
    nodes.iter().fold(NodeSet::new(), |all, node| all.union(&node.home))
}

/// The home that is named, and that the cure gives: where another cure brings the vCPUs, if any
/// does.
fn named_home(scene: &Scene<'_>, threads: &[&Thread]) -> String {
    let homes = homes(scene);
    let of_vcpus = threads.first().map(|thread| thread.home.clone()).unwrap_or_default();
    named(if !homes.is_empty() && super::moves_vcpus(scene) { &homes } else { &of_vcpus })
}

fn away(scene: &Scene<'_>, threads: &[Thread]) -> Option<Finding> {
    let is_away = |thread: &&Thread| {
        let usable = thread.cpus.as_ref().map(|set| scene.cpus.used(set)).unwrap_or_default();
        // Where all CPUs of the home are isolated, other threads are elsewhere on purpose.
        let has_room = !scene.cpu_nodes.intersection(&thread.home).is_empty();
        has_room && !usable.is_empty() && scene.nodes_of(&usable).intersection(&thread.home).is_empty()
    };
    let those: Vec<&Thread> = threads.iter().filter(is_away).collect();
    let names: Vec<String> = those.iter().map(|thread| thread.name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let home = named_home(scene, &those);
    let sentence = format!("{} may run only away from the VM's home, {home}", super::list(&names));
    let of = |set: &CpuSet| format!("{} of {}", cpus(set), named(&scene.nodes_of(set)));
    let seen: Vec<String> =
        those.iter().filter_map(|thread| Some(format!("{}: {}", thread.name, of(thread.cpus.as_ref()?)))).collect();
    let because = "the buffers that they fill and empty are the guest's memory: every byte of disk and network crosses \
        between the nodes";
    let found = Finding::new("other_threads_away", Harm::Waits, sentence, because).seen(seen.join("; "));
    let found = found.at(scene.spots(those.iter().filter_map(|thread| thread.part)));
    // Nothing is left beside the vCPUs: what it costs them is said before it is done.
    let homes = scene.target.as_ref().ok()?.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    let advice = match homes.is_subset(&taken(scene.vm, &CpuSet::new())) {
        true => TRADE,
        false => "give them CPUs of the home",
    };
    Some(found.cure(advice, &[Aspect::OtherThreads]))
}

fn floating(scene: &Scene<'_>, threads: &[Thread]) -> Option<Finding> {
    let floats = |thread: &&Thread| match &thread.cpus {
        None => scene.cpu_nodes.len() > thread.home.len(),
        Some(set) => {
            let nodes = scene.nodes_of(&scene.cpus.used(set));
            !nodes.is_subset(&thread.home) && !nodes.intersection(&thread.home).is_empty()
        }
    };
    let those: Vec<&Thread> = threads.iter().filter(floats).collect();
    let names: Vec<String> = those.iter().map(|thread| thread.name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let home = named_home(scene, &those);
    let sentence = format!("{} may run away from the VM's home, {home}", super::list(&names));
    let because =
        "the buffers that they fill and empty are the guest's memory; what they touch first lies where they run";
    let found = Finding::new("other_threads_float", Harm::Chance, sentence, because).note();
    let found = found.at(scene.spots(those.iter().filter_map(|thread| thread.part)));
    Some(found.cure("give them CPUs of the home", &[Aspect::OtherThreads]))
}
