//! Virtual nodes that are too large, too many, or uneven.

use super::list;
use crate::finding::{Aspect, Cost, Finding, Harm};
use crate::scene::Scene;
use crate::shape;
use crate::shaped::Part;
use topology::words::{self, count};
use topology::{Bytes, Machine};

const UNSEEN: &str = "a guest that is told of one node takes all memory for equally near: its kernel neither keeps a \
    program's memory local nor its threads together";

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let found = [machine_too_small(scene), too_large(scene), over_several(scene), uneven(scene)];
    found.into_iter().flatten().collect()
}

/// More memory than the machine has: no home can be named.
fn machine_too_small(scene: &Scene<'_>) -> Option<Finding> {
    let there = scene.memory_of(&scene.machine.node_ids());
    if scene.vm.present_memory() <= there || scene.target.is_ok() {
        return None;
    }
    let sentence = format!("it has {} of memory, and {} has {there}", scene.vm.present_memory(), scene.machine.name);
    let because = "what is not there cannot be given: the guest's memory is swapped, or the kernel kills the VM";
    let found = Finding::new("machine_too_small", Harm::Refused, sentence, because);
    let mut found = found.at(scene.spots([Part::Memory]));
    found.cure.advice = "give it less memory, or another machine".to_owned();
    Some(found)
}

/// Most cores, hardware threads and memory of a node.
fn largest(machine: &Machine) -> (usize, usize, Bytes) {
    let cores = machine.nodes.iter().map(|node| machine.usable_cores(node.id).len()).max().unwrap_or_default();
    let threads = machine.nodes.iter().map(|node| machine.usable_cpus(node.id).len()).max().unwrap_or_default();
    let memory = machine.nodes.iter().map(|node| node.memory).max().unwrap_or_default();
    (cores, threads, memory)
}

fn too_large(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let by_threads = shape::counts_threads(&scene.own, vm, &scene.views);
    let large: Vec<_> =
        scene.views.iter().filter(|view| !shape::holds(&scene.own, vm, view.node, by_threads)).collect();
    if large.is_empty() || scene.cpu_nodes.is_empty() {
        return None;
    }
    let (cores, threads, memory) = largest(&scene.own);
    let units = if by_threads { count(threads, "hardware thread") } else { count(cores, "core") };
    let each = |view: &&crate::scene::NodeView<'_>| {
        let vcpus = count(vm.present_of(view.node), "vCPU");
        format!("{}: {vcpus}, {}", view.called(vm), view.node.present_memory())
    };
    let seen = format!(
        "{}; nodes of {} have {units} and {memory} at most",
        large.iter().map(each).collect::<Vec<_>>().join("; "),
        scene.machine.name
    );
    let parts = if vm.vnuma {
        large.iter().map(|view| Part::Cell(view.node.id)).collect()
    } else {
        vec![Part::Vcpus, Part::Memory]
    };
    if scene.machine.nodes.len() == 1 {
        let sentence = format!("it is larger than {}", scene.machine.name);
        let because = "vCPUs beyond the cores wait for each other, and memory beyond the machine's is swapped";
        let found = Finding::new("larger_than_machine", Harm::Waits, sentence, because).note();
        return Some(found.seen(seen).at(scene.spots(parts)));
    }
    let better = scene.target.as_ref().is_ok_and(|target| target.reshaped || target.blocked.is_some());
    let (what, sentence) = match vm.vnuma {
        true => {
            let ids: Vec<String> = large.iter().map(|view| view.node.id.to_string()).collect();
            let be = if ids.len() == 1 { "is" } else { "are" };
            let noun = if ids.len() == 1 { "virtual node" } else { "virtual nodes" };
            ("node_too_large", format!("{noun} {} {be} larger than a node of the machine", list(&ids)))
        }
        false => {
            ("wide_without_vnuma", "no node of the machine holds it, and its guest is told of one node only".to_owned())
        }
    };
    let mut found = Finding::new(what, Harm::Misled, sentence, UNSEEN).seen(seen).at(scene.spots(parts));
    if let Some(cost) = scene.locality(large.iter().copied()).filter(|cost| cost.factor() > 1.0) {
        found = found.costs(cost);
    } else if let Some(cost) = over_home(scene) {
        found = found.costs(cost);
    }
    if !better {
        return Some(found.note());
    }
    let advice = match scene.target.as_ref().map(|target| target.blocked.clone()) {
        Ok(Some(why)) => format!("give it more virtual nodes: {why}"),
        _ => "give it the virtual nodes that the machine has homes for".to_owned(),
    };
    let blocked = scene.target.as_ref().is_ok_and(|target| target.blocked.is_some());
    Some(found.cure(advice, if blocked { &[] } else { &[Aspect::Shape] }))
}

