//! The CPUs of a home that vCPUs get, of those that it has.
//!
//! **Rule.** Isolated CPUs are for vCPUs that are bound one by one. On a machine with cores of
//! several kinds vCPUs that have one kind keep it, and others get the kind that the planner would
//! give them; where each of them has a core of that kind, one hardware thread of each core, so that
//! no two share one.
//!
//! **Example.** 8 vCPUs on CPUs 0-7 of 8 P cores with two threads each: 0, 2, 4 to 14.

use crate::scene::NodeView;
use crate::shaped::ShapedVm;
use crate::target::{Target, TargetNode};
use std::collections::BTreeSet;
use topology::{CpuSet, HardwareThread, Machine};

impl Target {
    /// The same with the CPUs that vCPUs get on this machine.
    pub(crate) fn on(mut self, machine: &Machine, vm: &ShapedVm, views: &[NodeView<'_>]) -> Self {
        let cpus = machine.schedulable();
        for node in &mut self.nodes {
            node.cpus = cpus.used(&node.cpus);
        }
        if !machine.is_hybrid() {
            return self;
        }
        let planned = self.planned_cpus.clone();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let now = if self.reshaped { None } else { views.get(index).filter(|view| view.bound) };
            let has = now.map(|view| machine.capacities_of(&view.cpus)).filter(|kinds| kinds.len() == 1);
            let wanted = has.or_else(|| planned.as_ref().map(|cpus| machine.capacities_of(cpus)));
            let Some(wanted) = wanted.filter(|kinds| kinds.len() == 1) else { continue };
            let present = node.vcpus.iter().filter(|&vcpu| !vm.absent.contains(vcpu)).count();
            node.cpus = of_kind(machine, node, &wanted, present).unwrap_or_else(|| node.cpus.clone());
        }
        self
    }
}

/// CPUs of a home on cores of these kinds; `None` where they are fewer than vCPUs.
fn of_kind(machine: &Machine, node: &TargetNode, kinds: &BTreeSet<u32>, vcpus: usize) -> Option<CpuSet> {
    let those = || machine.threads.iter().filter(|thread| node.cpus.contains(thread.id) && is_of(thread, kinds));
    let mut cores = BTreeSet::new();
    let first: CpuSet = those().filter(|thread| cores.insert(thread.core)).map(|thread| thread.id).collect();
    let all: CpuSet = those().map(|thread| thread.id).collect();
    [first, all].into_iter().find(|cpus| cpus.len() >= vcpus)
}

fn is_of(thread: &HardwareThread, kinds: &BTreeSet<u32>) -> bool {
    kinds.contains(&thread.core_capacity())
}
