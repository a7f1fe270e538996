//! What would be right for a VM: its own shape wherever that is sound. Of a VM that runs the homes
//! where it should live, as the balancer has them ([`scheduler::balance::homes`]); of a definition
//! its own homes wherever they hold it, else the planner's.

use crate::cramped::{self, Cramped, cramped};
use crate::guest_system;
use crate::presence;
use crate::rules::huge_pages;
use crate::scene::NodeView;
use crate::shape::{self, Fit};
use crate::shaped::{ShapedNode, ShapedVm};
use scheduler::balance::Next;
use scheduler::{Occupancy, PlanError};
use std::collections::BTreeMap;
use topology::{Bytes, CpuId, CpuSet, Distances, Machine, NodeId, NodeSet};
use vm::qemu::GuestCpus;
use vm::spec::{Backing, FixedNode, Policy, Shape};
use vm::{MemoryPolicy, Plan};

/// What would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The virtual nodes, by id.
    pub nodes: Vec<TargetNode>,
    /// Whether they are others than the VM has.
    pub reshaped: bool,
    /// What the guest should be told of its CPUs.
    pub guest: GuestCpus,
    /// `distances[i][j]`: SLIT value from virtual node i to j.
    pub distances: Vec<Vec<u32>>,
    /// How many virtual nodes the planner would give it, were it new.
    pub ideal_nodes: usize,
    /// CPUs that the planner would give it, were it new, where it has no others by its pins.
    pub(crate) planned_cpus: Option<CpuSet>,
    /// Why an edit cannot give it other virtual nodes though it should have them.
    pub blocked: Option<String>,
    /// Why these homes would be worse than what it has: then nothing is brought to them.
    pub cramped: Option<Cramped>,
}

/// A virtual node and its home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetNode {
    /// Its number in the guest.
    pub id: u32,
    /// Its vCPUs.
    pub vcpus: CpuSet,
    /// Those of them that are plugged in later, if ever.
    pub absent: CpuSet,
    /// Its memory.
    pub memory: Bytes,
    /// Its home.
    pub home: NodeSet,
    /// CPUs of each of its vCPUs.
    pub cpus: CpuSet,
    /// Whether its memory is to be interleaved over its home.
    pub interleave: bool,
}

/// Why no home can be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    /// The planner finds none.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It runs, and nobody can say where it should live.
    #[error("{because}")]
    Homeless {
        /// Why.
        because: String,
    },
    /// A virtual node without vCPUs.
    #[error("virtual node {node} has no vCPU, and homenode does not place such nodes")]
    NoVcpu {
        /// The node.
        node: u32,
    },
}

