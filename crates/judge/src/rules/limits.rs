//! What limits a VM that runs: its cgroup and its weight.

use crate::finding::{Cost, Finding, Harm};
use crate::scene::Scene;
use scheduler::{SchedulingClass, VmLimits};
use topology::words::count;

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(limits) = scene.running().and_then(|running| running.seen.limits.as_ref()) else { return Vec::new() };
    [memory_max(scene, limits), memory_high(scene, limits), cpu_max(scene, limits), weight(limits)]
        .into_iter()
        .flatten()
        .collect()
}

fn cgroup(limits: &VmLimits) -> &str {
    limits.cgroup.as_deref().unwrap_or_default()
}

fn memory_max(scene: &Scene<'_>, limits: &VmLimits) -> Option<Finding> {
    let (memory, max) = (scene.vm.memory, limits.memory_max?);
    if max >= memory {
        return None;
    }
    let sentence = format!("it may have {memory} of memory, and its cgroup allows {max}");
    let because = "when the guest touches more, the kernel kills the VM";
    let mut found = Finding::new("memory_max_below_vm", Harm::Refused, sentence, because);
    found = found.seen(format!("memory.max of {} or above it: {max}", cgroup(limits)));
    found.cure.advice =
        "raise memory.max above the VM's memory, with room for QEMU itself, or give the VM less".to_owned();
    Some(found)
}

fn memory_high(scene: &Scene<'_>, limits: &VmLimits) -> Option<Finding> {
    let (memory, high) = (scene.vm.memory, limits.memory_high?);
    if high >= memory || limits.memory_max.is_some_and(|max| max <= high) {
        return None;
    }
    let sentence = format!("it may have {memory} of memory, and its cgroup is slowed down above {high}");
    let because =
        "above memory.high every thread of the VM is stopped again and again while the kernel takes its memory away";
    let mut found = Finding::new("memory_high_below_vm", Harm::Waits, sentence, because);
    found = found.seen(format!("memory.high of {} or above it: {high}", cgroup(limits)));
    found.cure.advice = "raise memory.high above the VM's memory, with room for QEMU itself".to_owned();
    Some(found)
}

/// A limit of CPU time below the vCPUs.
fn cpu_max(scene: &Scene<'_>, limits: &VmLimits) -> Option<Finding> {
    let (vcpus, milli) = (scene.vm.vcpus, limits.cpu_milli_max?);
    if milli >= u64::from(vcpus) * 1000 {
        return None;
    }
    let cpus = milli as f64 / 1000.0;
    let sentence = format!("it has {}, and its cgroup may use {cpus:.1} CPUs", count(vcpus as usize, "vCPU"));
    let because =
        "once the time of a period is used up all vCPUs stop together, also one that holds a lock of the guest";
    let mut found = Finding::new("cpu_max_below_vcpus", Harm::Misled, sentence, because);
    found = found.seen(format!("cpu.max of {} or above it: {cpus:.1} CPUs", cgroup(limits)));
    found = found.costs(Cost::CpuTime { factor: f64::from(vcpus) / cpus.max(0.001) });
    found.cure.advice = "give it as many vCPUs as it may use, or a cpu.weight instead of the limit".to_owned();
    Some(found)
}

/// Nice values and classes in which everybody else comes first.
fn weight(limits: &VmLimits) -> Option<Finding> {
    let nice = limits.nice.unwrap_or_default();
    let (what, harm, sentence, because) = match limits.class {
        Some(SchedulingClass::Idle) => (
            "idle_class",
            Harm::Waits,
            "its vCPUs run with the idle class".to_owned(),
            "they run only when nothing else wants the CPU, also when a vCPU holds a lock that the others wait for",
        ),
        _ if nice > 0 => (
            "nice",
            Harm::Chance,
            format!("its vCPUs run with nice {nice}"),
            "beside another busy thread a vCPU gets a fraction of the CPU: each step of nice is a tenth less",
        ),
        _ => return None,
    };
    let mut found = Finding::new(what, harm, sentence, because);
    found.cure.advice =
        "start it without nice or chrt; for less CPU time give its cgroup a smaller cpu.weight".to_owned();
    Some(found)
}
