//! vCPUs that share cores or hardware threads without need.

use super::{cpus, vcpus};
use crate::finding::{Aspect, Cost, Finding, Harm};
use crate::pinned::Keeps;
use crate::scene::Scene;
use crate::shaped::Part;
use std::collections::BTreeMap;
use topology::words::count;
use topology::{CpuId, CpuSet};

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let crowded = shared_threads(scene);
    let mut found: Vec<Finding> = crowded.iter().cloned().collect();
    if crowded.is_none() {
        found.extend(siblings(scene));
    }
    found.extend(pinned_alone(scene));
    found.extend(shared_home(scene));
    found.extend(one_to_one(scene));
    found
}

/// Virtual nodes on one node of the machine that lacks cores for them together, though others have
/// them.
fn shared_home(scene: &Scene<'_>) -> Option<Finding> {
    let target = scene.target.as_ref().ok().filter(|target| !target.reshaped)?;
    for node in scene.cpu_nodes.iter() {
        let here: Vec<usize> = (0..scene.views.len())
            .filter(|&index| scene.views[index].bound && scene.views[index].runs_on.iter().eq([node]))
            .collect();
        let vcpus: usize = here.iter().map(|&index| scene.vm.present_of(scene.views[index].node)).sum();
        let cores = scene.machine.usable_cores(node).len();
        let apart = here.iter().any(|&index| !target.nodes[index].home.contains(node));
        if here.len() < 2 || vcpus <= cores || !apart {
            continue;
        }
        let ids: Vec<String> = here.iter().map(|&index| scene.views[index].node.id.to_string()).collect();
        let sentence =
            format!("virtual nodes {} share node {node}, while other nodes have free cores", super::list(&ids));
        let because =
            "they compete for the cores and for the memory bandwidth of one node, and the guest takes them to be apart";
        let found = Finding::new("shared_home", Harm::Waits, sentence, because);
        let found = found.seen(format!("{vcpus} vCPUs on node {node}, which has {}", count(cores, "core")));
        let spots = here.iter().flat_map(|&index| scene.pin_spots(&scene.views[index]));
        return Some(found.at(spots).cure("give each a node of its own", &[Aspect::Home]));
    }
    None
}

/// Sets of CPUs to which vCPUs are pinned, as far as the machine has such CPUs, and which they are.
/// Those that are not there yet take no turn.
fn pins(scene: &Scene<'_>) -> BTreeMap<CpuSet, CpuSet> {
    let pinned = scene.vm.pins.iter().map(|(&vcpu, set)| (set, CpuId(vcpu)));
    let vcpus = vcpus_by_pin(pinned.filter(|&(_, vcpu)| !scene.vm.absent.contains(vcpu)));
    let usable = vcpus.into_iter().map(|(set, vcpus)| (scene.cpus.used(set), vcpus));
    let mut pins = BTreeMap::<CpuSet, CpuSet>::new();
    for (set, vcpus) in usable.filter(|(set, _)| !set.is_empty()) {
        pins.entry(set).or_default().extend(vcpus);
    }
    pins
}

fn vcpus_by_pin<'a>(pins: impl Iterator<Item = (&'a CpuSet, CpuId)>) -> BTreeMap<&'a CpuSet, Vec<CpuId>> {
    let mut by_pin = BTreeMap::<&CpuSet, Vec<CpuId>>::new();
    pins.for_each(|(set, vcpu)| by_pin.entry(set).or_default().push(vcpu));
    by_pin
}

