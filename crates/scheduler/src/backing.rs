//! Memory of huge pages, and memory that is not taken at the start, as the planner sees them.
//!
//! **Problem.** Huge pages come from pools that somebody set aside, node by node; what is free of a
//! node besides does not help. And memory that the guest takes page by page is not proof of
//! anything: the host may be full by then.
//!
//! **Rule.** With `huge_pages` a node has as much memory as its pool, and gives what is free of the
//! pool. A VM that the pools do not hold is refused with the command that would make it fit: the
//! pools grow where the VM would live if they could take the nodes' free memory. With `fill =
//! "on_touch"` a VM that the free memory does not hold is promised what the nodes have in all; its
//! memory prefers its home, and goes elsewhere when that is full.
//!
//! Where nobody says what pools a machine has, that is not known, and no pool is taken to be empty:
//! the VM is planned with what the nodes' free memory could make, and the plan says so.
//!
//! **Properties.** No node gives more pages than are free of its pool. A VM that fits without
//! overcommitting is placed as if its memory were taken at the start. No node is promised more to
//! one VM than it has.
//!
//! **Example.** Node 0 has 1000 pages of 2 MiB, 100 of them free. A VM of 1 GiB needs 512: 412 are
//! lacking, `echo 1412` makes them.

use crate::host::{Host, HostNode, RESERVED_PART};
use crate::placement::Home;
use crate::{Occupancy, PlanError};
use topology::{Bytes, Machine, NodeId};
use vm::{MemoryPolicy, Plan, Shape};

/// The nodes of a client's home: with a preferred node those where it lives, since what does not
/// fit there goes where the kernel likes.
pub(crate) fn nodes_of(home: &Home, policy: MemoryPolicy) -> Vec<usize> {
    let lives = |position: &usize| policy != MemoryPolicy::Preferred || home.micro[*position] > 0;
    (0..home.nodes.len()).filter(lives).map(|position| home.nodes[position]).collect()
}

pub(crate) fn larger_than_machine(host: &Host, shape: &Shape) -> PlanError {
    PlanError::LargerThanMachine {
        vm: shape.name.clone(),
        memory: shape.memory,
        machine: host.name.clone(),
        there: host.nodes.iter().map(|node| Bytes(node.memory)).sum(),
    }
}

/// The host, were all free memory of each node in its pool.
pub(crate) fn with_larger_pools(host: &Host, machine: &Machine, occupancy: &Occupancy, page: Bytes) -> Host {
    let mut host = host.clone();
    for node in &mut host.nodes {
        let Some(ordinary) = machine.node(node.id) else { continue };
        let kept = ordinary.memory.0 / RESERVED_PART;
        let more = occupancy.free_memory(ordinary).0.saturating_sub(kept) / page.0 * page.0;
        node.free += more;
        node.available = node.free;
        node.memory += more;
    }
    host
}

/// That nobody says what pools the machine has, and what this VM needs of them.
pub(crate) fn pools_not_known(host: &Host, by_node: impl Iterator<Item = (usize, u64)>) -> Option<String> {
    let page = host.page.filter(|_| !host.pools_are_known)?;
    let of: Vec<String> =
        by_node.map(|(node, bytes)| format!("{} on node {}", bytes / page, host.nodes[node].id)).collect();
    Some(format!(
        "what pools of huge pages {} has is not known (a machine file states them: [[huge_pages]]). It needs free pages of \
        {}: {}",
        host.name,
        Bytes(page),
        of.join(", ")
    ))
}

/// What gives each node its pool while the host runs.
fn commands(pools: &[(NodeId, u64)], page: Bytes) -> String {
    let file = format!("hugepages-{}kB/nr_hugepages", page.0 >> 10);
    let command =
        |(node, pages): &(NodeId, u64)| format!("echo {pages} > /sys/devices/system/node/node{node}/hugepages/{file}");
    pools.iter().map(command).collect::<Vec<_>>().join(" && ")
}

/// That nothing tells beforehand whether a node can still make pages of this size, and what does
/// make them: its memory must be free in whole pieces.
fn in_one_piece(pools: &[(NodeId, u64)], page: Bytes) -> String {
    if page < Bytes::GIB {
        return String::new();
    }
    let at_boot: Vec<String> = pools.iter().map(|(node, pages)| format!("{node}:{pages}")).collect();
    let (gib, at_boot) = (page.0 >> 30, at_boot.join(","));
    format!(
        ". A node makes such a page only where {page} of it is free in one piece, which nothing tells beforehand: look \
        at nr_hugepages afterwards, and try another node where it stays as it was; on the kernel's command line \
        `hugepagesz={gib}G hugepages={at_boot}` makes them"
    )
}

/// Which node has how many pages, and what would make enough of them where `would_be` has the VM.
pub(crate) fn lacks_huge_pages(host: &Host, shape: &Shape, page: Bytes, would_be: Option<&Plan>) -> PlanError {
    let total = |node: &HostNode| node.memory / page.0;
    let of = |node: &HostNode| format!("node {}: {} of {}", node.id, node.free / page.0, total(node));
    let wanted = |node: &HostNode| would_be.and_then(|plan| plan.holdings.get(&node.id)).map(|held| held.memory);
    // How many pages a node should have that has too few.
    let pool = |node: &HostNode| {
        let lacking = (wanted(node)?.0 / page.0).saturating_sub(node.free / page.0);
        (lacking > 0).then(|| (node.id, total(node) + lacking))
    };
    let pools: Vec<(NodeId, u64)> = host.nodes.iter().filter_map(pool).collect();
    let remedy = match pools.is_empty() {
        true => "stop a VM, or make this one smaller: the nodes lack the memory to make more".to_owned(),
        false => format!("as root, {}, or make it smaller{}", commands(&pools, page), in_one_piece(&pools, page)),
    };
    PlanError::HugePages {
        vm: shape.name.clone(),
        needed: shape.memory.0 / page.0,
        page,
        machine: host.name.clone(),
        free: host.nodes.iter().map(|node| node.free / page.0).sum(),
        by_node: host.nodes.iter().map(of).collect::<Vec<_>>().join(", "),
        remedy,
    }
}
