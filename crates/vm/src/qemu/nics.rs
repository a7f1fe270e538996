//! Which virtual node a NIC is on: that of the host bridge (`pxb`) that its bus hangs below.

use super::option_groups::OptionGroups;
use super::options::Options;
use std::collections::{BTreeMap, BTreeSet};

/// Bridges between a NIC and its host bridge: more are a ring.
const DEEPEST: usize = 16;

/// Of each NIC whose packets the kernel moves (`vhost=on`), the virtual node.
pub(super) fn vhost_nodes(groups: &OptionGroups<'_>) -> BTreeSet<Option<u32>> {
    let by_kernel = |netdev: &&Options| netdev.is_on("vhost") && netdev.get("type") == Some("tap");
    let vhost: BTreeSet<&str> = groups.all("netdev").filter(by_kernel).filter_map(|netdev| netdev.get("id")).collect();
    let by_id: BTreeMap<&str, &Options> =
        groups.all("device").filter_map(|device| Some((device.get("id")?, device))).collect();
    let is_vhost = |device: &&Options| device.get("netdev").is_some_and(|id| vhost.contains(id));
    groups.all("device").filter(is_vhost).map(|nic| node_of(nic, &by_id)).collect()
}

fn node_of(nic: &Options, by_id: &BTreeMap<&str, &Options>) -> Option<u32> {
    // A bus is called after its bridge; one of several of a bridge has a number behind a dot, as
    // the bridge's own name may.
    let above = |device: &&Options| {
        let bus = device.get("bus")?;
        by_id.get(bus).or_else(|| by_id.get(bus.rsplit_once('.')?.0)).copied()
    };
    let mut way = std::iter::successors(Some(nic), above).take(DEEPEST);
    way.find_map(|device| device.number("numa_node"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(line: &str) -> BTreeSet<Option<u32>> {
        vhost_nodes(&OptionGroups::of(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()))
    }

    #[test]
    fn a_nic_is_on_the_node_of_its_host_bridge() {
        let pxb =
            "-device pxb-pcie,id=pci.9,bus_nr=64,bus=pcie.0,numa_node=1 -device pcie-root-port,bus=pci.9,id=pci.10";
        let nic = "-netdev tap,id=n0,vhost=on,fd=9 -device virtio-net-pci,netdev=n0";
        assert_eq!(nodes(&format!("qemu {pxb} {nic},bus=pci.10")), BTreeSet::from([Some(1)]));
        assert_eq!(nodes(&format!("qemu {pxb} {nic},bus=pcie.0")), BTreeSet::from([None]));
        assert_eq!(nodes(&format!("qemu {nic}")), BTreeSet::from([None]));
        assert_eq!(nodes("qemu -netdev user,id=n0 -device virtio-net-pci,netdev=n0"), BTreeSet::new());
        let ring = "-device pcie-root-port,bus=b,id=a -device pcie-root-port,bus=a,id=b";
        assert_eq!(nodes(&format!("qemu {ring} {nic},bus=a")), BTreeSet::from([None]));
    }
}
