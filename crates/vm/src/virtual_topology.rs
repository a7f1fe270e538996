//! What the guest sees of NUMA.

use crate::{NodeSize, Shape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use topology::{Bytes, CpuId, CpuSet};

/// One node of the virtual topology, as the guest sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualNode {
    /// The guest's node number, from 0.
    pub id: u32,
    /// Indices of all vCPUs that it has or may get, rising; each vCPU of the VM is in exactly one
    /// node.
    pub vcpus: Vec<u32>,
    /// Those of them that are not there at power-on and may be plugged later, rising.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<u32>,
    /// Memory of the node at power-on, in whole MiB.
    pub memory: Bytes,
    /// Memory that may be plugged later.
    #[serde(default, skip_serializing_if = "is_none")]
    pub growth: Bytes,
}

fn is_none(bytes: &Bytes) -> bool {
    bytes.0 == 0
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

impl VirtualNode {
    /// Indices of the vCPUs that are there at power-on, rising.
    pub fn present(&self) -> impl Iterator<Item = u32> + '_ {
        self.vcpus.iter().copied().filter(|vcpu| !self.absent.contains(vcpu))
    }
}

/// What the guest sees; fixed from the first power-on, for life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualTopology {
    /// Whether the guest is told of its nodes. False: one uniform node, and `nodes` holds exactly
    /// that one.
    pub exposed: bool,
    /// The nodes, by id.
    pub nodes: Vec<VirtualNode>,
    /// Virtual sockets. No node's vCPUs share a socket with another node's.
    pub sockets: u32,
    /// Cores in a virtual socket, over all of its dies.
    pub cores_per_socket: u32,
    /// Dies in a virtual socket, which divide its cores evenly. Each has a last-level cache: so a
    /// socket that is wider than the machine's caches is told of them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub dies_per_socket: u32,
    /// Hardware threads in a virtual core.
    pub threads_per_core: u32,
    /// `distances[i][j]`: SLIT value from node i to node j.
    pub distances: Vec<Vec<u32>>,
}

impl VirtualTopology {
    /// vCPUs that are there at power-on.
    pub fn vcpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.present().count() as u32).sum()
    }

    /// All vCPUs that it has or may get.
    pub fn max_vcpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.vcpus.len() as u32).sum()
    }

    /// Memory that is there at power-on.
    pub fn memory(&self) -> Bytes {
        self.nodes.iter().map(|node| node.memory).sum()
    }

    /// All memory that it has or may get.
    pub fn max_memory(&self) -> Bytes {
        self.memory().saturating_add(self.nodes.iter().map(|node| node.growth).sum())
    }

    /// The same nodes with these sizes at power-on: at most what each may grow to. Nodes that are
    /// not named keep theirs.
    #[must_use]
    pub fn powered_on_with(&self, sizes: &[NodeSize]) -> Self {
        let mut topology = self.clone();
        for node in &mut topology.nodes {
            let Some(size) = sizes.iter().find(|size| size.virtual_node == node.id) else { continue };
            let most = node.memory.saturating_add(node.growth);
            node.absent = node.vcpus.iter().copied().filter(|vcpu| !size.vcpus.contains(vcpu)).collect();
            node.memory = size.memory.min(most);
            node.growth = most.saturating_sub(node.memory);
        }
        topology
    }

    /// What a spec wants that this topology, which is fixed for life, does not give; `None` where a
    /// VM of that spec can have it.
    pub fn misfit(&self, shape: &Shape) -> Option<Misfit> {
        let vcpus = |field, wanted: u32, has: u32| {
            (wanted != has).then(|| Misfit { field, wanted: wanted.to_string(), has: has.to_string() })
        };
        let memory = |field, wanted: Bytes, has: Bytes| {
            let (wants, gives) = wanted.told_apart(has);
            (wanted != has).then_some(Misfit { field, wanted: wants, has: gives })
        };
        vcpus("vcpus", shape.vcpus, self.vcpus())
            .or_else(|| vcpus("max_vcpus", shape.most_vcpus(), self.max_vcpus()))
            .or_else(|| memory("memory", shape.memory, self.memory()))
            .or_else(|| memory("max_memory", shape.most_memory(), self.max_memory()))
    }

    /// The numbers by which a Linux guest calls the vCPUs of a node after its power-on: it counts
    /// those that are there, in the order of their indices.
    pub fn guest_cpus(&self, node: &VirtualNode) -> CpuSet {
        let all: BTreeSet<u32> = self.nodes.iter().flat_map(VirtualNode::present).collect();
        (0..).zip(all).filter(|(_, vcpu)| node.vcpus.contains(vcpu)).map(|(number, _)| CpuId(number)).collect()
    }

    /// vCPUs of which the guest is told that they share a last-level cache: those of a die. Those
    /// of a cache are numbered in a row.
    pub fn vcpus_per_cache(&self) -> u32 {
        (self.cores_per_socket * self.threads_per_core / self.dies_per_socket.max(1)).max(1)
    }

    /// Sockets that a guest sees after its power-on: those with a vCPU that is there.
    pub fn guest_sockets(&self) -> usize {
        let size = (self.cores_per_socket * self.threads_per_core).max(1);
        self.nodes.iter().flat_map(VirtualNode::present).map(|vcpu| vcpu / size).collect::<BTreeSet<_>>().len()
    }
}

