//! Guests whose vCPUs are unlike: on cores of several kinds (P and E cores).

use super::{list, vcpus};
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::Scene;
use crate::shaped::Part;
use std::collections::BTreeMap;
use topology::{CpuId, CpuSet};

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    if !scene.machine.is_hybrid() {
        return Vec::new();
    }
    unlike(scene).into_iter().collect()
}

/// vCPUs that may use cores of several kinds, or of which some have one kind and some another.
fn unlike(scene: &Scene<'_>) -> Option<Finding> {
    let present = scene.vm.numbers().difference(&scene.vm.absent);
    let mut kinds = BTreeMap::<Vec<u32>, CpuSet>::new();
    for vcpu in present.iter() {
        let cpus = scene.vm.cpus_of(vcpu.0, &scene.cpus);
        kinds.entry(scene.machine.capacities_of(&cpus).into_iter().rev().collect()).or_default().insert(vcpu);
    }
    if present.len() < 2 || (kinds.len() < 2 && kinds.keys().all(|kinds| kinds.len() < 2)) {
        return None;
    }
    let each = kinds.iter().rev().map(|(capacities, those)| {
        let capacities: Vec<String> = capacities.iter().map(u32::to_string).collect();
        format!("{}: cores of capacity {}", vcpus(those), list(&capacities))
    });
    let sentence = if kinds.len() > 1 {
        "its vCPUs are on cores of several kinds, and its guest takes them to be alike".to_owned()
    } else {
        "its vCPUs may run on cores of several kinds, and its guest takes them to be alike".to_owned()
    };
    let because = "work that the guest divides evenly waits for the weakest core, and its kernel does not know which \
        vCPU that is";
    let found = Finding::new("unlike_cores", Harm::Misled, sentence, because);
    let found = found.seen(each.collect::<Vec<_>>().join("; "));
    let mut found = found.at(scene.spots(present.iter().map(|vcpu: CpuId| Part::VcpuPin(vcpu.0))).into_iter().take(3));
    // Where nobody bound it the kernel prefers the strong cores while they are enough.
    let found_as_bound = if scene.is_bound() { found.clone() } else { found.clone().note() };
    let one_kind = |node: &crate::TargetNode| scene.machine.capacities_of(&node.cpus).len() == 1;
    let target = scene.target.as_ref().ok()?;
    if scene.pinned.is_none() && target.nodes.iter().all(one_kind) {
        return Some(found_as_bound.cure("give them cores of one kind", &[Aspect::Pins]));
    }
    found = found_as_bound;
    found.cure.advice = "one kind of core is better where the VM has no more vCPUs than that kind has CPUs to spare: \
        `homenode plan` says which"
        .to_owned();
    Some(found)
}
