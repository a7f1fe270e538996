//! The extra specs of a plan. Names and values are Nova's (its `hw:` namespace).

use super::super::Emission;
use super::super::common::{one_cpu_each, vcpus};
use vm::MemoryPolicy;

/// What Nova is told of the guest's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Each of the guest's nodes on one node of the host.
    Nodes,
    /// Nothing: the VM floats over the host.
    Floating,
}

impl Shape {
    /// One node that the guest is not told of is one node for Nova: the guest of one node sees what
    /// a guest without nodes sees, and only so is the VM confined to a home. A guest without nodes
    /// that has several homes has no words in Nova.
    pub(super) fn of(emission: &Emission<'_>) -> Self {
        let (topology, clients) = (&emission.plan.topology, &emission.plan.placement.clients);
        let one_home = topology.nodes.len() == 1 && clients.iter().all(|client| client.home.len() == 1);
        let binds = |policy| matches!(policy, MemoryPolicy::Bind | MemoryPolicy::Preferred);
        let bound = clients.iter().all(|client| binds(client.memory_policy));
        if topology.exposed || (one_home && bound) { Self::Nodes } else { Self::Floating }
    }
}

/// The flavor's properties, in order.
pub(super) fn properties(emission: &Emission<'_>, shape: Shape) -> Vec<(String, String)> {
    let topology = &emission.plan.topology;
    let mut properties = Vec::new();
    let mut add = |key: String, value: String| properties.push((format!("hw:{key}"), value));
    let parts =
        [("sockets", topology.sockets), ("cores", topology.cores_per_socket), ("threads", topology.threads_per_core)];
    for (part, count) in parts {
        add(format!("cpu_{part}"), count.to_string());
    }
    // Without an upper limit the properties of an image may ask for another topology.
    for (part, count) in parts {
        add(format!("cpu_max_{part}"), count.to_string());
    }
    // Dedicated CPUs put a guest without nodes on one node of the host, which may not hold it.
    if one_cpu_each(emission.plan) && shape == Shape::Nodes {
        for property in dedicated(emission) {
            let (key, value) = property.split_once('=').unwrap_or((property.as_str(), ""));
            add(key.trim_start_matches("hw:").to_owned(), value.to_owned());
        }
    } else {
        // All vCPUs of a node on all CPUs of its home, as homenode runs them.
        add("cpu_policy".to_owned(), "shared".to_owned());
    }
    if shape == Shape::Floating {
        return properties;
    }
    add("numa_nodes".to_owned(), topology.nodes.len().to_string());
    if topology.nodes.len() > 1 {
        for node in &topology.nodes {
            add(format!("numa_cpus.{}", node.id), vcpus(node).to_string());
            add(format!("numa_mem.{}", node.id), node.memory.mib().to_string());
        }
    }
    // Only with a page size does Nova count the memory of each node that it has promised.
    let size = emission.plan.backing.huge_pages.map_or("small", |page| if page.mib() == 2 { "2MB" } else { "1GB" });
    add("mem_page_size".to_owned(), size.to_owned());
    properties
}

/// What gives each vCPU a CPU of its own. `isolate` keeps the VM on hosts without SMT.
pub(super) fn dedicated(emission: &Emission<'_>) -> [String; 3] {
    let threads = if emission.machine.threads_per_core() > 1 { "prefer" } else { "isolate" };
    [
        "hw:cpu_policy=dedicated".to_owned(),
        format!("hw:cpu_thread_policy={threads}"),
        "hw:emulator_threads_policy=share".to_owned(),
    ]
}
