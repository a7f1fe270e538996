//! Specs and plans for tests.

use topology::Bytes;
use vm::{Client, MemoryPolicy, Placement, Plan, Shape, VirtualNode, VirtualTopology, VmSpec};

/// A spec with nothing special.
pub(crate) fn spec(name: &str, vcpus: u32, memory_mib: u64) -> VmSpec {
    let shape = Shape { name: name.into(), vcpus, memory: Bytes::from_mib(memory_mib), ..Shape::default() };
    VmSpec { shape, ..VmSpec::default() }
}

/// A plan of equal virtual nodes, each a socket and a client, all at home on node 0 with CPUs 0-1.
pub(crate) fn plan(name: &str, nodes: u32, vcpus_per_node: u32, mib_per_node: u64) -> Plan {
    let node = |id: u32| VirtualNode {
        id,
        vcpus: (id * vcpus_per_node..(id + 1) * vcpus_per_node).collect(),
        memory: Bytes::from_mib(mib_per_node),
        ..VirtualNode::default()
    };
    let client = |id: u32| Client {
        id,
        virtual_nodes: vec![id],
        home: "0".parse().expect("a set"),
        cpus: "0-1".parse().expect("a set"),
        memory_policy: MemoryPolicy::Bind,
        vcpu_cpus: Default::default(),
        groups: Vec::new(),
        far: Vec::new(),
    };
    let row = |from: u32| (0..nodes).map(|to| if from == to { 10 } else { 20 }).collect();
    Plan {
        vm: name.into(),
        topology: VirtualTopology {
            exposed: true,
            nodes: (0..nodes).map(node).collect(),
            sockets: nodes,
            cores_per_socket: vcpus_per_node,
            dies_per_socket: 1,
            threads_per_core: 1,
            distances: (0..nodes).map(row).collect(),
        },
        placement: Placement { clients: (0..nodes).map(client).collect() },
        backing: Default::default(),
        holdings: std::collections::BTreeMap::new(),
        reasons: Vec::new(),
        warnings: Vec::new(),
        lost_milli_cpus: 0,
        left_to_qemu: Default::default(),
        expected: vm::Expected::default(),
    }
}
