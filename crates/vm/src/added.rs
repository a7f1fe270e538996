//! What was plugged into a VM since its power-on, in order: what a QEMU that takes it over must be
//! built with, and what its virtual nodes have now.

use crate::{VirtualNode, VirtualTopology};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, NodeSet};

/// vCPUs and memory that were plugged in. A power cycle ends it: the VM then starts with all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Added {
    /// Indices of vCPUs that were not there at power-on, in the order in which they were plugged.
    pub vcpus: Vec<u32>,
    /// Memory devices, in the order in which they were plugged.
    pub memory: Vec<MemoryDevice>,
    /// How many vCPUs were taken away again from the process that it has now: an emulating QEMU
    /// never uses the places of their threads again.
    #[serde(skip_serializing_if = "is_none")]
    pub taken_away: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// A memory device of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryDevice {
    /// QEMU's name of the device; its backend is named after it ([`MemoryDevice::backend`]).
    pub id: String,
    /// The virtual node that its memory belongs to.
    pub virtual_node: u32,
    /// What kind it is.
    pub kind: MemoryDeviceKind,
    /// Bytes of its backend: the most that it can give.
    pub size: Bytes,
    /// What it was asked to give: all of it where it is a DIMM.
    pub requested: Bytes,
    /// The machine nodes that its memory was bound to when it was plugged.
    pub bound_to: NodeSet,
}

/// How memory is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryDeviceKind {
    /// virtio-mem: any multiple of its block, more and less while the guest runs.
    VirtioMem,
    /// pc-dimm: whole, for guests without a driver for virtio-mem.
    Dimm,
}

impl MemoryDevice {
    /// QEMU's name of its memory backend, and so of its RAM block, which a migration is about.
    pub fn backend(&self) -> String {
        format!("ram-{}", self.id)
    }
}

/// What a virtual node has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSize {
    /// The virtual node.
    pub virtual_node: u32,
    /// Indices of the vCPUs that are there.
    pub vcpus: BTreeSet<u32>,
    /// Its memory: that of its power-on, and what its devices were asked to give.
    pub memory: Bytes,
}

impl NodeSize {
    /// What a virtual node has now: what is said of it, or else what it has at power-on.
    pub fn of(node: &VirtualNode, said: &[Self]) -> Self {
        said.iter().find(|size| size.virtual_node == node.id).cloned().unwrap_or_else(|| Self {
            virtual_node: node.id,
            vcpus: node.present().collect(),
            memory: node.memory,
        })
    }
}

impl Added {
    /// What each virtual node has now, by id.
    pub fn sizes(&self, topology: &VirtualTopology) -> Vec<NodeSize> {
        let of_node = |node: &VirtualNode| {
            let plugged = self.vcpus.iter().copied().filter(|vcpu| node.vcpus.contains(vcpu));
            let devices = self.memory.iter().filter(|device| device.virtual_node == node.id);
            NodeSize {
                virtual_node: node.id,
                vcpus: node.present().chain(plugged).collect(),
                memory: node.memory.saturating_add(devices.map(|device| device.requested).sum()),
            }
        };
        topology.nodes.iter().map(of_node).collect()
    }

    /// What each virtual node has in DIMMs, by id.
    pub fn dimms(&self) -> BTreeMap<u32, Bytes> {
        let mut dimms = BTreeMap::<u32, Bytes>::new();
        for device in self.memory.iter().filter(|device| device.kind == MemoryDeviceKind::Dimm) {
            let of_node = dimms.entry(device.virtual_node).or_default();
            *of_node = of_node.saturating_add(device.size);
        }
        dimms
    }

    /// Why its QEMU cannot write its guest, neither into a file nor to another host; `None` where
    /// it can. Under emulation QEMU waits for the thread of each vCPU that was ever there, also of
    /// one that was taken away: 10.0 waits for ever, 7.2 ends (`tcg_log_global_after_sync`).
    pub fn keeps_guest_here(&self, hardware: bool) -> Option<String> {
        let gone = match self.taken_away {
            0 => return None,
            _ if hardware => return None,
            1 => "1 vCPU was".to_owned(),
            several => format!("{several} vCPUs were"),
        };
        Some(format!(
            "its guest is emulated (TCG), and {gone} taken away from it: QEMU hangs or ends where it writes such a \
            guest. Once it was stopped and started, it can"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn only_an_emulated_guest_that_lost_vcpus_stays() {
        let lost = Added { taken_away: 2, ..Added::default() };
        assert!(lost.keeps_guest_here(false).is_some_and(|why| why.contains("2 vCPUs were taken away")));
        assert_eq!(lost.keeps_guest_here(true), None);
        assert_eq!(Added { vcpus: vec![1], ..Added::default() }.keeps_guest_here(false), None);
    }

    #[test]
    fn a_node_has_what_it_began_with_and_what_was_plugged() {
        let added = Added { vcpus: vec![3], memory: vec![samples::device()], taken_away: 0 };
        let sizes = added.sizes(&samples::topology());
        // Node 0: vCPU 0 of 0-1; node 1: vCPU 2 and the plugged 3, and 512 + 256 MiB.
        assert_eq!((sizes[0].vcpus.clone(), sizes[0].memory), (BTreeSet::from([0]), Bytes::from_mib(512)));
        assert_eq!((sizes[1].vcpus.clone(), sizes[1].memory), (BTreeSet::from([2, 3]), Bytes::from_mib(768)));
    }
}
