//! vCPUs on isolated CPUs (`isolcpus=`), among which the kernel balances nothing.
//!
//! **Rule.** A vCPU that may use isolated CPUs alone has one: of several it stays on the first that
//! it is put on, with whatever else is put there. Of isolated and other CPUs the others only are
//! used ([`topology::Schedulable`]).
//!
//! **Example.** 16 vCPUs that may use CPUs 3-18, all isolated, are all on CPU 3.

use super::{cpus, vcpus};
use crate::finding::{Aspect, Cost, Finding, Harm};
use crate::scene::Scene;
use crate::shaped::Part;
use topology::{CpuId, CpuSet};

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    if scene.machine.isolated.is_empty() {
        return Vec::new();
    }
    [heaped(scene), unused(scene)].into_iter().flatten().collect()
}

/// vCPUs of which each may use several isolated CPUs and no others, and those CPUs; `None` where
/// there are no two of them.
pub(super) fn unbalanced(scene: &Scene<'_>) -> Option<(CpuSet, CpuSet)> {
    let may = |vcpu: CpuId| scene.vm.cpus_of(vcpu.0, &scene.cpus);
    let is_one = |vcpu: &CpuId| {
        let may = may(*vcpu);
        may.len() > 1 && may.is_subset(&scene.machine.isolated) && !scene.vm.absent.contains(*vcpu)
    };
    let vcpus: CpuSet = scene.vm.numbers().iter().filter(is_one).collect();
    let cpus = vcpus.iter().fold(CpuSet::new(), |all, vcpu| all.union(&may(vcpu)));
    (vcpus.len() > 1).then_some((vcpus, cpus))
}

fn heaped(scene: &Scene<'_>) -> Option<Finding> {
    let (those, set) = unbalanced(scene)?;
    let sentence =
        format!("{} may use {}, which are isolated: the kernel spreads nothing over them", vcpus(&those), cpus(&set));
    let because = "isolcpus takes CPUs out of the kernel's load balancer: each vCPU stays on the CPU that it starts on, \
        and all start on the same";
    let found = Finding::new("isolated_unbalanced", Harm::Waits, sentence, because);
    let found = found.seen(format!("isolated: {}", cpus(&scene.machine.isolated)));
    let found = found.costs(Cost::CpuTime { factor: those.len() as f64 });
    let mut found = found.at(scene.spots(those.iter().map(|vcpu| Part::VcpuPin(vcpu.0))));
    if scene.repinned().is_some() {
        return Some(found.cure("bind each vCPU to one of them", &[Aspect::Pins]));
    }
    found.cure.advice =
        "there are fewer of them than vCPUs: isolate more CPUs, give it fewer vCPUs, or start the host \
        without isolcpus for these"
            .to_owned();
    Some(found)
}

/// vCPUs that may use isolated CPUs and others.
fn unused(scene: &Scene<'_>) -> Option<Finding> {
    let (mut those, mut lost, mut kept) = (CpuSet::new(), CpuSet::new(), CpuSet::new());
    for (&vcpu, set) in scene.vm.pins.iter().filter(|(_, set)| !scene.all.is_subset(set)) {
        let (used, apart) = (scene.cpus.used(set), set.intersection(&scene.machine.isolated));
        if !used.is_subset(&scene.machine.isolated) && !apart.is_empty() {
            those.insert(CpuId(vcpu));
            (lost, kept) = (lost.union(&apart), kept.union(&used));
        }
    }
    if those.is_empty() {
        return None;
    }
    let sentence = format!(
        "{} may use isolated CPUs and others, and the kernel uses the others only: {}",
        vcpus(&those),
        cpus(&kept)
    );
    let because = "CPUs that are isolated (isolcpus) are out of the kernel's load balancer: nothing that may run \
        elsewhere comes there";
    let found = Finding::new("isolated_unused", Harm::Chance, sentence, because);
    let found = found.seen(format!("never used: {}", cpus(&lost)));
    let found = found.at(scene.spots(those.iter().map(|vcpu| Part::VcpuPin(vcpu.0))));
    // Whole nodes are written with all that they have: nothing is lost that could be had.
    let nodes = scene.nodes_of(&kept);
    let whole = scene.cpus.balanced.iter().filter(|&cpu| scene.is_on(cpu, &nodes)).all(|cpu| kept.contains(cpu));
    let found = if whole { found.note() } else { found };
    Some(found.cure("name only CPUs that the kernel uses", &[Aspect::Pins]))
}
