//! Network cards: the NUMA nodes that they are on.
//!
//! **Rule.** A card of PCI says its node itself (`device/numa_node`; -1: it does not know). What
//! stands above cards (a bridge, a bond, a VLAN) has a link `lower_NAME` to each, and is on the
//! nodes of all of them.
//!
//! **Example.** `br0` has the ports `bond0` and `tap0`, and `bond0` the cards `eth0` on node 0 and
//! `eth1` on node 1: `br0` is on nodes 0 and 1.

use super::tree::Tree;
use crate::{NodeId, NodeSet};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const CARDS: &str = "sys/class/net";

/// By name; nothing on a machine of one node, where all is near.
pub(super) fn read(tree: &Tree, nodes: &[NodeId]) -> BTreeMap<String, NodeSet> {
    if nodes.len() < 2 {
        return BTreeMap::new();
    }
    let of = |name: String| {
        let on = below(tree, &name, nodes);
        (!on.is_empty()).then_some((name, on))
    };
    tree.names(CARDS).into_iter().filter_map(of).collect()
}

/// The nodes of a device of the network of the host whose `sys` is below `root`: a bridge, a card,
/// what shares one. Empty where nobody says.
pub fn nodes_of_card(root: &Path, name: &str, nodes: &[NodeId]) -> NodeSet {
    below(&Tree::in_directory(root.to_owned()), name, nodes)
}

/// The nodes of a device's own card and of all that are below it.
fn below(tree: &Tree, name: &str, nodes: &[NodeId]) -> NodeSet {
    let (mut seen, mut left, mut on) = (BTreeSet::from([name.to_owned()]), vec![name.to_owned()], NodeSet::new());
    while let Some(device) = left.pop() {
        let own = tree.read(&format!("{CARDS}/{device}/device/numa_node"));
        let own = own.and_then(|text| text.trim().parse().ok()).map(NodeId);
        on.extend(own.filter(|node| nodes.contains(node)));
        for entry in tree.names(&format!("{CARDS}/{device}")) {
            let Some(lower) = entry.strip_prefix("lower_") else { continue };
            tree.remember(&format!("{CARDS}/{device}/{entry}"), None);
            if seen.insert(lower.to_owned()) {
                left.push(lower.to_owned());
            }
        }
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| (format!("{CARDS}/{path}"), Some(text.to_owned()));
        Tree::captured(files.iter().map(file).collect(), "a test".to_owned())
    }

    #[test]
    fn a_bridge_is_where_its_cards_are() {
        let tree = tree(&[
            ("eth0/device/numa_node", "0\n"),
            ("eth1/device/numa_node", "1\n"),
            ("usb0/device/numa_node", "-1\n"),
            ("far/device/numa_node", "7\n"),
            ("bond0/lower_eth0", ""),
            ("bond0/lower_eth1", ""),
            ("br0/lower_bond0", ""),
            ("br0/lower_tap0", ""),
            ("br1/lower_tap1", ""),
            // As no kernel has it.
            ("loop/lower_loop", ""),
            ("eth1.5/lower_eth1", ""),
        ]);
        let both = [NodeId(0), NodeId(1)];
        let read = read(&tree, &both);
        let told: Vec<String> = read.iter().map(|(name, nodes)| format!("{name} {nodes}")).collect();
        assert_eq!(told, ["bond0 0-1", "br0 0-1", "eth0 0", "eth1 1", "eth1.5 1"]);
        assert!(super::read(&tree, &both[..1]).is_empty(), "all is near");
    }
}
