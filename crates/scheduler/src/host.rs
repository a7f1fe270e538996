//! The machine as sizing and placement look at it: for each candidate node what it has and what is
//! free, computed once.

use crate::balance::BalancePolicy;
use crate::placement::far;
use crate::{Occupancy, PlanError, caches, cores};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuSet, HardwareThread, Machine, Node, NodeId, NodeSet};
use vm::Shape;
use vm::spec::{CachePolicy, FarMemory, Fill, VcpuBinding};

/// A node on which the VM may live.
#[derive(Clone, Debug)]
pub(crate) struct HostNode {
    pub(crate) id: NodeId,
    /// Usable hardware threads.
    pub(crate) cpus: CpuSet,
    /// Usable cores.
    pub(crate) cores: u32,
    /// Usable hardware threads.
    pub(crate) threads: u32,
    /// Its last-level caches, the largest first; fewer than two where there is nothing to divide,
    /// or nobody asks.
    pub(crate) caches: Vec<caches::Cache>,
    /// Memory of the node.
    pub(crate) memory: u64,
    /// Memory that nobody uses or was promised, in bytes.
    pub(crate) free: u64,
    /// Memory that the VM may be promised: what is free, unless memory is overcommitted.
    pub(crate) available: u64,
    /// vCPUs whose home it is already.
    pub(crate) vcpus_held: u32,
    /// Of these, those that count as busy whatever they do.
    pub(crate) always_busy: u32,
    /// Bytes a second that its memory gives; `None` where nobody says.
    pub(crate) bandwidth: Option<u64>,
    /// Bytes a second that those draw who are there already.
    pub(crate) traffic_held: u64,
    /// Extra distance to the network cards that the VM is drawn to, in thousandths: the mean over
    /// their nodes. 0 where it is drawn to none.
    pub(crate) to_cards: u64,
    /// It has no CPU, online or not.
    pub(crate) memory_only: bool,
}

impl HostNode {
    /// What vCPUs are counted against: cores, or hardware threads with `prefer_ht`.
    pub(crate) fn units(&self, prefer_ht: bool) -> u32 {
        if prefer_ht { self.threads } else { self.cores }
    }
}

/// The candidate nodes, by rising id whatever the order in the machine, and the distances between
/// them.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) nodes: Vec<HostNode>,
    /// `distances[i][j]`, by index into `nodes`.
    pub(crate) distances: Vec<Vec<u32>>,
    /// How much farther than its own memory a node's CPUs have it to another's, in thousandths: 0
    /// is local, 1000 twice as far.
    pub(crate) extra: Vec<Vec<u64>>,
    /// `links[i][j]`: bytes a second that the way from node i's CPUs to node j's memory carries;
    /// `None` where nobody says, empty where nobody says anything.
    pub(crate) links: Vec<Vec<Option<u64>>>,
    pub(crate) prefer_ht: bool,
    /// Hardware threads that each core has; 1 where cores differ in that.
    pub(crate) threads_per_core: u32,
    /// Size of the huge pages that memory is counted in: the nodes' memory is that of their pools.
    /// `None`: ordinary memory.
    pub(crate) page: Option<u64>,
    /// Whether somebody says what pools of huge pages there are; else a node's memory is what could
    /// be in its pool.
    pub(crate) pools_are_known: bool,
    /// The nodes of the network cards that the VM is drawn to.
    pub(crate) cards: NodeSet,
    /// Whether the policy alone says that vCPUs keep to caches, whatever the virtual nodes.
    pub(crate) divides: bool,
    /// Whether memory is divided among nodes with and without CPUs by what they give.
    pub(crate) divides_memory: bool,
    /// Nodes without CPUs that could give the VM memory and are not asked, and what is free of
    /// them.
    pub(crate) left_out: (NodeSet, u64),
    /// Part of each vCPU, of the VM and of others, that is taken to be busy, in percent.
    pub(crate) busy_percent: u64,
}

/// All of a vCPU.
const ALL_BUSY: u64 = 100;

