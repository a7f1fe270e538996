//! What is wrong with a VM: the one judge of a definition ([`definition`]) and of a VM that runs.
//! Pure: data in, findings out.
//!
//! **Problem.** The same question was answered in several places, and the answers differed: a fault
//! was a problem in a definition and a warning in the VM that was started from it.
//!
//! **Rule.** Both become a [`ShapedVm`], and the same rules look at it. A [`Finding`] has one name
//! for each kind of fault, and its severity follows from the harm that this fault does. One answer
//! underlies all cures of a VM ([`Target`]), so that they fit together.
//!
//! **Properties.** A VM that runs exactly as it is defined has the findings of its definition, but
//! for what follows from another home. The home of a VM that runs is not chosen here: it is where
//! the balancer would bring it ([`scheduler::balance::homes`]). Curing twice changes nothing.
//!
//! **Example.** Four vCPUs as one virtual socket over two virtual nodes: `cache_over_nodes`, a
//! warning; the cure is a socket for each node.

mod change;
mod commands;
mod cramped;
mod finding;
mod guest_system;
mod kinds;
mod overcommit;
mod pinned;
mod presence;
mod repair;
mod rules;
mod running;
mod scene;
mod shape;
mod shaped;
mod target;
mod together;

pub use change::{Change, NewPins};
pub use cramped::Cramped;
pub use finding::{Accepted, Aspect, Cost, Cure, Finding, Harm, Repair, Severity};
pub use guest_system::GuestSystem;
pub use overcommit::{Overcommit, overcommitted};
pub use repair::{Mending, Tried, mend};
pub use running::{Believed, Known};
pub use shaped::{Auto, Binding, BoundDevice, HugePages, Part, Running, ShapedNode, ShapedVm, Spot, Spots, XmlFacts};
pub use target::{NoTarget, Target, TargetNode};
pub use together::{Beside, together};

use pinned::{Keeps, Pinned};
use scene::{NodeView, Scene};
use scheduler::{Mobility, Observation, Occupancy, VmKey};
use std::collections::BTreeSet;
use topology::{CpuSet, Machine, NodeSet};

/// What was found, and what is needed to write the cures in the language of a stack.
#[derive(Debug)]
pub struct Judgement<'a> {
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    scene: Scene<'a>,
}

impl Judgement<'_> {
    /// What a cure of these aspects changes; `None` where no home can be named.
    pub fn change<'a>(&'a self, aspects: &'a BTreeSet<Aspect>) -> Option<Change<'a>> {
        self.try_change(aspects).ok()
    }

    /// As [`change`](Self::change).
    ///
    /// # Errors
    /// Why no home can be named.
    pub fn try_change<'a>(&'a self, aspects: &'a BTreeSet<Aspect>) -> Result<Change<'a>, NoTarget> {
        let target = self.scene.target.as_ref().map_err(Clone::clone)?;
        Ok(Change::new(&self.scene, target, aspects))
    }
}

/// Findings that need doing: all but notes and what somebody accepted.
pub fn wrong(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.needs_doing()).count()
}

/// Judges a VM that is only defined, for a machine on which others hold what `others` says.
pub fn definition<'a>(machine: &'a Machine, others: &Occupancy, vm: &'a ShapedVm) -> Judgement<'a> {
    judged(machine, others.clone(), vm, None)
}

/// Judges one VM of a host that was [examined](scheduler::Observe::examine); nothing where it is
/// not there.
pub fn running_vm(machine: &Machine, host: &Observation, vm: &VmKey, known: &Known) -> Vec<Finding> {
    let Some(seen) = host.vms.iter().find(|seen| seen.vm == *vm) else { return Vec::new() };
    let shaped = ShapedVm::of_running(machine, seen, known);
    judged(machine, running::others(machine, host, vm), &shaped, Some(host)).findings
}

/// Judges a host that was [examined](scheduler::Observe::examine): its VMs and its settings, worst
/// first.
pub fn host(machine: &Machine, host: &Observation, known: &Known) -> Vec<Finding> {
    let vms = host.vms.iter().flat_map(|seen| running_vm(machine, host, &seen.vm, known));
    let mut findings: Vec<Finding> = rules::host::findings(machine, host).into_iter().chain(vms).collect();
    findings.sort_by(Finding::order);
    findings
}

