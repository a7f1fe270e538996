//! Putting a machine together that is described, not found: the shared end of the XML, TOML and
//! synthetic readers.

use super::error::{ReadError, check_size};
use crate::{
    Bandwidths, Bytes, CoreId, CpuId, CpuSet, Distances, HardwareThread, HugePages, Llc, LlcId, Machine, MemoryKind,
    Node, NodeId, SocketId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Where a hardware thread is, as far as the levels above it have said.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) socket: Option<SocketId>,
    pub(super) llc: Option<LlcId>,
    pub(super) core: Option<CoreId>,
    /// Index in [`Shape::nodes`]: a node may get its number after its threads.
    pub(super) node: Option<usize>,
    /// Relative to the machine's largest core, which has 1024.
    pub(super) capacity: Option<u32>,
}

/// A machine under construction.
#[derive(Default)]
pub(super) struct Shape {
    pub(super) nodes: Vec<Node>,
    pub(super) llcs: Vec<Llc>,
    pub(super) threads: Vec<(CpuId, Place)>,
    pub(super) cpu_model: Option<String>,
    pub(super) notes: Vec<String>,
    /// CPUs that the kernel's load balancer leaves out.
    pub(super) isolated: CpuSet,
    /// Sockets that were begun.
    pub(super) sockets: BTreeSet<SocketId>,
}

/// A node of a described machine; `memory` is `None` where the source does not say.
pub(super) fn node(id: NodeId, memory: Option<Bytes>, huge_pages: Vec<HugePages>) -> Node {
    let memory_kind = if memory.is_some() { MemoryKind::Ram } else { MemoryKind::Unknown };
    Node { id, memory: memory.unwrap_or_default(), memory_kind, free: None, huge_pages, allowed: true }
}

impl Shape {
    /// The machine, ordered and checked. `describe` gives the error for an id that is there twice.
    pub(super) fn finish(
        mut self,
        name: &str,
        distances: Option<Distances>,
        describe: impl Fn(String) -> ReadError,
    ) -> Result<Machine, ReadError> {
        check_size(name, self.threads.len(), self.nodes.len())?;
        if self.threads.is_empty() {
            return Err(describe("it has no hardware thread".to_owned()));
        }
        if self.nodes.is_empty() {
            self.nodes.push(node(NodeId(0), None, Vec::new()));
            self.notes.push("No NUMA node is given: all is taken as one node, 0.".to_owned());
        }
        self.settle_memory();
        let mut next_core =
            self.threads.iter().filter_map(|(_, place)| place.core).map(|core| core.0 + 1).max().unwrap_or(0);
        self.leave_out_homeless();
        if self.threads.is_empty() {
            return Err(describe("none of its hardware threads is on a NUMA node that it has".to_owned()));
        }
        let nowhere = self.settle_sockets();
        let mut threads = Vec::with_capacity(self.threads.len());
        for (id, place) in &self.threads {
            let core = place.core.unwrap_or_else(|| {
                next_core += 1;
                CoreId(next_core - 1)
            });
            let node = self.nodes[place.node.unwrap_or(0)].id;
            let socket = place.socket.unwrap_or(nowhere);
            threads.push(HardwareThread {
                id: *id,
                core,
                llc: place.llc,
                node,
                socket,
                online: true,
                allowed: true,
                capacity: place.capacity,
            });
        }
        threads.sort_by_key(|thread| thread.id);
        self.nodes.sort_by_key(|node| node.id);
        self.llcs.sort_by_key(|llc| llc.id);
        if let Some(id) = repeated(threads.iter().map(|thread| thread.id.0)) {
            return Err(describe(format!("hardware thread {id} is there twice")));
        }
        if let Some(id) = repeated(self.nodes.iter().map(|node| node.id.0)) {
            return Err(describe(format!("NUMA node {id} is there twice")));
        }
        let distances = distances.unwrap_or_else(|| Distances::flat(self.nodes.iter().map(|node| node.id).collect()));
        Ok(Machine {
            name: name.to_owned(),
            cpu_model: self.cpu_model,
            nodes: self.nodes,
            llcs: self.llcs,
            threads,
            distances,
            cards: BTreeMap::new(),
            bandwidth: Bandwidths::default(),
            isolated: self.isolated,
            nohz_full: CpuSet::new(),
            default_huge_page: None,
            notes: self.notes,
        })
    }
}

