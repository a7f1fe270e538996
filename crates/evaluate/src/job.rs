//! What each participant is told to run in a visit.

use crate::point::Point;
use crate::resolve::Resolved;
use workloads::workload::{Pinning, Share, Threads};

/// The part of each of `participants`: an equal one of the threads, but all of a pair of nodes,
/// which each participant has for itself.
pub(crate) fn share(resolved: &Resolved, point: &Point, participants: u32, of_span: Option<u32>) -> Share {
    let count = if point.pair().is_some() { point.threads } else { point.threads / participants };
    let pinning: Pinning = resolved.experiment.pinning;
    Share {
        of_span,
        participants,
        threads: Threads { count, pinning, cpu_node: point.cpu_node, memory_node: point.memory_node },
    }
}