/// What is expected of vCPUs. Nobody has seen the VM at work. Where a balancer will, a home is
/// mended by what it does, at the price of the memory that it has touched until then; so it begins
/// with what the balancer expects of a VM that idles. Without a balancer, and where all memory is
/// taken at the start or vCPUs have CPUs of their own, the first home is for good: all count.
fn busy_percent(occupancy: &Occupancy, shape: &Shape) -> u64 {
    let policy = &shape.policy;
    let is_mended = occupancy.balanced && shape.backing.fill == Fill::OnTouch;
    match is_mended && policy.vcpu_binding == VcpuBinding::Node && !policy.counts_full() {
        true => BalancePolicy::default().idle_vcpu_percent as u64,
        false => ALL_BUSY,
    }
}

impl Host {
    /// The nodes that this process and the shape's node affinity allow.
    pub(crate) fn new(machine: &Machine, occupancy: &Occupancy, shape: &Shape) -> Result<Self, PlanError> {
        let allowed = allowed_nodes(machine, shape)?;
        let mut cpus: BTreeMap<NodeId, (CpuSet, BTreeSet<u32>)> = BTreeMap::new();
        let divides = match shape.policy.cache {
            CachePolicy::Pack | CachePolicy::Own => true,
            CachePolicy::Auto => shape.policy.cores_per_socket.is_some(),
            CachePolicy::Ignore => false,
        } && shape.policy.vcpu_binding == VcpuBinding::Node;
        let looks = shape.policy.cache != CachePolicy::Ignore && shape.policy.vcpu_binding == VcpuBinding::Node;
        // Who binds each vCPU to one hardware thread has no use for those that others have so.
        let bound_alone = shape.policy.vcpu_binding == VcpuBinding::Core;
        let taken = if bound_alone { occupancy.bound_cpus.clone() } else { CpuSet::new() };
        let page = shape.backing.huge_pages;
        let mut by_node: BTreeMap<NodeId, Vec<&HardwareThread>> = BTreeMap::new();
        for thread in machine.usable_threads().filter(|_| looks) {
            by_node.entry(thread.node).or_default().push(thread);
        }
        let spare = cores::spared(machine, occupancy, shape);
        for thread in machine.usable_threads().filter(|thread| !taken.contains(thread.id) && !spare.contains(thread.id))
        {
            let (threads, cores) = cpus.entry(thread.node).or_default();
            threads.insert(thread.id);
            cores.insert(thread.core.0);
        }
        let cards = cards(machine, shape);
        let mut nodes = Vec::new();
        let divides_memory = shape.policy.far_memory == FarMemory::ByBandwidth;
        let mut left_out = (NodeSet::new(), 0u64);
        for node in machine.nodes.iter().filter(|node| allowed.contains(node.id)) {
            let memory_only = machine.is_memory_only(node.id);
            if memory_only && shape.policy.far_memory == FarMemory::Never {
                left_out.0.insert(node.id);
                left_out.1 = left_out.1.saturating_add(occupancy.free_for(node, &shape.backing).0);
                continue;
            }
            let (cpus, cores) = cpus.remove(&node.id).unwrap_or_default();
            let (cores, threads) = (cores.len() as u32, cpus.len() as u32);
            let free = occupancy.free_for(node, &shape.backing).0;
            let memory = page.map_or(node.memory.0, |page| pool(node, page).0);
            let bound = taken.iter().filter(|cpu| machine.thread(*cpu).is_some_and(|on| on.node == node.id)).count();
            let held = occupancy.of(node.id);
            let vcpus_held = held.vcpus.saturating_sub(bound as u32);
            // Those that are bound alone are among them.
            let always_busy = held.always_busy.saturating_sub(bound as u32).min(vcpus_held);
            let of_node = by_node.get(&node.id).into_iter().flatten().copied();
            let caches = caches::of_node(machine, occupancy, of_node, shape.policy.prefer_ht);
            let id = node.id;
            let extra = cards.iter().map(|card| extra_between(machine, id, card)).sum::<u64>();
            let to_cards = extra / cards.len().max(1) as u64;
            let available = free;
            nodes.push(HostNode {
                id,
                cpus,
                cores,
                threads,
                caches,
                memory,
                free,
                available,
                vcpus_held,
                always_busy,
                bandwidth: machine.bandwidth.of_memory(id).map(|given| given.0),
                traffic_held: held.traffic.0,
                to_cards,
                memory_only,
            });
        }
        nodes.sort_by_key(|node| node.id);
        if nodes.iter().all(|node| node.threads == 0) {
            if nodes.iter().any(|node| !machine.usable_cpus(node.id).is_empty()) {
                return Err(PlanError::EachCpuBound { vm: shape.name.clone(), nodes: allowed });
            }
            return Err(PlanError::NoCpu { machine: machine.name.clone(), nodes: allowed });
        }
        if divides_memory && let Some(unknown) = far::unknown(&nodes) {
            return Err(PlanError::UnknownBandwidth { vm: shape.name.clone(), machine: machine.name.clone(), unknown });
        }
        let distances = distances(machine, &nodes);
        let links = links(machine, &nodes);
        let host = Self::of(machine.name.clone(), nodes, distances, shape.policy.prefer_ht);
        let busy_percent = busy_percent(occupancy, shape);
        let page = page.map(|page| page.0);
        let threads_per_core = cores::threads_per_core(machine);
        let pools_are_known = machine.nodes.iter().any(|node| !node.huge_pages.is_empty());
        Ok(Self {
            threads_per_core,
            links,
            page,
            pools_are_known,
            cards,
            divides,
            divides_memory,
            left_out,
            busy_percent,
            ..host
        })
    }

