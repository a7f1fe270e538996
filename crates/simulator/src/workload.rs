//! A workload as data: what a file in `profiles/` holds, each value with where it comes from.
//!
//! Two kinds: **kernels**, whose figure is a rate (STREAM), and an **application**, whose figure is
//! a time.

use crate::Profile;
use serde::{Deserialize, Serialize};
use topology::rates::Sourced;

/// A file in `profiles/`. It has either kernels or an application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadProfile {
    /// Short name: lower-case letters, digits and `-`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Kernels, in the order of the tables: the workload is a rate.
    #[serde(default, rename = "kernel", skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
    /// The workload is a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<Application>,
}

/// A kernel that moves lines as fast as it can.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Its name in tables.
    pub name: String,
    /// Lines that one core keeps in flight.
    pub lines_in_flight: Sourced<f64>,
    /// Nanoseconds that a core computes for each line.
    pub core_ns_per_line: Sourced<f64>,
    /// Share of the lines that are written back.
    pub write_share: Sourced<f64>,
    /// Bytes of counted work in each line moved: MB/s of the kernel are lines a microsecond times
    /// this.
    pub counted_bytes_per_line: Sourced<f64>,
}

impl Kernel {
    /// What the solvers need of it.
    pub fn profile(&self) -> Profile {
        Profile {
            lines_in_flight: self.lines_in_flight.value,
            core_ns_per_line: self.core_ns_per_line.value,
            write_share: self.write_share.value,
            counted_bytes_per_line: self.counted_bytes_per_line.value,
        }
    }
}

/// A parallel program that runs to its end.
///
/// `T = f (serial + compute / capacity + memory) + waits`; each part is absent where the program
/// has none worth a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// What binds it.
    pub class: Class,
    /// How the class is known.
    pub class_from: String,
    /// Whether its threads stay where they start.
    pub binding: Sourced<Binding>,
    /// Seconds during which one thread works and the others wait, whatever their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_s: Option<Sourced<f64>>,
    /// Core-seconds of work in caches, shared by all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_core_s: Option<Sourced<f64>>,
    /// Work in memory, shared by all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryWork>,
    /// Messages between processes in different VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// Share by which a VM prolongs serial and parallel work: 0.012 is 1.2 %. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_overhead: Option<Sourced<f64>>,
}

/// What binds an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Streams through memory with all lines in flight that a core has; no time on the core.
    Bandwidth,
    /// Streams, and computes on each line meanwhile.
    Overlap,
    /// Dependent misses: one line in flight, then work on it.
    Latency,
    /// Streams, beside a serial part that no thread shortens.
    Serial,
    /// Works in caches: the cores bind.
    Compute,
}

/// Whether threads stay where they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// Bound to their CPUs, or so busy that the guest's scheduler has no reason to move them.
    Pinned,
    /// Moved to idle cores (in a VM: vCPUs) now and then, away from the memory that they touched
    /// first.
    Unpinned,
}

/// Work in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryWork {
    /// Lines (64 bytes) that all threads together move.
    pub lines: Sourced<f64>,
    /// Lines that one core keeps in flight.
    pub lines_in_flight: Sourced<f64>,
    /// Nanoseconds that a core computes for each line.
    pub core_ns_per_line: Sourced<f64>,
    /// Share of the lines that are written back.
    pub write_share: Sourced<f64>,
    /// Growth of `lines` as the processes' last-level caches shrink: `lines x (caches of the
    /// machine / caches in use) ^ this`, since the data of the whole run stays the same, and with
    /// it the work of the cores. Absent: the caches do not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_miss_exponent: Option<Sourced<f64>>,
}

impl MemoryWork {
    /// What the solvers need of it. All bytes of a line count.
    pub fn profile(&self) -> Profile {
        Profile {
            lines_in_flight: self.lines_in_flight.value,
            core_ns_per_line: self.core_ns_per_line.value,
            write_share: self.write_share.value,
            counted_bytes_per_line: topology::rates::LINE_BYTES,
        }
    }
}

/// Messages between the processes of a program: what each waits for from each other VM. What a
/// message costs is the machine's ([`topology::rates::NetworkRates`]).
///
/// `wait = (n / at_processes)^exponent x sum over the other VMs of (count x latency + gb /
/// bandwidth)` for n processes, of the way to each VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// Number of processes at which `count` and `gb` are stated.
    pub at_processes: u32,
    /// Growth of a process's wait with the number of processes.
    pub exponent: Sourced<f64>,
    /// Messages of each other VM that a process waits for in the whole run, one after the other.
    pub count: Sourced<f64>,
    /// What they hold, together, in GB (10^9 bytes).
    pub gb: Sourced<f64>,
}
