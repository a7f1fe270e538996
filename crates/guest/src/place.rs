//! Placement by Linux's own means: affinity of threads, memory policy of threads, and where pages
//! really are.

use linux::sys::{self, MemoryBinding, PageLocation};
use std::collections::BTreeMap;
use topology::{CpuSet, NodeId};
use workloads::{Placement, WorkloadError};

/// Pages asked for in one call.
const BATCH_PAGES: usize = 4096;
/// Pages asked for of one array: enough to see a split to a thousandth, without a minute spent in
/// the kernel on a terabyte.
const MOST_PAGES: u64 = 65_536;
const PAGE_BYTES: u64 = 4096;

/// Where the threads of one job go, and where what they touch goes.
pub(crate) struct LinuxPlacement {
    /// CPUs of each thread; `None`: anywhere.
    pub(crate) cpus: Option<Vec<CpuSet>>,
    /// Node of the memory; `None`: that of the thread that touches it first.
    pub(crate) memory_node: Option<NodeId>,
}

impl Placement for LinuxPlacement {
    fn place_thread(&self, index: usize) -> Result<(), WorkloadError> {
        if let Some(cpus) = self.cpus.as_ref().and_then(|sets| sets.get(index)) {
            let failed = |error| WorkloadError::Placement(format!("binding thread {index} to CPUs {cpus}: {error}"));
            sys::set_affinity(0, cpus).map_err(failed)?;
        }
        if let Some(node) = self.memory_node {
            let failed = |error| WorkloadError::Placement(format!("binding memory to node {node}: {error}"));
            sys::set_thread_memory(&MemoryBinding::Bind(std::iter::once(node).collect())).map_err(failed)?;
        }
        Ok(())
    }

    fn thread_cpus(&self) -> String {
        sys::affinity(0).map(|cpus| cpus.to_string()).unwrap_or_default()
    }

    fn pages_by_node(&self, start: *const u8, bytes: usize) -> Vec<(u32, u64)> {
        let first = start as u64 / PAGE_BYTES;
        let pages = (start as u64 + bytes as u64).div_ceil(PAGE_BYTES) - first;
        // Evenly spaced pages stand for the others; every page where there are few.
        let stride = pages.div_ceil(MOST_PAGES).max(1);
        let addresses: Vec<u64> = (0..pages).step_by(stride as usize).map(|page| (first + page) * PAGE_BYTES).collect();
        let mut by_node = BTreeMap::new();
        for batch in addresses.chunks(BATCH_PAGES) {
            // A kernel without NUMA cannot say, and then the report is empty.
            let Ok(locations) = sys::locate_pages(0, batch) else { return Vec::new() };
            for location in locations {
                if let PageLocation::Node(node) = location {
                    *by_node.entry(node.0).or_insert(0) += stride;
                }
            }
        }
        by_node.into_iter().collect()
    }
}
