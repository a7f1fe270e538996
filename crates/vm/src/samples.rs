//! What the tests of several modules are about.

use crate::{MemoryDevice, MemoryDeviceKind, VirtualNode, VirtualTopology};
use topology::{Bytes, NodeSet};

/// Two virtual nodes, each with one vCPU of two and 512 of 1536 MiB.
pub(crate) fn topology() -> VirtualTopology {
    let node = |id: u32, vcpus: [u32; 2]| VirtualNode {
        id,
        vcpus: vcpus.to_vec(),
        absent: vec![vcpus[1]],
        memory: Bytes::from_mib(512),
        growth: Bytes::from_mib(1024),
    };
    VirtualTopology {
        exposed: true,
        nodes: vec![node(0, [0, 1]), node(1, [2, 3])],
        sockets: 2,
        cores_per_socket: 2,
        dies_per_socket: 1,
        threads_per_core: 1,
        distances: vec![vec![10, 20], vec![20, 10]],
    }
}

/// 256 of 1024 MiB for virtual node 1.
pub(crate) fn device() -> MemoryDevice {
    MemoryDevice {
        id: "mem1".to_owned(),
        virtual_node: 1,
        kind: MemoryDeviceKind::VirtioMem,
        size: Bytes::from_mib(1024),
        requested: Bytes::from_mib(256),
        bound_to: NodeSet::new(),
    }
}
