//! What is wrong with a VM for a machine, worst first, each with its cure. Pure: the VM is what its XML or its process says.

mod commands;
mod edits;
mod finding;
mod from_domain;
mod patch;
mod rules;
mod scene;
mod shape;
mod target;
mod vm;

pub use finding::{Aspect, Cost, Cure, Finding, Harm, Severity};
pub use patch::CheckedDomain;
pub use vm::{Auto, Binding, GuestCaches, GuestCpus, Part, ProcessFacts, ShapedNode, ShapedVm, Spot, Spots, XmlFacts};

use edits::Change;
use scene::{NodeView, Scene};
use scheduler::Occupancy;
use std::collections::BTreeSet;
use topology::Machine;

/// Judges a VM for a machine on which other VMs hold what `occupancy` says: what is wrong, worst first. Cures have no patch yet: that takes the XML
/// ([`CheckedDomain`]).
pub fn check(machine: &Machine, occupancy: &Occupancy, vm: &ShapedVm) -> Vec<Finding> {
    judge(&scene(machine, occupancy, vm))
}

fn scene<'a>(machine: &'a Machine, occupancy: &Occupancy, vm: &'a ShapedVm) -> Scene<'a> {
    let views = NodeView::all(machine, vm);
    let target = target::target(machine, occupancy, vm, &views);
    let all = machine.usable_threads().map(|thread| thread.id).collect();
    let cpu_nodes = machine.usable_threads().map(|thread| thread.node).collect();
    Scene { machine, vm, all, cpu_nodes, views, target }
}

fn judge(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = rules::all(scene);
    for finding in &mut findings {
        complete(scene, finding);
    }
    findings
}

/// Makes the cure one that can be carried out: where the VM gets other virtual nodes, all that follows from them comes along.
fn complete(scene: &Scene<'_>, finding: &mut Finding) {
    let cure = &mut finding.cure;
    if cure.changes.is_empty() {
        return;
    }
    let target = match &scene.target {
        Ok(target) => target,
        Err(why) => {
            cure.changes.clear();
            cure.restart = false;
            cure.advice = format!("no home can be named: {why}");
            return;
        }
    };
    if target.reshaped {
        let follows = |aspect: &Aspect| !matches!(aspect, Aspect::Cache | Aspect::Helpers);
        if cure.changes.iter().any(follows) {
            cure.changes = cure.changes.iter().copied().filter(|aspect| !follows(aspect)).collect();
            cure.changes.insert(Aspect::Shape);
            cure.advice =
                format!("give it {} virtual nodes anew, each with sockets and a home of its own", target.nodes.len());
        }
    }
    cure.restart = cure.changes.iter().any(|aspect| aspect.needs_restart());
    // What cannot start does not run either.
    if finding.harm != Harm::Refused || scene.vm.process.is_some() {
        cure.commands = commands::commands(scene, target, &cure.changes);
    }
}

/// The edits of some changes.
fn edits_of(scene: &Scene<'_>, changes: &BTreeSet<Aspect>) -> Vec<crate::domain::Edit> {
    scene.target.as_ref().map(|target| Change::new(scene, target, changes).edits()).unwrap_or_default()
}