/// Why a spec does not go with a virtual topology that is fixed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {wanted} in the spec and {has} in its virtual topology, which is fixed since its first power-on")]
pub struct Misfit {
    /// The field of the spec.
    pub field: &'static str,
    /// Its value.
    pub wanted: String,
    /// What the topology gives.
    pub has: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_goes_with_a_topology_of_its_sizes() {
        let topology = crate::samples::topology();
        let shape = Shape {
            vcpus: 2,
            max_vcpus: Some(4),
            memory: Bytes::GIB,
            max_memory: Some(Bytes::from_mib(3072)), // 2 x (512 + 1024)
            ..Shape::default()
        };
        assert_eq!(topology.misfit(&shape), None);
        // Node 0 got its second vCPU and 256 MiB of its 1024 more.
        let size = NodeSize { virtual_node: 0, vcpus: [0, 1].into(), memory: Bytes::from_mib(768) };
        let grown = topology.powered_on_with(&[size]);
        assert_eq!((grown.vcpus(), grown.memory()), (3, Bytes::from_mib(1280)));
        assert_eq!((grown.max_vcpus(), grown.max_memory()), (4, Bytes::from_mib(3072)));
        let field = |shape: Shape| topology.misfit(&shape).map(|misfit| misfit.field);
        assert_eq!(field(Shape { vcpus: 3, ..shape.clone() }), Some("vcpus"));
        assert_eq!(field(Shape { max_vcpus: None, ..shape.clone() }), Some("max_vcpus"));
        assert_eq!(field(Shape { memory: Bytes::from_mib(512), ..shape.clone() }), Some("memory"));
        assert_eq!(field(Shape { max_memory: None, ..shape }), Some("max_memory"));
    }

    #[test]
    fn a_guest_counts_the_vcpus_that_are_there() {
        let node = |id: u32, vcpus: Vec<u32>, absent: Vec<u32>| VirtualNode { id, vcpus, absent, ..Default::default() };
        let topology = VirtualTopology {
            exposed: true,
            nodes: vec![node(0, vec![0, 1, 2, 3], vec![2, 3]), node(1, vec![4, 5, 6, 7], vec![6, 7])],
            sockets: 4,
            cores_per_socket: 2,
            dies_per_socket: 1,
            threads_per_core: 1,
            distances: Vec::new(),
        };
        // 0, 1, 4 and 5 are there, in the first socket of each node.
        let numbers = |node: usize| topology.guest_cpus(&topology.nodes[node]).to_string();
        assert_eq!((numbers(0), numbers(1), topology.guest_sockets()), ("0-1".to_owned(), "2-3".to_owned(), 2));
    }
}