    /// A host of these nodes; `distances[i][j]` by their index.
    pub(crate) fn of(name: String, nodes: Vec<HostNode>, distances: Vec<Vec<u32>>, prefer_ht: bool) -> Self {
        let extra = extra(&distances);
        Self {
            name,
            nodes,
            distances,
            extra,
            links: Vec::new(),
            prefer_ht,
            threads_per_core: 1,
            page: None,
            pools_are_known: true,
            cards: NodeSet::new(),
            divides: false,
            divides_memory: false,
            left_out: (NodeSet::new(), 0),
            busy_percent: ALL_BUSY,
        }
    }

    /// Whether all vCPUs are taken to be busy.
    pub(crate) fn expects_all_busy(&self) -> bool {
        self.busy_percent >= ALL_BUSY
    }

    /// Bytes that stay free on a node that lends memory or runs over: the kernel and QEMU itself
    /// need some. A pool of huge pages is for guests alone.
    pub(crate) fn reserve(&self, index: usize) -> u64 {
        let in_pools = self.page.is_some() && self.pools_are_known;
        let kept = self.nodes[index].memory / RESERVED_PART;
        if in_pools { 0 } else { kept.next_multiple_of(self.page.unwrap_or(1)) }
    }

    /// The same host with all memory of each node to promise, whatever is free of it now.
    pub(crate) fn overcommitted(&self) -> Self {
        let mut host = self.clone();
        host.nodes.iter_mut().for_each(|node| node.available = node.memory);
        host
    }

    /// What memory that is free is free as: ` in huge pages of 2 MiB`; empty for ordinary memory.
    pub(crate) fn free_as(&self) -> String {
        self.page.map_or_else(String::new, |page| format!(" in huge pages of {}", Bytes(page)))
    }

    /// The same host with nodes as large as what is free of them now, less the reserve.
    pub(crate) fn as_free(&self) -> Self {
        let mut host = self.clone();
        for (index, node) in host.nodes.iter_mut().enumerate() {
            node.memory = node.available.saturating_sub(self.reserve(index));
        }
        host
    }

    /// Cores or hardware threads of the node at this index.
    pub(crate) fn units(&self, index: usize) -> u32 {
        self.nodes[index].units(self.prefer_ht)
    }

    /// Cores or hardware threads of all candidate nodes.
    pub(crate) fn all_units(&self) -> u32 {
        (0..self.nodes.len()).map(|index| self.units(index)).sum()
    }

    /// The caches that a home of one node has at least; `None` where a node with CPUs has nothing
    /// to divide, or the policy asks for no groups.
    pub(crate) fn caches_of_a_node(&self) -> Option<caches::Caches> {
        if !self.divides {
            return None;
        }
        let of = |node: &HostNode| {
            let units = node.caches.iter().map(|cache| cache.units).collect();
            (node.caches.len() > 1).then(|| caches::Caches::new(units))
        };
        let all: Option<Vec<_>> = self.nodes.iter().filter(|node| node.threads > 0).map(of).collect();
        all?.into_iter().reduce(|one, other| one.common(&other))
    }

