//! What a VM may become while it runs: memory that may be plugged in beyond what there is room for.
//! Its vCPUs, and devices that are there already, count with its virtual nodes (`width`).

use crate::finding::{Finding, Harm};
use crate::scene::Scene;
use crate::shaped::Part;
use topology::Bytes;

const BEYOND: &str = "memory that is plugged in without room for it is swapped, or the kernel kills a VM";

const OUTGROWN: &str = "what is plugged in beyond a node of the machine lies on another one, and the guest is not told";

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let vm = scene.vm;
    let (now, most) = (vm.present_memory(), vm.most_memory());
    let there = scene.memory_of(&scene.machine.node_ids());
    // A machine that lacks what it starts with has a finding of its own.
    if most <= now || now > there {
        return Vec::new();
    }
    let name = &scene.machine.name;
    if most > there {
        let sentence = format!("it may grow to {most} of memory, and {name} has {there}");
        let mut found = Finding::new("grows_beyond_machine", Harm::Refused, sentence, BEYOND).note();
        found.cure.advice = "lower what it may have, or take another machine before it grows".to_owned();
        return vec![found.at(scene.spots([Part::MostMemory]))];
    }
    let each = vm.growth_of_each();
    let largest = scene.machine.nodes.iter().map(|node| node.memory).max().unwrap_or_default();
    let outgrows =
        |node: &&crate::ShapedNode| node.most_memory() <= largest && node.most_memory().saturating_add(each) > largest;
    let Some(node) = vm.nodes.iter().find(outgrows).filter(|_| scene.machine.nodes.len() > 1) else {
        return Vec::new();
    };
    let grown: Bytes = node.most_memory().saturating_add(each);
    let which = if vm.vnuma { format!("virtual node {}", node.id) } else { "it".to_owned() };
    let sentence = format!("{which} may grow to {grown}, and nodes of {name} have {largest} at most");
    let mut found = Finding::new("outgrows_its_node", Harm::Misled, sentence, OUTGROWN).note();
    found.cure.advice =
        "give it the virtual nodes for its largest size: `homenode plan` sizes it by max_memory".to_owned();
    vec![found.at(scene.spots([Part::MostMemory]))]
}
