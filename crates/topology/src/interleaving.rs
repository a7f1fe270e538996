//! Sockets that are one NUMA node together.
//!
//! **Problem.** With node interleaving in the BIOS (or `numa=off` on the kernel's command line) a
//! machine of several processors shows one node. Half of every program's memory is remote, and
//! nothing shows it.
//!
//! **Rule.** A node with the CPUs of several sockets, each of at least two cores. A socket of one
//! core is one of a VM that was given a socket for each vCPU; sockets whose cores are unlike are
//! clusters of one chip, which arm counts so.
//!
//! **Example.** Two sockets of 6 cores and one node of 7.8 GiB.

use crate::{CoreId, Machine, NodeId, SocketId};
use std::collections::{BTreeMap, BTreeSet};

const FEWEST_CORES: usize = 2;

impl Machine {
    /// A node that has the CPUs of several sockets, and how many; `None`: each has those of one.
    pub fn node_of_several_sockets(&self) -> Option<(NodeId, usize)> {
        if self.threads.iter().any(|thread| thread.capacity.is_some()) {
            return None;
        }
        let mut nodes = BTreeMap::<NodeId, BTreeMap<SocketId, BTreeSet<CoreId>>>::new();
        for thread in &self.threads {
            nodes.entry(thread.node).or_default().entry(thread.socket).or_default().insert(thread.core);
        }
        let spans = |sockets: &BTreeMap<SocketId, BTreeSet<CoreId>>| {
            sockets.len() > 1 && sockets.values().all(|cores| cores.len() >= FEWEST_CORES)
        };
        nodes.into_iter().find(|(_, sockets)| spans(sockets)).map(|(node, sockets)| (node, sockets.len()))
    }
}
