//! Whether what threads may use now is what a balancer set, what they had before, or somebody
//! else's choice.

use crate::record::{Affinity, ClientRecord, VmRecord};
use scheduler::{ClientId, ClientObservation, Observation};
use std::collections::BTreeMap;
use topology::CpuSet;

/// Whose a client's affinity is now.
pub(crate) enum Standing {
    /// What it was before a balancer: it went away and came back, or the first bind never began.
    AsBefore,
    /// What a balancer set, in whole or in part.
    Ours,
    /// What somebody else set.
    Foreign,
}

/// CPUs that are there.
pub(crate) fn online(observation: &Observation) -> CpuSet {
    observation.nodes.values().flat_map(|node| node.cpus.iter()).collect()
}

/// The kernel leaves out CPUs that are offline.
pub(crate) fn same(one: &CpuSet, other: &CpuSet, online: &CpuSet) -> bool {
    one.intersection(online) == other.intersection(online)
}

/// What a balancer set, or was setting, for threads that had `before`. Where a cpuset holds only a
/// part of a home's CPUs the kernel leaves out the others.
pub(crate) fn sets_of(record: &ClientRecord, before: &CpuSet) -> Vec<CpuSet> {
    let set = [Some(&record.set), record.pending.as_ref()].into_iter().flatten();
    let narrowed = |set: &CpuSet| [set.clone(), set.intersection(before)];
    set.flat_map(narrowed).filter(|set| !set.is_empty()).collect()
}

/// What a balancer set, or was setting, for threads that go along with all clients of a VM.
pub(crate) fn sets_of_vm(record: &VmRecord, observation: &Observation) -> Vec<CpuSet> {
    let Some(seen) = observation.vms.iter().find(|seen| seen.vm == record.vm) else { return Vec::new() };
    let of = |client: &ClientObservation| record.clients.iter().find(|known| known.client == client.id);
    let union = |each: &dyn Fn(&ClientObservation) -> CpuSet| {
        seen.clients.iter().map(each).fold(CpuSet::new(), |all, cpus| all.union(&cpus))
    };
    let set = |client: &ClientObservation| of(client).map_or_else(|| client.cpus.clone(), |known| known.set.clone());
    // Before a client's bind, and in the middle of it.
    let one = |which: ClientId, cpus: &CpuSet| {
        union(&|client: &ClientObservation| if client.id == which { cpus.clone() } else { set(client) })
    };
    let of_each = record.clients.iter().flat_map(|known| {
        let others = [Some(&known.before), known.pending.as_ref()];
        others.into_iter().flatten().map(|cpus| one(known.client, cpus)).collect::<Vec<_>>()
    });
    of_each.chain([union(&set)]).collect()
}

/// What each vCPU may use, where that is known one by one.
fn by_vcpu(seen: &ClientObservation) -> Option<BTreeMap<u32, CpuSet>> {
    let of_groups = || {
        let groups = seen.groups.iter().map(|seen| &seen.group);
        groups.flat_map(|group| group.vcpus.iter().map(|&vcpu| (vcpu, group.cpus.clone()))).collect()
    };
    let known: BTreeMap<u32, CpuSet> = if seen.vcpu_cpus.is_empty() { of_groups() } else { seen.vcpu_cpus.clone() };
    (known.len() == seen.vcpus as usize).then_some(known)
}

/// A balancer that is killed within a bind leaves some threads bound and others not: each thread is
/// looked at, where they are known one by one.
pub(crate) fn standing(record: &ClientRecord, seen: &ClientObservation, observation: &Observation) -> Standing {
    let online = online(observation);
    let same = |one: &CpuSet, other: &CpuSet| same(one, other, &online);
    let (had, got, gets) = (record.had(), record.got(), record.gets());
    if let Some(each) = by_vcpu(seen) {
        let as_before = |(&vcpu, cpus): (&u32, &CpuSet)| same(cpus, had.of(vcpu));
        let ours = |(&vcpu, cpus): (&u32, &CpuSet)| {
            let before = had.of(vcpu);
            let sets = [Some(&got), gets.as_ref()].into_iter().flatten().map(|set| set.of(vcpu));
            let narrowed = sets.flat_map(|set| [set.clone(), set.intersection(before)]);
            same(cpus, before) || narrowed.filter(|set| !set.is_empty()).any(|set| same(cpus, &set))
        };
        return match each.iter().all(as_before) {
            true => Standing::AsBefore,
            false if each.iter().all(ours) => Standing::Ours,
            false => Standing::Foreign,
        };
    }
    // Only the union is known. Within a bind it may be that of two of ours.
    let before = had.all();
    let all = [Some(got.all()), gets.as_ref().map(Affinity::all)].into_iter().flatten();
    let sets: Vec<CpuSet> =
        all.flat_map(|set| [set.intersection(&before), set]).filter(|set| !set.is_empty()).collect();
    let ours = || sets.iter().chain([&before]);
    let mixed = || ours().flat_map(|one| ours().map(move |other| one.union(other)));
    match record.pending {
        None if same(&seen.cpus, &before) => Standing::AsBefore,
        None if sets.iter().any(|set| same(&seen.cpus, set)) => Standing::Ours,
        Some(_) if mixed().any(|known| same(&seen.cpus, &known)) => Standing::Ours,
        _ => Standing::Foreign,
    }
}