/// More vCPUs on a set of CPUs than that has, though a wider set would do.
fn shared_threads(scene: &Scene<'_>) -> Option<Finding> {
    let pins = pins(scene);
    let target = scene.target.as_ref().ok()?;
    let mut worst: Option<(f64, CpuSet, CpuSet)> = None;
    for set in pins.keys() {
        let inside: CpuSet =
            pins.iter().filter(|(pin, _)| pin.is_subset(set)).flat_map(|(_, vcpus)| vcpus.iter()).collect();
        let wider = target.nodes.iter().filter(|node| !node.vcpus.intersection(&inside).is_empty());
        let wider = wider.fold(CpuSet::new(), |all, node| all.union(&node.cpus));
        let factor = inside.len() as f64 / set.len() as f64;
        // vCPUs that may use every CPU there is share them whatever is written.
        if inside.len() <= set.len() || (wider.len() <= set.len() && scene.cpus.balanced.len() <= set.len()) {
            continue;
        }
        worst = match worst {
            Some((most, vcpus, cpus)) if factor == most => Some((most, vcpus.union(&inside), cpus.union(set))),
            Some(worse) if factor < worse.0 => Some(worse),
            _ => Some((factor, inside, set.clone())),
        };
    }
    let (factor, inside, set) = worst?;
    let sentence = format!("{} have only {} between them", vcpus(&inside), cpus(&set));
    let because =
        "vCPUs that share a hardware thread run in turn: while one waits, whatever the guest locked with it waits too";
    let found = Finding::new("shared_hardware_thread", Harm::Waits, sentence, because);
    let mut found =
        found.at(scene.spots(inside.iter().map(|vcpu| Part::VcpuPin(vcpu.0)))).costs(Cost::CpuTime { factor });
    let homes = target.nodes.iter().filter(|node| !node.vcpus.intersection(&inside).is_empty());
    let cpus = homes.fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    if scene.pinned.is_some() {
        return Some(one_each(scene, found));
    }
    if cpus.is_subset(&set) {
        found.cure.advice = "no home of the machine has more for them: give it fewer vCPUs".to_owned();
        return Some(found);
    }
    Some(found.cure("give each of them all CPUs of its home", &changes(scene)))
}

/// vCPUs that are pinned to one CPU each while the others float.
fn pinned_alone(scene: &Scene<'_>) -> Option<Finding> {
    let narrow = |(&vcpu, pin): (&u32, &CpuSet)| (scene.cpus.used(pin).len() == 1).then_some(CpuId(vcpu));
    let alone: CpuSet = scene.vm.pins.iter().filter_map(narrow).collect();
    let numbers = scene.vm.numbers();
    let floating = numbers.iter().any(|vcpu| scene.cpus.floats(&scene.vm.cpus_of(vcpu.0, &scene.cpus)));
    if alone.is_empty() || !floating || scene.all.len() < 2 {
        return None;
    }
    let each = alone.iter().map(|vcpu| format!("vCPU {vcpu}: CPU {}", scene.vm.cpus_of(vcpu.0, &scene.cpus)));
    let sentence = format!("{} may use one CPU only, and the others any", vcpus(&alone));
    let because = "whatever else runs on that CPU stops it, and the guest's other vCPUs wait for what it has locked";
    let found = Finding::new("pinned_alone", Harm::Chance, sentence, because).seen(each.collect::<Vec<_>>().join("; "));
    let mut found = found.at(scene.spots(alone.iter().map(|vcpu| Part::VcpuPin(vcpu.0))));
    let apart = |vcpu: CpuId| scene.vm.cpus_of(vcpu.0, &scene.cpus).is_subset(&scene.machine.isolated);
    if scene.pinned.is_none() && alone.iter().any(apart) {
        found.cure.advice = "bind the others to isolated CPUs too, one each".to_owned();
        return Some(found);
    }
    Some(found.cure("give all of them all CPUs of its home", &changes(scene)))
}

/// vCPUs that share cores, and where that was seen.
struct Crowded {
    vcpus: CpuSet,
    seen: Vec<String>,
}

/// More vCPUs on a node than the cores that they are pinned to, while others of that kind are idle:
/// as strong, and isolated or not.
fn crowded(scene: &Scene<'_>) -> Option<Crowded> {
    let pins: Vec<_> = pins(scene).into_iter().map(|(set, vcpus)| (scene.nodes_of(&set), set, vcpus)).collect();
    let mut crowded = Crowded { vcpus: CpuSet::new(), seen: Vec::new() };
    for here in scene.cpu_nodes.iter() {
        let those = || pins.iter().filter(|(nodes, ..)| nodes.iter().eq([here]));
        let vcpus: CpuSet = those().flat_map(|(_, _, vcpus)| vcpus.iter()).collect();
        let set = those().fold(CpuSet::new(), |all, (_, set, _)| all.union(set));
        let kinds = scene.machine.capacities_of(&set);
        let usable =
            if set.is_subset(&scene.machine.isolated) { &scene.machine.isolated } else { &scene.cpus.balanced };
        let alike: CpuSet = scene
            .machine
            .bindable_threads()
            .filter(|thread| {
                thread.node == here && usable.contains(thread.id) && kinds.contains(&thread.core_capacity())
            })
            .map(|thread| thread.id)
            .collect();
        let (used, there) = (scene.cores_of(&set).len(), scene.cores_of(&alike).len());
        if vcpus.len() > used && vcpus.len() <= set.len() && used < there {
            let (many, cores) = (count(vcpus.len(), "vCPU"), count(used, "core"));
            let of_kind = if scene.machine.is_hybrid() { " of that kind" } else { "" };
            crowded.seen.push(format!("{many} on {cores} (CPUs {set}) of node {here}, which has {there}{of_kind}"));
            crowded.vcpus = crowded.vcpus.union(&vcpus);
        }
    }
    (!crowded.vcpus.is_empty()).then_some(crowded)
}

