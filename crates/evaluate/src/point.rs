//! What one visit measures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one visit of a configuration measures: a column of the table, or a field of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Name of the workload.
    pub workload: String,
    /// Node of the threads, as the participant numbers its nodes. Default: all.
    pub cpu_node: Option<u32>,
    /// Node of the memory. Default: where it is touched first.
    pub memory_node: Option<u32>,
    /// Threads or processes over all participants; of a pair of nodes, of each participant.
    pub threads: u32,
}

impl Point {
    /// With so many threads over all participants.
    pub fn over_threads(workload: &str, threads: u32) -> Self {
        Self { workload: workload.to_owned(), cpu_node: None, memory_node: None, threads }
    }

    /// From the CPUs of a node to the memory of a node.
    pub fn of_pair(workload: &str, cpu_node: u32, memory_node: u32, threads: u32) -> Self {
        let workload = workload.to_owned();
        Self { workload, cpu_node: Some(cpu_node), memory_node: Some(memory_node), threads }
    }

    /// The number of threads, where that is what distinguishes the point.
    pub fn width(&self) -> Option<u32> {
        (self.cpu_node.is_none() && self.memory_node.is_none()).then_some(self.threads)
    }

    /// Whether figures of both stand beside each other. Over threads the workload does not matter:
    /// kernels run in the place of applications. At a pair of nodes the number of threads does not,
    /// since all of them are busy; but several workloads are run at each pair.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (self.cpu_node, self.memory_node) == (other.cpu_node, other.memory_node)
            && match self.pair() {
                Some(_) => self.workload == other.workload,
                None => self.threads == other.threads,
            }
    }

    /// CPU node and memory node, where the point is a pair of nodes.
    pub fn pair(&self) -> Option<(u32, u32)> {
        self.cpu_node.zip(self.memory_node)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pair(), self.threads) {
            (Some((from, to)), _) => write!(f, "{}, node {from} to {to}", self.workload),
            (None, 1) => f.write_str("1 thread"),
            (None, threads) => write!(f, "{threads} threads"),
        }
    }
}
