//! Where a VM lives: each client on its home.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, BytesPerSecond, CpuId, CpuSet, LlcId, NodeId, NodeSet};

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

/// vCPUs of a client that share one last-level cache of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGroup {
    /// All vCPUs that it has or may get, rising.
    pub vcpus: Vec<u32>,
    /// The cache.
    pub llc: LlcId,
    /// The client's CPUs under that cache: the only ones that these vCPUs may use.
    pub cpus: CpuSet,
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
    /// Its vCPUs by the last-level cache that they are bound to. Empty: none is bound to a cache;
    /// else each vCPU is in exactly one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<CacheGroup>,
    /// What of its memory lies on nodes without CPUs by their bandwidth (`policy.far_memory =
    /// "by_bandwidth"`), node by node: spread over all of its memory. These nodes are part of
    /// [`home`](Self::home).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub far: Vec<(NodeId, Bytes)>,
}

impl Client {
    /// The nodes of [`far`](Self::far).
    pub fn far_nodes(&self) -> NodeSet {
        self.far.iter().map(|&(node, _)| node).collect()
    }

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
        if let Some(&cpu) = self.vcpu_cpus.get(&vcpu) {
            return CpuSet::from_iter([cpu]);
        }
        self.group_of(vcpu).map_or(&self.cpus, |group| &group.cpus).clone()
    }

    /// Whether some of its vCPUs may use a part of its CPUs only.
    pub fn divides_its_cpus(&self) -> bool {
        !self.vcpu_cpus.is_empty() || !self.groups.is_empty()
    }

    /// The group of a vCPU that is bound to a cache.
    pub fn group_of(&self, vcpu: u32) -> Option<&CacheGroup> {
        self.groups.iter().find(|group| group.vcpus.contains(&vcpu))
    }
}

/// Each client on its home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// By id.
    pub clients: Vec<Client>,
}

impl Placement {
    /// The CPUs of each client, those of its groups, and those of each vCPU that has its own.
    pub fn cpus_apart(&self) -> Vec<CpuSet> {
        let own = |client: &Client| client.vcpu_cpus.values().map(|&cpu| CpuSet::from_iter([cpu])).collect::<Vec<_>>();
        let groups = |client: &Client| client.groups.iter().map(|group| group.cpus.clone()).collect::<Vec<_>>();
        let apart = |client: &Client| std::iter::once(client.cpus.clone()).chain(groups(client)).chain(own(client));
        self.clients.iter().flat_map(|client| apart(client).collect::<Vec<_>>()).collect()
    }
}

/// What the VMs that run or are being started hold of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUse {
    /// vCPUs whose home is this node.
    pub vcpus: u32,
    /// Of these, vCPUs of latency-sensitive VMs: they count as busy whether they run or idle.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub always_busy: u32,
    /// Memory that they may still touch here: promised, not necessarily resident.
    pub memory: Bytes,
    /// Of that, what is resident on the node now (and so already missing from the node's free
    /// memory).
    pub resident: Bytes,
    /// Memory traffic that they have to this node's memory when they work, as far as somebody
    /// stated or measured it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub traffic: BytesPerSecond,
}

fn is_none(traffic: &BytesPerSecond) -> bool {
    traffic.0 == 0
}

fn is_zero(count: &u32) -> bool {
    *count == 0
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
            groups: Vec::new(),
            far: Vec::new(),
        };
        let text =
            serde_json::to_string(&File { placement: Placement { clients: vec![client.clone()] } }).expect("JSON");
        assert!(text.contains("\"vcpu_cpus\":[[0,6],[1,7]]"), "{text}");
        let read: File = serde_json::from_str(&text).expect(&text);
        assert_eq!(read.placement.clients, std::slice::from_ref(&client));
        // A vCPU that was plugged later has none of its own.
        assert_eq!((client.cpus_of(1).to_string(), client.cpus_of(2).to_string()), ("7".to_owned(), "6-7".to_owned()));
    }

    #[test]
    fn a_vcpu_may_use_the_cpus_of_its_groups_cache() {
        let group = |vcpus: &[u32], llc: u32, cpus: &str| CacheGroup {
            vcpus: vcpus.to_vec(),
            llc: LlcId(llc),
            cpus: cpus.parse().expect("a set"),
        };
        let client = Client {
            id: 0,
            virtual_nodes: vec![0],
            home: "0".parse().expect("a set"),
            cpus: "0-7".parse().expect("a set"),
            memory_policy: MemoryPolicy::Bind,
            vcpu_cpus: BTreeMap::new(),
            groups: vec![group(&[0, 1], 0, "0-3"), group(&[2, 3], 4, "4-7")],
            far: Vec::new(),
        };
        assert_eq!([1, 2, 9].map(|vcpu| client.cpus_of(vcpu).to_string()), ["0-3", "4-7", "0-7"]);
        let apart = Placement { clients: vec![client.clone()] }.cpus_apart();
        assert_eq!(apart.iter().map(CpuSet::to_string).collect::<Vec<_>>(), ["0-7", "0-3", "4-7"]);
        let text = serde_json::to_string(&client).expect("JSON");
        assert_eq!(serde_json::from_str::<Client>(&text).expect("a client"), client);
    }
}
