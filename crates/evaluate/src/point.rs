//! What one visit measures.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What one visit of a configuration measures: a column of the table, or a field of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Point {
    /// STREAM with this many threads over all participants.
    Stream {
        /// Threads over all participants.
        threads: u32,
    },
    /// An application with this many threads or processes over all participants.
    Application {
        /// Threads or processes over all participants.
        threads: u32,
    },
    /// Latency of dependent loads from a CPU node to a memory node.
    Latency {
        /// Node of the thread.
        cpu_node: u32,
        /// Node of the buffer.
        memory_node: u32,
    },
    /// STREAM's bandwidth from a CPU node to a memory node.
    Bandwidth {
        /// Node of the threads.
        cpu_node: u32,
        /// Node of the arrays.
        memory_node: u32,
        /// All hardware threads of the CPU node.
        threads: u32,
    },
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { threads: 1 } | Self::Application { threads: 1 } => f.write_str("1 thread"),
            Self::Stream { threads } | Self::Application { threads } => write!(f, "{threads} threads"),
            Self::Latency { cpu_node, memory_node } => write!(f, "latency, node {cpu_node} to {memory_node}"),
            Self::Bandwidth { cpu_node, memory_node, .. } => write!(f, "bandwidth, node {cpu_node} to {memory_node}"),
        }
    }
}
