//! Whether the homes have room for what is added to a VM that runs, and which moves make room.
//!
//! **Problem.** Memory that is plugged is bound to the home of its virtual node. Where that is full
//! the kernel kills somebody, or QEMU refuses when the device is half there.
//!
//! **Rule.** Before anything is done, what each home is to get is held against what it has to give.
//! What it lacks is said, with the commands that would make room ([`Move`]): of another client that
//! lives there, to a node that holds it; or of the client that grows, with all that it gets. More
//! vCPUs than hardware threads is a warning only.
//!
//! **Example.** Node 0 has 1 GiB free, and virtual node 0, of 4 GiB, is to get 2 GiB there. A
//! client of 3 GiB lives on node 0 too, and node 1 has 8 GiB free: to move that client copies 3
//! GiB, to move virtual node 0 copies 4.

use super::Growth;
use super::moves::{Move, moves};
use crate::{ClientObservation, Observation, Occupancy, PlanError, VmKey, VmObservation};
use std::collections::BTreeMap;
use topology::words::{count, named};
use topology::{Bytes, Machine, Node, NodeId, NodeSet};
use vm::{Client, MemoryPolicy, NodeSize, Placement, Shape, VirtualTopology};

/// A VM that is to grow, and the host on which it lives.
#[derive(Clone, Copy, Debug)]
pub struct Growing<'a> {
    /// The VM.
    pub vm: &'a VmKey,
    /// Where each of its clients lives now.
    pub placement: &'a Placement,
    /// What each of its virtual nodes has now.
    pub now: &'a [NodeSize],
    /// What its guest sees.
    pub topology: &'a VirtualTopology,
    /// What it is to get.
    pub growth: &'a Growth,
    /// Size of the huge pages of its memory; `None`: ordinary pages.
    pub huge_pages: Option<Bytes>,
    /// The host.
    pub machine: &'a Machine,
    /// What is held of it.
    pub occupancy: &'a Occupancy,
    /// What runs on it.
    pub observation: &'a Observation,
}

/// Homes that have no room for what they are to get.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lacks.iter().map(Lack::to_string).collect::<Vec<_>>().join(". "))]
pub struct NoRoom {
    /// One for each home.
    pub lacks: Vec<Lack>,
}

/// A home that has no room for what it is to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The virtual nodes that are to get it.
    pub virtual_nodes: Vec<u32>,
    /// Their home.
    pub home: NodeSet,
    /// What they are to get.
    pub wanted: Bytes,
    /// What the home has to give.
    pub free: Bytes,
    /// Moves each of which makes room, the cheapest first.
    pub moves: Vec<Move>,
}

/// What homes give already.
type Taken = BTreeMap<NodeId, Bytes>;

/// Moves that an error names.
const MOST_NAMED: usize = 3;

impl std::fmt::Display for Lack {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (wanted, free) = self.wanted.told_apart(self.free);
        let nodes: Vec<String> = self.virtual_nodes.iter().map(u32::to_string).collect();
        let (s, is, has) = match (nodes.len(), self.home.len()) {
            (1, 1) => ("", "is", "has"),
            (1, _) => ("", "is", "have"),
            (_, 1) => ("s", "are", "has"),
            _ => ("s", "are", "have"),
        };
        let (nodes, home) = (nodes.join(", "), named("node", &self.home));
        write!(out, "virtual node{s} {nodes} {is} to get {wanted} on {home}, which {has} {free} free")?;
        if self.moves.is_empty() {
            return write!(
                out,
                "; no move of one client makes room: add less, let other virtual nodes grow, or stop a VM"
            );
        }
        let moves: Vec<String> = self.moves.iter().take(MOST_NAMED).map(Move::to_string).collect();
        write!(out, "; this makes room: {}", moves.join(", or "))
    }
}

/// Whether the homes have room for it; what the user should know otherwise.
///
/// # Errors
/// Homes to which memory is bound lack the memory; of memory that is not, all nodes together.
pub fn room(growing: &Growing<'_>) -> Result<Vec<String>, NoRoom> {
    let mut warnings = crowded(growing);
    let (mut lacks, mut taken) = (Vec::new(), BTreeMap::new());
    // Clients with the least choice first.
    let mut homes: Vec<(NodeSet, Vec<&Client>)> = by_home(growing).into_iter().collect();
    homes.sort_by_key(|(home, _)| home.len());
    for (home, clients) in homes {
        let wanted = clients.iter().map(|client| growing.added(client)).sum::<Bytes>();
        let equal = clients.iter().any(|client| client.memory_policy == MemoryPolicy::Interleave);
        let free = growing.free_of(&home, equal, &taken);
        if wanted <= free {
            growing.take(&home, equal, wanted, &mut taken);
            continue;
        }
        let virtual_nodes = clients.iter().flat_map(|client| growing.nodes_that_get_memory(client)).collect();
        let bound =
            clients.iter().any(|client| matches!(client.memory_policy, MemoryPolicy::Bind | MemoryPolicy::Interleave));
        if !bound {
            let everywhere = growing.usable();
            let in_all = growing.free_of(&everywhere, false, &taken);
            if wanted > in_all {
                lacks.push(Lack { virtual_nodes, home: everywhere, wanted, free: in_all, moves: Vec::new() });
                continue;
            }
            growing.take(&home, false, free, &mut taken);
            growing.take(&everywhere, false, wanted.saturating_sub(free), &mut taken);
            let (wanted, free) = wanted.told_apart(free);
            warnings.push(format!(
                "{} has {free} free, and {wanted} is to come there: a part of it will lie on other nodes",
                named("node", &home)
            ));
            continue;
        }
        let short = wanted.saturating_sub(free);
        let moves = moves(growing, &home, &clients, short, equal);
        lacks.push(Lack { virtual_nodes, home, wanted, free, moves });
    }
    if lacks.is_empty() { Ok(warnings) } else { Err(NoRoom { lacks }) }
}

