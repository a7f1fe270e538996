//! Several VMs that are only defined, on one machine: what each is judged beside.
//!
//! **Problem.** Judged one by one, 12 copies of a domain all get the same node, which holds 8 of
//! them.
//!
//! **Rule.** VMs whose definitions name homes that hold them come first, then the others; large
//! ones before small ones. Each sees what those before it hold, where they will live when they are
//! cured.
//!
//! **Example.** Nodes of 512 GiB, 12 domains of 64 GiB bound to node 0: 8 stay there, 4 go to node
//! 1.

use crate::pinned::{self, Keeps};
use crate::rules::{self, huge_pages};
use crate::scene::NodeView;
use crate::shaped::{HugePages, ShapedVm};
use crate::target::{self, Target};
use scheduler::Occupancy;
use std::cmp::Reverse;
use topology::{Bytes, CpuId, CpuSet, Machine, NodeId, NodeSet};
use vm::NodeUse;

/// What each of some VMs is judged beside, and where it will live; in the order of `vms`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// What others hold: those that run, and those of the VMs that choose before it.
    pub others: Occupancy,
    /// Nodes of all its homes; empty where none can be named.
    pub homes: NodeSet,
}

/// Solves the homes of some definitions together, beside what `running` says.
pub fn together(machine: &Machine, running: &Occupancy, vms: &[ShapedVm]) -> Vec<Beside> {
    let mut order: Vec<usize> = (0..vms.len()).collect();
    let settled = |vm: &ShapedVm| NodeView::all(machine, vm).iter().all(|view| view.bound && view.runs_on.len() == 1);
    order
        .sort_by_key(|&index| (!settled(&vms[index]), Reverse((vms[index].vcpus, vms[index].present_memory())), index));
    let mut ledger = running.clone();
    let mut all = vec![Beside::default(); vms.len()];
    for index in order {
        let (vm, others) = (&vms[index], ledger.clone());
        let views = NodeView::all(machine, vm);
        let keeps = pinned::keeps(machine, vm, &views);
        let target = target::target(&pinned::machine_of(machine, keeps), &others, vm, &views);
        let mut homes = NodeSet::new();
        if let Ok(target) = target {
            homes = target.nodes.iter().fold(homes, |all, node| all.union(&node.home));
            hold(&mut ledger, machine, &target, vm);
            ledger.bound_cpus = ledger.bound_cpus.union(&bound_alone(machine, keeps, &homes, &views));
            rules::hold_latency_sensitive(&mut ledger, machine, vm);
        }
        all[index] = Beside { others, homes };
    }
    all
}

/// CPUs that vCPUs keep which are bound one by one, where they are at home.
fn bound_alone(machine: &Machine, keeps: Option<Keeps>, homes: &NodeSet, views: &[NodeView<'_>]) -> CpuSet {
    let cpus = views.iter().fold(CpuSet::new(), |all, view| all.union(&view.cpus));
    let kept = keeps == Some(Keeps::OneToOne) || keeps == Some(Keeps::RealTime);
    let at_home = |cpu: &CpuId| machine.thread(*cpu).is_some_and(|thread| homes.contains(thread.node));
    if kept { cpus.iter().filter(at_home).collect() } else { CpuSet::new() }
}

/// Adds what a VM will hold: memory in equal parts on the nodes of a home, and vCPUs in turn, but
/// those that are plugged in later; what devices give at the start counts.
fn hold(ledger: &mut Occupancy, machine: &Machine, target: &Target, vm: &ShapedVm) {
    for node in &target.nodes {
        let (home, there) = (node.home.iter().collect::<Vec<_>>(), node.vcpus.difference(&node.absent).len());
        let memory = node.memory.saturating_add(vm.plugged_of(node.id));
        let part = Bytes(memory.0.div_ceil(home.len().max(1) as u64));
        if let Some(page) = page_of(machine, vm, node.id) {
            ledger.promise_pages(page, home.iter().map(|&id| (id, part)));
        }
        for (index, &id) in home.iter().enumerate() {
            let vcpus = (there + home.len() - 1 - index) / home.len();
            let held: &mut NodeUse = ledger.nodes.entry(id).or_default();
            held.memory = held.memory.saturating_add(part);
            held.vcpus = held.vcpus.saturating_add(vcpus as u32);
        }
    }
}

/// Size of the huge pages that a virtual node is made of.
fn page_of(machine: &Machine, vm: &ShapedVm, node: u32) -> Option<Bytes> {
    let is_meant = |pages: &&HugePages| pages.cells.as_ref().is_none_or(|cells| cells.contains(NodeId(node)));
    vm.huge_pages.iter().find(is_meant).and_then(|pages| huge_pages::size(machine, pages))
}
