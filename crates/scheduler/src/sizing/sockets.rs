//! Virtual sockets: each lies in one virtual node, because a guest kernel believes that a socket
//! shares a cache. Where `policy.cache` divides the vCPUs, each group is a socket, or a die of a
//! socket that the policy makes wider than a cache: of each die a guest is told a cache of its own.

use super::shares::{self, Share};
use crate::caches;
use crate::divide::{common_divisor, evenly};
use crate::host::Host;
use vm::{Reason, Shape};

/// The size of the virtual sockets, and the shares, which may have moved to whole sockets.
pub(super) struct Sockets {
    pub(super) shares: Vec<Share>,
    pub(super) per_socket: u32,
    pub(super) dies: u32,
    pub(super) reason: Reason,
    pub(super) warning: Option<String>,
}

/// Chooses the largest socket that no virtual node's boundary cuts, or the one that the shape asks
/// for if it can be had.
pub(super) fn choose(host: &Host, shape: &Shape, shares: Vec<Share>) -> Sockets {
    let mut sockets = undivided(host, shape, shares);
    let caches = host.caches_of_a_node();
    if let Some(dies) = caches.and_then(|caches| caches::dies(shape, sockets.per_socket, &caches)) {
        sockets.reason.choice += &format!(" in {dies} dies");
        sockets.reason.because += "; a die for each group, since no last-level cache has the cores for a socket";
        sockets.dies = dies;
    }
    sockets
}

fn undivided(host: &Host, shape: &Shape, shares: Vec<Share>) -> Sockets {
    let largest = common_divisor(shares.iter().map(|share| share.vcpus)).max(1);
    let caches = host.caches_of_a_node();
    if let Some(group) = caches::per_socket(shape, shares.iter().map(|share| share.vcpus), caches.as_ref()) {
        let because = format!("policy.cache = \"{}\": one for each group", shape.policy.cache.word());
        return sockets(shares, group, because, None);
    }
    let Some(asked) = shape.policy.cores_per_socket else {
        let because = by_default(&shares, largest);
        let warning = one_each(shape, &shares, largest);
        return sockets(shares, largest, because, warning);
    };
    if largest.is_multiple_of(asked) {
        return sockets(shares, asked, "policy.cores_per_socket".to_owned(), None);
    }
    if let Some(moved) = whole_sockets(host, shape, &shares, asked) {
        let because = "policy.cores_per_socket; the shares were moved to whole sockets".to_owned();
        return sockets(moved, asked, because, None);
    }
    let corrected = common_divisor([largest, asked]);
    let warning = format!(
        "policy.cores_per_socket = {asked} would put a virtual socket into two virtual nodes; {corrected} is used \
        instead"
    );
    let because = format!("the largest part of {asked} vCPUs that no boundary of a virtual node cuts");
    sockets(shares, corrected, because, Some(warning))
}

fn by_default(shares: &[Share], largest: u32) -> String {
    let because = if shares.iter().all(|share| share.vcpus == largest) {
        "one virtual socket for each virtual node"
    } else if largest == 1 {
        "a socket must not lie in two virtual nodes, and their vCPUs have no common divisor"
    } else {
        "a socket must not lie in two virtual nodes: the largest that divides them all"
    };
    because.to_owned()
}

/// What is to be said where every vCPU is a socket because the shares have no common divisor: a
/// guest takes each to have a cache of its own, and some use two sockets only.
fn one_each(shape: &Shape, shares: &[Share], largest: u32) -> Option<String> {
    let count = u32::try_from(shares.len()).unwrap_or(u32::MAX);
    if largest > 1 || shares.iter().all(|share| share.vcpus <= 1) {
        return None;
    }
    let (less, more) = (shape.vcpus / count * count, (shape.vcpus / count + 1) * count);
    Some(format!(
        "{0} virtual sockets of one vCPU: {0} vCPUs in {count} virtual nodes have no common divisor, and a socket must \
        not lie in two. A desktop Windows uses two sockets. {less} or {more} vCPUs would be a socket for each node",
        shape.vcpus
    ))
}

fn sockets(shares: Vec<Share>, per_socket: u32, because: String, warning: Option<String>) -> Sockets {
    let vcpus: u32 = shares.iter().map(|share| share.vcpus).sum();
    let choice = format!("virtual sockets: {} of {per_socket}", vcpus / per_socket);
    Sockets { shares, per_socket, dies: 1, reason: Reason { choice, because }, warning }
}

/// The same number of shares in whole sockets of `asked` vCPUs, if the machine's nodes hold them.
fn whole_sockets(host: &Host, shape: &Shape, shares: &[Share], asked: u32) -> Option<Vec<Share>> {
    let sockets = u64::from(shape.vcpus / asked);
    if shape.policy.virtual_nodes.is_some() || sockets < shares.len() as u64 {
        return None;
    }
    let vcpus: Vec<u64> = evenly(sockets, shares.len()).iter().map(|count| count * u64::from(asked)).collect();
    let moved = shares::with_memory(shape, &vcpus, &vec![u64::MAX; vcpus.len()])?;
    shares::hold(host, shape, &moved).then_some(moved)
}