/// What would be right for a VM beside what others hold.
pub(crate) fn target(
    machine: &Machine,
    occupancy: &Occupancy,
    vm: &ShapedVm,
    views: &[NodeView<'_>],
) -> Result<Target, NoTarget> {
    let spread = presence::spread(vm).map(|absent| ShapedVm { absent, ..vm.clone() });
    let vm = spread.as_ref().unwrap_or(vm);
    let prefer_ht = shape::prefers_threads(machine, vm);
    let largest = spec(vm, prefer_ht, None, allowed(machine, vm));
    // What is there decides; what may come only says how many virtual nodes are not too many.
    let ideal = plan(machine, occupancy, &largest.without_growth())?;
    let for_largest = plan(machine, occupancy, &largest).map_or(0, |plan| plan.topology.nodes.len());
    let ideal_nodes = ideal.topology.nodes.len().max(for_largest);
    let planned_cpus = Some(ideal.cpus());
    let fit = shape::fit(machine, vm, views, &ideal);
    let mut blocked = blocked(vm, fit, &ideal);
    if blocked.is_none() && fit != Fit::Sound {
        let kept = kept_homes(machine, occupancy, vm, views).filter(|_| fit == Fit::Scattered);
        let anew = at_homes(machine, anew(machine, occupancy, vm, fit, ideal)?, kept);
        let lost = (!keeps_memory(vm, &anew.nodes)).then_some(Cramped::UnevenMemory);
        match lost.or_else(|| cramped(machine, occupancy, vm, &anew.nodes)) {
            None => return Ok(Target { ideal_nodes, planned_cpus, ..anew }),
            Some(why) => blocked = Some(why.to_string()),
        }
    }
    let homes = match vm.running {
        Some(_) => Some(views.iter().map(home_now).collect::<Result<_, _>>()?),
        None => kept_homes(machine, occupancy, vm, views),
    };
    let (mut nodes, cramped) = match homes {
        Some(homes) => (homes.into_iter().zip(views).map(|(home, view)| at(machine, vm, view, home)).collect(), None),
        None => {
            let nodes = planned_homes(machine, occupancy, vm, views)?;
            let cramped = cramped(machine, occupancy, vm, &nodes);
            (nodes, cramped)
        }
    };
    if vm.running.is_none() {
        nodes.iter_mut().zip(views).for_each(|(node, view)| keep_spread(machine, vm, node, view));
    }
    let distances = distances(machine, &nodes);
    let guest = shape::whole_sockets(machine, vm);
    let guest = guest_system::in_few_sockets(vm, guest).unwrap_or(guest);
    Ok(Target { nodes, reshaped: false, guest, distances, ideal_nodes, planned_cpus, blocked, cramped })
}

/// Other virtual nodes, for a VM whose own cannot be right.
fn anew(machine: &Machine, occupancy: &Occupancy, vm: &ShapedVm, fit: Fit, ideal: Plan) -> Result<Target, NoTarget> {
    let own = |fixed, prefer_ht| plan(machine, occupancy, &spec(vm, prefer_ht, fixed, allowed(machine, vm)));
    if fit == Fit::Scattered {
        let plan = own(Some(fixed(vm)?), shape::prefers_threads(machine, vm))?;
        let memory = vm.nodes.iter().map(|node| node.memory).collect();
        return Ok(reshaped(vm, &plan, memory));
    }
    // Cut anew it is sized at its largest, so that what is there has its memory beside it.
    let sized = if vm.may_grow() { own(None, shape::prefers_threads(machine, vm))? } else { ideal };
    // The guest is told of cores afterwards: siblings are worth no memory that lies elsewhere.
    let spills = sized.placement.clients.iter().any(|client| client.home.len() > 1);
    let plan = if spills { own(None, false)? } else { sized };
    let memory = shares(machine, vm, &plan);
    Ok(reshaped(vm, &plan, memory))
}

/// Virtual nodes that are cut anew at the homes that they had.
fn at_homes(machine: &Machine, mut target: Target, homes: Option<Vec<NodeSet>>) -> Target {
    for (node, home) in target.nodes.iter_mut().zip(homes.into_iter().flatten()) {
        (node.cpus, node.home) = (cpus_of(machine, &home), home);
        target.distances.clear();
    }
    if target.distances.is_empty() {
        target.distances = distances(machine, &target.nodes);
    }
    target
}

fn blocked(vm: &ShapedVm, fit: Fit, ideal: &Plan) -> Option<String> {
    let by = vm.xml.as_ref()?.nodes_named_by.clone()?;
    let others = fit == Fit::TooLarge && (!vm.vnuma || ideal.topology.nodes.len() != vm.nodes.len());
    others.then(|| format!("{by} names virtual nodes, so that their number is changed by hand"))
}

fn plan(machine: &Machine, occupancy: &Occupancy, spec: &Shape) -> Result<Plan, PlanError> {
    let attempt = scheduler::plan(machine, occupancy, spec);
    // Where what runs already leaves no room, the machine by itself may still hold it; where it may
    // grow beyond the machine, what it starts with.
    let alone = attempt.or_else(|_| scheduler::plan(machine, &Occupancy::default(), spec));
    alone.or_else(|error| match spec.may_grow() {
        true => plan(machine, occupancy, &spec.without_growth()),
        false => Err(error),
    })
}

/// The VM as a spec: sized at its largest, placed by what is there.
fn spec(vm: &ShapedVm, prefer_ht: bool, fixed: Option<Vec<FixedNode>>, affinity: Option<NodeSet>) -> Shape {
    let (vcpus, memory) = match &fixed {
        Some(nodes) => (nodes.iter().map(|node| node.vcpus).sum(), nodes.iter().map(|node| node.memory).sum()),
        None => (vm.present(), whole_mib(vm.present_memory()).max(Bytes::MIB)),
    };
    let most = match &fixed {
        Some(nodes) => nodes.iter().map(FixedNode::most_memory).sum(),
        None => whole_mib(vm.most_memory()),
    };
    let max_memory = (most > memory).then_some(most);
    let said = vm.running.as_ref().and_then(|running| running.seen.max_vcpus_per_node);
    let max_vcpus_per_node = said.filter(|_| fixed.is_none());
    let policy =
        Policy { prefer_ht, max_vcpus_per_node, node_affinity: affinity, virtual_nodes: fixed, ..Policy::default() };
    let max_vcpus = (!vm.absent.is_empty()).then_some(vm.vcpus);
    Shape { name: vm.name.clone(), vcpus, max_vcpus, memory, max_memory, policy, ..Shape::default() }
}

/// Plans count whole MiB.
fn whole_mib(memory: Bytes) -> Bytes {
    Bytes::from_mib(memory.mib())
}

fn fixed(vm: &ShapedVm) -> Result<Vec<FixedNode>, NoTarget> {
    if let Some(node) = vm.nodes.iter().find(|node| node.vcpus.is_empty()) {
        return Err(NoTarget::NoVcpu { node: node.id });
    }
    let node = |node: &crate::shaped::ShapedNode| FixedNode {
        // libvirt enables the first vCPUs, which may leave a node without any.
        vcpus: (vm.present_of(node) as u32).max(1),
        max_vcpus: (!vm.absent.is_empty()).then_some(node.vcpus.len() as u32),
        memory: whole_mib(node.present_memory()).max(Bytes::MIB),
        max_memory: (vm.most_memory() > vm.present_memory())
            .then(|| whole_mib(node.most_memory().saturating_add(vm.growth_of_each())).max(Bytes::MIB)),
    };
    Ok(vm.nodes.iter().map(node).collect())
}

/// Memory of each virtual node of a plan, in whole huge pages where the VM is made of those: QEMU
/// 9.1 and later takes nothing else.
fn shares(machine: &Machine, vm: &ShapedVm, plan: &Plan) -> Vec<Bytes> {
    let planned: Vec<Bytes> = plan.topology.nodes.iter().map(|node| node.memory).collect();
    // What is over whole MiB goes to a node that has room for it, so that no byte is lost.
    let over = vm.memory.saturating_sub(planned.iter().copied().sum());
    let with_over = |index: usize| {
        let mut shares = planned.clone();
        shares[index] = shares[index].saturating_add(over);
        shares
    };
    let all = (0..planned.len()).map(with_over);
    let page = vm.huge_pages.iter().filter_map(|pages| pages.size).max().unwrap_or(Bytes(1)).0.max(1);
    let pages = all.clone().filter_map(|shares| whole_pages(&shares, page));
    let homes: Vec<&NodeSet> = plan.placement.clients.iter().map(|client| &client.home).collect();
    let holds = |shares: &Vec<Bytes>| shares.iter().all(|share| share.0 > 0) && room(machine, &homes, shares);
    pages.chain(all.clone()).find(holds).or_else(|| all.clone().next()).unwrap_or_default()
}

/// Shares as whole pages of so many bytes; `None` where they are no whole pages together.
fn whole_pages(shares: &[Bytes], page: u64) -> Option<Vec<Bytes>> {
    let (mut until, mut given) = (0, 0);
    let whole = shares.iter().map(|share| {
        until += share.0;
        let pages = until / page * page - given;
        given += pages;
        Bytes(pages)
    });
    let whole = whole.collect();
    (given == until).then_some(whole)
}

/// Whether nodes have the memory for what is to be on each set of them.
fn room(machine: &Machine, homes: &[&NodeSet], shares: &[Bytes]) -> bool {
    cramped::is_held(homes, shares, |node| machine.node(node).map_or(Bytes(0), |node| node.memory))
}

/// Whether the guest has the memory that it had: all of it together, and after QEMU has rounded
/// each virtual node up to whole MiB, as libvirt lets it.
fn keeps_memory(vm: &ShapedVm, nodes: &[TargetNode]) -> bool {
    let up = |memory: Bytes| memory.0.next_multiple_of(Bytes::MIB.0);
    nodes.iter().map(|node| node.memory).sum::<Bytes>() == vm.memory
        && nodes.iter().map(|node| up(node.memory)).sum::<u64>()
            == vm.nodes.iter().map(|node| up(node.memory)).sum::<u64>()
}

fn reshaped(vm: &ShapedVm, plan: &Plan, memory: Vec<Bytes>) -> Target {
    let topology = &plan.topology;
    let placed = topology.nodes.iter().zip(&plan.placement.clients).zip(memory);
    let nodes = placed.map(|((node, client), memory)| TargetNode {
        id: node.id,
        vcpus: node.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect(),
        absent: node.absent.iter().map(|&vcpu| CpuId(vcpu)).collect(),
        memory,
        home: client.home.clone(),
        cpus: client.cpus.clone(),
        interleave: client.memory_policy == MemoryPolicy::Interleave,
    });
    let guest = GuestCpus {
        sockets: topology.sockets,
        dies: topology.dies_per_socket,
        cores: topology.cores_per_socket / topology.dies_per_socket.max(1),
        threads: 1,
        caches: vm.guest.caches,
    };
    let (nodes, ideal_nodes): (Vec<TargetNode>, _) = (nodes.collect(), topology.nodes.len());
    // A stack that starts the lowest numbers, and a socket is a range of numbers.
    let in_order = vm.xml.is_none() && !vm.absent.is_empty();
    let nodes = if in_order { presence::in_order(&nodes) } else { nodes };
    let guest = if in_order { GuestCpus { sockets: vm.vcpus, dies: 1, cores: 1, ..guest } } else { guest };
    let guest = guest_system::in_few_sockets(&with_nodes(vm, &nodes), guest).unwrap_or(guest);
    let distances = topology.distances.clone();
    let planned_cpus = None;
    Target { nodes, reshaped: true, guest, distances, ideal_nodes, planned_cpus, blocked: None, cramped: None }
}

/// The VM with other virtual nodes.
fn with_nodes(vm: &ShapedVm, nodes: &[TargetNode]) -> ShapedVm {
    let node = |node: &TargetNode| ShapedNode { id: node.id, vcpus: node.vcpus.clone(), ..ShapedNode::default() };
    ShapedVm { vnuma: true, nodes: nodes.iter().map(node).collect(), ..vm.clone() }
}

/// Nodes that the VM may live on, of those that the planner may use; `None`: all.
fn allowed(machine: &Machine, vm: &ShapedVm) -> Option<NodeSet> {
    let usable: NodeSet = machine.nodes.iter().filter(|node| node.allowed).map(|node| node.id).collect();
    vm.allowed.as_ref().map(|allowed| allowed.intersection(&usable))
}

/// Where a virtual node that runs should live, as everybody is told.
fn home_now(view: &NodeView<'_>) -> Result<NodeSet, NoTarget> {
    let unknown = || NoTarget::Homeless { because: "where it should live was not asked".to_owned() };
    let home = view.node.home.as_ref().ok_or_else(unknown)?;
    home.should.clone().ok_or_else(|| match &home.next {
        Next::Left { because } => NoTarget::Homeless { because: because.clone() },
        _ => unknown(),
    })
}

/// The homes that pins, or else memory, already give; `None` unless they are one node each that
/// holds all that is on it, beside the memory of others.
fn kept_homes(machine: &Machine, occupancy: &Occupancy, vm: &ShapedVm, views: &[NodeView<'_>]) -> Option<Vec<NodeSet>> {
    let hint = |view: &NodeView<'_>| {
        let single = |nodes: &NodeSet| if nodes.len() == 1 { nodes.first() } else { None };
        let by_pins = if view.bound { single(&view.runs_on) } else { None };
        let node = by_pins.or_else(|| {
            let node = single(view.memory_nodes()?)?;
            (view.node.vcpus.is_empty() || !machine.usable_cpus(node).is_empty()).then_some(node)
        })?;
        vm.allowed.as_ref().is_none_or(|allowed| allowed.contains(node)).then_some(node)
    };
    let homes: Vec<NodeId> = views.iter().map(hint).collect::<Option<_>>()?;
    let prefer_ht = shape::prefers_threads(machine, vm);
    let mut held = BTreeMap::<NodeId, (u64, Bytes, u32)>::new();
    for (&home, view) in homes.iter().zip(views) {
        let (vcpus, memory, count) = held.entry(home).or_default();
        *vcpus += vm.present_of(view.node) as u64;
        *memory = memory.saturating_add(view.node.present_memory());
        *count += 1;
    }
    let holds = |(&home, &(vcpus, memory, count)): (&NodeId, &(u64, Bytes, u32))| {
        let Some(node) = machine.node(home) else { return false };
        let threads = prefer_ht || count == 1;
        let units = if threads { machine.usable_cpus(home).len() } else { machine.usable_cores(home).len() };
        node.memory.saturating_sub(occupancy.of(home).memory) >= memory && units as u64 >= vcpus
    };
    held.iter().all(holds).then(|| homes.into_iter().map(|home| [home].into_iter().collect()).collect())
}

/// Memory that somebody interleaved over several nodes stays there: these are its home.
fn keep_spread(machine: &Machine, vm: &ShapedVm, node: &mut TargetNode, view: &NodeView<'_>) {
    let Some(spread) = view.spread_over() else { return };
    let may = vm.allowed.as_ref().is_none_or(|allowed| spread.is_subset(allowed));
    if may && spread.is_subset(&machine.node_ids()) && !cpus_of(machine, spread).is_empty() {
        *node = at(machine, vm, view, spread.clone());
    }
}

/// Usable CPUs of nodes.
fn cpus_of(machine: &Machine, nodes: &NodeSet) -> CpuSet {
    nodes.iter().fold(CpuSet::new(), |all, node| all.union(&machine.usable_cpus(node)))
}

/// A virtual node at a home.
fn at(machine: &Machine, vm: &ShapedVm, view: &NodeView<'_>, home: NodeSet) -> TargetNode {
    TargetNode {
        id: view.node.id,
        vcpus: view.node.vcpus.clone(),
        absent: view.node.vcpus.intersection(&vm.absent),
        memory: view.node.memory,
        cpus: cpus_of(machine, &home),
        interleave: home.len() > 1 && view.node.binding.as_ref().is_some_and(|binding| binding.mode == "interleave"),
        home,
    }
}

/// The planner's homes for the virtual nodes as they are, among the nodes that the VM names if they
/// will do.
fn planned_homes(
    machine: &Machine,
    occupancy: &Occupancy,
    vm: &ShapedVm,
    views: &[NodeView<'_>],
) -> Result<Vec<TargetNode>, NoTarget> {
    let fixed = fixed(vm)?;
    let prefer_ht = shape::prefers_threads(machine, vm);
    let on = |nodes: Option<NodeSet>| spec(vm, prefer_ht, Some(fixed.clone()), nodes);
    let narrow = |plan: &Plan| plan.placement.clients.iter().all(|client| client.home.len() == 1);
    // A home for what may come, where that is one node; else for what is there.
    let planned = |shape: Shape, plan: &dyn Fn(&Shape) -> Option<Plan>| {
        let grown = shape.may_grow().then(|| plan(&shape)).flatten().filter(narrow);
        grown.or_else(|| plan(&shape.without_growth()))
    };
    let named = named_nodes(machine, vm, views);
    let free = |shape: &Shape| scheduler::plan(machine, occupancy, shape).ok().filter(narrow);
    // Where its huge pages are, there is its home: first of the nodes that it names.
    let in_pools = huge_pages::asked(machine, vm).and_then(|page| {
        let paged = |nodes| Shape {
            backing: Backing { huge_pages: Some(page), ..Backing::default() },
            ..on(nodes).without_growth()
        };
        let there = named.as_ref().and_then(|nodes| free(&paged(Some(nodes.clone()))));
        there.or_else(|| free(&paged(allowed(machine, vm))))
    });
    let named = in_pools.or_else(|| named.and_then(|nodes| planned(on(Some(nodes)), &free)));
    let plan = match named.or_else(|| planned(on(allowed(machine, vm)), &|shape| plan(machine, occupancy, shape).ok()))
    {
        Some(plan) => plan,
        None => plan(machine, occupancy, &on(allowed(machine, vm)).without_growth())?,
    };
    let planned: usize = plan.placement.clients.iter().map(|client| client.home.len()).sum();
    if let Some(nodes) = as_good(machine, occupancy, vm, views, planned) {
        return Ok(nodes);
    }
    let node = |(view, client): (&NodeView<'_>, &vm::Client)| TargetNode {
        id: view.node.id,
        vcpus: view.node.vcpus.clone(),
        absent: view.node.vcpus.intersection(&vm.absent),
        memory: view.node.memory,
        home: client.home.clone(),
        cpus: client.cpus.clone(),
        interleave: client.memory_policy == MemoryPolicy::Interleave,
    };
    Ok(views.iter().zip(&plan.placement.clients).map(node).collect())
}

/// The homes as they are, where each virtual node runs where its memory is, they take no more nodes
/// than `planned`, and those hold them.
fn as_good(
    machine: &Machine,
    occupancy: &Occupancy,
    vm: &ShapedVm,
    views: &[NodeView<'_>],
    planned: usize,
) -> Option<Vec<TargetNode>> {
    let home = |view: &NodeView<'_>| {
        let nodes = view.memory_nodes().filter(|nodes| view.bound && view.runs_on.is_subset(nodes))?;
        let may = vm.allowed.as_ref().is_none_or(|allowed| nodes.is_subset(allowed));
        (may && !view.runs_on.is_empty()).then(|| nodes.clone())
    };
    let homes: Vec<NodeSet> = views.iter().map(home).collect::<Option<_>>()?;
    if homes.iter().map(NodeSet::len).sum::<usize>() > planned {
        return None;
    }
    let memory: Vec<Bytes> = views.iter().map(|view| view.node.present_memory()).collect();
    let free = |node| cramped::free(machine, occupancy, node);
    let held = cramped::is_held(&homes.iter().collect::<Vec<_>>(), &memory, free);
    // Where a node lacks memory, a part lies beside it, and the vCPUs stay.
    let kept = |(view, home): (&NodeView<'_>, NodeSet)| TargetNode {
        cpus: cpus_of(machine, &view.runs_on),
        ..at(machine, vm, view, home)
    };
    held.then(|| views.iter().zip(homes).map(kept).collect())
}

/// Nodes that pins or memory name, where they are not simply all.
fn named_nodes(machine: &Machine, vm: &ShapedVm, views: &[NodeView<'_>]) -> Option<NodeSet> {
    let by_pins = views.iter().filter(|view| view.bound).fold(NodeSet::new(), |all, view| all.union(&view.runs_on));
    let by_memory = views.iter().filter_map(NodeView::memory_nodes).fold(NodeSet::new(), |all, nodes| all.union(nodes));
    let named = if by_pins.is_empty() { by_memory } else { by_pins };
    let usable = || machine.nodes.iter().filter(|node| node.allowed).map(|node| node.id).collect();
    let allowed = allowed(machine, vm).unwrap_or_else(usable);
    let named = named.intersection(&allowed);
    let has_cpus = named.iter().any(|node| !machine.usable_cpus(node).is_empty());
    (has_cpus && named != allowed).then_some(named)
}

/// The machine's distances between homes; between equal homes the smallest of the others, and 20 at
/// most, as the planner has it.
pub(crate) fn distances(machine: &Machine, nodes: &[TargetNode]) -> Vec<Vec<u32>> {
    const FARTHEST: u32 = 254;
    let mean = |one: &TargetNode, other: &TargetNode| -> Option<u32> {
        let pairs = one.home.iter().flat_map(|a| other.home.iter().map(move |b| machine.distance(a, b)));
        let sum: u32 = pairs.sum();
        let rounded = (f64::from(sum) / (one.home.len() * other.home.len()).max(1) as f64).round() as u32;
        (one.home != other.home).then_some(rounded.clamp(Distances::LOCAL + 1, FARTHEST))
    };
    let all = nodes.iter().flat_map(|one| nodes.iter().filter_map(move |other| mean(one, other)));
    let same_home = all.min().unwrap_or(Distances::REMOTE).min(Distances::REMOTE);
    let entry = |i: usize, j: usize| match i == j {
        true => Distances::LOCAL,
        false => mean(&nodes[i], &nodes[j]).unwrap_or(same_home),
    };
    (0..nodes.len()).map(|i| (0..nodes.len()).map(|j| entry(i, j)).collect()).collect()
}
