//! On which node pages of a running process are, asked page by page (move_pages(2) without a
//! destination).
//!
//! The kernel looks sixteen pages up at a time and then lets go of the process's memory map, so
//! that the process is never held up; `numa_maps` walks whole mappings with the map held.

use crate::sys::{PageLocation, locate_pages};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use topology::{Bytes, NodeId};

/// Size of a small page.
pub(crate) const PAGE: u64 = 4096;
/// Addresses in one call: bounds the memory that a query takes.
const BATCH: usize = 1 << 16;

/// What is known of where some memory is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagesByNode {
    /// Resident, by node.
    pub resident: BTreeMap<NodeId, Bytes>,
    /// Not touched yet, or swapped out.
    pub absent: Bytes,
}

impl PagesByNode {
    /// Whether no node's part, and not the absent part, differs by more than this share of the
    /// whole.
    pub fn is_like(&self, other: &Self, share: f64) -> bool {
        let total = self.resident.values().copied().sum::<Bytes>().saturating_add(self.absent);
        let near = |one: Bytes, other: Bytes| one.0.abs_diff(other.0) as f64 <= share * total.0 as f64;
        let on = |pages: &Self, node: &NodeId| pages.resident.get(node).copied().unwrap_or_default();
        let nodes = || self.resident.keys().chain(other.resident.keys());
        near(self.absent, other.absent) && nodes().all(|node| near(on(self, node), on(other, node)))
    }
}

/// Estimates from `samples` addresses, spread evenly over all regions together. `turn` shifts them,
/// so that different pages are asked the next time. One page in `n` is off by at most about
/// `1/sqrt(samples)` of the whole.
///
/// # Errors
/// `EPERM` without the right to look into the process, `ESRCH` if it ended.
pub fn sample(pid: u32, regions: &[Range<u64>], samples: usize, turn: u64) -> io::Result<PagesByNode> {
    let total: u64 = regions.iter().map(|region| region.end - region.start).sum();
    let pages = total / PAGE;
    let samples = (samples as u64).min(pages);
    if samples == 0 {
        return Ok(PagesByNode::default());
    }
    let stride = pages as f64 / samples as f64;
    let addresses: Vec<u64> = (0..samples)
        .filter_map(|sample| {
            let page = ((sample as f64 + jitter(turn, sample)) * stride) as u64;
            address_of(regions, page.min(pages - 1) * PAGE)
        })
        .collect();
    let mut counted = count(&locate_pages(pid, &addresses)?);
    let each = total as f64 / samples as f64;
    let scale = |pages: Bytes| Bytes((pages.0 as f64 / PAGE as f64 * each).round() as u64);
    counted.resident.values_mut().for_each(|bytes| *bytes = scale(*bytes));
    counted.absent = scale(counted.absent);
    Ok(counted)
}

/// Counts every page. Each small page is asked, those within a huge page too.
///
/// # Errors
/// As [`sample`].
pub fn exact(pid: u32, regions: &[Range<u64>]) -> io::Result<PagesByNode> {
    let mut sum = PagesByNode::default();
    for region in regions {
        let mut addresses = (region.start..region.end).step_by(PAGE as usize).peekable();
        while addresses.peek().is_some() {
            let batch: Vec<u64> = addresses.by_ref().take(BATCH).collect();
            let counted = count(&locate_pages(pid, &batch)?);
            for (node, bytes) in counted.resident {
                let all = sum.resident.entry(node).or_default();
                *all = all.saturating_add(bytes);
            }
            sum.absent = sum.absent.saturating_add(counted.absent);
        }
    }
    Ok(sum)
}

/// The address `offset` bytes into the regions, one after the other.
fn address_of(regions: &[Range<u64>], mut offset: u64) -> Option<u64> {
    for region in regions {
        let length = region.end - region.start;
        if offset < length {
            return Some(region.start + offset);
        }
        offset -= length;
    }
    None
}

/// A number from 0 to 1 that looks random: memory is often laid out in strides that a fixed grid of
/// samples would meet again and again.
fn jitter(turn: u64, sample: u64) -> f64 {
    let mut mixed = (turn ^ sample.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

fn count(locations: &[PageLocation]) -> PagesByNode {
    let mut counted = PagesByNode::default();
    for location in locations {
        match location {
            PageLocation::Node(node) => counted.resident.entry(*node).or_default().0 += PAGE,
            PageLocation::Absent | PageLocation::Unknown => counted.absent.0 += PAGE,
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_run_through_the_regions_in_order() {
        let regions = [0x1000..0x3000, 0x9000..0xa000];
        assert_eq!(address_of(&regions, 0x1000), Some(0x2000));
        assert_eq!(address_of(&regions, 0x2000), Some(0x9000));
        assert_eq!(address_of(&regions, 0x3000), None);
    }

    #[test]
    fn half_touched_memory_is_counted_and_estimated() {
        let half = 512 * PAGE as usize;
        let mut memory = vec![0u8; 2 * half + PAGE as usize];
        let start = memory.as_ptr().align_offset(PAGE as usize);
        // Small pages only: a huge page would be touched as a whole.
        for page in (start..start + half).step_by(PAGE as usize) {
            memory[page] = 1;
        }
        let first = memory.as_ptr() as u64 + start as u64;
        let region = first..first + 2 * half as u64;
        let regions = std::slice::from_ref(&region);
        let Ok(all) = exact(0, regions) else {
            return eprintln!("SKIPPED half_touched_memory_is_counted_and_estimated: move_pages is not there");
        };
        let resident = all.resident.values().copied().sum::<Bytes>();
        assert_eq!(resident.saturating_add(all.absent), Bytes(2 * half as u64));
        assert!(resident >= Bytes(half as u64));
        let guess = sample(0, regions, 256, 3).unwrap().resident.values().copied().sum::<Bytes>();
        // 256 strata of 4 pages each: at most one stratum is on the edge between touched and not.
        assert!(guess.0.abs_diff(resident.0) <= 8 * 4 * PAGE, "{guess} of {resident}");
    }

    #[test]
    fn estimates_are_alike_within_a_share_of_the_whole() {
        let pages = |on_zero, on_one, absent| PagesByNode {
            resident: BTreeMap::from([(NodeId(0), Bytes(on_zero)), (NodeId(1), Bytes(on_one))]),
            absent: Bytes(absent),
        };
        let before = pages(600, 200, 200); // 5 % of 1000 are 50
        assert!(before.is_like(&pages(650, 150, 200), 0.05));
        assert!(!before.is_like(&pages(651, 149, 200), 0.05));
        assert!(!before.is_like(&pages(600, 149, 251), 0.05));
    }

    #[test]
    fn samples_differ_from_turn_to_turn() {
        assert_ne!(jitter(1, 5).to_bits(), jitter(2, 5).to_bits());
        assert!((0..1000).all(|sample| (0.0..1.0).contains(&jitter(7, sample))));
    }
}
