//! From machine, occupancy and shape to a plan.

use crate::caches::Division;
use crate::eligible::{beside_isolated, eligible};
use crate::host::Host;
use crate::placement::{self, Candidate, Demand, EXACT_STEPS, Home, Placed, Terms, VCPU, far};
use crate::sizing::{self, Sizing};
use crate::{Occupancy, PlanError, backing, claims, cores, expected, explain};
use std::collections::BTreeMap;
use topology::{Bytes, BytesPerSecond, CpuSet, Distances, Machine, NodeId};
use vm::spec::{BandwidthNeed, Fill, VcpuBinding};
use vm::{Client, MemoryPolicy, NodeSize, NodeUse, Placement, Plan, Shape, VirtualNode, VirtualTopology};

/// Sizes the VM's virtual nodes for this machine and gives each client its home, beside what runs
/// there already.
///
/// The result depends on the machine, the occupancy and the shape alone; the order of the machine's
/// lists does not matter. A VM that fits only without the claims of strangers is planned without
/// them, and its plan warns of it ([`crate::Claims`]). One whose memory is taken on touch may be
/// promised what is not free now.
///
/// # Errors
/// The shape names nodes that the machine lacks, no CPU may be used, nobody knows how much memory
/// the machine has, its nodes together lack the memory or the huge pages, or vCPUs that are to be
/// bound 1:1 find no hardware thread for each.
pub fn plan(machine: &Machine, occupancy: &Occupancy, shape: &Shape) -> Result<Plan, PlanError> {
    plan_within(machine, occupancy, shape, EXACT_STEPS)
}

/// [`plan`] with a bound of its own on the exact search: 0 leaves everything to the heuristic.
///
/// # Errors
/// As [`plan`].
pub fn plan_within(
    machine: &Machine,
    occupancy: &Occupancy,
    shape: &Shape,
    exact_steps: usize,
) -> Result<Plan, PlanError> {
    beside(machine, occupancy, shape, &[], |host| {
        let (sizing, placed) = sized_and_placed(host, shape, exact_steps)?;
        Some(sized(host, shape, &sizing, &placed))
    })
}

/// What `place` makes of the host as it is, or else of the host without the claims of strangers, or
/// of one whose memory is overcommitted if the shape allows that. `place` says `None` where the
/// nodes together lack the memory. `sizes`: what virtual nodes have that is not as at power-on.
pub(crate) fn beside(
    machine: &Machine,
    occupancy: &Occupancy,
    shape: &Shape,
    sizes: &[NodeSize],
    place: impl Fn(&Host) -> Option<Plan>,
) -> Result<Plan, PlanError> {
    let plan = beside_alone(machine, occupancy, shape, sizes, place)?;
    Ok(match shape.policy.vcpu_binding {
        VcpuBinding::Node => plan,
        VcpuBinding::Core => cores::leave_to_qemu(machine, plan),
    })
}

/// [`beside`] on the CPUs that the VM may have.
fn beside_alone(
    machine: &Machine,
    occupancy: &Occupancy,
    shape: &Shape,
    sizes: &[NodeSize],
    place: impl Fn(&Host) -> Option<Plan>,
) -> Result<Plan, PlanError> {
    match eligible(machine, occupancy, shape) {
        Some(on) => {
            let mut plan = beside_on(&on.machine, &on.occupancy, shape, sizes, place)?;
            let at = plan.reasons.len().min(1);
            plan.reasons.splice(at..at, on.reason);
            plan.warnings.extend(on.warning);
            Ok(plan)
        }
        None if machine.isolated.is_empty() => beside_on(machine, occupancy, shape, sizes, place),
        None => beside_on(machine, &beside_isolated(machine, occupancy), shape, sizes, place),
    }
}