impl Shape {
    /// A socket: with the number that is given, unless another has it.
    pub(super) fn new_socket(&mut self, given: Option<SocketId>) -> SocketId {
        let next = || self.sockets.last().map_or(SocketId(0), |last| SocketId(last.0.saturating_add(1)));
        let socket = given.filter(|socket| !self.sockets.contains(socket)).unwrap_or_else(next);
        self.sockets.insert(socket);
        socket
    }

    /// Threads without a node are not used: where one is given, none is guessed.
    fn leave_out_homeless(&mut self) {
        if self.threads.iter().all(|(_, place)| place.node.is_none()) && self.nodes.len() == 1 {
            return;
        }
        let homeless: CpuSet =
            self.threads.iter().filter(|(_, place)| place.node.is_none()).map(|&(id, _)| id).collect();
        if !homeless.is_empty() {
            self.threads.retain(|(_, place)| place.node.is_some());
            self.notes.push(format!(
                "CPUs {homeless} are on no NUMA node that it has (was it made inside a container?): they are not used."
            ));
        }
    }

    /// The socket of threads that have none: one of its own beside those that are given.
    fn settle_sockets(&mut self) -> SocketId {
        let without: CpuSet =
            self.threads.iter().filter(|(_, place)| place.socket.is_none()).map(|&(id, _)| id).collect();
        let last = self.threads.iter().filter_map(|(_, place)| place.socket).max();
        let socket = last.map_or(SocketId(0), |last| SocketId(last.0.saturating_add(1)));
        if without.len() == self.threads.len() {
            self.notes.push("No socket is given: all is taken as one socket, 0.".to_owned());
        } else if !without.is_empty() {
            self.notes.push(format!("CPUs {without} are in no socket that is given: they are taken as one, {socket}."));
        }
        socket
    }

    /// hwloc and libvirt leave out an amount of zero. Where they give none at all, none is known.
    fn settle_memory(&mut self) {
        if self.nodes.iter().any(|node| node.memory > Bytes(0)) {
            let unknown = self.nodes.iter_mut().filter(|node| node.memory_kind == MemoryKind::Unknown);
            unknown.for_each(|node| node.memory_kind = MemoryKind::Ram);
        } else if self.nodes.iter().any(|node| node.memory_kind == MemoryKind::Unknown) {
            self.notes.push("It does not say how much memory the nodes have: no VM can be placed here.".to_owned());
        }
    }
}

/// Isolated CPUs that cannot be: what would be valid.
#[derive(Debug, thiserror::Error)]
#[error("expected some of its CPUs {all}, such as \"2-3,6\", and at least one left to the kernel")]
pub(super) struct IsolatedCpusError {
    all: CpuSet,
}

/// Isolated CPUs as a described machine states them: some of its CPUs, not all.
///
/// # Errors
/// They are no set, or not such a one.
pub(super) fn parse_isolated_cpus(text: &str, shape: &Shape) -> Result<CpuSet, IsolatedCpusError> {
    let all: CpuSet = shape.threads.iter().map(|&(cpu, _)| cpu).collect();
    match text.parse::<CpuSet>() {
        Ok(cpus) if cpus.is_subset(&all) && cpus != all => Ok(cpus),
        _ => Err(IsolatedCpusError { all }),
    }
}

fn repeated(ids: impl Iterator<Item = u32>) -> Option<u32> {
    let mut seen = BTreeSet::new();
    let mut ids = ids;
    ids.find(|&id| !seen.insert(id))
}
