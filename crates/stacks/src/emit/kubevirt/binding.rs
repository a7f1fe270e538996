//! Whether and how KubeVirt can keep the VM's memory at the CPUs that it gets.

use super::super::Emission;
use topology::{Bytes, Machine};
use vm::{Client, MemoryPolicy};

/// Pages that KubeVirt takes on x86-64.
const SMALL: Bytes = Bytes::from_mib(2);
const LARGE: Bytes = Bytes::from_mib(1024);

/// Part of a node that cannot be in huge pages: as the planner keeps it.
const KEPT_PART: u64 = 32;

/// How KubeVirt holds the VM together.
pub(super) struct Binding {
    /// CPUs of its own, memory of huge pages on the nodes of these CPUs, and the guest sees those
    /// nodes. False: it floats.
    pub(super) passthrough: bool,
    /// Why it floats although the plan binds it: its share of each node that the kubelet would
    /// take, which is more than a node of the machine can give in huge pages ([`most_in_pages`]).
    pub(super) too_large: Option<Bytes>,
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
        let asks = plan.topology.exposed || (one_home && bound);
        let page = plan.backing.huge_pages.unwrap_or_else(|| page(emission));
        let whole: Bytes = plan.topology.nodes.iter().map(|node| node.memory).sum();
        let in_pages = Bytes(whole.0.next_multiple_of(page.0));
        let kubelet_nodes = kubelet_nodes(emission);
        let share = pages_of(in_pages, page, kubelet_nodes, 0) * page.0;
        let too_large = (asks && share > most_in_pages(emission.machine, kubelet_nodes)).then_some(Bytes(share));
        let passthrough = asks && too_large.is_none();
        let memory = if passthrough { in_pages } else { whole };
        Self {
            passthrough,
            too_large,
            page,
            memory,
            emulator_apart: passthrough && one_home && has_spare_cpu(emission),
            kubelet_nodes,
        }
    }

    /// Huge pages of the guest's node with this index: equal shares, what is left one by one to the
    /// first nodes, as KubeVirt divides.
    pub(super) fn pages_of(&self, index: usize) -> u64 {
        pages_of(self.memory, self.page, self.kubelet_nodes, index)
    }
}

fn pages_of(memory: Bytes, page: Bytes, nodes: usize, index: usize) -> u64 {
    let (pages, nodes) = (memory.0 / page.0, nodes as u64);
    pages / nodes + u64::from((index as u64) < pages % nodes)
}

/// What a node that the kubelet may take for a VM on so many nodes can give in huge pages: of the
/// nodes with most memory the last one's, less what the kernel and QEMU need there.
pub(super) fn most_in_pages(machine: &Machine, nodes: usize) -> u64 {
    let mut sizes: Vec<u64> = machine.nodes.iter().map(|node| node.memory.0).collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let size = sizes.get(nodes.saturating_sub(1)).copied().unwrap_or(0);
    size - size / KEPT_PART
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