    /// `core` or `hardware thread`: the word for what vCPUs are counted against.
    pub(crate) fn unit_name(&self) -> &'static str {
        if self.prefer_ht { "hardware thread" } else { "core" }
    }

    /// Ids of the nodes at these indices.
    pub(crate) fn ids(&self, indices: &[usize]) -> NodeSet {
        indices.iter().map(|&index| self.nodes[index].id).collect()
    }

    /// `node 0: 12 GiB, node 1: 3 GiB`.
    pub(crate) fn free_memory(&self) -> String {
        if let [node] = &self.nodes[..] {
            return format!("all of it on node {}", node.id);
        }
        let of = |node: &HostNode| format!("node {}: {}", node.id, Bytes(node.free));
        self.nodes.iter().map(of).collect::<Vec<_>>().join(", ")
    }

    /// What nodes without CPUs could give and are not asked for, as the end of a sentence; empty
    /// where there is nothing.
    pub(crate) fn left_out(&self) -> String {
        match &self.left_out {
            (_, 0) => String::new(),
            (nodes, free) => format!(
                "; {} without CPUs {} {} more, which policy.far_memory = \"when_full\" would take",
                topology::words::named("node", nodes),
                if nodes.len() == 1 { "has" } else { "have" },
                Bytes(*free)
            ),
        }
    }
}

/// Less than this part of a node's memory left over is worth a word.
pub(crate) const RESERVED_PART: u64 = 32;

/// Memory of a node's pool of huge pages; where nobody says what pools it has, what could be in it.
fn pool(node: &Node, page: Bytes) -> Bytes {
    let whole = node.memory.0 / page.0.max(1);
    Bytes(node.pool(page).map_or(whole, |pool| pool.total).saturating_mul(page.0))
}

/// The nodes of the cards that a VM is drawn to; none where nobody knows any.
fn cards(machine: &Machine, shape: &Shape) -> NodeSet {
    let on = shape.near.iter().filter_map(|device| machine.cards.get(device.as_ref()));
    on.fold(NodeSet::new(), |all, nodes| all.union(nodes))
}

/// How much farther than its own memory a node's CPUs have it to another node, in thousandths.
fn extra_between(machine: &Machine, from: NodeId, to: NodeId) -> u64 {
    let own = u64::from(machine.distance(from, from).max(1));
    (u64::from(machine.distance(from, to)) * 1000 / own).saturating_sub(1000)
}

fn extra(distances: &[Vec<u32>]) -> Vec<Vec<u64>> {
    let of = |from: usize, to: u32| {
        let own = u64::from(distances[from][from].max(1));
        (u64::from(to) * 1000 / own).saturating_sub(1000)
    };
    distances.iter().enumerate().map(|(from, row)| row.iter().map(|&to| of(from, to)).collect()).collect()
}

fn allowed_nodes(machine: &Machine, shape: &Shape) -> Result<NodeSet, PlanError> {
    let allowed: NodeSet = machine.nodes.iter().filter(|node| node.allowed).map(|node| node.id).collect();
    let Some(affinity) = &shape.policy.node_affinity else {
        return Ok(allowed);
    };
    let missing = affinity.difference(&allowed);
    if !missing.is_empty() {
        let (affinity, machine) = (affinity.clone(), machine.name.clone());
        return Err(PlanError::Affinity { vm: shape.name.clone(), affinity, missing, machine, allowed });
    }
    Ok(affinity.clone())
}

/// What ways between these nodes carry, by index.
fn links(machine: &Machine, nodes: &[HostNode]) -> Vec<Vec<Option<u64>>> {
    if machine.bandwidth.links.is_empty() {
        return Vec::new();
    }
    let row = |from: &HostNode| {
        let to = |to: &HostNode| machine.bandwidth.of_link(from.id, to.id).map(|given| given.0);
        nodes.iter().map(to).collect()
    };
    nodes.iter().map(row).collect()
}

/// Distances by index; the machine's own lookup is linear in its nodes.
fn distances(machine: &Machine, nodes: &[HostNode]) -> Vec<Vec<u32>> {
    let table = machine.distances.nodes();
    let row = |node: &HostNode| table.iter().position(|&id| id == node.id);
    let rows: Vec<Option<usize>> = nodes.iter().map(row).collect();
    let get = |from: usize, to: usize| match (rows[from], rows[to]) {
        (Some(i), Some(j)) => machine.distances.rows()[i][j],
        _ => machine.distance(nodes[from].id, nodes[to].id),
    };
    (0..nodes.len()).map(|from| (0..nodes.len()).map(|to| get(from, to)).collect()).collect()
}
