//! Homes for a fixed virtual topology.

mod examples;
mod properties;
mod uneven;

use topology::Bytes;
use vm::{VirtualNode, VirtualTopology};

/// Virtual nodes of so many vCPUs and so much memory (MiB), and what the guest was told.
pub(crate) fn topology(nodes: &[(u32, u64)], distances: Vec<Vec<u32>>) -> VirtualTopology {
    let mut next = 0;
    let node = |(id, &(vcpus, mib)): (usize, &(u32, u64))| {
        next += vcpus;
        VirtualNode {
            id: id as u32,
            vcpus: (next - vcpus..next).collect(),
            memory: Bytes::from_mib(mib),
            ..VirtualNode::default()
        }
    };
    VirtualTopology {
        exposed: nodes.len() > 1,
        nodes: nodes.iter().enumerate().map(node).collect(),
        sockets: nodes.len() as u32,
        cores_per_socket: nodes[0].0,
        dies_per_socket: 1,
        threads_per_core: 1,
        distances,
    }
}

/// Distances of pairs of nodes: `near` inside a pair, `far` outside.
pub(crate) fn pairs(count: usize, near: u32, far: u32) -> Vec<Vec<u32>> {
    let entry = |i: usize, j: usize| match (i == j, i / 2 == j / 2) {
        (true, _) => 10,
        (false, true) => near,
        (false, false) => far,
    };
    (0..count).map(|i| (0..count).map(|j| entry(i, j)).collect()).collect()
}