fn judged<'a>(
    machine: &'a Machine,
    others: Occupancy,
    vm: &'a ShapedVm,
    host: Option<&'a Observation>,
) -> Judgement<'a> {
    let views = NodeView::all(machine, vm);
    let keeps = pinned::keeps(machine, vm, &views);
    let own = pinned::machine_of(machine, keeps);
    let target = target::target(&own, &others, vm, &views).map(|target| target.on(machine, vm, &views));
    let cpus = machine.schedulable();
    let (all, cpu_nodes) = (cpus.bindable.clone(), scheduler::home::nodes_with_cpus(machine));
    let pinned = keeps.and_then(|keeps| pinned_of(machine, vm, keeps, &target, &others));
    let scene = Scene { machine, own, vm, all, cpus, cpu_nodes, views, target, pinned, others, host };
    let mut findings = rules::all(&scene);
    findings.iter_mut().for_each(|finding| complete(&scene, finding));
    findings.extend(rules::balancer::findings(&scene, &findings));
    Judgement { findings, scene }
}

const NO_CPU_OF_ITS_OWN: &str = "nothing is bound: its vCPUs are isolated or of a real-time class, and the home has no \
    free CPU of that kind for each of them: isolate more CPUs, or give it fewer vCPUs";

/// The pins of a VM that stay pins, on the homes where it should live.
fn pinned_of(
    machine: &Machine,
    vm: &ShapedVm,
    keeps: Keeps,
    target: &Result<Target, NoTarget>,
    others: &Occupancy,
) -> Option<Pinned> {
    let target = target.as_ref().ok()?;
    let cpus = |home: &NodeSet| home.iter().fold(CpuSet::new(), |all, node| all.union(&machine.bindable_cpus(node)));
    let homes = target.nodes.iter().map(|node| (node.vcpus.clone(), cpus(&node.home)));
    let threads = if target.reshaped { 1 } else { target.guest.threads.max(1) };
    Some(pinned::pinned(machine, vm, keeps, &homes.collect(), &others.bound_cpus, threads))
}

/// Makes the cure one that can be carried out: where the VM gets other virtual nodes, all that
/// follows from them comes along.
fn complete(scene: &Scene<'_>, finding: &mut Finding) {
    finding.vm = Some(scene.vm.name.clone());
    finding.process = scene.running().map(|running| running.seen.vm.pid);
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
    let places = |aspect: &Aspect| matches!(aspect, Aspect::Shape | Aspect::Home | Aspect::Pins | Aspect::OtherThreads);
    if let Some(why) = &target.cramped
        && cure.changes.iter().any(places)
    {
        cure.changes.clear();
        cure.restart = false;
        cure.advice = format!("nothing is bound: {why}");
        return;
    }
    if target.reshaped {
        let follows = |aspect: &Aspect| !matches!(aspect, Aspect::Cache | Aspect::OtherThreads);
        if cure.changes.iter().any(follows) {
            cure.changes = cure.changes.iter().copied().filter(|aspect| !follows(aspect)).collect();
            cure.changes.insert(Aspect::Shape);
            cure.advice =
                format!("give it {} virtual nodes anew, each with sockets of its own, at its home", target.nodes.len());
        }
    }
    // Bound node by node, each virtual node needs a vCPU that is there.
    if cure.changes.iter().any(places) && presence::spread(scene.vm).is_some() {
        cure.changes.insert(Aspect::Presence);
    }
    cure.restart = cure.changes.iter().any(|aspect| aspect.needs_restart());
    let change = Change::new(scene, target, &cure.changes);
    if scene.never_floats() && change.pins().vcpus.iter().any(|(_, cpus)| cpus.len() > 1) {
        cure.changes.clear();
        cure.restart = false;
        cure.advice = NO_CPU_OF_ITS_OWN.to_owned();
        return;
    }
    // What cannot start does not run either.
    if finding.harm != Harm::Refused || scene.running().is_some() {
        cure.commands = commands::commands(&change);
    }
    if cure.changes.iter().any(|aspect| matches!(aspect, Aspect::Home | Aspect::Pins))
        && let Some(does) = rules::balancer::does(scene)
    {
        cure.advice = format!("{} ({does})", cure.advice);
    }
    if let Some(running) = scene.running() {
        cure.repairs = repair::of_change(&change, running);
        if let Mobility::Fixed { because } | Mobility::MemoryFixed { because } = &running.seen.mobility {
            // What keeps its threads or its memory in place is no matter for what the guest is
            // told.
            if cure.changes.is_empty() || cure.changes.iter().any(|aspect| !aspect.needs_restart()) {
                cure.advice = format!("{} ({because})", cure.advice);
            }
        }
    }
}
