//! What the guest is told of caches and threads that is not so.

use super::{list, vcpus};
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::Scene;
use crate::shape;
use crate::shaped::Part;
use topology::CpuSet;
use topology::words::count;
use vm::qemu::GuestCaches;

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    if scene.vm.guest_unknown {
        return Vec::new();
    }
    let found = [over_nodes(scene), disabled(scene), over_caches(scene), one_for_each(scene), threads(scene)];
    found.into_iter().flatten().collect()
}

fn told(scene: &Scene<'_>) -> String {
    let guest = &scene.vm.guest;
    let caches = match guest.caches {
        GuestCaches::OnePerDie => "",
        GuestCaches::Passthrough => ", caches of the host",
        GuestCaches::Disabled => ", no last-level cache",
    };
    let parts = [(guest.sockets, "socket"), (guest.dies, "die"), (guest.cores, "core"), (guest.threads, "thread")];
    parts.map(|(number, one)| count(number as usize, one)).join(", ") + caches
}

/// A cache that the guest takes to be shared over the boundary of two virtual nodes.
fn over_nodes(scene: &Scene<'_>) -> Option<Finding> {
    let group = shape::crossing(scene.vm, scene.cache_threads())?;
    let mut nodes: Vec<usize> = group.iter().filter_map(|vcpu| scene.node_of_vcpu(vcpu)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let ids: Vec<String> = nodes.iter().map(|&index| scene.views[index].node.id.to_string()).collect();
    let sentence = format!(
        "its guest takes {} to share a last-level cache, and they lie in virtual nodes {}",
        vcpus(&group),
        list(&ids)
    );
    let because = "the guest's kernel wakes threads near the cache that they share: over the boundary that is a cache \
        of another node. \
                   Linux warns (llc-sibling on another node) and may drop its scheduling domains";
    let found = Finding::new("cache_over_nodes", Harm::Misled, sentence, because).seen(told(scene));
    let found = found.at(scene.spots([Part::Topology, Part::Cache]));
    let whole = scene.target.as_ref().is_ok_and(|target| target.reshaped || target.guest != scene.vm.guest);
    let advice = match whole {
        true => "tell it of a socket for each virtual node",
        false => "cut its virtual nodes anew, with vCPUs in a row: no sockets fit into these",
    };
    Some(found.cure(advice, if whole { &[Aspect::Topology] } else { &[] }))
}

fn disabled(scene: &Scene<'_>) -> Option<Finding> {
    if scene.vm.guest.caches != GuestCaches::Disabled || scene.vm.vcpus < 2 {
        return None;
    }
    let sentence = "its guest is told that it has no last-level cache".to_owned();
    let because = "its kernel then takes no two vCPUs to be near each other, and wakes threads far from their data";
    let found = Finding::new("no_cache", Harm::Misled, sentence, because).at(scene.spots([Part::Cache]));
    let advice = "let QEMU tell it of one cache for each socket";
    Some(match shape::would_cross(scene.machine, scene.vm) {
        true => found.cure(advice, &[Aspect::Cache, Aspect::Topology]),
        false => found.cure(advice, &[Aspect::Cache]),
    })
}

/// vCPUs that are told to share a cache and run under several.
fn over_caches(scene: &Scene<'_>) -> Option<Finding> {
    if scene.vm.guest.caches == GuestCaches::Disabled || shape::crossing(scene.vm, scene.cache_threads()).is_some() {
        return None;
    }
    let cpus = |group: &CpuSet| {
        let each = group.iter().map(|vcpu| scene.vm.cpus_of(vcpu.0, &scene.cpus));
        each.fold(CpuSet::new(), |all, set| all.union(&set))
    };
    let groups = scene.vm.cache_groups(scene.cache_threads());
    let (group, caches) = groups
        .iter()
        .filter(|group| group.len() > 1)
        .map(|group| (group, scene.caches_of(&cpus(group)).len()))
        .max_by_key(|(_, caches)| *caches)?;
    // Where nothing keeps them on one node the caches are the least.
    if caches < 2 || !scene.is_bound() || scene.nodes_of(&cpus(group)).len() > 1 {
        return None;
    }
    let sentence =
        format!("its guest takes {} to share a last-level cache, and they may run under {caches}", vcpus(group));
    let because = "threads that its kernel puts side by side for the cache do not share one; a guest is told of a \
        cache for each die";
    let mut found = Finding::new("cache_over_caches", Harm::Misled, sentence, because).note().seen(told(scene));
    found = found.at(scene.spots([Part::Topology, Part::Cache]));
    found.cure.advice =
        "matters to programs that share much data: one virtual node, or die, a cache is then better".to_owned();
    Some(found)
}

fn one_for_each(scene: &Scene<'_>) -> Option<Finding> {
    let guest = &scene.vm.guest;
    let alone = guest.cores * guest.threads * guest.dies == 1 && scene.vm.vcpus >= 4;
    let shares = scene.vm.nodes.iter().any(|node| node.vcpus.len() > 1);
    // Of sockets that its system does not use there is a finding of their own.
    let limited = scene.vm.guest_system.most_sockets().is_some_and(|most| guest.sockets > most);
    if !alone || !shares || limited || guest.caches == GuestCaches::Disabled {
        return None;
    }
    let sentence = "its guest takes each vCPU for a socket with a cache of its own".to_owned();
    let because =
        "its kernel wakes threads far from their data, and systems that are licensed by socket use only a few of them";
    let found = Finding::new("a_socket_for_each_vcpu", Harm::Misled, sentence, because).note().seen(told(scene));
    let mut found = found.at(scene.spots([Part::Topology, Part::Vcpus]).into_iter().take(1));
    let (nodes, socket) = (scene.vm.nodes.len(), shape::largest_socket(scene.vm));
    let sockets = scene.vm.vcpus / socket;
    found.cure.advice = match sockets {
        1 => "tell it of one socket".to_owned(),
        _ if socket == 1 => "sockets are all alike, and no larger ones fit into these virtual nodes: even virtual \
            nodes have room for them"
            .to_owned(),
        _ if sockets as usize == nodes => format!("tell it of {nodes} sockets, one for each virtual node"),
        _ => format!("tell it of {sockets} sockets of {socket} cores: none then lies in two virtual nodes"),
    };
    Some(found)
}

/// Whether vCPUs that the guest takes for threads of one core are on different ones, though their
/// own CPUs in another order would be such threads.
pub(super) fn is_out_of_order(scene: &Scene<'_>) -> bool {
    let now = scene.all_vcpus_cpus();
    let same = |right: &std::collections::BTreeMap<u32, topology::CpuId>| {
        right.len() == now.len() && right.values().all(|&cpu| now.contains(cpu))
    };
    scene.vm.guest.threads > 1 && !scene.threads_are_true() && scene.repinned().is_some_and(same)
}

fn threads(scene: &Scene<'_>) -> Option<Finding> {
    if scene.vm.guest.threads < 2 || scene.threads_are_true() || scene.vm.vcpus < 2 {
        return None;
    }
    let sentence =
        "its guest takes vCPUs for hardware threads of one core, and they may run on different cores".to_owned();
    let because = "its kernel leaves the second of them idle while it takes the core to be busy";
    let found = Finding::new("threads_that_are_none", Harm::Misled, sentence, because).seen(told(scene));
    let found = found.at(scene.spots([Part::Topology]));
    if is_out_of_order(scene) {
        return Some(found.cure("bind them to the same CPUs in another order, core by core", &[Aspect::Pins]));
    }
    Some(found.note().cure("tell it of cores only", &[Aspect::Threads]))
}
