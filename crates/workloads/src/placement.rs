//! Where threads and memory go is the operating system's matter: whoever runs a workload hands in
//! how.

use crate::WorkloadError;
use std::collections::BTreeMap;

/// How a workload's threads and memory are placed, and how that is read back. Every method has the
/// default "leave it to the system".
pub trait Placement: Send + Sync {
    /// Called on thread `index` before it touches memory: binds the thread to CPUs, and to a node
    /// the memory that it will touch.
    fn place_thread(&self, index: usize) -> Result<(), WorkloadError> {
        let _ = index;
        Ok(())
    }
    /// CPUs that the calling thread may use, in list format; empty if unknown.
    fn thread_cpus(&self) -> String {
        String::new()
    }
    /// Pages on each node of the memory at these addresses, which are never read: (node, pages);
    /// empty if unknown.
    fn pages_by_node(&self, start: *const u8, bytes: usize) -> Vec<(u32, u64)> {
        let _ = (start, bytes);
        Vec::new()
    }
}

/// Leaves everything to the system.
#[derive(Clone, Copy, Debug)]
pub struct Anywhere;

impl Placement for Anywhere {}

/// Sums pages by node, in the order of nodes.
pub(crate) fn count_pages(pages: impl IntoIterator<Item = (u32, u64)>) -> Vec<(u32, u64)> {
    let mut by_node = BTreeMap::new();
    for (node, pages) in pages {
        *by_node.entry(node).or_insert(0) += pages;
    }
    by_node.into_iter().collect()
}
