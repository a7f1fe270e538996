//! Whether and how KubeVirt can keep the VM's memory at the CPUs that it gets.

use super::super::Emission;
use topology::Bytes;
use vm::{Client, MemoryPolicy};

/// Pages that KubeVirt takes on x86-64.
const SMALL: Bytes = Bytes::from_mib(2);
const LARGE: Bytes = Bytes::from_mib(1024);

/// How KubeVirt holds the VM together.
pub(super) struct Binding {
    /// CPUs of its own, memory of huge pages on the nodes of these CPUs, and the guest sees those
    /// nodes. False: it floats.
    pub(super) passthrough: bool,
    /// Huge pages of the memory. Only with `passthrough`.
    pub(super) page: Bytes,
    /// The guest's memory: the plan's, in whole pages.
    pub(super) memory: Bytes,
    /// Whether QEMU's own threads get a CPU of their own.
    pub(super) emulator_apart: bool,
    /// NUMA nodes that the kubelet spreads the vCPUs over, the fewest that have as many hardware
    /// threads: the guest's nodes. At least 1.
    pub(super) kubelet_nodes: usize,
}

impl Binding {
    pub(super) fn of(emission: &Emission<'_>) -> Self {
        let (plan, clients) = (emission.plan, &emission.plan.placement.clients);
        let one_home = clients.iter().all(|client| client.home.len() == 1) && plan.topology.nodes.len() == 1;
        let binds = |policy| matches!(policy, MemoryPolicy::Bind | MemoryPolicy::Preferred);
        let bound = clients.iter().all(|client| binds(client.memory_policy));
        let passthrough = plan.topology.exposed || (one_home && bound);
        let page = plan.backing.huge_pages.unwrap_or_else(|| page(emission));
        let whole: Bytes = plan.topology.nodes.iter().map(|node| node.memory).sum();
        let memory = if passthrough { Bytes(whole.0.next_multiple_of(page.0)) } else { whole };
        Self {
            passthrough,
            page,
            memory,
            emulator_apart: passthrough && one_home && has_spare_cpu(emission),
            kubelet_nodes: kubelet_nodes(emission),
        }
    }

    /// Huge pages of the guest's node with this index: equal shares, what is left one by one to the
    /// first nodes, as KubeVirt divides.
    pub(super) fn pages_of(&self, index: usize) -> u64 {
        let (pages, nodes) = (self.memory.0 / self.page.0, self.kubelet_nodes as u64);
        pages / nodes + u64::from((index as u64) < pages % nodes)
    }
}

/// 1 GiB pages where each home has a pool that holds its share and the shares are whole pages, else
/// 2 MiB.
fn page(emission: &Emission<'_>) -> Bytes {
    let share = |client: &Client| -> Bytes {
        let nodes = emission.plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
        nodes.map(|node| node.memory).sum()
    };
    let fits = |client: &Client| {
        let share = share(client);
        let pool = |node: &topology::Node| {
            node.huge_pages.iter().any(|pool| pool.page_size == LARGE && pool.free * LARGE.0 >= share.0)
        };
        share.0.is_multiple_of(LARGE.0) && client.home.iter().all(|home| emission.machine.node(home).is_some_and(pool))
    };
    if emission.plan.placement.clients.iter().all(fits) { LARGE } else { SMALL }
}

/// Whether a CPU of the home is left for QEMU's own threads. (A CPU more than a wide VM has vCPUs
/// would make its share of the first node larger: KubeVirt fills the guest's nodes in order.)
fn has_spare_cpu(emission: &Emission<'_>) -> bool {
    let cpus: usize = emission.plan.placement.clients.iter().map(|client| client.cpus.len()).sum();
    emission.spec.vcpus < cpus as u32
}

fn kubelet_nodes(emission: &Emission<'_>) -> usize {
    let machine = emission.machine;
    let largest = machine.nodes.iter().map(|node| machine.usable_cpus(node.id).len()).max().unwrap_or(1).max(1);
    (emission.spec.vcpus as usize).div_ceil(largest)
}
