//! Homes for a VM whose virtual topology is fixed already.
//!
//! **Problem.** A guest learns its virtual nodes at its first power-on and keeps them for life. It
//! starts again, resumes, or arrives from another host, and the machine has other nodes, other
//! distances and other VMs than the one that it was sized for.
//!
//! **Rule.** The topology stays as it is. Each virtual node is a client, as at the first placement,
//! with what it has now; the same search gives them homes at the least cost, with one charge more:
//! the difference between the distances that the guest was told and the real ones
//! (`placement::told`). In the order in which they weigh:
//!
//! 1. vCPUs beyond the hardware threads of their node.
//! 2. CPU time lost to waiting, shared cores, remote memory and distance between clients, and the
//!    charge for distances that were not told.
//! 3. Between maps that cost the same, the one whose distances are more like those told; then
//!    crowding and fullness.
//!
//! A virtual node wider than the machine's nodes lives on the fewest that hold it, its memory
//! interleaved over them. One whose home lacks only memory has the rest on the nearest nodes with
//! room. Several live on one machine node where it has the cores and the memory, unless
//! `policy.placement` keeps clients apart. A VM that may grow gets the homes that it would have at
//! its largest, where the machine has room for that now.
//!
//! **Properties.** The topology of the plan is the one given. Each virtual node has a home, and no
//! machine node gives more memory than it has. Same input, same plan; node numbers decide between
//! equals alone. Where no two virtual nodes share a machine node, homes as far apart as the guest
//! was told are taken unless others lose less to CPUs or to remote memory.
//!
//! **Example.** Two virtual nodes of 8 vCPUs, told 21, arrive on four nodes of 4 cores: 0 and 1 are
//! 12 apart, 2 and 3 too, the pairs 22. Each needs two nodes: 0-1 and 2-3, interleaved. Half of
//! each one's own memory is local; the other is 22 away.

use crate::caches::Division;
use crate::host::Host;
use crate::placement::{Demand, EXACT_STEPS, Terms, Told};
use crate::planner::{assemble, beside, placed, under_caches};
use crate::sizing::Share;
use crate::{Occupancy, PlanError, explain, sizing};
use std::collections::BTreeSet;
use topology::{Bytes, Machine};
use vm::spec::Spread;
use vm::{NodeSize, Plan, Shape, VirtualNode, VirtualTopology};

/// Gives each virtual node of a fixed topology its home on this machine, beside what runs there
/// already (without the VM itself).
///
/// The plan's topology is the one given. `sizes` says what the virtual nodes have now; one that is
/// not named has what it has at power-on, so that `&[]` is a VM that starts. Of the shape only the
/// name and the policy count, and of the policy what is about homes.
///
/// # Errors
/// As [`plan`](crate::plan()), and [`PlanError::Topology`] for a topology or sizes that contradict
/// themselves.
pub fn rehome(
    machine: &Machine,
    occupancy: &Occupancy,
    shape: &Shape,
    topology: &VirtualTopology,
    sizes: &[NodeSize],
) -> Result<Plan, PlanError> {
    rehome_within(machine, occupancy, shape, topology, sizes, EXACT_STEPS)
}

/// [`rehome`] with a bound of its own on the exact search: 0 leaves everything to the heuristic.
///
/// # Errors
/// As [`rehome`].
pub fn rehome_within(
    machine: &Machine,
    occupancy: &Occupancy,
    shape: &Shape,
    topology: &VirtualTopology,
    sizes: &[NodeSize],
    exact_steps: usize,
) -> Result<Plan, PlanError> {
    let problem = |problem| PlanError::Topology { vm: shape.name.clone(), problem };
    check(topology, sizes).map_or(Ok(()), |found| Err(problem(found)))?;
    let now: Vec<Share> = topology.nodes.iter().map(|node| size(node, sizes)).collect();
    let most: Vec<Share> = topology.nodes.iter().zip(&now).map(|(node, now)| largest(node, now)).collect();
    let (vcpus, memory) = (
        |of: &[Share]| of.iter().map(|share| share.vcpus).sum(),
        |of: &[Share]| of.iter().map(|share| Bytes(share.memory)).sum(),
    );
    let shape = Shape {
        vcpus: vcpus(&now),
        memory: memory(&now),
        max_vcpus: Some(vcpus(&most)),
        max_memory: Some(memory(&most)),
        ..shape.clone()
    };
    let told = Told::of(&topology.distances);
    beside(machine, occupancy, &shape, sizes, |host| {
        let least_home = least_home(host, &shape, topology);
        let demands =
            |of: &[Share]| -> Vec<Demand> { of.iter().map(|share| Demand::of(share, least_home, &shape)).collect() };
        let division = Division::of(&shape, topology);
        let (spread, division) = (shape.policy.placement, division.as_ref());
        let terms = Terms { spread, told: Some(&told), division };
        let placed = placed(host, &shape, [&demands(&now), &demands(&most)], terms, exact_steps)?;
        let mut plan = explained(assemble(host, &shape, topology, &placed));
        plan.warnings.extend(explain::cramped(host, &shape, &most, &placed));
        Some(under_caches(host, &shape, &placed, plan))
    })
}

