//! The answer: a virtual topology, where each client lives, and why.

use crate::spec::Backing;
use crate::{Client, NodeUse, Placement, VirtualTopology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{CpuSet, LlcId, Machine, NodeId, NodeSet};

/// One choice and why it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What was chosen, for example `virtual nodes: 2`.
    pub choice: String,
    /// Why, as a sentence.
    pub because: String,
}

/// What is to be expected of memory where a VM lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expected {
    /// By client, by id: how much of its own memory is local to its vCPUs if they touch all of it
    /// evenly, in thousandths. 1000 on one node, 500 interleaved over two.
    pub local_permille: Vec<u32>,
    /// `distances[i][j]`: the machine's mean distance (SLIT, 10 is local) from the vCPUs of virtual
    /// node i to the memory of virtual node j, in the order of the topology's nodes. The guest was
    /// told [`VirtualTopology::distances`].
    pub distances: Vec<Vec<u32>>,
}

impl Expected {
    /// Of the memory of all clients, of these sizes in bytes, what is not local to the vCPUs that
    /// touch it, in thousandths.
    pub fn remote_permille(&self, memory: impl IntoIterator<Item = u64>) -> u32 {
        let parts =
            self.local_permille.iter().zip(memory).map(|(&local, bytes)| (1000u32.saturating_sub(local), bytes));
        let (remote, all) = parts.fold((0u128, 0u128), |(remote, all), (permille, bytes)| {
            (remote + u128::from(permille) * u128::from(bytes), all + u128::from(bytes))
        });
        u32::try_from(remote / all.max(1)).unwrap_or(1000)
    }
}

/// Everything that `homenode plan` prints and `homenode run` carries out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The VM's name.
    pub vm: String,
    /// What the guest sees.
    pub topology: VirtualTopology,
    /// Where it lives.
    pub placement: Placement,
    /// CPUs on cores to which none of its vCPUs is bound alone, where they are: QEMU's own threads
    /// run there. Empty: on those of all homes.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub left_to_qemu: CpuSet,
    /// What its memory is made of, and when it is taken.
    #[serde(default, skip_serializing_if = "Backing::is_default")]
    pub backing: Backing,
    /// What the VM takes of each machine node. Memory of huge pages is resident from the start: the
    /// pools that it comes from are missing from the node's free memory already.
    #[serde(default)]
    pub holdings: BTreeMap<NodeId, NodeUse>,
    /// CPU time that it loses by where it lives if all its vCPUs are busy, in thousandths of CPUs:
    /// vCPUs that wait or share a core, remote memory, distance between its clients.
    #[serde(default)]
    pub lost_milli_cpus: u64,
    /// How local its memory is there.
    #[serde(default)]
    pub expected: Expected,
    /// Why, in the order of the decisions.
    pub reasons: Vec<Reason>,
    /// What the user should know: overcommitted CPUs, memory that only just fits, a socket count
    /// that had to change.
    pub warnings: Vec<String>,
}

impl Plan {
    /// A virtual topology on its homes, without what led there.
    pub fn of(shape: &crate::Shape, topology: VirtualTopology, placement: Placement) -> Self {
        Self {
            vm: shape.name.clone(),
            topology,
            placement,
            left_to_qemu: CpuSet::new(),
            backing: shape.backing,
            holdings: BTreeMap::new(),
            lost_milli_cpus: 0,
            expected: Expected::default(),
            reasons: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Where QEMU's own threads run.
    pub fn qemu_cpus(&self) -> CpuSet {
        if self.left_to_qemu.is_empty() { self.cpus() } else { self.left_to_qemu.clone() }
    }

    /// CPUs of all homes; one thread that runs all vCPUs may use them.
    pub fn cpus(&self) -> CpuSet {
        self.placement.clients.iter().fold(CpuSet::new(), |all, client| all.union(&client.cpus))
    }

    /// Hardware threads that its vCPUs are bound to 1:1.
    pub fn bound_cpus(&self) -> CpuSet {
        self.placement.clients.iter().flat_map(|client| client.vcpu_cpus.values().copied()).collect()
    }

    /// vCPUs that are there at power-on and bound to a cache, by cache.
    pub fn vcpus_by_cache(&self) -> BTreeMap<LlcId, u32> {
        let absent = |vcpu: &u32| self.topology.nodes.iter().any(|node| node.absent.contains(vcpu));
        let mut vcpus = BTreeMap::new();
        for group in self.placement.clients.iter().flat_map(|client| &client.groups) {
            *vcpus.entry(group.llc).or_default() += group.vcpus.iter().filter(|vcpu| !absent(vcpu)).count() as u32;
        }
        vcpus
    }

    /// How much of its memory is not local to the vCPUs that touch it, in thousandths, if each
    /// client touches all of its own evenly.
    pub fn remote_permille(&self) -> u32 {
        let memory = |client: &Client| {
            let nodes = self.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
            nodes.map(|node| node.memory.0).sum()
        };
        self.expected.remote_permille(self.placement.clients.iter().map(memory))
    }

    /// Whether memory of a client lies on nodes of this machine where none of its vCPUs run, and
    /// not by bandwidth.
    pub fn has_memory_away(&self, machine: &Machine) -> bool {
        let away = |client: &Client| {
            let with_cpus =
                client.home.iter().filter(|&node| !machine.usable_cpus(node).intersection(&client.cpus).is_empty());
            let (own, far) =
                (with_cpus.collect::<NodeSet>(), client.far.iter().map(|(node, _)| *node).collect::<NodeSet>());
            let elsewhere = client.home.difference(&own).difference(&far);
            // Memory with a preferred node goes elsewhere unnamed.
            let local = self.expected.local_permille.get(client.id as usize).copied().unwrap_or(1000);
            !elsewhere.is_empty() || own.len() == 1 && far.is_empty() && local < 1000
        };
        self.placement.clients.iter().any(away)
    }

    /// Nodes of all homes.
    pub fn homes(&self) -> NodeSet {
        self.placement.clients.iter().fold(NodeSet::new(), |all, client| all.union(&client.home))
    }

    /// The client that carries a virtual node.
    pub fn client_of(&self, virtual_node: u32) -> Option<&Client> {
        self.placement.clients.iter().find(|client| client.virtual_nodes.contains(&virtual_node))
    }
}
