//! What each participant is told to run in a visit.

use crate::point::Point;
use crate::resolve::Resolved;
use crate::schedule::Visit;
use workloads::protocol::{ChaseJob, StreamJob, Workload};

/// The job of each participant: an equal part of the arrays and of the threads.
pub(crate) fn workload(resolved: &Resolved, visit: &Visit, repetitions: u32, participants: u32) -> Workload {
    let experiment = &resolved.experiment;
    let stream = |threads: u32, cpu_node, memory_node| {
        Workload::Stream(StreamJob {
            elements: resolved.arrays.elements / u64::from(participants),
            threads: threads / participants,
            repetitions,
            stores: experiment.stores,
            pinning: experiment.pinning,
            cpu_node,
            memory_node,
        })
    };
    match visit.point {
        // A measured evaluation has no application points: resolving refuses them.
        Point::Stream { threads } | Point::Application { threads } => stream(threads, None, None),
        Point::Bandwidth { cpu_node, memory_node, threads } => {
            stream(threads * participants, Some(cpu_node), Some(memory_node))
        }
        Point::Latency { cpu_node, memory_node } => Workload::Chase(ChaseJob {
            buffer_bytes: resolved.chase_buffer.0,
            loads: experiment.chase.loads,
            repetitions,
            cpu_node: Some(cpu_node),
            memory_node: Some(memory_node),
        }),
    }
}

/// Elements of each array; 0 for a chase.
pub(crate) fn elements(workload: &Workload) -> u64 {
    match workload {
        Workload::Stream(job) => job.elements,
        Workload::Chase(_) => 0,
    }
}