/// [`beside`] on all usable CPUs of a machine.
fn beside_on(
    machine: &Machine,
    occupancy: &Occupancy,
    shape: &Shape,
    sizes: &[NodeSize],
    place: impl Fn(&Host) -> Option<Plan>,
) -> Result<Plan, PlanError> {
    let planned = |occupancy: &Occupancy| {
        let host = Host::new(machine, occupancy, shape)?;
        if !machine.memory_is_known() {
            return Err(PlanError::UnknownMemory { vm: shape.name.clone(), machine: machine.name.clone() });
        }
        place(&host).ok_or_else(|| match shape.backing.huge_pages {
            None => lacks_memory(&host, shape),
            Some(_) if !host.pools_are_known => lacks_memory(&host, shape),
            Some(page) => {
                let would_be = place(&backing::with_larger_pools(&host, machine, occupancy, page));
                backing::lacks_huge_pages(&host, shape, page, would_be.as_ref())
            }
        })
    };
    let plan = match planned(occupancy) {
        Err(PlanError::Memory { .. }) if !occupancy.claims.is_empty() => {
            planned(&occupancy.without_claims()).map(|mut plan| {
                plan.warnings.extend(claims::left_out(&occupancy.claims));
                plan
            })
        }
        planned => planned,
    };
    let plan = match plan {
        Err(PlanError::Memory { .. }) if shape.backing.fill == Fill::OnTouch => {
            let host = Host::new(machine, occupancy, shape)?.overcommitted();
            place(&host).ok_or_else(|| backing::larger_than_machine(&host, shape))?
        }
        plan => plan?,
    };
    match shape.policy.vcpu_binding {
        VcpuBinding::Node => Ok(plan),
        VcpuBinding::Core => cores::bind(machine, plan, sizes),
    }
}

/// The shares that the machine's sizes give the VM, unless what is free now lets less be lost with
/// another: uneven shares of memory, or more virtual nodes.
fn sized_and_placed(host: &Host, shape: &Shape, exact_steps: usize) -> Option<(Sizing, Placed)> {
    let place = |sizing: &Sizing| {
        let demands = |shares: &[sizing::Share]| -> Vec<Demand> {
            shares.iter().map(|share| Demand::of(share, sizing.least_home, shape)).collect()
        };
        let division = Division::of(shape, &topology_without_distances(shape, sizing));
        let terms = Terms { spread: shape.policy.placement, told: None, division: division.as_ref() };
        placed(host, shape, [&demands(&sizing.at_start), &demands(&sizing.shares)], terms, exact_steps)
    };
    let by_size = sizing::size(host, shape);
    let placed = place(&by_size)?;
    let is_free = shape.policy.virtual_nodes.is_none() && shape.policy.vnuma != Some(false);
    if placed.best.lost.memory == 0 || !is_free {
        return Some((by_size, placed));
    }
    let mut by_free = sizing::size(&host.as_free(), shape);
    let other = if by_free.is_balanced(shape) { place(&by_free) } else { None };
    match other.filter(|other| other.best.loses_less_than(&placed.best)) {
        Some(other) => {
            by_free.reasons.insert(1, explain::sized_by_free(&placed.best, &other.best));
            Some((by_free, other))
        }
        None => Some((by_size, placed)),
    }
}

/// Homes for what is there. A VM that may grow has those that it would have at its largest, where
/// the machine has room for that now: nothing has to move when it grows. `demands`: now, and of the
/// VM at its largest.
pub(crate) fn placed(
    host: &Host,
    shape: &Shape,
    [now, largest]: [&[Demand]; 2],
    terms: Terms<'_>,
    exact_steps: usize,
) -> Option<Placed> {
    if shape.may_grow()
        && let Some(grown) = placement::place(host, largest, terms, exact_steps)
        && grown.best.has_room()
    {
        return Some(placement::begun(host, now, terms, grown));
    }
    placement::place(host, now, terms, exact_steps)
}

/// Plans several VMs that start together: each sees what the others will hold. Plans come in the
/// order of `specs`; large VMs choose first.
///
/// # Errors
/// As [`plan`], for the first VM that cannot be planned beside the others.
pub fn plan_together(
    machine: &Machine,
    occupancy: &Occupancy,
    shapes: &[impl AsRef<Shape>],
) -> Result<Vec<Plan>, PlanError> {
    let mut ledger = occupancy.clone();
    let mut plans = BTreeMap::new();
    for index in crate::fleet::largest_first(shapes) {
        let plan = plan(machine, &ledger, shapes[index].as_ref())?;
        ledger.reserve(&plan);
        plans.insert(index, plan);
    }
    Ok(plans.into_values().collect())
}

