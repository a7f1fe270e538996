//! Work of others on the cores of vCPUs that are bound one by one.
//!
//! **Rule.** Cores count, not CPU numbers: what runs on the second hardware thread of a core takes
//! about half of it from the vCPU on the first. On the same hardware thread it is a rule of its own
//! (`other_threads_on_vcpus`).
//!
//! **Example.** 8 cores {0, 8} to {7, 15}; vCPUs on 8-15, the emulator on 0-3: the same cores.

use super::{cpus, list};
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::Scene;
use crate::shaped::Part;
use topology::{CpuId, CpuSet};

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    if scene.pinned.is_none() {
        return Vec::new();
    }
    [own_threads(scene), other_vms(scene)].into_iter().flatten().collect()
}

/// Threads of the VM that run no vCPU, on the second hardware threads.
fn own_threads(scene: &Scene<'_>) -> Option<Finding> {
    let taken = super::taken(scene.vm, &CpuSet::new());
    let beside = |set: &CpuSet| {
        let used = scene.cpus.used(set);
        !used.is_empty() && !used.is_subset(&taken) && scene.off_cores(&used, &taken).is_empty()
    };
    let threads = super::other_threads::of(scene);
    let those: Vec<_> = threads.iter().filter(|thread| thread.cpus.as_ref().is_some_and(beside)).collect();
    let names: Vec<String> = those.iter().map(|thread| thread.name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let sentence =
        format!("{} may run only on cores to which vCPUs are pinned, on their other hardware threads", list(&names));
    let seen = those.iter().filter_map(|thread| Some(format!("{}: {}", thread.name, cpus(thread.cpus.as_ref()?))));
    let because = "two hardware threads of a core share its units and caches: each disk request that QEMU serves slows \
        a vCPU down that cannot go elsewhere";
    let harm = if scene.never_floats() { Harm::Waits } else { Harm::Chance };
    let found = Finding::new("other_threads_on_vcpu_cores", harm, sentence, because);
    let found = found.seen(seen.collect::<Vec<_>>().join("; "));
    let mut found = found.at(scene.spots(those.iter().filter_map(|thread| thread.part)));
    let homes = scene.target.as_ref().ok()?.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    let home = scene.cpus.balanced.iter().filter(|&cpu| scene.is_on(cpu, &scene.nodes_of(&homes))).collect();
    if !scene.off_cores(&home, &taken).is_empty() {
        return Some(found.cure("give them another core of the home", &[Aspect::OtherThreads]));
    }
    if scene.pinned.as_ref().is_some_and(|pinned| pinned.in_pairs.is_some()) && scene.vm.guest.cores.is_multiple_of(2) {
        let advice = "bind the vCPUs two to a core on the other cores, and tell the guest of two threads a core";
        return Some(found.cure(advice, &[Aspect::Siblings]));
    }
    found.cure.advice = "the vCPUs take every core of the home: leave one core to QEMU".to_owned();
    Some(found.note())
}

/// CPUs of these cores to which vCPUs of other VMs are bound alone.
fn other_vms(scene: &Scene<'_>) -> Option<Finding> {
    let own = scene.all_vcpus_cpus();
    let cores = scene.cores_of(&own);
    let of_core = |cpu: &CpuId| scene.machine.thread(*cpu).is_some_and(|thread| cores.contains(thread.core));
    let theirs: CpuSet = scene.others.bound_cpus.iter().filter(of_core).collect();
    if theirs.is_empty() {
        return None;
    }
    let same = theirs.intersection(&own);
    let (sentence, because) = match same.is_empty() {
        true => (
            format!("vCPUs of another VM are bound to {}, hardware threads of the same cores", cpus(&theirs)),
            "two hardware threads of a core share its units and caches: both VMs get about half of it",
        ),
        false => (
            format!("vCPUs of another VM are bound to {} too", cpus(&same)),
            "vCPUs that share a hardware thread run in turn, and neither VM knows of the other",
        ),
    };
    // Of definitions nobody knows whether both run at once.
    let harm = if scene.running().is_some() { Harm::Waits } else { Harm::Chance };
    let found = Finding::new("others_on_vcpu_cores", harm, sentence, because);
    let numbers = scene.vm.numbers();
    let there = numbers.iter().filter(|vcpu| {
        let cpus = scene.vm.cpus_of(vcpu.0, &scene.cpus);
        !scene.cores_of(&cpus).intersection(&scene.cores_of(&theirs)).is_empty()
    });
    let mut found = found.at(scene.spots(there.map(|vcpu| Part::VcpuPin(vcpu.0))));
    let cores_of_others = scene.cores_of(&scene.others.bound_cpus);
    let apart = |cpu: &CpuId| scene.machine.thread(*cpu).is_some_and(|thread| !cores_of_others.contains(thread.core));
    if scene.repinned().is_some_and(|right| right.values().all(apart)) {
        return Some(found.cure("bind them to cores that no other VM has", &[Aspect::Pins]));
    }
    found.cure.advice =
        "no other core of their kind is free: let the VMs run in turn, or on another machine".to_owned();
    Some(found)
}
