//! Where a client's memory is, and where somebody wants it: what lies far on purpose counts apart.

use crate::ClientObservation;
use std::borrow::Cow;
use std::collections::BTreeMap;
use topology::{Bytes, NodeId, NodeSet};

impl ClientObservation {
    /// Its resident memory by node, without what lies far on purpose; `None` where nobody knows.
    pub fn near_memory(&self) -> Option<Cow<'_, BTreeMap<NodeId, Bytes>>> {
        let memory = self.memory.as_ref()?;
        if self.far_nodes.is_empty() {
            return Some(Cow::Borrowed(memory));
        }
        let near = memory.iter().filter(|(node, _)| !self.far_nodes.contains(**node));
        Some(Cow::Owned(near.map(|(&node, &bytes)| (node, bytes)).collect()))
    }

    /// Its resident memory that lies far on purpose.
    pub fn far_memory(&self) -> Bytes {
        let far = self.memory.iter().flatten().filter(|(node, _)| self.far_nodes.contains(**node));
        far.map(|(_, &bytes)| bytes).sum()
    }

    /// The nodes that somebody's policy keeps its memory on, bound or interleaved; `None`: nobody
    /// said any.
    pub fn kept_nodes(&self) -> Option<Cow<'_, NodeSet>> {
        match &self.chosen_nodes {
            chosen if self.spread_nodes.is_empty() => chosen.as_ref().map(Cow::Borrowed),
            None => Some(Cow::Borrowed(&self.spread_nodes)),
            Some(chosen) => Some(Cow::Owned(chosen.union(&self.spread_nodes))),
        }
    }

    /// Resident memory, as a whole; `None` where nobody says.
    pub fn resident(&self) -> Option<Bytes> {
        self.memory.as_ref().map(|by_node| by_node.values().copied().sum()).or(self.resident)
    }
}
