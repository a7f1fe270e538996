//! Hosts on which NUMA is switched off ([`topology::Machine::node_of_several_sockets`]).

use crate::finding::{Finding, Harm};
use crate::scene::Scene;
use topology::Machine;

/// Of a definition; of VMs that run the host says it once.
pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let found = if scene.running().is_none() { numa_off(scene.machine) } else { None };
    let told = scene.vm.vnuma && scene.views.len() > 1;
    found.map(|found| if told { found } else { found.note() }).into_iter().collect()
}

/// A warning: several sockets are one node.
pub(super) fn numa_off(machine: &Machine) -> Option<Finding> {
    let (node, sockets) = machine.node_of_several_sockets()?;
    let sentence = format!("{sockets} sockets of {} are one NUMA node, {node}: NUMA is switched off", machine.name);
    let because = "memory is dealt out over the sockets page by page, so that most accesses of every VM are remote, and \
        no home and no virtual node changes that";
    let mut found = Finding::new("numa_off", Harm::Chance, sentence, because);
    found.cure.advice = "switch node interleaving off in the BIOS (and take numa=off from the kernel's command line); \
        right only where the processors share one memory controller"
        .to_owned();
    Some(found)
}