/// What it costs where vCPUs are bound to one node, and memory flows over to others: nothing is
/// known but that.
fn over_home(scene: &Scene<'_>) -> Option<Cost> {
    let view = scene.views.iter().find(|view| view.runs_on.len() == 1)?;
    let home = view.runs_on.first()?;
    let memory = scene.machine.node(home)?.memory;
    let over = view.node.memory.saturating_sub(memory).0 as f64 / view.node.memory.0.max(1) as f64;
    let others = scene.machine.nodes.iter().filter(|node| node.id != home && node.memory.0 > 0);
    let nearest = others.map(|node| scene.machine.distance(home, node.id)).min()?;
    let ratio = f64::from(nearest) / f64::from(topology::Distances::LOCAL);
    (over > 0.0).then_some(Cost::MemoryLatency { remote_share: over, factor: 1.0 + over * (ratio - 1.0) })
}

/// A VM that one node holds, as several virtual nodes: bandwidth for remote memory.
fn over_several(scene: &Scene<'_>) -> Option<Finding> {
    let target = scene.target.as_ref().ok()?;
    if !scene.vm.vnuma || scene.views.len() < 2 || target.reshaped || target.ideal_nodes >= scene.views.len() {
        return None;
    }
    let (count, ideal) = (scene.views.len(), target.ideal_nodes);
    let sentence = format!("it has {count} virtual nodes, and {ideal} of the machine would hold it");
    let because = "more nodes give more memory bandwidth, and remote memory and shared data that travels: good for \
        programs that know of NUMA, else not";
    let cells = scene.spots(scene.views.iter().map(|view| Part::Cell(view.node.id)));
    let found = Finding::new("over_several", Harm::Misled, sentence, because).note().at(cells);
    let (cores, _, memory) = largest(scene.machine);
    let mut found = found.seen(format!(
        "{} vCPUs and {}; nodes of {} and {memory}",
        scene.vm.vcpus,
        scene.vm.memory,
        words::count(cores, "core")
    ));
    found.cure.advice = format!("if it is not meant, plan it anew: `homenode plan` gives it {ideal}");
    Some(found)
}

fn uneven(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let sizes: Vec<usize> = scene.views.iter().map(|view| view.node.vcpus.len()).collect();
    let count = sizes.len();
    let even = sizes.windows(2).all(|pair| pair[0] == pair[1]);
    let cores = |node: &topology::Node| scene.machine.usable_cores(node.id).len();
    let hosts: Vec<usize> = scene.machine.nodes.iter().map(cores).filter(|&cores| cores > 0).collect();
    let even_host = hosts.windows(2).all(|pair| pair[0] == pair[1]);
    if !vm.vnuma || even || !even_host || sizes.contains(&0) || !(vm.vcpus as usize).is_multiple_of(count) {
        return None;
    }
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    let sentence = format!("its virtual nodes have {} vCPUs, on a machine whose nodes are alike", list(&sizes));
    let because = "work that is divided evenly over nodes waits for the one with the fewest vCPUs";
    let cells = scene.spots(scene.views.iter().map(|view| Part::Cell(view.node.id)));
    let mut found = Finding::new("uneven_cells", Harm::Misled, sentence, because).note().at(cells);
    found.cure.advice = format!("{} vCPUs for each, if nothing speaks against it", vm.vcpus as usize / count);
    Some(found)
}
