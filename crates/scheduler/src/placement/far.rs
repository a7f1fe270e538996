//! Memory on nodes without CPUs by bandwidth (`policy.far_memory = "by_bandwidth"`).
//!
//! **Problem.** Threads that stream are held up by their node's memory controllers. An expander
//! beside the node has controllers of its own; who uses both at once, each as fast as it is, waits
//! least.
//!
//! **Rule.** Of a client's memory the nodes without CPUs that are nearest to its home give as much
//! as they give of the bandwidth of all of these together, in steps of 2 MiB, and no more than they
//! have room for. What they lack stays near. Only then what is near is divided.
//!
//! **Properties.** Without that policy nothing of this happens. A node without CPUs keeps its
//! reserve. The search counts with what stays near at least.
//!
//! **Example.** Node 0 gives 90 GB/s, node 2 without CPUs 30: of 8 GiB at home on node 0, 2 GiB lie
//! on node 2.

use super::homes::{CpuHome, Demand, Home};
use crate::host::{Host, HostNode};
use topology::{Bytes, NodeSet};

/// Memory lies in pieces of this size: a huge page is not cut.
const STEP: u64 = 2 * Bytes::MIB.0;

/// Nodes with memory of which nobody says what they give, where a node without CPUs is among all.
pub(crate) fn unknown(nodes: &[HostNode]) -> Option<NodeSet> {
    let counts = |node: &&HostNode| node.bandwidth.is_none() && node.memory > 0;
    let unknown: NodeSet = nodes.iter().filter(counts).map(|node| node.id).collect();
    (nodes.iter().any(|node| node.memory_only) && !unknown.is_empty()).then_some(unknown)
}

/// The nodes without CPUs that are nearest to a home of these nodes, by index; none where memory is
/// not divided by bandwidth.
fn nearest(host: &Host, home: &[usize]) -> Vec<usize> {
    let away = |node: usize| home.iter().map(|&own| host.extra[own][node]).sum::<u64>();
    let far = || (0..host.nodes.len()).filter(|&node| host.nodes[node].memory_only && gives(host, node) > 0);
    let least = far().map(away).min();
    far().filter(|&node| Some(away(node)) == least).collect()
}

fn gives(host: &Host, node: usize) -> u64 {
    host.nodes[node].bandwidth.filter(|_| host.divides_memory).unwrap_or(0)
}

/// Of so many bytes at this home, those on each node without CPUs: index, bytes.
fn wanted(host: &Host, home: &[usize], memory: u64) -> Vec<(usize, u64)> {
    let far = nearest(host, home);
    let all: u64 = home.iter().chain(&far).map(|&node| gives(host, node)).sum();
    let part = |node: usize| u128::from(memory) * u128::from(gives(host, node)) / u128::from(all.max(1));
    far.into_iter().map(|node| (node, part(node) as u64 / STEP * STEP)).collect()
}

/// Of so many bytes, those that stay near wherever the home is: what the search counts with.
pub(super) fn near(host: &Host, memory: u64) -> u64 {
    let homes = (0..host.nodes.len()).filter(|&node| host.nodes[node].threads > 0);
    let far = homes.map(|home| wanted(host, &[home], memory).iter().map(|(_, bytes)| bytes).sum::<u64>());
    memory - far.min().unwrap_or(0)
}

/// Bytes of each client on each node without CPUs, by index; taken from `room`.
pub(super) fn parts(host: &Host, demands: &[Demand], homes: &[&CpuHome], room: &mut [u64]) -> Vec<Vec<u64>> {
    let of = |(demand, home): (&Demand, &&CpuHome)| {
        let mut bytes = vec![0; room.len()];
        for (node, wanted) in wanted(host, &home.nodes, demand.memory) {
            let kept = room[node].saturating_sub(host.reserve(node)) / STEP * STEP;
            bytes[node] = wanted.min(kept);
            room[node] -= bytes[node];
        }
        bytes
    };
    demands.iter().zip(homes).map(of).collect()
}

/// A home with these bytes on nodes without CPUs beside its own.
pub(super) fn with(home: Home, far: &[u64]) -> Home {
    if far.iter().all(|&bytes| bytes == 0) {
        return home;
    }
    let of = |node: usize| home.nodes.iter().position(|&own| own == node);
    let nodes: Vec<usize> = (0..far.len()).filter(|&node| far[node] > 0 || of(node).is_some()).collect();
    let micro = nodes.iter().map(|&node| of(node).map_or(0, |at| home.micro[at])).collect();
    let bytes = nodes.iter().map(|&node| far[node] + of(node).map_or(0, |at| home.bytes[at])).collect();
    Home { nodes, micro, bytes, equal: false }
}

/// What of a home lies on nodes without CPUs by bandwidth: index, bytes.
pub(crate) fn of(host: &Host, home: &Home) -> Vec<(usize, u64)> {
    let is_far = |&(node, bytes): &(usize, u64)| bytes > 0 && host.nodes[node].memory_only && gives(host, node) > 0;
    home.nodes.iter().copied().zip(home.bytes.iter().copied()).filter(is_far).collect()
}
