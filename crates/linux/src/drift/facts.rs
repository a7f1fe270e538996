//! What is compared: everything that the kernel says about one VM, gathered before anything is judged.

use super::Homes;
use crate::cgroup::VmCgroup;
use crate::memory::Mapping;
use crate::vm::{RunningVm, VmClient};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// The host, as far as it matters to every VM.
#[derive(Clone, Debug)]
pub struct HostFacts<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Whether the kernel moves memory between nodes by itself.
    pub auto_numa: Option<bool>,
    /// Free memory in huge pages, by node and size of a page in bytes.
    pub huge_pages_free: BTreeMap<NodeId, BTreeMap<u64, Bytes>>,
}

/// One VM.
#[derive(Clone, Debug)]
pub struct VmFacts<'a> {
    /// It.
    pub vm: &'a RunningVm,
    /// Its cgroup.
    pub cgroup: &'a VmCgroup,
    /// Nodes that its cpuset allows.
    pub allowed: Option<NodeSet>,
    /// Why its memory cannot move.
    pub fixed: Option<String>,
    /// Why its threads must stay.
    pub threads_fixed: bool,
    /// Its clients.
    pub clients: Vec<ClientFacts<'a>>,
}

/// One client.
#[derive(Clone, Debug)]
pub struct ClientFacts<'a> {
    /// It.
    pub client: &'a VmClient,
    /// CPUs that each of its threads may use.
    pub affinity: Vec<(u32, CpuSet)>,
    /// Its memory, mapping by mapping, in the kernel's words; an error, as a sentence, where they may not be read.
    pub mappings: Result<Vec<Mapping>, String>,
}

impl ClientFacts<'_> {
    /// Resident memory by node.
    pub fn resident(&self) -> BTreeMap<NodeId, Bytes> {
        let mut sums = BTreeMap::<NodeId, Bytes>::new();
        for mapping in self.mappings.iter().flatten() {
            for (&node, &pages) in &mapping.pages {
                let sum = sums.entry(node).or_default();
                *sum = sum.saturating_add(Bytes(pages * mapping.page_size.0));
            }
        }
        sums
    }

    /// Memory that was not touched yet.
    pub fn absent(&self) -> Bytes {
        let size: Bytes = self.client.regions.iter().map(crate::vm::Region::size).sum();
        size.saturating_sub(self.resident().into_values().sum())
    }

    /// Nodes of the CPUs that its threads may use.
    pub fn thread_nodes(&self, machine: &Machine) -> NodeSet {
        let cpus = self.affinity.iter().flat_map(|(_, cpus)| cpus.iter());
        cpus.filter_map(|cpu| Some(machine.thread(cpu)?.node)).collect()
    }

    /// Its home: what somebody decided; else the nodes of its threads, where they are held to some; else the fewest nodes that hold nine
    /// tenths of its memory. The flag says that nobody decided.
    pub fn home(&self, vm: &RunningVm, machine: &Machine, homes: &Homes) -> (NodeSet, bool) {
        if let Some(home) = homes.get(&(vm.key.clone(), self.client.id)) {
            return (home.clone(), false);
        }
        let threads = self.thread_nodes(machine);
        if !threads.is_empty() && threads.len() < machine.nodes.iter().filter(|node| has_cpus(machine, node.id)).count()
        {
            return (threads, true);
        }
        let mut resident: Vec<(NodeId, Bytes)> = self.resident().into_iter().collect();
        resident.sort_by_key(|&(node, bytes)| (std::cmp::Reverse(bytes), node));
        let total: Bytes = resident.iter().map(|&(_, bytes)| bytes).sum();
        let (mut home, mut held) = (NodeSet::new(), Bytes(0));
        for (node, bytes) in resident {
            if held.0 >= total.0 / 10 * 9 && !home.is_empty() {
                break;
            }
            home.insert(node);
            held = held.saturating_add(bytes);
        }
        (home, true)
    }
}

fn has_cpus(machine: &Machine, node: NodeId) -> bool {
    !machine.usable_cpus(node).is_empty()
}

/// The nodes that a policy names: `bind:0-1`, `prefer:2`, `interleave=static:0,2`; `None` for `default` and `local`.
pub(crate) fn policy_nodes(policy: &str) -> Option<NodeSet> {
    policy.rsplit_once(':')?.1.parse().ok()
}
