//! Where a client's memory is, estimated from some of its pages.
//!
//! **Problem.** To ask for every page takes long, and a virtio-mem device is mostly holes: spread
//! over it, few of the pages that are asked would be the guest's.
//!
//! **Rule.** The memory that a client has for certain and its devices are asked apart. A device has
//! no more than its guest was given; where nobody said how much that is, it has what is resident.
//!
//! **Example.** 256 MiB, all touched, and a device of 768 MiB that gave 6 MiB: 1024 pages of the
//! first are asked and 1024 of the second, of which about 8 are there (1024 x 6 / 768).

use crate::residence::{self, PagesByNode};
use crate::root::Root;
use crate::vm::{Given, Region, VmClient};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use topology::{Bytes, NodeId};

/// Pages of a client that are asked where they are: the estimate is off by 3 % of its memory at
/// most, nearly always.
const SAMPLES: usize = 1024;
/// The same of a device, where a client has many.
const FEWEST_SAMPLES: usize = 128;
/// Observations between two estimates of a client's memory, unless it was just moved: at first, and
/// where the last estimate was another than the one before.
pub(super) const MEMORY_EVERY: u64 = 4;
/// The same, where estimate after estimate said the same.
const MEMORY_SELDOM: u64 = 16;
/// Share of a client's memory by which two estimates of the same state may differ.
const SAME: f64 = 0.06;

/// Memory of one client.
#[derive(Debug)]
pub(super) struct Residence {
    estimate: Option<Estimate>,
    /// It was moved since, or there is more or less of it.
    stale: bool,
    /// Observations between two estimates.
    every: u64,
}

/// An estimate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Estimate {
    pages: PagesByNode,
    /// Resident in devices of which nobody said how much they give.
    unsaid: Bytes,
}

impl Default for Residence {
    fn default() -> Self {
        Self { estimate: None, stale: false, every: MEMORY_EVERY }
    }
}

impl Residence {
    /// Estimates it anew where it is its turn.
    pub(super) fn renew(&mut self, root: &Root, pid: u32, client: &VmClient, turn: u64, age: u64) {
        if turn.is_multiple_of(self.every) || self.stale || self.estimate.is_none() {
            self.take(estimate(root, pid, client, age));
        }
    }

    /// Memory that stays where it is, is asked less and less.
    fn take(&mut self, estimate: Option<Estimate>) {
        let both = self.estimate.as_ref().zip(estimate.as_ref());
        let same = both.is_some_and(|(before, now)| before.pages.is_like(&now.pages, SAME));
        self.every = if same { (2 * self.every).min(MEMORY_SELDOM) } else { MEMORY_EVERY };
        (self.estimate, self.stale) = (estimate, false);
    }

    /// Resident memory by node.
    pub(super) fn by_node(&self) -> Option<BTreeMap<NodeId, Bytes>> {
        self.estimate.as_ref().map(|estimate| estimate.pages.resident.clone())
    }

    /// Memory that the client may have in all. Devices of which neither their monitor nor the
    /// kernel says how much they give may give all.
    pub(super) fn memory_size(&self, client: &VmClient) -> Bytes {
        let all = || client.plugged().filter(|region| region.given().is_none()).map(Region::size).sum();
        let unsaid = self.estimate.as_ref().map_or_else(all, |estimate| estimate.unsaid);
        client.known_memory().saturating_add(unsaid)
    }

    /// The next observation estimates it anew.
    pub(super) fn is_stale(&mut self) {
        self.stale = true;
    }
}

fn estimate(root: &Root, pid: u32, client: &VmClient, age: u64) -> Option<Estimate> {
    if client.regions.is_empty() || !root.is_live() {
        return None;
    }
    let certain = client.regions.iter().filter(|region| region.given == Given::All);
    let certain: Vec<Range<u64>> = certain.map(|region| region.addresses.clone()).collect();
    let of_devices = (SAMPLES / client.plugged().count().max(1)).max(FEWEST_SAMPLES);
    let sampled = || -> io::Result<Estimate> {
        let mut estimate = Estimate { pages: residence::sample(pid, &certain, SAMPLES, age)?, unsaid: Bytes(0) };
        for device in client.plugged().filter(|device| device.given() != Some(Bytes(0))) {
            let pages = residence::sample(pid, std::slice::from_ref(&device.addresses), of_devices, age)?;
            estimate.add(pages, device.given());
        }
        Ok(estimate)
    };
    sampled().ok()
}

impl Estimate {
    /// Adds a device that gives so much.
    fn add(&mut self, mut pages: PagesByNode, given: Option<Bytes>) {
        let resident: Bytes = pages.resident.values().copied().sum();
        match given {
            None => self.unsaid = self.unsaid.saturating_add(resident),
            Some(given) if resident > given => {
                let part = given.0 as f64 / resident.0 as f64;
                pages.resident.values_mut().for_each(|bytes| bytes.0 = (bytes.0 as f64 * part) as u64);
            }
            Some(_) => {}
        }
        for (node, bytes) in pages.resident {
            let sum = self.pages.resident.entry(node).or_default();
            *sum = sum.saturating_add(bytes);
        }
        let absent = given.unwrap_or_default().saturating_sub(resident);
        self.pages.absent = self.pages.absent.saturating_add(absent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_no_more_than_it_gave_and_what_is_resident_where_nobody_said() {
        let pages = |resident: u64, absent: u64| PagesByNode {
            resident: BTreeMap::from([(NodeId(0), Bytes(resident)), (NodeId(1), Bytes(resident))]),
            absent: Bytes(absent),
        };
        let mut estimate = Estimate { pages: pages(100, 0), unsaid: Bytes(0) };
        estimate.add(pages(8, 984), Some(Bytes(12))); // 6 of 8 on each node, nothing absent
        assert_eq!((&estimate.pages, estimate.unsaid), (&pages(106, 0), Bytes(0)));
        estimate.add(pages(4, 992), Some(Bytes(20))); // 20 - 2 x 4 are still to be touched
        assert_eq!((&estimate.pages, estimate.unsaid), (&pages(110, 12), Bytes(0)));
        estimate.add(pages(5, 990), None);
        assert_eq!((&estimate.pages, estimate.unsaid), (&pages(115, 12), Bytes(10)));
    }
}
