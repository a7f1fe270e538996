//! Why a VM cannot be planned on a machine.

use topology::{Bytes, NodeSet};

/// Why a VM cannot be planned on a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The spec allows only nodes that the machine lacks, or that this process may not use.
    #[error(
        "VM `{vm}`: policy.node_affinity = \"{affinity}\": {machine} has no usable node {missing}; usable are \
        \"{allowed}\""
    )]
    Affinity {
        /// The VM.
        vm: String,
        /// What the spec says.
        affinity: NodeSet,
        /// What of it is not there.
        missing: NodeSet,
        /// The machine.
        machine: String,
        /// What would be valid.
        allowed: NodeSet,
    },
    /// No node on which the VM may live has a CPU that may be used.
    #[error("{machine}: no usable CPU on the nodes \"{nodes}\" on which the VM may live: allow a node with CPUs")]
    NoCpu {
        /// The machine.
        machine: String,
        /// The nodes.
        nodes: NodeSet,
    },
    /// Nobody knows how much memory the machine has.
    #[error(
        "VM `{vm}`: the memory of {machine} is unknown: no node on which the VM may live says how much it has; \
        describe it, for example with `memory` in a machine file"
    )]
    UnknownMemory {
        /// The VM.
        vm: String,
        /// The machine.
        machine: String,
    },
    /// Memory is to be divided by bandwidth, and nobody says what some nodes give.
    #[error(
        "VM `{vm}`: policy.far_memory = \"by_bandwidth\": nobody says what bandwidth {} of {machine} {}: firmware would \
         (ACPI's HMAT or CXL's CDAT, /sys/devices/system/node/nodeN/access1/initiators/read_bandwidth); write \
         \"when_full\" or \"never\"",
        topology::words::named("node", unknown),
        if unknown.len() == 1 { "has" } else { "have" }
    )]
    UnknownBandwidth {
        /// The VM.
        vm: String,
        /// The machine.
        machine: String,
        /// The nodes.
        unknown: topology::NodeSet,
    },
    /// The stored virtual topology contradicts itself, or what its nodes are said to have now.
    #[error("VM `{vm}`: virtual topology: {problem}")]
    Topology {
        /// The VM.
        vm: String,
        /// The field, its value, and what would be valid.
        problem: String,
    },
    /// The nodes together lack the memory.
    #[error(
        "VM `{vm}` needs {} of memory; {machine} has {} to give ({by_node}): stop a VM, or make this one smaller",
        needed.told_apart(*available).0, needed.told_apart(*available).1
    )]
    Memory {
        /// The VM.
        vm: String,
        /// Memory of the VM.
        needed: Bytes,
        /// The machine.
        machine: String,
        /// Free and not promised, over all nodes on which the VM may live.
        available: Bytes,
        /// The same node by node, as text.
        by_node: String,
    },
    /// Memory that is taken on touch is more than the machine has in all.
    #[error(
        "VM `{vm}`: memory = \"{memory}\" is more than {machine} has ({there}): backing.fill = \
        \"on_touch\" may promise memory that is not free now, but not more than there is; swap does not \
        count"
    )]
    LargerThanMachine {
        /// The VM.
        vm: String,
        /// Memory of the VM.
        memory: Bytes,
        /// The machine.
        machine: String,
        /// Memory of all nodes on which the VM may live.
        there: Bytes,
    },
    /// The nodes' pools lack huge pages.
    #[error("VM `{vm}` needs {needed} huge pages of {page}; {machine} has {free} free ({by_node}): {remedy}")]
    HugePages {
        /// The VM.
        vm: String,
        /// Pages that it needs.
        needed: u64,
        /// Their size.
        page: Bytes,
        /// The machine.
        machine: String,
        /// Pages that are free and not promised, on all nodes on which the VM may live.
        free: u64,
        /// The same node by node, as text.
        by_node: String,
        /// What would make more, as a sentence.
        remedy: String,
    },
    /// Every CPU on which vCPUs could be bound 1:1 is another VM's.
    #[error(
        "VM `{vm}`: policy.vcpu_binding = \"core\": other VMs have each CPU of the nodes \"{nodes}\" to \
        themselves: allow another node, or vcpu_binding = \"node\""
    )]
    EachCpuBound {
        /// The VM.
        vm: String,
        /// The nodes on which the VM may live.
        nodes: NodeSet,
    },
    /// vCPUs that are bound 1:1 find no hardware thread for each.
    #[error(
        "VM `{vm}`: policy.vcpu_binding = \"core\": client {client} has {vcpus} vCPUs, and its home, {home}, \
        has hardware threads for {free} of them that no other vCPU is bound to: use fewer vCPUs, or \
        vcpu_binding = \"node\""
    )]
    NoCpuForVcpu {
        /// The VM.
        vm: String,
        /// The client.
        client: u32,
        /// Its vCPUs.
        vcpus: usize,
        /// Its home, as text.
        home: String,
        /// vCPUs of it that were given one.
        free: usize,
    },
}

impl PlanError {
    /// Whether what was given can be right nowhere, or names what the machine does not have at all
    /// (as opposed to a machine that lacks room).
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Affinity { .. } | Self::Topology { .. })
    }
}