/// Memory that is taken on touch is promised up to what the machine has in all, as at a power-on.
/// `shape`: the VM as it is to be; `now`: its memory.
///
/// # Errors
/// It grows beyond that.
pub fn is_there(machine: &Machine, shape: &Shape, now: Bytes) -> Result<(), PlanError> {
    let there: Bytes = machine.nodes.iter().filter(|node| node.allowed).map(|node| node.memory).sum();
    if shape.memory <= now.max(there) {
        return Ok(());
    }
    let (vm, machine) = (shape.name.clone(), machine.name.clone());
    Err(PlanError::LargerThanMachine { vm, memory: shape.memory, machine, there })
}

/// The clients that get memory, by the nodes that hold it.
fn by_home<'a>(growing: &Growing<'a>) -> BTreeMap<NodeSet, Vec<&'a Client>> {
    let mut homes = BTreeMap::<NodeSet, Vec<&Client>>::new();
    for client in growing.placement.clients.iter().filter(|client| growing.added(client).0 > 0) {
        homes.entry(client.home.clone()).or_default().push(client);
    }
    homes
}

impl Growing<'_> {
    fn nodes_that_get_memory(&self, client: &Client) -> Vec<u32> {
        client.virtual_nodes.iter().copied().filter(|node| self.added_to(*node).0 > 0).collect()
    }

    fn added_to(&self, virtual_node: u32) -> Bytes {
        let now = self.now.iter().find(|size| size.virtual_node == virtual_node).map_or(Bytes(0), |size| size.memory);
        self.growth.memory.get(&virtual_node).map_or(Bytes(0), |after| after.saturating_sub(now))
    }

    /// Memory that a client is to get.
    pub(super) fn added(&self, client: &Client) -> Bytes {
        client.virtual_nodes.iter().map(|&node| self.added_to(node)).sum()
    }

    pub(super) fn vcpus_added(&self, client: &Client) -> u32 {
        let nodes = self.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
        let plugged = |node: &vm::VirtualNode| self.growth.plug.iter().filter(|vcpu| node.vcpus.contains(vcpu)).count();
        nodes.map(plugged).sum::<usize>() as u32
    }

    /// What a node has to give, of the kind of memory that the VM has.
    fn free(&self, node: &Node) -> Bytes {
        match self.huge_pages {
            Some(page) => self.occupancy.free_huge_pages(node, page),
            None => self.occupancy.free_memory(node),
        }
    }

    /// Nodes that memory may lie on.
    fn usable(&self) -> NodeSet {
        self.machine.nodes.iter().filter(|node| node.allowed).map(|node| node.id).collect()
    }

    /// What a home has to give: in equal parts no more than its fullest node, times their number.
    fn free_of(&self, home: &NodeSet, equal: bool, taken: &Taken) -> Bytes {
        let free = home.iter().map(|node| self.left(node, taken));
        match equal {
            true => Bytes(free.min().unwrap_or_default().0.saturating_mul(home.len() as u64)),
            false => free.sum(),
        }
    }

    fn left(&self, node: NodeId, taken: &Taken) -> Bytes {
        let free = self.machine.node(node).map_or(Bytes(0), |node| self.free(node));
        free.saturating_sub(taken.get(&node).copied().unwrap_or_default())
    }

    /// Notes what a home gives, for the other homes that share nodes with it.
    fn take(&self, home: &NodeSet, equal: bool, wanted: Bytes, taken: &mut Taken) {
        let (mut rest, part) = (wanted, Bytes(wanted.0.div_ceil(home.len().max(1) as u64)));
        for node in home.iter() {
            let given = rest.min(if equal { part } else { self.left(node, taken) });
            let sum = taken.entry(node).or_default();
            *sum = sum.saturating_add(given);
            rest = rest.saturating_sub(given);
        }
    }

    /// The client of the placement that an observed one is.
    pub(super) fn own(&self, vm: &VmObservation, seen: &ClientObservation) -> Option<&Client> {
        let mut clients = self.placement.clients.iter();
        match seen.virtual_node {
            _ if vm.vm != *self.vm => None,
            Some(node) => clients.find(|client| client.virtual_nodes.contains(&node)),
            None => clients.next(),
        }
    }
}

/// Homes that will have more vCPUs than hardware threads.
fn crowded(growing: &Growing<'_>) -> Vec<String> {
    let mut added = BTreeMap::<NodeSet, u32>::new();
    for client in &growing.placement.clients {
        let lives = crate::home::nodes_of(growing.machine, &client.cpus);
        *added.entry(lives).or_default() += growing.vcpus_added(client);
    }
    let over = added.into_iter().filter_map(|(nodes, added)| {
        let held: u32 = nodes.iter().map(|node| growing.occupancy.of(node).vcpus).sum();
        let threads: usize = nodes.iter().map(|node| growing.machine.usable_cpus(node).len()).sum();
        let vcpus = held + added;
        (added > 0 && vcpus as usize > threads).then(|| {
            format!("{} will have {vcpus} vCPUs on {}", named("node", &nodes), count(threads, "hardware thread"))
        })
    });
    over.collect()
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
