//! What the program that manages a VM believes of its pins.

use super::cpus;
use crate::finding::{Finding, Harm, Repair};
use crate::scene::Scene;
use scheduler::{Action, ClientObservation, home};
use topology::CpuSet;

/// Clients of which the manager believes something else than what the kernel does. The cure tells
/// the manager what the kernel does.
pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(running) = scene.running() else { return Vec::new() };
    let Some(believed) = &running.believed else { return Vec::new() };
    // The manager counts CPUs that are offline; the kernel does not.
    let online: CpuSet = scene.machine.threads.iter().filter(|thread| thread.online).map(|thread| thread.id).collect();
    let differing = |client: &ClientObservation| {
        let (vcpu, does, says) = client.vcpu_cpus.iter().find_map(|(vcpu, does)| {
            let says = believed.get(vcpu)?.intersection(&online);
            (*does != says).then_some((*vcpu, does, says))
        })?;
        let manager = running.seen.manager;
        let sentence = format!(
            "{manager} believes that its vCPUs may run on {}; the kernel runs them on {}",
            cpus(&says),
            cpus(does)
        );
        let because = "whatever it does next with the VM it does by what it believes";
        let found = Finding::new("manager_believes_otherwise", Harm::Misled, sentence, because);
        let mut found = found.seen(format!("virsh vcpupin --live: vCPU {vcpu}: {says}; sched_getaffinity: {does}"));
        found.cure.advice = format!("tell it: virsh vcpupin --live, {}", cpus(does));
        let same = client.vcpu_cpus.values().all(|other| other == does);
        let (vm, home) = (running.seen.vm.clone(), home::nodes_of(scene.machine, does));
        let action = Action::Bind { vm, client: client.id, home, cpus: does.clone(), groups: Vec::new() };
        found.cure.repairs.extend(same.then_some(Repair::Act { action }));
        Some(found)
    };
    running.seen.clients.iter().filter_map(differing).collect()
}