fn lacks_memory(host: &Host, shape: &Shape) -> PlanError {
    PlanError::Memory {
        vm: shape.name.clone(),
        needed: shape.memory,
        machine: host.name.clone(),
        available: host.nodes.iter().map(|node| Bytes(node.free)).sum(),
        by_node: host.free_memory() + &host.left_out(),
    }
}

fn sized(host: &Host, shape: &Shape, sizing: &Sizing, placed: &Placed) -> Plan {
    let topology = virtual_topology(host, shape, sizing, &placed.best.homes);
    let mut plan = assemble(host, shape, &topology, placed);
    plan.reasons.splice(0..0, sizing.reasons.iter().cloned());
    plan.warnings.splice(0..0, sizing.warnings.iter().cloned());
    plan.warnings.extend(explain::cramped(host, shape, &sizing.shares, placed));
    under_caches(host, shape, placed, plan)
}

/// The plan with its groups of vCPUs under last-level caches.
pub(crate) fn under_caches(host: &Host, shape: &Shape, placed: &Placed, mut plan: Plan) -> Plan {
    if let Some(division) = Division::of(shape, &plan.topology) {
        let homes: Vec<Vec<usize>> = placed.best.homes.iter().map(Home::with_cpus).collect();
        division.bind(host, &homes, shape, &mut plan);
    }
    plan
}

/// The plan for a virtual topology whose nodes, in order, have these homes.
pub(crate) fn assemble(host: &Host, shape: &Shape, topology: &VirtualTopology, placed: &Placed) -> Plan {
    let homes = &placed.best.homes;
    let client = |((id, home), node): ((usize, &Home), &VirtualNode)| {
        let memory_policy = memory_policy(shape, home);
        Client {
            id: id as u32,
            virtual_nodes: vec![node.id],
            home: host.ids(&backing::nodes_of(home, memory_policy)),
            cpus: cpus(host, home),
            memory_policy,
            vcpu_cpus: BTreeMap::new(),
            groups: Vec::new(),
            far: far::of(host, home).into_iter().map(|(node, bytes)| (host.nodes[node].id, Bytes(bytes))).collect(),
        }
    };
    Plan {
        vm: shape.name.clone(),
        topology: topology.clone(),
        left_to_qemu: CpuSet::new(),
        placement: Placement { clients: homes.iter().enumerate().zip(&topology.nodes).map(client).collect() },
        backing: shape.backing,
        holdings: holdings(host, &placed.best, shape.policy.counts_full()),
        lost_milli_cpus: placed.best.lost.all() / 1000,
        expected: expected::of(host, homes),
        reasons: explain::reasons(host, shape, placed),
        warnings: explain::warnings(host, shape, placed),
    }
}

fn cpus(host: &Host, home: &Home) -> CpuSet {
    home.with_cpus().into_iter().flat_map(|node| host.nodes[node].cpus.iter()).collect()
}

fn memory_policy(shape: &Shape, home: &Home) -> MemoryPolicy {
    let waits_for_latency = shape.policy.bandwidth == BandwidthNeed::Low && shape.backing.fill == Fill::OnTouch;
    let by_rule = match shape.backing.fill {
        // Where a thread touches it first it is near, as long as nobody needs the bandwidth of all.
        _ if !home.is_one_node() && home.equal && waits_for_latency => MemoryPolicy::Bind,
        _ if !home.is_one_node() && home.equal => MemoryPolicy::Interleave,
        Fill::AtStart => MemoryPolicy::Bind,
        // Bound strictly, a guest that finds its node full is killed while others have room.
        Fill::OnTouch => MemoryPolicy::Preferred,
    };
    shape.policy.memory.unwrap_or(by_rule)
}

fn virtual_topology(host: &Host, shape: &Shape, sizing: &Sizing, homes: &[Home]) -> VirtualTopology {
    VirtualTopology { distances: guest_distances(host, homes), ..topology_without_distances(shape, sizing) }
}

