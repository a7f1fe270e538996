//! What a cure of the judge sets in a configuration.

use super::conf::{Conf, Setting, numa_key};
use crate::emit::proxmox::has_gap;
use judge::Change;
use topology::CpuSet;

/// What a change sets, and what it leaves as it is.
pub(super) fn settings(change: &Change<'_>, conf: &Conf) -> Vec<Setting> {
    let (vm, target) = (change.vm(), change.target);
    let mut settings = Vec::new();
    let guest = change.guest();
    if guest != vm.guest {
        settings.push(Setting::new("sockets", u64::from(guest.sockets) * u64::from(guest.dies.max(1))));
        settings.push(Setting::new("cores", guest.cores * guest.threads));
    }
    let bindings = change.bindings();
    if !bindings.is_empty() {
        settings.push(Setting::new("numa", 1));
        if super::dimms::is_on(conf) {
            settings.push(super::refusals::without(conf));
        }
    }
    for (id, mode, home) in &bindings {
        let Some(node) = target.nodes.iter().find(|node| node.id == *id) else { continue };
        let policy = if mode == "strict" { "bind" } else { mode };
        let (cpus, memory) = (node.vcpus.to_string().replace(',', ";"), node.memory.mib());
        let value = match has_gap(home) {
            false => format!("cpus={cpus},hostnodes={home},memory={memory},policy={policy}"),
            // Huge pages are taken from the nodes that are named, and Proxmox starts no VM of them
            // without.
            true if !vm.huge_pages.is_empty() => continue,
            true => format!("cpus={cpus},memory={memory}"),
        };
        settings.push(Setting::new(numa_key(*id), value));
    }
    let gone = vm.nodes.iter().filter(|node| target.reshaped && node.id as usize >= target.nodes.len());
    settings.extend(gone.map(|node| Setting::gone(numa_key(node.id))));
    settings.extend(affinity(change));
    settings.extend(super::args::told_anew(change, conf));
    settings
}

/// CPUs of all homes, for the whole VM; none where they are all that the machine has: that binds
/// nothing.
fn affinity(change: &Change<'_>) -> Option<Setting> {
    let (vm, pins) = (change.vm(), change.pins());
    let homes = change.target.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    let moves = (!pins.vcpus.is_empty() || pins.emulator.is_some()) && !change.binds_each_vcpu();
    if !moves || vm.emulator.as_ref() == Some(&homes) {
        return None;
    }
    match change.usable().0.is_subset(&homes) {
        true => vm.emulator.as_ref().map(|_| Setting::gone("affinity")),
        false => Some(Setting::new("affinity", homes)),
    }
}

/// Virtual nodes that Proxmox cannot bind to their homes, each as a sentence.
pub(super) fn unbound(change: &Change<'_>) -> Vec<String> {
    let gaps = change.bindings().into_iter().filter(|(_, _, home)| has_gap(home));
    gaps.map(|(id, _, home)| {
        format!(
            "the home {home} of virtual node {id} has a gap, and Proxmox hands QEMU only one range of host nodes \
            rightly: its memory stays unbound, and `homenode balance` on that host keeps it at home"
        )
    })
    .collect()
}
