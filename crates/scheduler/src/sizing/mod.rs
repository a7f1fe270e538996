//! vNUMA sizing: how many virtual nodes, and how many vCPUs and how much memory in each.
//!
//! **Problem.** A VM that no node holds is remote to a part of its memory wherever it runs. Only
//! its guest can keep a program beside its memory, and only if it is told of nodes that are true.
//!
//! **Rule.** ESXi's: the fewest nodes that hold the vCPUs, cores counted and not hardware threads
//! unless `prefer_ht`; mended in two places: memory counts as much as cores, and uneven machine
//! nodes get uneven shares. A virtual socket lies in one virtual node. The policy may fix the
//! nodes, cap their vCPUs, ask for as many as there are, or hide them.
//!
//! A VM that may grow is divided at its largest: all vCPUs that it may ever have belong to a
//! virtual node from the start. What is there at power-on is spread over these nodes evenly
//! ([`growing`]).
//!
//! Parts that no virtual socket but one of a single vCPU fits are avoided: a few nodes more are
//! taken where each then has the same number of vCPUs, else each has an even number. Where neither
//! can be, the plan warns.
//!
//! **Properties.** The parts add up to the VM. Each has at least a vCPU and memory, and a machine
//! node of its own that would hold it, were the machine empty; where no division does, the nodes
//! with CPUs share the VM, and the plan says so. Node numbers do not matter.
//!
//! **Example.** Two nodes of 8 cores and 64 GiB. 12 vCPUs and 32 GiB: two parts of 6 vCPUs and 16
//! GiB, for the cores. 4 vCPUs and 96 GiB: two parts of 2 vCPUs and 48 GiB, for the memory.

mod growing;
mod shares;
mod sockets;
mod threads;

pub(crate) use shares::Share;

use crate::host::Host;
use shares::{Parts, Why};
use topology::Bytes;
use vm::{Reason, Shape};

/// The virtual nodes, before they have homes.
#[derive(Clone, Debug)]
pub(crate) struct Sizing {
    /// vCPUs and memory that each virtual node may have.
    pub(crate) shares: Vec<Share>,
    /// What of it is there at power-on.
    pub(crate) at_start: Vec<Share>,
    /// Whether the guest is told of them.
    pub(crate) exposed: bool,
    /// Machine nodes that each client's home has at least: more than one only for a uniform VM that
    /// is too large for one.
    pub(crate) least_home: usize,
    /// vCPUs in a virtual socket.
    pub(crate) per_socket: u32,
    /// Dies in a virtual socket: more than one where a socket is wider than the machine's caches.
    pub(crate) dies: u32,
    /// Hardware threads in a virtual core.
    pub(crate) threads: u32,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) warnings: Vec<String>,
}

/// A virtual node has at least this part of the memory that would be its own by its vCPUs: a guest
/// does badly with nodes that have CPUs and next to no memory.
const LEAST_PART: u64 = 4;

impl Sizing {
    /// Whether each virtual node has a part of the memory that its vCPUs can live with.
    pub(crate) fn is_balanced(&self, shape: &Shape) -> bool {
        let (memory, vcpus) = (u128::from(shape.most_memory().0), u128::from(shape.most_vcpus().max(1)));
        let own = |share: &Share| memory * u128::from(share.vcpus) / vcpus;
        self.shares.iter().all(|share| u128::from(share.memory) * u128::from(LEAST_PART) >= own(share))
    }
}

/// Sizes the VM for nodes of this size.
pub(crate) fn size(host: &Host, started: &Shape) -> Sizing {
    let shape = &started.at_its_largest();
    let parts = match &shape.policy.virtual_nodes {
        Some(fixed) => {
            let shares = fixed.iter().map(|node| Share { vcpus: node.vcpus, memory: node.memory.0 }).collect();
            Parts { shares, why: Why::Fixed }
        }
        None => shares::by_rule(host, shape),
    };
    let uniform = shape.policy.vnuma == Some(false);
    let mut reasons = vec![count_reason(host, shape, started.may_grow(), &parts)];
    let least_home = if uniform { parts.shares.len() } else { 1 };
    let shares = if uniform { vec![Share { vcpus: shape.vcpus, memory: shape.memory.0 }] } else { parts.shares };
    let sockets = sockets::choose(host, shape, shares);
    let exposed = shape.policy.vnuma.unwrap_or(sockets.shares.len() > 1);
    if uniform && least_home > 1 {
        reasons.push(Reason {
            choice: "one uniform node".to_owned(),
            because: format!(
                "policy.vnuma = false: the guest is not told that its memory lies on {least_home} machine nodes"
            ),
        });
    }
    reasons.extend(share_reason(host, &sockets.shares));
    reasons.push(sockets.reason);
    let threads = threads::of_core(host, started, sockets.per_socket / sockets.dies.max(1));
    reasons.extend(threads::reason(threads));
    let at_start = growing::at_start(started, &sockets.shares);
    reasons.extend(started.may_grow().then(|| growing::reason(started, &at_start)));
    let warnings = sockets.warning.into_iter().collect();
    Sizing {
        shares: sockets.shares,
        at_start,
        exposed,
        least_home,
        per_socket: sockets.per_socket,
        dies: sockets.dies,
        threads,
        reasons,
        warnings,
    }
}

