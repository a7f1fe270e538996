//! The NUMA nodes of a VM's devices: what is passed through to it, and the network cards of the
//! host that its own are plugged into.
//!
//! **Rule.** A device of PCI says its node in `/sys`. A card of the guest is a tap device that QEMU
//! has open: the kernel says its name beside the descriptor, and `/sys` the bridge that it is a
//! port of. One that shares a card (macvtap) is `/dev/tapN`, where N is the number of its
//! interface. Cards in another network namespace are not seen: a switch of homenode's has no card.
//!
//! **Example.** QEMU has `tap0` open, a port of `br0`, another port of which is `eth1`, whose card
//! is on node 1: its devices are on node 1.

use crate::error::read_text;
use crate::root::Root;
use crate::vm::RunningVm;
use std::fs::{read_dir, read_link};
use std::path::Path;
use topology::limits::MOST_DESCRIPTORS;
use topology::{Machine, NodeId, NodeSet};

/// Empty on a machine of one node, where all is near.
pub(crate) fn nodes(root: &Root, vm: &RunningVm, machine: &Machine) -> NodeSet {
    let all: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
    if all.len() < 2 {
        return NodeSet::new();
    }
    let passed_through = vm.passed_through.iter().filter_map(|device| of_device(root, device));
    let mut on: NodeSet = passed_through.filter(|node| all.contains(node)).collect();
    for card in cards(root, vm.key.pid) {
        on.extend(topology::read::nodes_of_card(root.directory(), &card, &all).iter());
    }
    on
}

/// The node of a device of PCI, which has been named by its address or its place in `/sys`.
fn of_device(root: &Root, device: &str) -> Option<NodeId> {
    let address = device.rsplit('/').next()?;
    // QEMU takes an address without its domain, too.
    let whole = if address.matches(':').count() == 1 { format!("0000:{address}") } else { address.to_owned() };
    read_text(&root.join(&format!("sys/bus/pci/devices/{whole}/numa_node"))).ok()?.trim().parse().ok().map(NodeId)
}

/// Bridges and cards of the host that the process's taps are plugged into.
fn cards(root: &Root, pid: u32) -> Vec<String> {
    let Ok(entries) = read_dir(root.process(pid, "fd")) else { return Vec::new() };
    let card = |entry: std::fs::DirEntry| {
        let target = read_link(entry.path()).ok()?;
        let name = target.file_name()?.to_str()?;
        match name.strip_prefix("tap") {
            _ if target.ends_with("dev/net/tun") => {
                let number = entry.file_name().into_string().ok()?;
                let about = read_text(&root.process(pid, &format!("fdinfo/{number}"))).ok()?;
                bridge_of(root, about.lines().find_map(|line| line.strip_prefix("iff:"))?.trim())
            }
            Some(number) if target.starts_with("/dev") => with_number(root, number.parse().ok()?),
            _ => None,
        }
    };
    entries.flatten().take(MOST_DESCRIPTORS).filter_map(card).collect()
}

/// The bridge that a tap device is a port of. One of the same name in another network namespace is
/// no tap device here, or none of a bridge.
fn bridge_of(root: &Root, tap: &str) -> Option<String> {
    let place = root.join("sys/class/net").join(Path::new(tap).file_name()?);
    if !place.join("tun_flags").exists() {
        return None;
    }
    read_link(place.join("master")).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// The interface of this number.
fn with_number(root: &Root, number: u32) -> Option<String> {
    let entries = read_dir(root.join("sys/class/net")).ok()?;
    let is_it = |name: &String| {
        let text = read_text(&root.join(&format!("sys/class/net/{name}/ifindex")));
        text.is_ok_and(|text| text.trim().parse() == Ok(number))
    };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;
    use scheduler::VmKey;
    use std::fs::create_dir_all;
    use std::os::unix::fs::symlink;

    #[test]
    fn taps_lead_to_their_bridges_cards_and_devices_say_their_node() {
        let (directory, root) = tree(&[
            ("proc/7/fdinfo/5", "pos:\t0\niff:\ttap0\n"),
            ("proc/7/fdinfo/6", "pos:\t0\niff:\telsewhere\n"),
            ("sys/class/net/tap0/tun_flags", "0x5002\n"),
            ("sys/class/net/br0/lower_eth1/name", ""),
            ("sys/class/net/eth1/device/numa_node", "1\n"),
            ("sys/class/net/eth2/device/numa_node", "2\n"),
            ("sys/class/net/mv0/ifindex", "12\n"),
            ("sys/class/net/mv0/lower_eth2/name", ""),
            ("sys/bus/pci/devices/0000:3b:00.1/numa_node", "3\n"),
            ("sys/bus/pci/devices/0000:00:02.0/numa_node", "-1\n"),
        ]);
        let machine = topology::read::from_synthetic("pack:4 [numa] core:2 pu:1").unwrap();
        let link = |to: &str, at: &str| {
            let at = directory.path().join(at);
            create_dir_all(at.parent().unwrap()).unwrap();
            symlink(to, at).unwrap();
        };
        let vm = |passed_through: &[&str]| RunningVm {
            key: VmKey { pid: 7, ..VmKey::default() },
            passed_through: passed_through.iter().map(|&device| device.to_owned()).collect(),
            ..RunningVm::default()
        };
        let on = |devices: &[&str]| nodes(&root, &vm(devices), &machine).to_string();
        assert_eq!(on(&[]), "", "nothing is open");
        assert_eq!(on(&["3b:00.1"]), "3");
        assert_eq!(on(&["0000:3b:00.1", "0000:00:02.0", "/sys/bus/pci/devices/0000:3b:00.1", "gone"]), "3");
        link("../br0", "sys/class/net/tap0/master");
        link("/dev/net/tun", "proc/7/fd/5");
        link("/dev/net/tun", "proc/7/fd/6");
        link("/dev/null", "proc/7/fd/0");
        assert_eq!(on(&[]), "1");
        link("/dev/tap12", "proc/7/fd/8");
        assert_eq!(on(&["3b:00.1"]), "1-3");
        let one_node = topology::read::from_synthetic("pack:1 [numa] core:2 pu:1").unwrap();
        assert!(nodes(&root, &vm(&["3b:00.1"]), &one_node).is_empty());
    }
}
