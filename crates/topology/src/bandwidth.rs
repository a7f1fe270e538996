//! What a machine's memory carries in a second, as far as it is known: the one answer for whoever
//! asks how busy a controller or a link is.
//!
//! It comes from the rates of a machine file ([`Bandwidths::of_rates`]), which may be one that
//! `homenode calibrate` wrote, else from what the firmware told the kernel (HMAT, CDAT), which
//! [`read::live`](crate::read::live) reads. What neither says is `None`.

use crate::rates::Rates;
use crate::{Bytes, NodeId, ways};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most nodes of a machine whose links are looked at: finding ways takes the third power of it.
const MOST_LINKED_NODES: usize = 64;
/// Fewest and most bytes a second that are believed, as in a machine file: beyond them a unit is
/// mistaken.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1e6..=1e15;

/// Bytes a second, by what carries them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidths {
    /// What the memory of a node sustains, reads and writes together.
    pub memory: BTreeMap<NodeId, Bytes>,
    /// From a node, to another: what the narrowest link on the way carries in this direction.
    pub links: BTreeMap<NodeId, BTreeMap<NodeId, Bytes>>,
}

impl Bandwidths {
    /// Those of a machine with these nodes and rates. Links are left out where they do not join all
    /// nodes.
    pub fn of_rates(nodes: &[NodeId], rates: &Rates) -> Self {
        let memory = gb_per_s(rates.node_bandwidth_gb_per_s.value);
        let memory = nodes.iter().filter_map(|&node| Some((node, memory?))).collect();
        Self { memory, links: links(nodes, rates) }
    }

    /// What a node's memory sustains, reads and writes together, in a second.
    pub fn of_memory(&self, node: NodeId) -> Option<Bytes> {
        self.memory.get(&node).copied()
    }

    /// What goes from a node to another in a second, at most: the narrowest link on the way, in
    /// this direction. `None` also for a node itself, whose memory is behind no link.
    pub fn of_link(&self, from: NodeId, to: NodeId) -> Option<Bytes> {
        self.links.get(&from)?.get(&to).copied()
    }

    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        self.memory.is_empty() && self.links.is_empty()
    }

    /// These, and what `other` knows besides.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        for (&node, &bytes) in &other.memory {
            self.memory.entry(node).or_insert(bytes);
        }
        for (&from, to) in &other.links {
            let known = self.links.entry(from).or_default();
            for (&to, &bytes) in to {
                known.entry(to).or_insert(bytes);
            }
        }
        self
    }
}

/// A plausible number of megabytes (10^6) a second.
pub(crate) fn mb_per_s(number: f64) -> Option<Bytes> {
    let bytes = number * 1e6;
    PLAUSIBLE.contains(&bytes).then_some(Bytes(bytes as u64))
}

fn gb_per_s(number: f64) -> Option<Bytes> {
    mb_per_s(number * 1e3)
}

fn links(nodes: &[NodeId], rates: &Rates) -> BTreeMap<NodeId, BTreeMap<NodeId, Bytes>> {
    if rates.links.is_empty() || nodes.len() > MOST_LINKED_NODES {
        return BTreeMap::new();
    }
    let Ok(ways) = ways::between(nodes, rates) else { return BTreeMap::new() };
    let narrowest = |way: &ways::Way| {
        let each = way.passages.iter().map(|passage| rates.links[passage.link].gb_per_s);
        each.reduce(f64::min).and_then(gb_per_s)
    };
    let row =
        |row: &Vec<ways::Way>| nodes.iter().zip(row).filter_map(|(&to, way)| Some((to, narrowest(way)?))).collect();
    nodes.iter().zip(&ways).map(|(&from, ways)| (from, row(ways))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::Vertex;
    use crate::read::{described, shipped_described};

    #[test]
    fn a_machine_file_says_what_controllers_and_links_carry() {
        let machine = shipped_described("hp-dl380-g6").expect("shipped").expect("valid").machine;
        let (memory, link) = (Some(Bytes(20_690_000_000)), Some(Bytes(12_800_000_000)));
        assert_eq!(machine.bandwidth.of_memory(NodeId(1)), memory);
        assert_eq!(machine.bandwidth.of_link(NodeId(0), NodeId(1)), link);
        assert_eq!(machine.bandwidth.of_link(NodeId(1), NodeId(0)), link);
        assert_eq!(machine.bandwidth.of_link(NodeId(1), NodeId(1)), None);
        assert_eq!(machine.bandwidth.of_memory(NodeId(2)), None);
        let plain = "sockets = 2\ncores_per_llc = 2\nmemory_per_node = \"4 GiB\"\n";
        assert!(described(plain, "m.toml").expect("valid").machine.bandwidth.is_unknown());
    }

    #[test]
    fn the_narrowest_link_on_the_way_counts() {
        let described = shipped_described("hp-dl380-g6").expect("shipped").expect("valid");
        let mut rates = described.rates.expect("rates");
        let hub = || Vertex::Switch("hub".to_owned());
        let link = rates.links[0].clone();
        let to_hub = |node: u32, gb_per_s| crate::rates::Link {
            between: (Vertex::Node(NodeId(node)), hub()),
            gb_per_s,
            ..link.clone()
        };
        rates.links = vec![to_hub(0, 30.0), to_hub(1, 10.0), to_hub(2, 20.0)];
        let nodes = [0, 1, 2].map(NodeId);
        let bandwidths = Bandwidths::of_rates(&nodes, &rates);
        let gb = |from: u32, to: u32| bandwidths.of_link(NodeId(from), NodeId(to)).map(|bytes| bytes.0 / 1_000_000_000);
        assert_eq!([gb(0, 1), gb(0, 2), gb(2, 1)], [Some(10), Some(20), Some(10)]);
        // A node that nothing joins leaves all links unknown, and the controllers known.
        let apart = Bandwidths::of_rates(&[0, 1, 2, 3].map(NodeId), &rates);
        assert_eq!((apart.links.len(), apart.memory.len()), (0, 4));
        rates.node_bandwidth_gb_per_s.value = f64::NAN;
        rates.links[0].gb_per_s = -1.0;
        let wrong = Bandwidths::of_rates(&nodes, &rates);
        assert_eq!((wrong.memory.len(), wrong.of_link(NodeId(0), NodeId(1))), (0, None));
    }

    #[test]
    fn what_is_known_wins_and_the_rest_is_added() {
        let one = Bandwidths { memory: BTreeMap::from([(NodeId(0), Bytes(1))]), ..Bandwidths::default() };
        let two = Bandwidths {
            memory: BTreeMap::from([(NodeId(0), Bytes(5)), (NodeId(1), Bytes(6))]),
            links: BTreeMap::from([(NodeId(0), BTreeMap::from([(NodeId(1), Bytes(7))]))]),
        };
        let both = one.or(&two);
        assert_eq!((both.of_memory(NodeId(0)), both.of_memory(NodeId(1))), (Some(Bytes(1)), Some(Bytes(6))));
        assert_eq!(both.of_link(NodeId(0), NodeId(1)), Some(Bytes(7)));
    }
}