/// Why there are as many virtual nodes as there are.
fn count_reason(host: &Host, shape: &Shape, may_grow: bool, parts: &Parts) -> Reason {
    let largest = if may_grow { " at its largest" } else { "" };
    let (count, vcpus, memory) = (parts.shares.len(), shape.vcpus, shape.memory);
    let need = |nodes: Option<usize>| nodes.map_or("more than there are".to_owned(), |nodes| format!("{nodes}"));
    let because = match &parts.why {
        Why::Fixed => "policy.virtual_nodes fixes them".to_owned(),
        Why::Fewest { by_cores, by_memory } => format!(
            "fewest nodes that hold the VM{largest}: by {unit}s {cores} ({vcpus} vCPUs; nodes of {units} \
            {unit}s), by memory {by_memory} ({memory}; nodes of {sizes})",
            unit = host.unit_name(),
            cores = need(*by_cores),
            by_memory = need(*by_memory),
            units = units_range(host, shape.policy.max_vcpus_per_node),
            sizes = memory_range(host),
        ),
        Why::Even { fewest } => format!(
            "{fewest} would hold {vcpus} vCPUs and {memory}{largest}, in unlike parts that no virtual socket but one of \
            a single vCPU fits; of {count} each has {}",
            vcpus as usize / count.max(1)
        ),
        Why::Pairs => format!(
            "fewest nodes that hold the VM{largest}; {vcpus} vCPUs do not divide evenly by them: an even number in each, \
            so that virtual sockets have more than one vCPU"
        ),
        Why::MostVirtualNodes { nodes } => format!(
            "policy.placement = \"most_virtual_nodes\": as many as the {nodes} machine nodes with CPUs and \
            {vcpus} vCPUs{largest} allow"
        ),
        Why::Cap { most } => {
            format!("policy.max_vcpus_per_node = {most} splits {vcpus} vCPUs{largest} into {count} parts")
        }
        Why::Overflow { cpu_nodes } => overflow_reason(host, shape, *cpu_nodes),
    };
    Reason { choice: format!("virtual nodes: {count}"), because }
}

fn overflow_reason(host: &Host, shape: &Shape, cpu_nodes: usize) -> String {
    let (vcpus, units, unit) = (shape.vcpus, host.all_units(), host.unit_name());
    let memory: Bytes = host.nodes.iter().filter(|node| node.threads > 0).map(|node| Bytes(node.memory)).sum();
    let shared = if cpu_nodes == 1 {
        "one node with CPUs has it".to_owned()
    } else {
        format!("the {cpu_nodes} nodes with CPUs share it")
    };
    if vcpus > units {
        format!("the VM is wider than the machine ({vcpus} vCPUs, {units} {unit}s): {shared}")
    } else if shape.memory > memory {
        format!("the VM has more memory than the nodes with CPUs ({}, {memory}): {shared}", shape.memory)
    } else {
        format!("no division gives each part a node with its cores and its memory: {shared}")
    }
}

/// Why the shares differ, where they do.
fn share_reason(host: &Host, shares: &[Share]) -> Option<Reason> {
    let (first, last) = (shares.first()?, shares.last()?);
    if first == last {
        return None;
    }
    let list: Vec<String> = shares.iter().map(|share| format!("{} + {}", share.vcpus, Bytes(share.memory))).collect();
    let even_host =
        host.nodes.windows(2).all(|pair| (pair[0].cores, pair[0].memory) == (pair[1].cores, pair[1].memory));
    let because = if even_host {
        "the vCPUs do not divide evenly; memory follows the vCPUs".to_owned()
    } else {
        "the machine's nodes are uneven, or the vCPUs do not divide evenly; memory follows the vCPUs as far as the \
        nodes hold it"
            .to_owned()
    };
    Some(Reason { choice: format!("shares: {}", list.join(", ")), because })
}

/// `4` or `4-8`: cores or threads of the nodes with CPUs.
fn units_range(host: &Host, cap: Option<u32>) -> String {
    let units = (0..host.nodes.len()).map(|index| host.units(index)).filter(|&units| units > 0);
    let units: Vec<u32> = units.map(|units| cap.map_or(units, |cap| units.min(cap))).collect();
    range(units.iter().min(), units.iter().max(), u32::to_string)
}

fn memory_range(host: &Host) -> String {
    let memory = host.nodes.iter().filter(|node| node.threads > 0).map(|node| node.memory);
    range(memory.clone().min().as_ref(), memory.max().as_ref(), |&bytes| Bytes(bytes).to_string())
}

fn range<T: PartialEq>(least: Option<&T>, most: Option<&T>, print: impl Fn(&T) -> String) -> String {
    match (least, most) {
        (Some(least), Some(most)) if least == most => print(least),
        (Some(least), Some(most)) => format!("{} to {}", print(least), print(most)),
        _ => "none".to_owned(),
    }
}