fn siblings(scene: &Scene<'_>) -> Option<Finding> {
    let Crowded { vcpus: those, seen } = crowded(scene)?;
    // Among isolated CPUs nothing is balanced, and where threads of one virtual core are on two
    // cores, their order is wrong: rules of their own.
    if super::isolated::unbalanced(scene).is_some() || super::caches::is_out_of_order(scene) {
        return None;
    }
    let sentence = format!("{} share cores while other cores of the node are left", vcpus(&those));
    let because =
        "two hardware threads of a core share its units and caches: together they do little more than one alone";
    let found = Finding::new("siblings", Harm::Waits, sentence, because).seen(seen.join("; "));
    let found = found.at(scene.spots(those.iter().map(|vcpu| Part::VcpuPin(vcpu.0))));
    // Told of threads, and with each virtual core on one core, the guest knows: cores are left for
    // others on purpose.
    let knows = scene.threads_are_true();
    let mut found = if knows { found.note() } else { found };
    match scene.pinned {
        _ if knows => {
            found.cure.advice = "right where the cores that are left are for QEMU and the host".to_owned();
            Some(found)
        }
        Some(_) if scene.repinned().is_some() => Some(one_each(scene, found)),
        Some(_) => {
            found.cure.advice = "no other core of their kind is free, but those of its other threads and of other \
                VMs: tell the guest of threads, or give it fewer vCPUs"
                .to_owned();
            Some(found.note())
        }
        None if scene.machine.is_hybrid() => {
            Some(found.cure("give them other cores of their kind too", &changes(scene)))
        }
        None => Some(found.cure("give each of them all CPUs of its home", &changes(scene))),
    }
}

/// The cure of pins that stay pins.
fn one_each(scene: &Scene<'_>, mut found: Finding) -> Finding {
    match scene.repinned() {
        Some(_) => found.cure("give each of them a CPU of its own, and keep the other pins", &[Aspect::Pins]),
        None => {
            found.cure.advice =
                "its home has no free CPU of their kind for each of them: give it fewer vCPUs, or free \
                (isolate) more CPUs"
                    .to_owned();
            found
        }
    }
}

fn one_to_one(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let target = scene.target.as_ref().ok()?;
    let wider = target.nodes.iter().any(|node| node.cpus.len() > node.vcpus.len());
    let chosen = scene.pinned.as_ref().is_some_and(|pinned| pinned.keeps == Keeps::OneToOne);
    if !chosen || vm.vcpus < 2 || !wider {
        return None;
    }
    let sentence = "each vCPU is pinned to one hardware thread".to_owned();
    let because = "the kernel cannot step aside when something else wants that thread; right where nothing else ever \
        does (isolated CPUs, real time)";
    let found = Finding::new("one_to_one_pins", Harm::Chance, sentence, because).note();
    let mut found = found.at(scene.spots((0..vm.vcpus).map(Part::VcpuPin)).into_iter().take(1));
    found.cure.advice =
        "keep them where nothing else uses these CPUs; else take them out: `homenode plan` gives each vCPU all CPUs of \
         its home"
            .to_owned();
    Some(found)
}

/// vCPUs that move among all CPUs of a node are no threads of one core any more.
fn changes(scene: &Scene<'_>) -> Vec<Aspect> {
    let told = scene.vm.guest.threads > 1 && scene.pinned.is_none();
    if told { vec![Aspect::Pins, Aspect::Threads] } else { vec![Aspect::Pins] }
}
