//! Whose memory a thread uses.

use topology::NodeId;

/// Where the memory of a thread lies, as shares of its traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// On its own node: local first touch, and it stays there.
    Local,
    /// Page by page over the nodes.
    Interleaved,
    /// All on other nodes, equally.
    Remote,
    /// This share on its own node, the rest equally on the others.
    LocalShare(f64),
}

/// Shares of a thread's traffic by node: of a thread on `node` whose memory lies on `nodes` by this
/// rule. Zero shares are left out; remote memory on a machine of one node is local.
pub fn shares(memory: Memory, node: NodeId, nodes: &[NodeId]) -> Vec<(NodeId, f64)> {
    let others = nodes.iter().filter(|&&other| other != node).count() as f64;
    let local = match memory {
        _ if others == 0.0 && nodes.contains(&node) => 1.0,
        Memory::Local => 1.0,
        Memory::Interleaved if nodes.contains(&node) => 1.0 / (others + 1.0),
        Memory::Interleaved | Memory::Remote => 0.0,
        Memory::LocalShare(share) => share.clamp(0.0, 1.0),
    };
    let mut all: Vec<NodeId> = nodes.to_vec();
    all.push(node);
    all.sort_unstable();
    all.dedup();
    let share = |other: NodeId| if other == node { local } else { (1.0 - local) / others };
    all.into_iter().map(|other| (other, share(other))).filter(|(_, share)| *share > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 4] = [NodeId(0), NodeId(1), NodeId(2), NodeId(3)];

    #[test]
    fn shares_follow_the_rule_and_sum_to_one() {
        let of = |memory| shares(memory, NodeId(1), &NODES);
        assert_eq!(of(Memory::Local), [(NodeId(1), 1.0)]);
        assert_eq!(of(Memory::Interleaved).iter().map(|(_, share)| *share).collect::<Vec<_>>(), [0.25; 4]);
        // Half at home, the other half over three nodes: a sixth each.
        assert!((of(Memory::LocalShare(0.5))[0].1 - 1.0 / 6.0).abs() < 1e-12);
        assert!(of(Memory::Remote).iter().all(|(node, _)| *node != NodeId(1)));
        for memory in [Memory::Local, Memory::Interleaved, Memory::Remote, Memory::LocalShare(0.3)] {
            let sum: f64 = of(memory).iter().map(|(_, share)| share).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{memory:?}: {sum}");
        }
    }

    #[test]
    fn one_node_has_no_remote_memory() {
        assert_eq!(shares(Memory::Remote, NodeId(0), &[NodeId(0)]), [(NodeId(0), 1.0)]);
        // A thread whose memory is bound to another node.
        assert_eq!(shares(Memory::Interleaved, NodeId(0), &[NodeId(1)]), [(NodeId(1), 1.0)]);
    }
}
