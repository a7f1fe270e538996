//! What keeps a VM from starting, or from starting as it is written.

use super::{cpus, list};
use crate::cramped::free;
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::{Scene, named};
use crate::shaped::Part;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuSet, NodeSet};

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(automatic(scene));
    found.extend(no_such_node(scene));
    found.extend(no_such_cpu(scene));
    found.extend(no_room(scene));
    found.extend(no_room_beside_others(scene));
    found.extend(super::huge_pages::findings(scene));
    found
}

fn automatic(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    if !vm.auto.vcpus && !vm.auto.memory {
        return None;
    }
    let whole = [(vm.auto.vcpus, "vcpu"), (vm.auto.memory, "numatune/memory")];
    let who: Vec<String> =
        whole.iter().filter(|(is, _)| *is).map(|(_, path)| format!("{path}: placement='auto'")).collect();
    let spots = scene.spots([Part::Vcpus, Part::MemoryTune]);
    let own: Vec<String> = vm.nodes.iter().filter(|node| node.own_binding).map(|node| node.id.to_string()).collect();
    // Without a policy of the whole VM memory is placed as the vCPUs are.
    let whole = vm.xml.as_ref().is_some_and(|xml| xml.memory_tune_mode.is_some());
    if (vm.auto.memory || (vm.auto.vcpus && !whole)) && !own.is_empty() {
        let sentence = format!("memory is placed automatically, and <memnode> binds that of {} too", cells(&own));
        let because = "libvirt refuses the two together: per-cell memory and automatic placement exclude each other";
        let found = Finding::new("automatic_with_memnode", Harm::Refused, sentence, because).seen(who.join("; "));
        return Some(found.at(spots).cure("name the homes of the cells instead", &[Aspect::Home]));
    }
    if vm.vnuma {
        let sentence = format!("numad chooses one set of nodes for all {} virtual nodes together", vm.nodes.len());
        let because = "libvirt asks numad once for the whole VM, so that no virtual node has a home of its own: what \
            the guest takes to be local is not";
        let found = Finding::new("automatic_with_cells", Harm::Chance, sentence, because).seen(who.join("; "));
        return Some(found.at(spots).cure("give each cell a home of its own", &[Aspect::Home]));
    }
    let sentence = "numad chooses where the VM lives, once, when it starts".to_owned();
    let because = "the answer depends on what runs at that moment, it is never looked at again, and without numad the \
        VM does not start";
    let found = Finding::new("automatic", Harm::Chance, sentence, because).note().seen(who.join("; "));
    Some(found.at(spots).cure("name its home instead", &[Aspect::Home]))
}

fn cells(ids: &[String]) -> String {
    if ids.len() == 1 { format!("cell {}", list(ids)) } else { format!("cells {}", list(ids)) }
}

fn no_such_node(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let mut missing = NodeSet::new();
    let mut spots = Vec::new();
    let own = scene.views.iter().filter(|view| view.node.own_binding);
    let own = own.filter_map(|view| Some((Part::MemoryNode(view.node.id), view.bound_nodes()?)));
    let whole = vm.memory_tune.as_ref().map(|binding| (Part::MemoryTune, &binding.nodes));
    let without_memory = |node: &topology::NodeId| scene.machine.node(*node).is_none_or(|node| node.memory == Bytes(0));
    for (part, nodes) in own.chain(whole) {
        let lacking: NodeSet = nodes.iter().filter(without_memory).collect();
        if !lacking.is_empty() {
            missing = missing.union(&lacking);
            spots.extend(scene.spots([part]));
        }
    }
    if missing.is_empty() {
        return None;
    }
    let sentence = format!("its memory is bound to {}, which {} has no memory on", named(&missing), scene.machine.name);
    let because = "the kernel refuses to bind memory to a node that is not there, and QEMU ends";
    let found = Finding::new("no_such_node", Harm::Refused, sentence, because).at(spots);
    let found = found.seen(format!("nodes of {}: {}", scene.machine.name, scene.machine.node_ids()));
    Some(found.cure("bind it to its home", &[Aspect::Home]))
}

