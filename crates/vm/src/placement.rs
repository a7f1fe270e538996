//! Where a VM lives: each client on its home.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuId, CpuSet, NodeSet};

/// How a client's memory is bound to its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPolicy {
    /// On the home nodes and nowhere else (`MPOL_BIND`).
    Bind,
    /// Page by page over the home nodes (`MPOL_INTERLEAVE`).
    Interleave,
    /// On the first node of the home as long as it has room, then on others (`MPOL_PREFERRED`).
    Preferred,
    /// Where the kernel likes (no policy).
    Default,
}

/// The unit of placement: the vCPUs and the memory that always move together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// From 0.
    pub id: u32,
    /// The virtual nodes that this client carries, by id. Never empty; each virtual node is in
    /// exactly one client.
    pub virtual_nodes: Vec<u32>,
    /// Machine nodes that are its home: one, or several where one does not hold it. Its memory lies
    /// on these.
    pub home: NodeSet,
    /// Hardware threads that its vCPUs may use: all usable ones of the nodes where it lives. Other
    /// nodes of its home have memory of it only: they have no CPUs, or what its own node lacks lies
    /// there.
    pub cpus: CpuSet,
    /// How its memory is bound.
    pub memory_policy: MemoryPolicy,
    /// The one hardware thread of each vCPU that is bound 1:1. A vCPU without an entry may use all
    /// of [`cpus`](Self::cpus).
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub vcpu_cpus: BTreeMap<u32, CpuId>,
}

impl Client {
    /// The nodes that its memory's policy names: of [`MemoryPolicy::Preferred`] the first.
    pub fn bound_to(&self) -> NodeSet {
        match self.memory_policy {
            MemoryPolicy::Bind | MemoryPolicy::Interleave => self.home.clone(),
            MemoryPolicy::Preferred => self.home.first().into_iter().collect(),
            MemoryPolicy::Default => NodeSet::new(),
        }
    }

    /// CPUs that a vCPU of this client may use.
    pub fn cpus_of(&self, vcpu: u32) -> CpuSet {
        self.vcpu_cpus.get(&vcpu).map_or_else(|| self.cpus.clone(), |&cpu| [cpu].into_iter().collect())
    }
}

/// Each client on its home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// By id.
    pub clients: Vec<Client>,
}

impl Placement {
    /// The CPUs of each client, and those of each vCPU that has one of its own.
    pub fn cpus_apart(&self) -> Vec<CpuSet> {
        let own = |client: &Client| client.vcpu_cpus.values().map(|&cpu| CpuSet::from_iter([cpu])).collect::<Vec<_>>();
        self.clients.iter().flat_map(|client| std::iter::once(client.cpus.clone()).chain(own(client))).collect()
    }
}

/// What the VMs that run or are being started hold of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUse {
    /// vCPUs whose home is this node.
    pub vcpus: u32,
    /// Memory that they may still touch here: promised, not necessarily resident.
    pub memory: Bytes,
    /// Of that, what is resident on the node now (and so already missing from the node's free
    /// memory).
    pub resident: Bytes,
}

/// A map as a list of pairs: within a flattened table numbers as keys come back as texts.
mod pairs {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;
    use topology::CpuId;

    pub(super) fn serialize<S: Serializer>(map: &BTreeMap<u32, CpuId>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u32, CpuId>, D::Error> {
        Ok(Vec::<(u32, CpuId)>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_with_bound_vcpus_is_read_from_within_a_file() {
        #[derive(Serialize, Deserialize)]
        struct File {
            #[serde(flatten)]
            placement: Placement,
        }
        let client = Client {
            id: 0,
            virtual_nodes: vec![0],
            home: "3".parse().expect("a set"),
            cpus: "6-7".parse().expect("a set"),
            memory_policy: MemoryPolicy::Bind,
            vcpu_cpus: BTreeMap::from([(0, CpuId(6)), (1, CpuId(7))]),
        };
        let text =
            serde_json::to_string(&File { placement: Placement { clients: vec![client.clone()] } }).expect("JSON");
        assert!(text.contains("\"vcpu_cpus\":[[0,6],[1,7]]"), "{text}");
        let read: File = serde_json::from_str(&text).expect(&text);
        assert_eq!(read.placement.clients, std::slice::from_ref(&client));
        // A vCPU that was plugged later has none of its own.
        assert_eq!((client.cpus_of(1).to_string(), client.cpus_of(2).to_string()), ("7".to_owned(), "6-7".to_owned()));
    }
}
