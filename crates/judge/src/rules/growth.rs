//! What a VM may become while it runs: vCPUs and memory that may be plugged in. What it starts with
//! decides where it lives; what may come beyond that is a note, with figures.

use super::list;
use crate::finding::{Aspect, Cost, Finding, Harm};
use crate::presence;
use crate::scene::{NodeView, Scene};
use crate::shape;
use crate::shaped::Part;
use topology::words::count;
use topology::{Bytes, Distances, NodeSet};

const BEYOND: &str = "memory that is plugged in without room for it is swapped, or the kernel kills a VM";

const OUTGROWN: &str = "what is plugged in beyond a node of the machine lies on another one, and the guest is not told";

const CROWDED: &str = "vCPUs that are plugged in beyond the cores of its home share them, or run away from its memory";

const NOBODY: &str = "the vCPUs that run are in other virtual nodes: to them all of this memory is far, and the guest \
    takes it last";

const SIZE_IT: &str = "if it is meant to grow so far, give it the virtual nodes for its largest size: `homenode plan` \
    sizes it by max_vcpus and max_memory";

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    [nobody_there(scene), vcpus(scene), memory(scene)].into_iter().flatten().collect()
}

fn memory(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let (now, most) = (vm.present_memory(), vm.most_memory());
    let there = scene.memory_of(&scene.machine.node_ids());
    // A machine that lacks what it starts with has a finding of its own.
    if most <= now || now > there {
        return None;
    }
    let name = &scene.machine.name;
    if most > there {
        let sentence = format!("it may grow to {most} of memory, and {name} has {there}");
        let mut found = Finding::new("grows_beyond_machine", Harm::Refused, sentence, BEYOND).note();
        found.cure.advice = "lower what it may have, or take another machine before it grows".to_owned();
        return Some(found.at(scene.spots([Part::MostMemory])));
    }
    let each = vm.growth_of_each();
    let largest = scene.machine.nodes.iter().map(|node| node.memory).max().unwrap_or_default();
    let grown = |node: &crate::ShapedNode| node.most_memory().saturating_add(each);
    let outgrows = |node: &&crate::ShapedNode| node.present_memory() <= largest && grown(node) > largest;
    let node = vm.nodes.iter().find(outgrows).filter(|_| scene.machine.nodes.len() > 1)?;
    let which = if vm.vnuma { format!("virtual node {}", node.id) } else { "it".to_owned() };
    let sentence = format!("{which} may grow to {}, and nodes of {name} have {largest} at most", grown(node));
    let mut found = Finding::new("outgrows_its_node", Harm::Misled, sentence, OUTGROWN).note();
    found = found.seen(format!("it starts with {}", node.present_memory()));
    found.cure.advice = SIZE_IT.to_owned();
    Some(found.at(scene.spots([Part::MostMemory])))
}

/// More vCPUs than a node has cores (hardware threads, where those count), once all are there.
fn vcpus(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let by_threads = shape::counts_threads(scene.machine, vm, &scene.views);
    let units = |node: &topology::Node| match by_threads {
        true => scene.machine.usable_cpus(node.id).len(),
        false => scene.machine.usable_cores(node.id).len(),
    };
    let largest = scene.machine.nodes.iter().map(units).max().unwrap_or_default();
    let outgrows = |view: &&NodeView<'_>| {
        let present = vm.present_of(view.node);
        present < view.node.vcpus.len() && present <= largest && view.node.vcpus.len() > largest
    };
    let view = scene.views.iter().find(outgrows)?;
    let noun = if by_threads { count(largest, "hardware thread") } else { count(largest, "core") };
    let sentence = format!(
        "{} may get {}, and nodes of {} have {noun} at most",
        view.called(vm),
        count(view.node.vcpus.len(), "vCPU"),
        scene.machine.name
    );
    let found = Finding::new("vcpus_outgrow_node", Harm::Misled, sentence, CROWDED).note();
    let mut found = found.seen(format!("it starts with {}", vm.present_of(view.node)));
    found.cure.advice = SIZE_IT.to_owned();
    Some(found.at(scene.spots([Part::Vcpus])))
}

/// Memory of virtual nodes of which no vCPU is there at the start.
fn nobody_there(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let idle: Vec<&crate::ShapedNode> = presence::idle(vm).collect();
    let first = idle.first()?;
    let memory: Bytes = idle.iter().map(|node| node.present_memory()).sum();
    let ids: Vec<String> = idle.iter().map(|node| node.id.to_string()).collect();
    let who = if ids.len() == 1 { "virtual node" } else { "virtual nodes" };
    let sentence =
        format!("{memory} of its memory are in {who} {}, with none of the vCPUs that it starts with", list(&ids));
    let seen = format!("{} of {} are there", vm.present(), count(vm.vcpus as usize, "vCPU"));
    let cost = away(scene, &idle);
    let harm = if cost.is_some() { Harm::Waits } else { Harm::Misled };
    let found = Finding::new("memory_without_vcpus", harm, sentence, NOBODY).seen(seen);
    let mut found = found.at(scene.spots([Part::Vcpus, Part::Cell(first.id)]));
    if let Some(cost) = cost {
        found = found.costs(cost);
    }
    if presence::spread(vm).is_none() {
        found.cure.advice =
            "give each virtual node one of the vCPUs that it starts with, or fewer virtual nodes".to_owned();
        return Some(found.note());
    }
    Some(found.cure("start with vCPUs of each virtual node (<vcpus>)", &[Aspect::Presence]))
}

/// What that costs, where such memory is bound away from all that runs.
fn away(scene: &Scene<'_>, idle: &[&crate::ShapedNode]) -> Option<Cost> {
    let is_idle = |view: &&NodeView<'_>| idle.iter().any(|node| node.id == view.node.id);
    let running = scene.views.iter().filter(|view| !is_idle(view));
    let runs_on = running.fold(NodeSet::new(), |all, view| all.union(&view.runs_on));
    let (mut far, mut latency) = (0.0, 0.0);
    for view in scene.views.iter().filter(is_idle) {
        let nodes = view.bound_nodes().filter(|nodes| nodes.intersection(&runs_on).is_empty());
        let Some((to, from)) = nodes.and_then(|nodes| Some((nodes.first()?, runs_on.first()?))) else { continue };
        let bytes = view.node.present_memory().0 as f64;
        far += bytes;
        latency += bytes * f64::from(scene.machine.distance(from, to)) / f64::from(Distances::LOCAL);
    }
    let all = scene.vm.present_memory().0.max(1) as f64;
    (far > 0.0).then(|| Cost::MemoryLatency { remote_share: far / all, factor: (all - far + latency) / all })
}