/// What the guest sees, but for the distances, which its homes have.
fn topology_without_distances(shape: &Shape, sizing: &Sizing) -> VirtualTopology {
    let mut next = 0;
    let node = |(id, (share, at_start)): (usize, (&sizing::Share, &sizing::Share))| {
        let first = next;
        next += share.vcpus;
        VirtualNode {
            id: id as u32,
            vcpus: (first..next).collect(),
            absent: (first + at_start.vcpus..next).collect(),
            memory: Bytes(at_start.memory),
            growth: Bytes(share.memory - at_start.memory),
        }
    };
    VirtualTopology {
        exposed: sizing.exposed,
        nodes: sizing.shares.iter().zip(&sizing.at_start).enumerate().map(node).collect(),
        sockets: shape.most_vcpus() / sizing.per_socket,
        cores_per_socket: sizing.per_socket / sizing.threads,
        dies_per_socket: sizing.dies,
        threads_per_core: sizing.threads,
        distances: Vec::new(),
    }
}

/// Largest value of a SLIT entry; 255 means unreachable.
const FARTHEST: u32 = 254;

/// The machine's distances between the homes. ACPI wants 10 on the diagonal and more elsewhere, so
/// that virtual nodes on the same machine nodes get the smallest remote distance among the homes,
/// and [`Distances::REMOTE`] at most.
fn guest_distances(host: &Host, homes: &[Home]) -> Vec<Vec<u32>> {
    // What lies far by bandwidth is nothing that the guest is told of.
    let near = |home: &Home| -> Vec<usize> {
        let far = far::of(host, home);
        home.nodes.iter().copied().filter(|node| far.iter().all(|(other, _)| other != node)).collect()
    };
    let mean = |one: &Home, other: &Home| -> Option<u32> {
        let (from, to) = (near(one), near(other));
        let pairs = from.iter().flat_map(|&a| to.iter().map(move |&b| host.distances[a][b]));
        let sum: u32 = pairs.sum();
        let rounded = (f64::from(sum) / (from.len() * to.len()) as f64).round() as u32;
        (one.nodes != other.nodes).then_some(rounded.clamp(Distances::LOCAL + 1, FARTHEST))
    };
    let remote = homes.iter().flat_map(|one| homes.iter().filter_map(move |other| mean(one, other)));
    let same_home = remote.min().unwrap_or(Distances::REMOTE).min(Distances::REMOTE);
    let entry = |i: usize, j: usize| match i == j {
        true => Distances::LOCAL,
        false => mean(&homes[i], &homes[j]).unwrap_or(same_home),
    };
    (0..homes.len()).map(|i| (0..homes.len()).map(|j| entry(i, j)).collect()).collect()
}

/// What the plan takes of each node, in whole vCPUs: those of homes with several nodes in
/// proportion to what lives on each.
fn holdings(host: &Host, best: &Candidate, counts_full: bool) -> BTreeMap<NodeId, NodeUse> {
    let mut micro = vec![0u64; host.nodes.len()];
    let mut held: BTreeMap<usize, Bytes> = BTreeMap::new();
    for home in &best.homes {
        for (position, &node) in home.nodes.iter().enumerate() {
            micro[node] += if home.has_vcpus() { home.micro[position] } else { 0 };
            let memory = held.entry(node).or_default();
            *memory = memory.saturating_add(Bytes(home.bytes[position]));
        }
    }
    let limits: Vec<u64> = micro.iter().map(|micro| micro.div_ceil(VCPU)).collect();
    let vcpus = micro.iter().sum::<u64>().div_ceil(VCPU);
    let whole = crate::divide::in_proportion(vcpus, &micro, &limits).unwrap_or(limits);
    let of = |(node, memory): (usize, Bytes)| {
        // Pools of huge pages are missing from free memory already.
        let resident = if host.page.is_some() && host.pools_are_known { memory } else { Bytes(0) };
        let (vcpus, traffic) = (whole[node] as u32, BytesPerSecond(best.traffic[node]));
        let always_busy = if counts_full { vcpus } else { 0 };
        (host.nodes[node].id, NodeUse { vcpus, always_busy, memory, resident, traffic })
    };
    held.into_iter().map(of).collect()
}
