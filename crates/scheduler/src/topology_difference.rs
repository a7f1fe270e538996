//! What another virtual topology would change for a guest, in sentences.

use topology::words::count;
use topology::{Bytes, CpuId, CpuSet};
use vm::{VirtualNode, VirtualTopology};

/// What a guest would see otherwise at its next power-on with `new` instead of `old`. Empty where
/// they are the same.
pub fn topology_difference(old: &VirtualTopology, new: &VirtualTopology) -> Vec<String> {
    let mut found = Vec::new();
    if old.exposed != new.exposed {
        let told = |topology: &VirtualTopology| if topology.exposed { "is told" } else { "is not told" };
        found.push(format!("the guest {} of its nodes; now it {}", told(new), told(old)));
    }
    if old.nodes.len() != new.nodes.len() {
        let (one, other) = (count(new.nodes.len(), "virtual node"), old.nodes.len());
        found.push(format!("{one} ({}), now {other} ({})", sizes(new), sizes(old)));
    } else {
        found.extend(old.nodes.iter().zip(&new.nodes).flat_map(|(old, new)| node(old, new)));
    }
    let shape = |of: &VirtualTopology| (of.sockets, of.cores_per_socket, of.dies_per_socket, of.threads_per_core);
    if shape(old) != shape(new) {
        found.push(format!("{}, now {}", sockets(new), sockets(old)));
    }
    if old.nodes.len() == new.nodes.len() {
        found.extend(distances(old, new));
    }
    found
}

fn sizes(topology: &VirtualTopology) -> String {
    let of = |node: &VirtualNode| format!("{} with {}", count(node.vcpus.len(), "vCPU"), most(node));
    topology.nodes.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn most(node: &VirtualNode) -> Bytes {
    node.memory.saturating_add(node.growth)
}

fn node(old: &VirtualNode, new: &VirtualNode) -> Vec<String> {
    let set = |vcpus: &[u32]| vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect::<CpuSet>();
    let list = |vcpus: CpuSet| if vcpus.is_empty() { "none".to_owned() } else { vcpus.to_string() };
    let at_start = |node: &VirtualNode| list(node.present().map(CpuId).collect());
    let mut found = Vec::new();
    let mut say = |what: &str, new: String, old: String| {
        if new != old {
            found.push(format!("{what} {new}, now {old}"));
        }
    };
    let id = new.id;
    say(&format!("virtual node {id}: vCPUs"), list(set(&new.vcpus)), list(set(&old.vcpus)));
    say(&format!("virtual node {id}: vCPUs at power-on"), at_start(new), at_start(old));
    if old.memory != new.memory {
        let (new, old) = new.memory.told_apart(old.memory);
        say(&format!("virtual node {id}: memory at power-on"), new, old);
    }
    if most(old) != most(new) {
        let (new, old) = most(new).told_apart(most(old));
        say(&format!("virtual node {id}: memory at most"), new, old);
    }
    found
}

fn sockets(topology: &VirtualTopology) -> String {
    let threads = topology.threads_per_core;
    let cores = count(topology.cores_per_socket as usize, "core");
    let each = if threads == 1 { cores } else { format!("{cores} of {threads} threads") };
    let dies =
        if topology.dies_per_socket == 1 { String::new() } else { format!(" in {} dies", topology.dies_per_socket) };
    format!("{} of {each}{dies}", count(topology.sockets as usize, "virtual socket"))
}

/// One sentence for all distances.
fn distances(old: &VirtualTopology, new: &VirtualTopology) -> Option<String> {
    let rows = |topology: &VirtualTopology| -> String {
        let row = |row: &Vec<u32>| row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        topology.distances.iter().map(row).collect::<Vec<_>>().join(" / ")
    };
    let told = old.exposed && new.exposed && old.distances != new.distances;
    told.then(|| format!("distances between the virtual nodes: {}, now {}", rows(new), rows(old)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(nodes: &[(u32, u32, u64, u64)]) -> VirtualTopology {
        let mut next = 0;
        let node = |(id, &(vcpus, at_start, gib, most)): (usize, &(u32, u32, u64, u64))| {
            let first = next;
            next += vcpus;
            VirtualNode {
                id: id as u32,
                vcpus: (first..next).collect(),
                absent: (first + at_start..next).collect(),
                memory: Bytes(gib << 30),
                growth: Bytes((most - gib) << 30),
            }
        };
        let row = |i: usize| (0..nodes.len()).map(|j| if i == j { 10 } else { 20 }).collect();
        let (sockets, cores_per_socket) = (nodes.len() as u32, nodes[0].0);
        VirtualTopology {
            exposed: nodes.len() > 1,
            nodes: nodes.iter().enumerate().map(node).collect(),
            sockets,
            cores_per_socket,
            dies_per_socket: 1,
            threads_per_core: 1,
            distances: (0..nodes.len()).map(row).collect(),
        }
    }

    #[test]
    fn the_same_is_no_difference() {
        let two = topology(&[(4, 2, 4, 8), (4, 2, 4, 8)]);
        assert!(topology_difference(&two, &two).is_empty());
    }

    #[test]
    fn each_difference_is_a_sentence() {
        let two = topology(&[(4, 2, 4, 8), (4, 2, 4, 8)]);
        let one = topology(&[(8, 8, 8, 8)]);
        assert_eq!(
            topology_difference(&two, &one),
            [
                "the guest is not told of its nodes; now it is told",
                "1 virtual node (8 vCPUs with 8 GiB), now 2 (4 vCPUs with 8 GiB, 4 vCPUs with 8 GiB)",
                "1 virtual socket of 8 cores, now 2 virtual sockets of 4 cores",
            ]
        );
        let mut other = topology(&[(4, 4, 4, 12), (5, 0, 6, 8)]);
        (other.sockets, other.cores_per_socket) = (9, 1);
        other.distances[0][1] = 31;
        assert_eq!(
            topology_difference(&two, &other),
            [
                "virtual node 0: vCPUs at power-on 0-3, now 0-1",
                "virtual node 0: memory at most 12 GiB, now 8 GiB",
                "virtual node 1: vCPUs 4-8, now 4-7",
                "virtual node 1: vCPUs at power-on none, now 4-5",
                "virtual node 1: memory at power-on 6 GiB, now 4 GiB",
                "9 virtual sockets of 1 core, now 2 virtual sockets of 4 cores",
                "distances between the virtual nodes: 10 31 / 20 10, now 10 20 / 20 10",
            ]
        );
    }
}
