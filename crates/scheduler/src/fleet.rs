//! Many VMs on one or several machines, together: what fits where.
//!
//! **Problem.** Each of 12 VMs fits the machine; the 12 together may not. Whoever plans them one by
//! one on an empty machine gets 12 times node 0.
//!
//! **Rule.** Large VMs choose first (vCPUs, then memory, then the order given). Each takes the
//! machine where the fewest of its vCPUs are beyond the hardware threads of their nodes, of those
//! the one where least CPU time is lost ([`Plan::lost_milli_cpus`]: what one machine's homes are
//! chosen by), of those the one where it fits best ([`Fit`]), of those the one that it leaves with
//! the least free memory: so machines are filled one after the other as long as nobody loses by it.
//! Every VM sees what those before it hold.
//!
//! **Properties.** A VM that does not fit stops nobody else. No node's memory is promised twice.
//! Same input, same answer.
//!
//! **Example.** Two machines of one node with 32 GiB each, VMs of 20, 16 and 10 GiB: 20 on the
//! first, 16 on the second; 10 fits both (12 and 16 GiB are free) and takes the first, so that 16
//! GiB stay together.

use crate::{Occupancy, plan};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use topology::{Bytes, Machine, NodeId, NodeSet};
use vm::{NodeUse, Plan, Shape};

/// How well a machine holds a VM, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// All of it on one NUMA node: all memory is local.
    OneNode,
    /// On several nodes, each of its virtual nodes on one: the guest sees which memory is local.
    SeveralNodes,
    /// Memory of at least one client lies on several nodes: part of it is remote, and the guest
    /// cannot see which.
    Interleaved,
    /// It does not fit.
    NotAtAll,
}

impl Fit {
    /// How well this plan's machine holds its VM.
    pub fn of(plan: &Plan) -> Self {
        let clients = &plan.placement.clients;
        let homes = clients.iter().fold(NodeSet::new(), |all, client| all.union(&client.home));
        match () {
            () if clients.iter().any(|client| client.home.len() > 1) => Self::Interleaved,
            () if homes.len() > 1 => Self::SeveralNodes,
            () => Self::OneNode,
        }
    }
}

/// A machine of a fleet, and what runs there already ([`Occupancy::of_running`]).
#[derive(Clone, Copy, Debug)]
pub struct FleetMachine<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// What running VMs hold of it.
    pub occupancy: &'a Occupancy,
}

/// What one machine could do for a VM when it was the VM's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetOption {
    /// Name of the machine.
    pub machine: String,
    /// How well it holds the VM beside those that chose before.
    pub fit: Fit,
    /// Why it does not, as a sentence; `None` where it does.
    pub refusal: Option<String>,
}

/// Where a VM of a fleet goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetVm {
    /// The VM's name.
    pub vm: String,
    /// How well its machine holds it; [`Fit::NotAtAll`] where no machine does.
    pub fit: Fit,
    /// Index of its machine in what was given; `None` where no machine holds it.
    pub machine: Option<usize>,
    /// The plan on that machine.
    pub plan: Option<Plan>,
    /// What each machine could do for it, in the order given.
    pub options: Vec<FleetOption>,
}

/// Where the VMs of a fleet go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetPlan {
    /// By VM, in the order of the shapes.
    pub vms: Vec<FleetVm>,
    /// What each machine holds then: what ran there and what was planned.
    pub occupancies: Vec<Occupancy>,
}

/// Plans several VMs together on one or several machines. A VM that fits nowhere is said to, and
/// stops nobody else.
pub fn plan_fleet(machines: &[FleetMachine<'_>], shapes: &[impl AsRef<Shape>]) -> FleetPlan {
    let mut occupancies: Vec<Occupancy> = machines.iter().map(|machine| machine.occupancy.clone()).collect();
    let mut vms: Vec<(usize, FleetVm)> = Vec::with_capacity(shapes.len());
    for index in largest_first(shapes) {
        let vm = choose(machines, &occupancies, shapes[index].as_ref());
        if let (Some(machine), Some(plan)) = (vm.machine, &vm.plan) {
            occupancies[machine].reserve(plan);
        }
        vms.push((index, vm));
    }
    vms.sort_by_key(|&(index, _)| index);
    FleetPlan { vms: vms.into_iter().map(|(_, vm)| vm).collect(), occupancies }
}

/// The order in which VMs that are planned together choose.
pub(crate) fn largest_first(shapes: &[impl AsRef<Shape>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shapes.len()).collect();
    order.sort_by_key(|&index| {
        let shape = shapes[index].as_ref();
        (Reverse((shape.vcpus, shape.memory)), index)
    });
    order
}

fn choose(machines: &[FleetMachine<'_>], occupancies: &[Occupancy], shape: &Shape) -> FleetVm {
    let attempts: Vec<_> =
        machines.iter().zip(occupancies).map(|(host, occupancy)| plan(host.machine, occupancy, shape)).collect();
    let option = |(host, attempt): (&FleetMachine<'_>, &Result<Plan, _>)| FleetOption {
        machine: host.machine.name.clone(),
        fit: attempt.as_ref().map_or(Fit::NotAtAll, Fit::of),
        refusal: attempt.as_ref().err().map(ToString::to_string),
    };
    let options: Vec<FleetOption> = machines.iter().zip(&attempts).map(option).collect();
    let plans = attempts.into_iter().enumerate().filter_map(|(index, attempt)| Some((index, attempt.ok()?)));
    let best = plans.min_by_key(|(index, plan)| {
        let (machine, occupancy) = (machines[*index].machine, &occupancies[*index]);
        let left = free_after(machine, occupancy, plan);
        (beyond_threads(machine, plan), plan.lost_milli_cpus, Fit::of(plan), left, *index)
    });
    let (machine, plan) = best.unzip();
    FleetVm { vm: shape.name.clone(), fit: plan.as_ref().map_or(Fit::NotAtAll, Fit::of), machine, plan, options }
}

/// vCPUs of the VM that its nodes have no hardware threads for: they never run all at once, and
/// nothing pays for that.
fn beyond_threads(machine: &Machine, plan: &Plan) -> u32 {
    let beyond = |(&node, taken): (&NodeId, &NodeUse)| {
        taken.vcpus.saturating_sub(u32::try_from(machine.usable_cpus(node).len()).unwrap_or(u32::MAX))
    };
    plan.holdings.iter().map(beyond).sum()
}

/// Memory that the machine has free when the VM is there.
fn free_after(machine: &Machine, occupancy: &Occupancy, plan: &Plan) -> Bytes {
    let free: Bytes = machine.nodes.iter().map(|node| occupancy.free_memory(node)).sum();
    free.saturating_sub(plan.holdings.values().map(|taken| taken.memory).sum())
}