fn no_such_cpu(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let mut lost = CpuSet::new();
    let mut parts = BTreeSet::new();
    let mut nowhere = false;
    let mut look = |part: Part, set: &CpuSet| {
        let beyond = set.difference(&scene.all);
        if !beyond.is_empty() {
            nowhere |= beyond.len() == set.len();
            lost = lost.union(&beyond);
            parts.insert(part);
        }
    };
    for (&vcpu, set) in &vm.pins {
        look(Part::VcpuPin(vcpu), set);
    }
    if let Some(set) = &vm.emulator {
        look(Part::Emulator, set);
    }
    for (&id, set) in &vm.iothreads {
        set.iter().for_each(|set| look(Part::Iothread(id), set));
    }
    if lost.is_empty() {
        return None;
    }
    let offline: CpuSet =
        scene.machine.threads.iter().map(|thread| thread.id).filter(|&cpu| lost.contains(cpu)).collect();
    let why = if offline.is_empty() { "does not have" } else { "does not have, or not online" };
    let sentence = format!("it is pinned to {}, which {} {why}", cpus(&lost), scene.machine.name);
    let because = match nowhere {
        true => "the kernel refuses an affinity without any CPU that it can use, and the VM does not start",
        false => "the kernel leaves these CPUs out without a word: the VM has fewer than were meant for it",
    };
    let harm = if nowhere { Harm::Refused } else { Harm::Waits };
    let spots = scene.spots(parts);
    let found = Finding::new("no_such_cpu", harm, sentence, because).at(spots);
    let found = found.seen(format!("usable CPUs: {}", scene.all));
    // A virtual node without any CPU has no home yet.
    let homeless = scene.views.iter().any(|view| !view.node.vcpus.is_empty() && view.runs_on.is_empty());
    let changes: &[Aspect] = if homeless {
        &[Aspect::Home, Aspect::Pins, Aspect::OtherThreads]
    } else {
        &[Aspect::Pins, Aspect::OtherThreads]
    };
    Some(found.cure("use the CPUs of its home", changes))
}

/// Virtual nodes that are bound to nodes that cannot hold them together.
fn no_room(scene: &Scene<'_>) -> Vec<Finding> {
    let mut sets: BTreeMap<NodeSet, ()> = BTreeMap::new();
    for view in &scene.views {
        if let Some(binding) = view.node.binding.as_ref().filter(|binding| binding.mode != "preferred") {
            sets.insert(binding.nodes.clone(), ());
        }
    }
    let mut found = Vec::new();
    for nodes in sets.into_keys() {
        let inside: Vec<_> =
            scene.views.iter().filter(|view| view.bound_nodes().is_some_and(|bound| bound.is_subset(&nodes))).collect();
        let (needed, there) =
            (inside.iter().map(|view| view.node.present_memory()).sum::<Bytes>(), scene.memory_of(&nodes));
        if needed <= there || there == Bytes(0) {
            continue;
        }
        let what = match scene.vm.vnuma {
            true => cells(&inside.iter().map(|view| view.node.id.to_string()).collect::<Vec<_>>()),
            false => "the VM".to_owned(),
        };
        let sentence = format!("{needed} of {what} are bound to {}, which has {there}", named(&nodes));
        let because = "memory that is bound and does not fit is not taken elsewhere: the kernel kills the VM when it \
            touches it, or \
                       QEMU does not start where it fills its memory first";
        let spots = inside.iter().flat_map(|view| scene.memory_spots(view)).collect::<Vec<_>>();
        let one = Finding::new("no_room", Harm::Refused, sentence, because).at(spots);
        found.push(one.cure("give it homes that hold it", &[Aspect::Home]));
    }
    found
}

/// A definition that is bound to nodes which would hold it, were the others not there.
fn no_room_beside_others(scene: &Scene<'_>) -> Option<Finding> {
    let strict = |binding: &&crate::Binding| binding.mode == "strict" || binding.mode == "restrictive";
    let mut bound: BTreeMap<&NodeSet, Bytes> = BTreeMap::new();
    for node in scene.vm.nodes.iter().filter(|_| scene.running().is_none()) {
        if let Some(binding) = node.binding.as_ref().filter(strict) {
            let sum = bound.entry(&binding.nodes).or_default();
            *sum = sum.saturating_add(node.present_memory());
        }
    }
    let held = |nodes: &NodeSet| nodes.iter().map(|node| scene.others.of(node).memory).sum::<Bytes>();
    let free = |nodes: &NodeSet| nodes.iter().map(|node| free(scene.machine, &scene.others, node)).sum();
    let is_full = |(nodes, needed): &(&NodeSet, Bytes)| *needed <= scene.memory_of(nodes) && *needed > free(nodes);
    let (nodes, needed) = bound.into_iter().find(is_full)?;
    let sentence = format!(
        "{needed} of it are bound to {}, which has {}, and others hold {} of that",
        named(nodes),
        scene.memory_of(nodes),
        held(nodes)
    );
    let because =
        "memory that is bound and does not fit is not taken elsewhere: the kernel kills a VM, or QEMU does not start";
    let found = Finding::new("no_room_beside_others", Harm::Refused, sentence, because);
    let found = found.at(scene.views.iter().flat_map(|view| scene.memory_spots(view)));
    let others_hold = |target: &crate::Target| target.nodes.iter().any(|node| !node.home.is_subset(nodes));
    match scene.target.as_ref().is_ok_and(others_hold) {
        true => Some(found.cure("give it a home that has room beside them", &[Aspect::Home])),
        false => {
            let mut found = found;
            found.cure.advice = "no home of the machine has room: stop another VM, or take another machine".to_owned();
            Some(found)
        }
    }
}
