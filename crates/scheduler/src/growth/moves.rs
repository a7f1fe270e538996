//! Moves of one client to another node: which may be, and which make room for a VM that grows.
//!
//! **Rule.** A client may move to a node that has the hardware threads for its vCPUs and the memory
//! for what of it lies elsewhere, where nothing ties it: its host's cpusets, somebody's choice of
//! nodes or of single CPUs, a device that pins its memory. Room is made by another client that
//! lives on the full home, or by the client that grows, with all that it gets. The cheapest first,
//! by the bytes that have to be copied.
//!
//! **Example.** A client of 3 GiB and 2 vCPUs lives on node 0. Node 1 has 2 GiB free, node 2 has 8
//! GiB and 4 threads, of which others have 1: it may go to node 2.

use super::room::Growing;
use crate::{ClientId, ClientObservation, Holding, Mobility, Observation, Occupancy, VmKey, VmObservation, home};
use topology::words::{count, quoted};
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};
use vm::Client;

/// A move of one client that makes room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The VM.
    pub vm: VmKey,
    /// The client.
    pub client: ClientId,
    /// Whether it is the one that grows.
    pub grows: bool,
    /// Where it goes.
    pub to: NodeId,
    /// Memory that has to be copied.
    pub bytes: Bytes,
}

/// The command that does it, and what it copies.
impl std::fmt::Display for Move {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { vm, client, to, bytes, .. } = self;
        let name = quoted(&vm.name);
        // Nothing in a name becomes an option.
        let (before, after) = if name.starts_with('-') {
            (String::new(), format!(" -- {name}"))
        } else {
            (format!(" {name}"), String::new())
        };
        write!(out, "`homenode vm move{before} --client {} --to {to}{after}` ({bytes} to copy)", client.0)
    }
}

/// Why a client may not move to a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The host has no such node, or none of whose CPUs VMs may use.
    #[error("--to {node}: {}", no_node(valid))]
    NoNode {
        /// What was named.
        node: NodeId,
        /// Nodes with CPUs and memory.
        valid: NodeSet,
    },
    /// The VM cannot move.
    #[error("it cannot move: {because}")]
    Fixed {
        /// Why.
        because: String,
    },
    /// Something ties it to other nodes.
    #[error("--to {node}: it may live on nodes {allowed} only: {because}")]
    Tied {
        /// What was named.
        node: NodeId,
        /// Where it may live.
        allowed: NodeSet,
        /// What ties it.
        because: &'static str,
    },
    /// Its vCPUs have single CPUs.
    #[error("its vCPUs are bound to CPUs {cpus}, a part of a node: whoever bound them chose that")]
    BoundCpus {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Nobody can say where its memory is.
    #[error("its memory cannot be seen{}", because.as_ref().map_or_else(String::new, |because| format!(": {because}")))]
    Unseen {
        /// Why not.
        because: Option<String>,
    },
    /// The node lacks hardware threads.
    #[error("--to {node}: it has {}, and would have {vcpus} vCPUs", count(*threads, "hardware thread"))]
    NoThreads {
        /// What was named.
        node: NodeId,
        /// What it has.
        threads: usize,
        /// vCPUs that would live there.
        vcpus: u32,
    },
    /// The node lacks memory.
    #[error("--to {node}: {} are to come there, and {} are \
        free", wanted.told_apart(*free).0, wanted.told_apart(*free).1)]
    NoMemory {
        /// What was named.
        node: NodeId,
        /// What is to come there.
        wanted: Bytes,
        /// What is free.
        free: Bytes,
    },
}

fn no_node(valid: &NodeSet) -> String {
    format!("no node with CPUs and memory that VMs may use; this host has {valid}")
}

/// A client of a VM that runs, beside all others on a machine.
#[derive(Clone, Copy, Debug)]
pub struct Moving<'a> {
    /// The VM.
    pub vm: &'a VmObservation,
    /// The client.
    pub client: &'a ClientObservation,
    /// The host.
    pub machine: &'a Machine,
    /// What is held of it, by this client too.
    pub occupancy: &'a Occupancy,
}

