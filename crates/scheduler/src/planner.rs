//! From machine, occupancy and spec to a plan.

use crate::host::Host;
use crate::placement::{self, Candidate, Demand, EXACT_STEPS, Home, Placed};
use crate::plan::{Client, MemoryPolicy, Placement, Plan, VirtualNode, VirtualTopology};
use crate::sizing::{self, Sizing};
use crate::{NodeUse, Occupancy, PlanError, VmSpec, explain};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Distances, Machine, NodeId};

/// Sizes the VM's virtual nodes for this machine and gives each client its home, beside what runs there already.
///
/// The result depends on the machine, the occupancy and the spec alone; the order of the machine's lists does not matter.
///
/// # Errors
/// The spec names nodes that the machine lacks, no CPU may be used, or the nodes together lack the memory.
pub fn plan(machine: &Machine, occupancy: &Occupancy, spec: &VmSpec) -> Result<Plan, PlanError> {
    plan_within(machine, occupancy, spec, EXACT_STEPS)
}

/// [`plan`] with a bound of its own on the exact search: 0 leaves everything to the heuristic.
///
/// # Errors
/// As [`plan`].
pub fn plan_within(
    machine: &Machine,
    occupancy: &Occupancy,
    spec: &VmSpec,
    exact_steps: usize,
) -> Result<Plan, PlanError> {
    let host = Host::new(machine, occupancy, spec)?;
    let sizing = sizing::size(&host, spec);
    let demand =
        |shape: &sizing::Shape| Demand { vcpus: shape.vcpus, memory: shape.memory, least_home: sizing.least_home };
    let demands: Vec<Demand> = sizing.shapes.iter().map(demand).collect();
    let placed = placement::place(&host, &demands, spec.policy.placement, exact_steps)
        .ok_or_else(|| lacks_memory(&host, spec))?;
    Ok(assemble(&host, spec, &sizing, &placed))
}

/// Plans several VMs that start together: each sees what the others will hold. Plans come in the order of `specs`; large
/// VMs choose first.
///
/// # Errors
/// As [`plan`], for the first VM that cannot be planned beside the others.
pub fn plan_together(machine: &Machine, occupancy: &Occupancy, specs: &[VmSpec]) -> Result<Vec<Plan>, PlanError> {
    let mut ledger = occupancy.clone();
    let mut plans = BTreeMap::new();
    for index in crate::fleet::largest_first(specs) {
        let plan = plan(machine, &ledger, &specs[index])?;
        ledger.reserve(&plan);
        plans.insert(index, plan);
    }
    Ok(plans.into_values().collect())
}

fn lacks_memory(host: &Host, spec: &VmSpec) -> PlanError {
    PlanError::Memory {
        vm: spec.name.clone(),
        needed: spec.memory,
        machine: host.name.clone(),
        available: host.nodes.iter().map(|node| Bytes(node.available)).sum(),
        by_node: host.free_memory(),
    }
}

fn assemble(host: &Host, spec: &VmSpec, sizing: &Sizing, placed: &Placed) -> Plan {
    let homes = &placed.best.homes;
    let mut warnings = sizing.warnings.clone();
    warnings.extend(explain::warnings(host, spec, &sizing.shapes, placed));
    let mut reasons = sizing.reasons.clone();
    reasons.extend(explain::reasons(host, spec, placed));
    let client = |(id, home): (usize, &Home)| Client {
        id: id as u32,
        virtual_nodes: vec![id as u32],
        home: host.ids(&home.nodes),
        cpus: cpus(host, home),
        memory_policy: memory_policy(spec, home),
    };
    Plan {
        vm: spec.name.clone(),
        topology: virtual_topology(host, spec, sizing, homes),
        placement: Placement { clients: homes.iter().enumerate().map(client).collect() },
        holdings: holdings(host, &placed.best),
        reasons,
        warnings,
    }
}

fn cpus(host: &Host, home: &Home) -> CpuSet {
    home.nodes.iter().flat_map(|&node| host.nodes[node].cpus.iter()).collect()
}

fn memory_policy(spec: &VmSpec, home: &Home) -> MemoryPolicy {
    let by_rule = if home.nodes.len() > 1 && home.equal { MemoryPolicy::Interleave } else { MemoryPolicy::Bind };
    spec.policy.memory.unwrap_or(by_rule)
}

fn virtual_topology(host: &Host, spec: &VmSpec, sizing: &Sizing, homes: &[Home]) -> VirtualTopology {
    let mut next = 0;
    let node = |(id, shape): (usize, &sizing::Shape)| {
        let first = next;
        next += shape.vcpus;
        VirtualNode { id: id as u32, vcpus: (first..next).collect(), memory: Bytes(shape.memory) }
    };
    VirtualTopology {
        exposed: sizing.exposed,
        nodes: sizing.shapes.iter().enumerate().map(node).collect(),
        sockets: spec.vcpus / sizing.per_socket,
        cores_per_socket: sizing.per_socket,
        // vCPUs move freely among the CPUs of their home, so that no two of them stay siblings: to say so would be untrue.
        threads_per_core: 1,
        distances: guest_distances(host, homes),
    }
}

/// Largest value of a SLIT entry; 255 means unreachable.
const FARTHEST: u32 = 254;

/// The machine's distances between the homes. ACPI wants 10 on the diagonal and more elsewhere, so that virtual nodes on
/// the same machine nodes get the smallest remote distance among the homes, and [`Distances::REMOTE`] at most.
fn guest_distances(host: &Host, homes: &[Home]) -> Vec<Vec<u32>> {
    let mean = |one: &Home, other: &Home| -> Option<u32> {
        let pairs = one.nodes.iter().flat_map(|&a| other.nodes.iter().map(move |&b| host.distances[a][b]));
        let sum: u32 = pairs.sum();
        let rounded = (f64::from(sum) / (one.nodes.len() * other.nodes.len()) as f64).round() as u32;
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

/// What the plan takes of each node; vCPUs of a home with several nodes are counted by their CPUs, in whole vCPUs.
fn holdings(host: &Host, best: &Candidate) -> BTreeMap<NodeId, NodeUse> {
    let mut holdings: BTreeMap<NodeId, NodeUse> = BTreeMap::new();
    for home in &best.homes {
        let vcpus = home.milli.iter().sum::<u64>().div_ceil(1000);
        let limits: Vec<u64> = home.milli.iter().map(|&milli| milli.div_ceil(1000)).collect();
        let whole = crate::divide::in_proportion(vcpus, &home.milli, &limits).unwrap_or(limits);
        for (position, &node) in home.nodes.iter().enumerate() {
            let entry = holdings.entry(host.nodes[node].id).or_default();
            entry.vcpus += whole[position] as u32;
            entry.memory = entry.memory.saturating_add(Bytes(home.bytes[position]));
        }
    }
    holdings
}
