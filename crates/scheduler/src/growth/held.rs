//! What a VM that grows will hold of each machine node beyond what it has: what is reserved while
//! it grows.

use super::Growth;
use std::collections::BTreeMap;
use topology::{Bytes, NodeId};
use vm::{NodeSize, NodeUse, Placement, VirtualTopology};

/// What a growth adds to each machine node: memory in equal parts over the nodes of a home, vCPUs
/// on its first.
pub fn more_held(
    placement: &Placement,
    topology: &VirtualTopology,
    now: &[NodeSize],
    growth: &Growth,
) -> BTreeMap<NodeId, NodeUse> {
    let added = |node: &u32| {
        let has = now.iter().find(|size| size.virtual_node == *node).map_or(Bytes(0), |size| size.memory);
        growth.memory.get(node).map_or(Bytes(0), |size| size.saturating_sub(has))
    };
    let mut more = BTreeMap::<NodeId, NodeUse>::new();
    for client in &placement.clients {
        let own = topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
        let vcpus = own.flat_map(|node| &node.vcpus).filter(|vcpu| growth.plug.contains(vcpu)).count() as u32;
        let memory: Bytes = client.virtual_nodes.iter().map(added).sum();
        let part = Bytes(memory.0.div_ceil(client.home.len().max(1) as u64));
        for (index, node) in client.home.iter().enumerate() {
            let held = more.entry(node).or_default();
            held.memory = held.memory.saturating_add(part);
            held.vcpus += if index == 0 { vcpus } else { 0 };
        }
    }
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm::{Client, MemoryPolicy, VirtualNode};

    fn gib(gib: u64) -> Bytes {
        Bytes(gib << 30)
    }

    fn client(id: u32, home: &str) -> Client {
        Client {
            id,
            virtual_nodes: vec![id],
            home: home.parse().unwrap(),
            cpus: "0".parse().unwrap(),
            memory_policy: MemoryPolicy::Bind,
            vcpu_cpus: BTreeMap::new(),
            groups: Vec::new(),
            far: Vec::new(),
        }
    }

    #[test]
    fn what_is_added_is_held_at_the_homes() {
        let placement = Placement { clients: vec![client(0, "0"), client(1, "1-2")] };
        let node = |id: u32| VirtualNode { id, vcpus: vec![id * 2, id * 2 + 1], ..VirtualNode::default() };
        let (nodes, distances) = (vec![node(0), node(1)], Vec::new());
        let topology = VirtualTopology {
            exposed: true,
            nodes,
            sockets: 2,
            cores_per_socket: 2,
            dies_per_socket: 1,
            threads_per_core: 1,
            distances,
        };
        let size = |virtual_node| NodeSize { virtual_node, vcpus: [virtual_node * 2].into(), memory: gib(2) };
        let growth = Growth { plug: vec![1, 3], memory: BTreeMap::from([(1, gib(4))]), ..Growth::default() };
        let more = more_held(&placement, &topology, &[size(0), size(1)], &growth);
        let held = |vcpus, memory| NodeUse { vcpus, memory, resident: Bytes(0), ..NodeUse::default() };
        // vCPU 1 is client 0's, 3 client 1's, whose 4 - 2 = 2 GiB lie on two nodes.
        let expected = [(NodeId(0), held(1, gib(0))), (NodeId(1), held(1, gib(1))), (NodeId(2), held(0, gib(1)))];
        assert_eq!(more, BTreeMap::from(expected));
    }
}
