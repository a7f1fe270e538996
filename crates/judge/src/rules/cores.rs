//! vCPUs that share cores or hardware threads without need.

use super::{cpus, vcpus};
use crate::finding::{Aspect, Cost, Finding, Harm};
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
    let usable = vcpus.into_iter().map(|(set, vcpus)| (set.intersection(&scene.all), vcpus));
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
        if inside.len() <= set.len() || (wider.len() <= set.len() && scene.all.len() <= set.len()) {
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
    if cpus.is_subset(&set) {
        found.cure.advice = "no home of the machine has more for them: give it fewer vCPUs".to_owned();
        return Some(found);
    }
    Some(found.cure("give each of them all CPUs of its home", &changes(scene)))
}

/// vCPUs that are pinned to one CPU each while the others float.
fn pinned_alone(scene: &Scene<'_>) -> Option<Finding> {
    let narrow = |(&vcpu, pin): (&u32, &CpuSet)| (pin.intersection(&scene.all).len() == 1).then_some(CpuId(vcpu));
    let alone: CpuSet = scene.vm.pins.iter().filter_map(narrow).collect();
    let numbers = scene.vm.numbers();
    let floating = numbers.iter().any(|vcpu| scene.all.is_subset(&scene.vm.cpus_of(vcpu.0, &scene.all)));
    if alone.is_empty() || !floating || scene.all.len() < 2 {
        return None;
    }
    let each = alone.iter().map(|vcpu| format!("vCPU {vcpu}: CPU {}", scene.vm.cpus_of(vcpu.0, &scene.all)));
    let sentence = format!("{} may use one CPU only, and the others any", vcpus(&alone));
    let because = "whatever else runs on that CPU stops it, and the guest's other vCPUs wait for what it has locked";
    let found = Finding::new("pinned_alone", Harm::Chance, sentence, because).seen(each.collect::<Vec<_>>().join("; "));
    let found = found.at(scene.spots(alone.iter().map(|vcpu| Part::VcpuPin(vcpu.0))));
    Some(found.cure("give all of them all CPUs of its home", &changes(scene)))
}

/// More vCPUs on a node than the cores that they are pinned to, while others of that node are idle.
fn siblings(scene: &Scene<'_>) -> Option<Finding> {
    let pins: Vec<_> = pins(scene).into_iter().map(|(set, vcpus)| (scene.nodes_of(&set), set, vcpus)).collect();
    let mut seen = Vec::new();
    let mut crowded = CpuSet::new();
    for here in scene.cpu_nodes.iter() {
        let those = || pins.iter().filter(|(nodes, ..)| nodes.iter().eq([here]));
        let vcpus: CpuSet = those().flat_map(|(_, _, vcpus)| vcpus.iter()).collect();
        let set = those().fold(CpuSet::new(), |all, (_, set, _)| all.union(set));
        let (used, there) = (scene.cores_of(&set).len(), scene.machine.usable_cores(here).len());
        if vcpus.len() > used && vcpus.len() <= set.len() && used < there {
            let (many, cores) = (count(vcpus.len(), "vCPU"), count(used, "core"));
            seen.push(format!("{many} on {cores} (CPUs {set}) of node {here}, which has {there}"));
            crowded = crowded.union(&vcpus);
        }
    }
    if crowded.is_empty() {
        return None;
    }
    let sentence = format!("{} share cores while other cores of the node are left", vcpus(&crowded));
    let because =
        "two hardware threads of a core share its units and caches: together they do little more than one alone";
    let found = Finding::new("siblings", Harm::Waits, sentence, because).seen(seen.join("; "));
    let found = found.at(scene.spots(crowded.iter().map(|vcpu| Part::VcpuPin(vcpu.0))));
    // Told of threads, and with each virtual core on one core, the guest knows: cores are left for
    // others on purpose.
    let found = if scene.threads_are_true() { found.note() } else { found };
    Some(found.cure("give each of them all CPUs of its home", &changes(scene)))
}

fn one_to_one(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let single = vm.pins.values().all(|set| set.len() == 1) && vm.pins.len() == vm.vcpus as usize;
    let target = scene.target.as_ref().ok()?;
    let wider = target.nodes.iter().any(|node| node.cpus.len() > node.vcpus.len());
    if !single || vm.vcpus < 2 || !wider {
        return None;
    }
    let sentence = "each vCPU is pinned to one hardware thread".to_owned();
    let because = "the kernel cannot step aside when something else wants that thread; right where nothing else ever \
        does (isolated CPUs, real time)";
    let found = Finding::new("one_to_one_pins", Harm::Chance, sentence, because).note();
    let found = found.at(scene.spots((0..vm.vcpus).map(Part::VcpuPin)).into_iter().take(1));
    Some(found.cure("homenode gives each vCPU all CPUs of its home", &changes(scene)))
}

/// vCPUs that move among all CPUs of a node are no threads of one core any more.
fn changes(scene: &Scene<'_>) -> Vec<Aspect> {
    if scene.vm.guest.threads > 1 { vec![Aspect::Pins, Aspect::Threads] } else { vec![Aspect::Pins] }
}
