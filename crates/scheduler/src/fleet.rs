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
//! What other VMs do is a guess, so that it decides less than what is sure:
//!
//! - a machine where the VM fits better is taken if it loses more only if others are busy on the
//!   cores that it shares with them: nothing is cut for that;
//! - where memory would lie away from its vCPUs, that machine is taken where the least is lost
//!   whatever others do.
//!
//! Every VM sees what those before it hold, and what hypervisor and host need beside them
//! ([`Beside`]).
//!
//! **Properties.** A VM that does not fit stops nobody else. No node's memory is promised twice.
//! Same input, same answer.
//!
//! **Example.** Two machines of one node with 32 GiB each, VMs of 20, 16 and 10 GiB: 20 on the
//! first, 16 on the second; 10 fits both (12 and 16 GiB are free) and takes the first, so that 16
//! GiB stay together.

use crate::balance::BalancePolicy;
use crate::{Occupancy, plan};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology::{Bytes, Machine, Node, NodeId, NodeSet};
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

/// What is needed beside the memory of guests.
pub struct Beside<'a> {
    /// What the hypervisor takes for itself beside a guest of this shape.
    pub guest: &'a dyn Fn(&Shape) -> Bytes,
    /// What of a node VMs leave to everybody else.
    pub node: &'a dyn Fn(&Node) -> Bytes,
}

/// What one machine could do for a VM when it was the VM's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetOption {
    /// Name of the machine.
    pub machine: String,
    /// How well it holds the VM beside those that chose before.
    pub fit: Fit,
    /// How much of the VM's memory would be remote to the vCPUs that touch it, in thousandths;
    /// `None` where it does not fit.
    pub remote_permille: Option<u32>,
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
    /// How much of its memory is remote to the vCPUs that touch it, in thousandths
    /// ([`Plan::remote_permille`]); `None` where no machine holds it.
    pub remote_permille: Option<u32>,
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
    /// What guests hold of each machine then: what ran there and what was planned.
    pub occupancies: Vec<Occupancy>,
    /// What of each machine's nodes is kept for the hypervisors and everybody else.
    pub beside: Vec<BTreeMap<NodeId, Bytes>>,
}

impl FleetPlan {
    /// What of a node is kept for hypervisors and everybody else; `machine`: index in what was
    /// given.
    pub fn kept(&self, machine: usize, node: NodeId) -> Bytes {
        self.beside.get(machine).and_then(|kept| kept.get(&node)).copied().unwrap_or_default()
    }
}

