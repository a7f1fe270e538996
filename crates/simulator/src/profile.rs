//! What a workload asks of a core, in the model's unit: a cache line moved between a core and
//! memory.

use serde::{Deserialize, Serialize};

/// A phase of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Lines that one thread keeps in flight: at most what its core can. 1 where each load needs
    /// the one before.
    pub lines_in_flight: f64,
    /// Time that a core computes for each line, in nanoseconds, at one thread on the core.
    pub core_ns_per_line: f64,
    /// Share of the lines that are written back.
    pub write_share: f64,
    /// Bytes of useful, counted work in each line moved. STREAM's Copy counts 2 lines of 64 bytes
    /// where 3 move: 42.7.
    pub counted_bytes_per_line: f64,
}
