//! QEMU's own threads: the emulator and iothreads.

use super::cpus;
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::{Scene, named};
use crate::shaped::{Part, ShapedVm};
use topology::{CpuSet, NodeSet};

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    if !scene.is_bound() || scene.all_vcpus_cpus().is_empty() {
        return Vec::new();
    }
    let vm = scene.vm;
    let emulator = vec![("the emulator's threads".to_owned(), vm.emulator.clone(), Part::Emulator)];
    let each = |(&id, set): (&u32, &Option<CpuSet>)| (format!("iothread {id}"), set.clone(), Part::Iothread(id));
    let threads: Vec<_> = emulator.into_iter().chain(vm.iothreads.iter().map(each)).collect();
    let found = [on_vcpus(scene, &threads), away(scene, &threads), floating(scene, &threads)];
    found.into_iter().flatten().collect()
}

type Threads = [(String, Option<CpuSet>, Part)];

/// CPUs to which a vCPU is pinned that may use no other, but for the vCPUs `moved`.
pub(crate) fn taken(vm: &ShapedVm, moved: &CpuSet) -> CpuSet {
    let stays = |(vcpu, set): &(&u32, &CpuSet)| set.len() == 1 && !moved.contains(topology::CpuId(**vcpu));
    vm.pins.iter().filter(stays).filter_map(|(_, set)| set.first()).collect()
}

fn on_vcpus(scene: &Scene<'_>, threads: &Threads) -> Option<Finding> {
    let taken = taken(scene.vm, &CpuSet::new());
    let only_there = |set: &CpuSet| !set.is_empty() && set.is_subset(&taken);
    let those: Vec<_> = threads.iter().filter(|(_, set, _)| set.as_ref().is_some_and(only_there)).collect();
    let names: Vec<String> = those.iter().map(|(name, ..)| name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let sentence = format!("{} may run only on hardware threads to which vCPUs are pinned", super::list(&names));
    let seen: Vec<String> =
        those.iter().filter_map(|(name, set, _)| Some(format!("{name}: {}", cpus(set.as_ref()?)))).collect();
    let because = "each interrupt and each disk request that QEMU serves stops a vCPU that cannot go elsewhere";
    let found = Finding::new("helpers_on_vcpus", Harm::Waits, sentence, because).seen(seen.join("; "));
    let mut found = found.at(scene.spots(those.iter().map(|(.., part)| *part)));
    let homes = scene.target.as_ref().ok()?.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    if homes.is_subset(&taken) {
        found.cure.advice = "the vCPUs take every hardware thread of the home: leave one core to QEMU".to_owned();
        return Some(found.note());
    }
    Some(found.cure("give them the other CPUs of the home", &[Aspect::Helpers]))
}

/// Where the vCPUs run; all of the homes that they are to have where that is within them.
fn home(scene: &Scene<'_>) -> NodeSet {
    let runs_on = scene.nodes_of(&scene.all_vcpus_cpus());
    let nodes = scene.target.as_ref().map(|target| target.nodes.as_slice()).unwrap_or_default();
    let homes = nodes.iter().fold(NodeSet::new(), |all, node| all.union(&node.home));
    if runs_on.is_subset(&homes) { homes } else { runs_on }
}

fn away(scene: &Scene<'_>, threads: &Threads) -> Option<Finding> {
    let home = home(scene);
    let is_away = |set: &CpuSet| !set.is_empty() && scene.nodes_of(set).intersection(&home).is_empty();
    let usable = |set: &CpuSet| set.intersection(&scene.all);
    let those: Vec<_> =
        threads.iter().filter(|(_, set, _)| set.as_ref().is_some_and(|set| is_away(&usable(set)))).collect();
    let names: Vec<String> = those.iter().map(|(name, ..)| name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let sentence = format!("{} may run only away from the VM's home, {}", super::list(&names), named(&home));
    let of = |set: &CpuSet| format!("{} of {}", cpus(set), named(&scene.nodes_of(set)));
    let seen: Vec<String> =
        those.iter().filter_map(|(name, set, _)| Some(format!("{name}: {}", of(set.as_ref()?)))).collect();
    let because = "the buffers that they fill and empty are the guest's memory: every byte of disk and network crosses between the nodes";
    let found = Finding::new("helpers_away", Harm::Waits, sentence, because).seen(seen.join("; "));
    let found = found.at(scene.spots(those.iter().map(|(.., part)| *part)));
    Some(found.cure("give them CPUs of the home", &[Aspect::Helpers]))
}

fn floating(scene: &Scene<'_>, threads: &Threads) -> Option<Finding> {
    let home = home(scene);
    let floats = |set: &Option<CpuSet>| match set {
        None => scene.cpu_nodes.len() > home.len(),
        Some(set) => {
            let nodes = scene.nodes_of(&set.intersection(&scene.all));
            !nodes.is_subset(&home) && !nodes.intersection(&home).is_empty()
        }
    };
    let those: Vec<_> = threads.iter().filter(|(_, set, _)| floats(set)).collect();
    let names: Vec<String> = those.iter().map(|(name, ..)| name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let sentence = format!("{} may run away from the VM's home, {}", super::list(&names), named(&home));
    let because =
        "the buffers that they fill and empty are the guest's memory; what they touch first lies where they run";
    let found = Finding::new("helpers_float", Harm::Chance, sentence, because).note();
    let found = found.at(scene.spots(those.iter().map(|(.., part)| *part)));
    Some(found.cure("give them CPUs of the home", &[Aspect::Helpers]))
}