/// Plans several VMs together on one or several machines. A VM that fits nowhere is said to, and
/// stops nobody else.
pub fn plan_fleet(machines: &[FleetMachine<'_>], shapes: &[impl AsRef<Shape>], needs: &Beside<'_>) -> FleetPlan {
    let mut hosts: Vec<Host<'_>> = machines.iter().map(|machine| Host::of(machine, needs)).collect();
    let mut vms: Vec<(usize, FleetVm)> = Vec::with_capacity(shapes.len());
    for index in largest_first(shapes) {
        let shape = shapes[index].as_ref();
        let own = (needs.guest)(shape);
        let vm = choose(&hosts, shape, own);
        if let (Some(machine), Some(plan)) = (vm.machine, &vm.plan) {
            hosts[machine].reserve(plan, own);
        }
        vms.push((index, vm));
    }
    vms.sort_by_key(|&(index, _)| index);
    let (occupancies, beside) = hosts.into_iter().map(|host| (host.occupancy, host.beside)).unzip();
    FleetPlan { vms: vms.into_iter().map(|(_, vm)| vm).collect(), occupancies, beside }
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

/// A machine, and what is held of it so far.
struct Host<'a> {
    machine: &'a Machine,
    occupancy: Occupancy,
    beside: BTreeMap<NodeId, Bytes>,
}

impl<'a> Host<'a> {
    fn of(host: &FleetMachine<'a>, needs: &Beside<'_>) -> Self {
        let beside = host.machine.nodes.iter().map(|node| (node.id, (needs.node)(node))).collect();
        Self { machine: host.machine, occupancy: host.occupancy.clone(), beside }
    }

    /// What a VM finds held that takes `own` beside its guest's memory, on whichever nodes it
    /// lives.
    fn held_for(&self, own: Bytes) -> Occupancy {
        let mut occupancy = self.occupancy.clone();
        let kept = |(&node, &kept): (&NodeId, &Bytes)| {
            (node, NodeUse { memory: kept.saturating_add(own), ..NodeUse::default() })
        };
        occupancy.hold(&self.beside.iter().map(kept).collect());
        occupancy
    }

    fn reserve(&mut self, plan: &Plan, own: Bytes) {
        self.occupancy.reserve(plan);
        let part = Bytes(own.0.div_ceil(plan.holdings.len().max(1) as u64));
        for node in plan.holdings.keys() {
            let kept = self.beside.entry(*node).or_default();
            *kept = kept.saturating_add(part);
        }
    }
}

fn choose(hosts: &[Host<'_>], shape: &Shape, own: Bytes) -> FleetVm {
    let attempts: Vec<_> = hosts.iter().map(|host| plan(host.machine, &host.held_for(own), shape)).collect();
    let option = |(host, attempt): (&Host<'_>, &Result<Plan, _>)| FleetOption {
        machine: host.machine.name.clone(),
        fit: attempt.as_ref().map_or(Fit::NotAtAll, Fit::of),
        remote_permille: attempt.as_ref().ok().map(Plan::remote_permille),
        refusal: attempt.as_ref().err().map(ToString::to_string),
    };
    let options: Vec<FleetOption> = hosts.iter().zip(&attempts).map(option).collect();
    let plans = attempts.into_iter().enumerate().filter_map(|(index, attempt)| Some((index, attempt.ok()?)));
    let ranked: Vec<(Rank, (usize, Plan))> =
        plans.map(|(index, plan)| (Rank::of(&hosts[index], shape, index, &plan), (index, plan))).collect();
    let best = best(ranked.iter().map(|(rank, _)| rank));
    let (machine, plan) = ranked.into_iter().find(|(rank, _)| Some(rank.index) == best).map(|(_, plan)| plan).unzip();
    let fit = plan.as_ref().map_or(Fit::NotAtAll, Fit::of);
    let remote_permille = plan.as_ref().map(Plan::remote_permille);
    FleetVm { vm: shape.name.clone(), fit, remote_permille, machine, plan, options }
}

/// What decides between machines. CPU time in thousandths of CPUs.
struct Rank {
    /// vCPUs of the VM that its nodes have no hardware threads for: they never run all at once, and
    /// nothing pays for that.
    beyond_threads: u32,
    lost: u64,
    /// The same without what is lost only if other VMs are busy on the cores that it shares with
    /// them.
    beside_shared: u64,
    /// The same whatever other VMs do.
    for_certain: u64,
    fit: Fit,
    /// Whether some of its memory lies where none of its vCPUs run.
    is_away: bool,
    /// Memory that the machine has free when the VM is there.
    left: Bytes,
    index: usize,
}

impl Rank {
    fn of(host: &Host<'_>, shape: &Shape, index: usize, plan: &Plan) -> Self {
        let crowds: Vec<Crowd> = plan.holdings.iter().map(|(&node, own)| Crowd::of(host, shape, node, own)).collect();
        let (lost, sharing) = (plan.lost_milli_cpus, crowds.iter().map(|crowd| crowd.sharing).sum());
        let waiting: u64 = crowds.iter().map(|crowd| crowd.waiting).sum();
        let free: Bytes = host.machine.nodes.iter().map(|node| host.occupancy.free_memory(node)).sum();
        Self {
            beyond_threads: crowds.iter().map(|crowd| crowd.beyond_threads).sum(),
            lost,
            beside_shared: lost.saturating_sub(sharing),
            for_certain: lost.saturating_sub(sharing).saturating_sub(waiting),
            fit: Fit::of(plan),
            is_away: plan.has_memory_away(host.machine),
            left: free.saturating_sub(plan.holdings.values().map(|taken| taken.memory).sum()),
            index,
        }
    }
}

/// Index of the machine that is taken.
fn best<'a>(ranks: impl Iterator<Item = &'a Rank> + Clone) -> Option<usize> {
    let least = ranks.clone().min_by_key(|rank| (rank.beyond_threads, rank.lost, rank.fit, rank.left, rank.index))?;
    let fits_better = |rank: &&Rank| {
        rank.fit < least.fit && rank.beyond_threads <= least.beyond_threads && rank.beside_shared <= least.beside_shared
    };
    let better = ranks.clone().filter(fits_better).min_by_key(|rank| (rank.fit, rank.lost, rank.left, rank.index));
    let best = better.unwrap_or(least);
    if !best.is_away {
        return Some(best.index);
    }
    let key = |rank: &&Rank| (rank.beyond_threads, rank.for_certain, rank.lost, rank.fit, rank.left, rank.index);
    ranks.min_by_key(key).map(|rank| rank.index)
}

/// How crowded the CPUs of a node are by a VM, in whole vCPUs.
struct Crowd {
    beyond_threads: u32,
    /// Thousandths of CPUs that are lost to cores shared with others, if those are busy half of the
    /// time.
    sharing: u64,
    /// The same of vCPUs that wait for a hardware thread.
    waiting: u64,
}

impl Crowd {
    fn of(host: &Host<'_>, shape: &Shape, node: NodeId, own: &NodeUse) -> Self {
        let count = |amount: usize| u32::try_from(amount).unwrap_or(u32::MAX);
        let (threads, cores) =
            (count(host.machine.usable_cpus(node).len()), count(host.machine.usable_cores(node).len()));
        let held = host.occupancy.of(node);
        let beyond = |others: u32, limit: u32| others.saturating_add(own.vcpus).saturating_sub(limit).min(own.vcpus);
        let shared_core = 100 - BalancePolicy::default().smt_yield_percent as u64;
        let lost = |others: u32| {
            let waiting = u64::from(beyond(others, threads));
            let sharing = u64::from(beyond(others, cores)).saturating_sub(waiting);
            (waiting * 1000, if shape.policy.prefer_ht { 0 } else { sharing * shared_core * 10 })
        };
        let (certain, busy) = (lost(held.always_busy), lost(held.vcpus));
        Self {
            beyond_threads: beyond(0, threads),
            sharing: busy.1.saturating_sub(certain.1) / 2,
            waiting: busy.0.saturating_sub(certain.0) / 2,
        }
    }
}
