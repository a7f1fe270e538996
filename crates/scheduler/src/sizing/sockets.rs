//! Virtual sockets: each lies in one virtual node, because a guest kernel believes that a socket
//! shares a cache.

use super::shares::{self, Shape};
use crate::divide::{common_divisor, evenly};
use crate::host::Host;
use vm::{Reason, VmSpec};

/// The size of the virtual sockets, and the shares, which may have moved to whole sockets.
pub(super) struct Sockets {
    pub(super) shapes: Vec<Shape>,
    pub(super) per_socket: u32,
    pub(super) reason: Reason,
    pub(super) warning: Option<String>,
}

/// Chooses the largest socket that no virtual node's boundary cuts, or the one that the spec asks
/// for if it can be had.
pub(super) fn choose(host: &Host, spec: &VmSpec, shapes: Vec<Shape>) -> Sockets {
    let largest = common_divisor(shapes.iter().map(|shape| shape.vcpus)).max(1);
    let Some(asked) = spec.policy.cores_per_socket else {
        let because = by_default(&shapes, largest);
        return sockets(shapes, largest, because, None);
    };
    if largest.is_multiple_of(asked) {
        return sockets(shapes, asked, "policy.cores_per_socket".to_owned(), None);
    }
    if let Some(moved) = whole_sockets(host, spec, &shapes, asked) {
        let because = "policy.cores_per_socket; the shares were moved to whole sockets".to_owned();
        return sockets(moved, asked, because, None);
    }
    let corrected = common_divisor([largest, asked]);
    let warning = format!(
        "policy.cores_per_socket = {asked} would put a virtual socket into two virtual nodes; {corrected} is used instead"
    );
    let because = format!("the largest part of {asked} vCPUs that no boundary of a virtual node cuts");
    sockets(shapes, corrected, because, Some(warning))
}

fn by_default(shapes: &[Shape], largest: u32) -> String {
    let because = if shapes.iter().all(|shape| shape.vcpus == largest) {
        "one virtual socket for each virtual node"
    } else if largest == 1 {
        "a socket must not lie in two virtual nodes, and their vCPUs have no common divisor"
    } else {
        "a socket must not lie in two virtual nodes: the largest that divides them all"
    };
    because.to_owned()
}

fn sockets(shapes: Vec<Shape>, per_socket: u32, because: String, warning: Option<String>) -> Sockets {
    let vcpus: u32 = shapes.iter().map(|shape| shape.vcpus).sum();
    let choice = format!("virtual sockets: {} of {per_socket}", vcpus / per_socket);
    Sockets { shapes, per_socket, reason: Reason { choice, because }, warning }
}

/// The same number of shares in whole sockets of `asked` vCPUs, if the machine's nodes hold them.
fn whole_sockets(host: &Host, spec: &VmSpec, shapes: &[Shape], asked: u32) -> Option<Vec<Shape>> {
    let sockets = u64::from(spec.vcpus / asked);
    if spec.policy.virtual_nodes.is_some() || sockets < shapes.len() as u64 {
        return None;
    }
    let vcpus: Vec<u64> = evenly(sockets, shapes.len()).iter().map(|count| count * u64::from(asked)).collect();
    let moved = shares::with_memory(spec.memory, &vcpus, &vec![u64::MAX; vcpus.len()])?;
    shares::hold(host, spec, &moved).then_some(moved)
}
