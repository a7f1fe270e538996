//! Where QEMU mapped the memory that was plugged into a domain.
//!
//! **Problem.** libvirt says which devices there are, not where their memory is; the kernel shows
//! mappings, not whose they are; and QEMU's monitor is libvirt's.
//!
//! **Rule.** A device's memory is the mapping of its size. Devices of one size that belong to
//! several virtual nodes are told apart by the nodes that their memory is bound to. Where that
//! leaves a choice between virtual nodes, nothing is said of either.
//!
//! **Example.** 128 MiB for virtual node 0, bound to node 2, and 128 MiB for virtual node 1, bound
//! to node 3: of two mappings of 128 MiB the one with the policy `bind:2` is virtual node 0's.

use linux::LinuxError;
use linux::memory::policy_nodes;
use linux::vm::{Region, RunningVm};
use std::collections::BTreeSet;
use topology::{Bytes, NodeSet};
use vm::MemoryDevice;

/// Memory of QEMU's own that the kernel may have merged below a block.
const MOST_MERGED: u64 = 64 << 20;

/// Why the mapping of a device cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unclear {
    /// More or fewer mappings than devices have the size.
    #[error(
        "{} of {size} were plugged in, and {} of QEMU's memory look like one: which is whose cannot be told",
        topology::words::count(*devices, "device"),
        topology::words::count(*mappings, "part")
    )]
    Count {
        /// Size of each.
        size: Bytes,
        /// Devices of that size.
        devices: usize,
        /// Mappings that may be one of them.
        mappings: usize,
    },
    /// Devices of several virtual nodes are bound alike.
    #[error(
        "devices of {size} were plugged into several virtual nodes, all bound alike: which part of QEMU's memory is \
        whose cannot be told"
    )]
    BoundAlike {
        /// Size of each.
        size: Bytes,
    },
}

/// The mapping of each device, or why it cannot be told.
pub(super) type Mapped<'a> = Vec<(&'a MemoryDevice, Result<Region, Unclear>)>;

/// The mapping of each device.
///
/// # Errors
/// The kernel's policies cannot be read.
pub(super) fn mappings<'a>(devices: &'a [MemoryDevice], process: &RunningVm) -> Result<Mapped<'a>, LinuxError> {
    let mut found = Vec::new();
    let sizes: BTreeSet<u64> = devices.iter().map(|device| device.size.0).collect();
    // The largest first: a smaller one may fit into what is left over only.
    for &size in sizes.iter().rev() {
        let alike: Vec<&MemoryDevice> = devices.iter().filter(|device| device.size.0 == size).collect();
        let mut blocks = Vec::new();
        for region in process.left_over.iter().filter(|region| may_be(region, size)) {
            blocks.push((region.clone(), bound_to(process.key.pid, region)?));
        }
        found.extend(told_apart(&alike, blocks));
    }
    Ok(found)
}

/// Whether a mapping may be a block of this size.
fn may_be(region: &Region, size: u64) -> bool {
    let own = (region.addresses.end - region.addresses.start).checked_sub(size);
    own.is_some_and(|own| own < MOST_MERGED.min(size))
}

/// The nodes that the kernel binds a mapping to; `None` where it binds it to none.
fn bound_to(pid: u32, region: &Region) -> Result<Option<NodeSet>, LinuxError> {
    let mappings = linux::memory::mappings(pid, &region.addresses)?.unwrap_or_default();
    Ok(mappings.iter().find_map(|mapping| policy_nodes(&mapping.policy)))
}

fn told_apart<'a>(devices: &[&'a MemoryDevice], blocks: Vec<(Region, Option<NodeSet>)>) -> Mapped<'a> {
    let size = devices.first().map(|device| device.size).unwrap_or_default();
    if blocks.len() != devices.len() {
        let because = Unclear::Count { size, devices: devices.len(), mappings: blocks.len() };
        return devices.iter().map(|device| (*device, Err(because.clone()))).collect();
    }
    let mut left = blocks;
    let mut mapped = Vec::new();
    for device in devices {
        let nodes = |of: &[&MemoryDevice]| of.iter().map(|device| device.virtual_node).collect::<BTreeSet<_>>();
        let same: Vec<&MemoryDevice> = devices.iter().copied().filter(|one| one.bound_to == device.bound_to).collect();
        let is_its = |bound: &Option<NodeSet>| match nodes(devices).len() {
            1 => true,
            _ => bound.clone().unwrap_or_default() == device.bound_to && nodes(&same).len() == 1,
        };
        let region = match left.iter().position(|(_, bound)| is_its(bound)) {
            Some(index) => Ok(left.remove(index).0),
            None => Err(Unclear::BoundAlike { size }),
        };
        mapped.push((*device, region));
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::vm::{Given, RegionEvidence, RegionKind};
    use vm::MemoryDeviceKind;

    const MIB: u64 = 1 << 20;

    fn device(virtual_node: u32, bound_to: &str) -> MemoryDevice {
        MemoryDevice {
            id: format!("ua-{virtual_node}"),
            virtual_node,
            kind: MemoryDeviceKind::VirtioMem,
            size: Bytes::from_mib(128),
            requested: Bytes::from_mib(64),
            bound_to: bound_to.parse().unwrap(),
        }
    }

    fn region(start: u64, mib: u64) -> Region {
        Region {
            backend: None,
            addresses: start * MIB..(start + mib) * MIB,
            kind: RegionKind::Anonymous,
            path: String::new(),
            page_size: None,
            evidence: RegionEvidence::Size,
            given: Given::Unknown,
        }
    }

    fn starts(devices: &[MemoryDevice], blocks: &[(u64, Option<&str>)]) -> Vec<(u32, Option<u64>)> {
        let blocks = blocks.iter().map(|(at, bound)| (region(*at, 128), bound.map(|nodes| nodes.parse().unwrap())));
        let all: Vec<&MemoryDevice> = devices.iter().collect();
        let mapped = told_apart(&all, blocks.collect());
        mapped.iter().map(|(of, at)| (of.virtual_node, at.as_ref().ok().map(|at| at.addresses.start / MIB))).collect()
    }

    #[test]
    fn devices_of_one_size_are_told_apart_by_what_they_are_bound_to() {
        let two = [device(0, "2"), device(1, "3")];
        assert_eq!(starts(&two, &[(0, Some("3")), (200, Some("2"))]), [(0, Some(200)), (1, Some(0))]);
        // Bound alike, either could be either's.
        let alike = [device(0, "2"), device(1, "2")];
        assert_eq!(starts(&alike, &[(0, Some("2")), (200, Some("2"))]), [(0, None), (1, None)]);
        // Of one virtual node both are its.
        let one = [device(1, ""), device(1, "2")];
        assert_eq!(starts(&one, &[(0, None), (200, Some("2"))]), [(1, Some(0)), (1, Some(200))]);
        // A part of QEMU's own looks like one.
        assert_eq!(starts(&two[..1], &[(0, Some("2")), (200, None)]), [(0, None)]);
    }

    #[test]
    fn a_mapping_may_have_a_little_of_qemus_own_below_the_block() {
        let may = |mib| may_be(&region(100, mib), 128 * MIB);
        assert_eq!([may(128), may(132), may(127), may(192)], [true, true, false, false]); // 132 - 128 = 4
    }
}