impl Moving<'_> {
    /// Whether it may move to a node, where it then has so many more vCPUs and so much more memory.
    ///
    /// # Errors
    /// It may not.
    pub fn check(&self, to: NodeId, more: (u32, Bytes)) -> Result<(), MoveError> {
        let Self { vm, client, machine, occupancy } = *self;
        let usable =
            |node: &&topology::Node| node.allowed && node.memory.0 > 0 && !machine.usable_cpus(node.id).is_empty();
        let Some(node) = machine.node(to).filter(usable) else {
            let valid = machine.nodes.iter().filter(usable).map(|node| node.id).collect();
            return Err(MoveError::NoNode { node: to, valid });
        };
        match &vm.mobility {
            Mobility::Movable => {}
            Mobility::MemoryFixed { because } | Mobility::Fixed { because } => {
                return Err(MoveError::Fixed { because: because.clone() });
            }
        }
        if client.memory.is_none() {
            return Err(MoveError::Unseen { because: client.memory_unknown_because.clone() });
        }
        let tied = |allowed: &NodeSet, because| match allowed.contains(to) {
            true => Ok(()),
            false => Err(MoveError::Tied { node: to, allowed: allowed.clone(), because }),
        };
        let spread = "somebody interleaved its memory over these, and all of them are its home";
        let nowhere = |_| Err(MoveError::Tied { node: to, allowed: client.spread_nodes.clone(), because: spread });
        client.spread_nodes.first().map_or(Ok(()), nowhere)?;
        client.chosen_nodes.as_ref().map_or(Ok(()), |nodes| tied(nodes, "its memory was bound there"))?;
        let because = match vm.stated_nodes.as_ref().is_some_and(|stated| !stated.contains(to)) {
            true => "policy.node_affinity of its spec, or a rule, says so",
            false => "its cpuset or its node affinity says so",
        };
        vm.allowed(machine).map_or(Ok(()), |nodes| tied(&nodes, because))?;
        if self.client.groups.is_empty() && self.has_part_of_a_node() {
            return Err(MoveError::BoundCpus { cpus: client.cpus.clone() });
        }
        let held = self.held();
        let there = occupancy.of(to).vcpus.saturating_sub(held.of(to).vcpus);
        let (threads, vcpus) = (machine.usable_cpus(to).len(), there + client.vcpus + more.0);
        if vcpus as usize > threads {
            return Err(MoveError::NoThreads { node: to, threads, vcpus });
        }
        let all: Bytes = held.nodes.values().map(|held| held.memory).sum();
        let wanted = all.saturating_sub(held.of(to).memory).saturating_add(more.1);
        let free = match client.huge_page_size {
            Some(page) => occupancy.free_huge_pages(node, page),
            None => occupancy.free_memory(node),
        };
        if wanted > free { Err(MoveError::NoMemory { node: to, wanted, free }) } else { Ok(()) }
    }

    /// What the client holds of each node.
    pub fn held(&self) -> Occupancy {
        Occupancy::of_running([Holding::of(self.vm, self.client, self.machine)], self.machine)
    }

    /// Resident memory that a move to a node copies.
    pub fn copied(&self, to: NodeId) -> Bytes {
        let resident = self.client.memory.iter().flatten();
        resident.filter(|(from, _)| **from != to).map(|(_, bytes)| *bytes).sum()
    }

    /// Whether somebody gave its vCPUs fewer CPUs than their nodes have, where no cpuset did.
    fn has_part_of_a_node(&self) -> bool {
        let limit = self.vm.limits.as_ref().and_then(|limits| limits.cpus.as_ref());
        home::nodes_of(self.machine, &self.client.cpus).iter().any(|node| {
            let all = self.machine.usable_cpus(node);
            let may_use = limit.map_or_else(|| all.clone(), |limit| all.intersection(limit));
            !may_use.is_subset(&self.client.cpus)
        })
    }
}

/// Moves of one client each of which leaves the home with `short` more bytes, or takes what grows
/// elsewhere.
pub(super) fn moves(
    growing: &Growing<'_>,
    home: &NodeSet,
    clients: &[&Client],
    short: Bytes,
    equal: bool,
) -> Vec<Move> {
    let Growing { machine, occupancy, observation, .. } = *growing;
    let Observation { vms, .. } = observation;
    let mut moves = Vec::new();
    for vm in vms.iter().filter(|vm| !vm.stranger) {
        for client in vm.clients.iter().filter(|client| client.huge_page_size == growing.huge_pages) {
            let own = growing.own(vm, client).filter(|own| clients.iter().any(|client| client.id == own.id));
            let moving = Moving { vm, client, machine, occupancy };
            let held = moving.held();
            let on = |node: NodeId| held.of(node).memory;
            let more = own.map_or((0, Bytes(0)), |own| (growing.vcpus_added(own), growing.added(own)));
            // In equal parts the fullest node decides.
            let freed = match equal {
                true => Bytes(home.iter().map(on).min().unwrap_or_default().0.saturating_mul(home.len() as u64)),
                false => home.iter().map(on).sum(),
            };
            if freed.saturating_add(more.1) < short {
                continue;
            }
            let nodes = machine.nodes.iter().map(|node| node.id).filter(|node| !home.contains(*node));
            let fits = nodes.filter(|&node| moving.check(node, more).is_ok());
            let to = fits.map(|to| {
                let bytes = moving.copied(to);
                Move { vm: vm.vm.clone(), client: client.id, grows: own.is_some(), to, bytes }
            });
            moves.extend(to.min_by_key(|to| (to.bytes, to.to)));
        }
    }
    moves.sort_by(|a, b| (a.bytes, a.grows, &a.vm, a.client).cmp(&(b.bytes, b.grows, &b.vm, b.client)));
    moves
}