/// What a virtual node has now.
fn size(node: &VirtualNode, sizes: &[NodeSize]) -> Share {
    let now = NodeSize::of(node, sizes);
    Share { vcpus: now.vcpus.len() as u32, memory: now.memory.0 }
}

/// What a virtual node may have.
fn largest(node: &VirtualNode, now: &Share) -> Share {
    Share { vcpus: node.vcpus.len() as u32, memory: node.memory.saturating_add(node.growth).0.max(now.memory) }
}

/// Machine nodes that each home has at least: more than one only where the policy wants the VM on
/// more nodes than its topology has.
fn least_home(host: &Host, shape: &Shape, topology: &VirtualTopology) -> usize {
    let fixed = shape.policy.virtual_nodes.as_ref().map(Vec::len);
    let fresh = match (shape.policy.vnuma, shape.policy.placement) {
        (Some(false), _) | (_, Spread::MostVirtualNodes) if fixed.is_some() => fixed.unwrap_or(1),
        (Some(false), _) => sizing::size(host, shape).least_home,
        (_, Spread::MostVirtualNodes) => sizing::size(host, shape).shares.len(),
        _ => 1,
    };
    (fresh / topology.nodes.len()).max(1)
}

/// What contradicts itself, if anything does.
fn check(topology: &VirtualTopology, sizes: &[NodeSize]) -> Option<String> {
    let count = topology.nodes.len();
    if count == 0 {
        return Some("it has no nodes: it must have at least one".to_owned());
    }
    if topology.distances.len() != count || topology.distances.iter().any(|row| row.len() != count) {
        return Some(format!("`distances` must have {count} rows of {count} values, one for each node"));
    }
    if let Some(strange) = topology.distances.iter().flatten().find(|distance| !(10..=255).contains(*distance)) {
        return Some(format!("a distance of {strange} in `distances`: they are 10 to 255"));
    }
    let ids: BTreeSet<u32> = topology.nodes.iter().map(|node| node.id).collect();
    if ids.len() != count {
        return Some("two of its nodes have the same id: each must have its own".to_owned());
    }
    let vcpus: BTreeSet<u32> = topology.nodes.iter().flat_map(|node| node.vcpus.iter().copied()).collect();
    if vcpus.len() != topology.nodes.iter().map(|node| node.vcpus.len()).sum::<usize>() {
        return Some("a vCPU is listed twice: each must be in one node".to_owned());
    }
    sizes.iter().find_map(|size| {
        let Some(node) = topology.nodes.iter().find(|node| node.id == size.virtual_node) else {
            let known: Vec<String> = ids.iter().map(u32::to_string).collect();
            return Some(format!("it has no node {}; it has {}", size.virtual_node, known.join(", ")));
        };
        let strange = size.vcpus.iter().find(|vcpu| !node.vcpus.contains(vcpu))?;
        Some(format!("vCPU {strange} is said to be in node {}, which has {:?}", node.id, node.vcpus))
    })
}

/// The plan with what mapping adds to its reasons and warnings.
fn explained(mut plan: Plan) -> Plan {
    let reasons = explain::mapping::reasons(&plan);
    plan.reasons.splice(0..0, reasons);
    plan.warnings.extend(explain::mapping::misleading(&plan));
    plan
}
