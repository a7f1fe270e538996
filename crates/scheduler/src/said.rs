//! Who said how a VM is to live: its spec, which QEMU's command line has ([`vm::stated`]), or a
//! rule of the administrator's.
//!
//! **Rule.** A rule overrules the spec, field by field: the host is its administrator's. What a
//! spec says of a stranger's VM counts as far as it binds that VM alone; its word on memory traffic
//! does not, since it would keep others from a node.

use crate::VmObservation;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use vm::Stated;
use vm::spec::{BandwidthNeed, Spread};

/// Who said it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaidBy {
    /// Nobody, as far as it is known.
    #[default]
    Nobody,
    /// Its spec.
    Spec,
    /// The rule of this index, from 0, in the policy file.
    Rule(usize),
}

/// Who said what of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Said {
    /// How far its clients are to be spread.
    pub placement: SaidBy,
    /// Its memory traffic.
    pub bandwidth: SaidBy,
    /// Nodes that it may live on.
    pub node_affinity: SaidBy,
    /// Whether it is drawn to its devices.
    pub near_device: SaidBy,
    /// Whether its vCPUs count against hardware threads.
    pub prefer_ht: SaidBy,
    /// Most vCPUs in a virtual node.
    pub max_vcpus_per_node: SaidBy,
}

impl SaidBy {
    /// As the end of a sentence, with a comma before it: `, as its spec says (policy.bandwidth)`.
    /// Empty where nobody said it.
    pub fn words(self, field: &str) -> String {
        match self {
            Self::Nobody => String::new(),
            Self::Spec => format!(", as its spec says (policy.{field})"),
            Self::Rule(index) => format!(", as its administrator says (rule {} of the policy)", index + 1),
        }
    }
}

impl VmObservation {
    /// Takes over what its spec says. Whether it is a stranger's must be known.
    pub fn takes_over(&mut self, stated: &Stated) {
        let by = |says: bool| if says { SaidBy::Spec } else { SaidBy::Nobody };
        self.placement = stated.placement;
        self.said.placement = by(stated.placement != Spread::Auto);
        self.bandwidth = if self.stranger { BandwidthNeed::Auto } else { stated.bandwidth };
        self.said.bandwidth = by(!self.bandwidth.is_default());
        self.near_device = stated.near_device.then_some(true);
        self.said.near_device = by(stated.near_device);
        (self.prefer_ht, self.said.prefer_ht) = (stated.prefer_ht, by(stated.prefer_ht));
        self.max_vcpus_per_node = stated.max_vcpus_per_node;
        self.said.max_vcpus_per_node = by(stated.max_vcpus_per_node.is_some());
        if stated.latency_sensitive {
            self.latency_sensitive = Some("it was started so (policy.latency_sensitive)".to_owned());
        }
        self.stated_nodes = stated.node_affinity.clone();
        self.said.node_affinity = by(stated.node_affinity.is_some());
    }

    /// What its spec says, as it was taken over; of its latency, and of where its memory lies,
    /// nothing.
    pub fn stated(&self) -> Stated {
        Stated {
            placement: self.placement,
            bandwidth: self.bandwidth,
            node_affinity: self.stated_nodes.clone(),
            near_device: self.near_device == Some(true),
            prefer_ht: self.prefer_ht,
            max_vcpus_per_node: self.max_vcpus_per_node,
            ..Stated::default()
        }
    }

    /// Each word that somebody said, and who: `placement = "apart", as its spec says
    /// (policy.placement)`. That it is latency-sensitive stands elsewhere.
    pub fn words_said(&self) -> Vec<String> {
        let placement = match self.placement {
            Spread::Auto => "auto",
            Spread::Together => "together",
            Spread::Apart => "apart",
            Spread::MostVirtualNodes => "most_virtual_nodes",
        };
        let nodes = self.stated_nodes.as_ref().map(|nodes| format!("\"{nodes}\""));
        let said = |by: SaidBy, field: &str, value: &dyn Display| {
            (by != SaidBy::Nobody).then(|| format!("{field} = {value}{}", by.words(field)))
        };
        let words = [
            said(self.said.placement, "placement", &format!("\"{placement}\"")),
            said(self.said.bandwidth, "bandwidth", &format!("\"{}\"", self.bandwidth)),
            nodes.and_then(|nodes| said(self.said.node_affinity, "node_affinity", &nodes)),
            self.near_device.and_then(|near| said(self.said.near_device, "near_device", &near)),
            said(self.said.prefer_ht, "prefer_ht", &self.prefer_ht),
            self.max_vcpus_per_node.and_then(|most| said(self.said.max_vcpus_per_node, "max_vcpus_per_node", &most)),
        ];
        words.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VmKey;

    fn stated() -> Stated {
        Stated {
            placement: Spread::Apart,
            bandwidth: BandwidthNeed::High,
            node_affinity: Some("0-1".parse().unwrap()),
            near_device: true,
            prefer_ht: true,
            max_vcpus_per_node: Some(4),
            ..Stated::default()
        }
    }

    fn seen(stranger: bool, stated: &Stated) -> VmObservation {
        let mut seen = VmObservation { stranger, ..VmObservation::of_clients(VmKey::default(), Vec::new()) };
        seen.takes_over(stated);
        seen
    }

    #[test]
    fn a_spec_says_and_a_default_says_nothing() {
        let says = seen(false, &stated());
        assert_eq!(
            (says.placement, says.bandwidth, says.near_device),
            (Spread::Apart, BandwidthNeed::High, Some(true))
        );
        let all = Said {
            placement: SaidBy::Spec,
            bandwidth: SaidBy::Spec,
            node_affinity: SaidBy::Spec,
            near_device: SaidBy::Spec,
            prefer_ht: SaidBy::Spec,
            max_vcpus_per_node: SaidBy::Spec,
        };
        assert_eq!(says.said, all);
        assert_eq!(says.words_said()[0], "placement = \"apart\", as its spec says (policy.placement)");
        assert_eq!(says.words_said().len(), 6);
        assert_eq!(says.words_said()[4], "prefer_ht = true, as its spec says (policy.prefer_ht)");
        assert_eq!(says.stated(), stated());
        assert_eq!(says.stated_nodes, Some("0-1".parse().unwrap()));
        let silent = seen(false, &Stated::default());
        assert!(silent.words_said().is_empty());
        assert_eq!((silent.said, silent.near_device, silent.stated_nodes), (Said::default(), None, None));
    }

    #[test]
    fn a_strangers_word_fills_no_node_for_others() {
        let stranger = seen(true, &stated());
        assert_eq!((stranger.bandwidth, stranger.said.bandwidth), (BandwidthNeed::Auto, SaidBy::Nobody));
        let waits = Stated { latency_sensitive: true, ..stated() };
        assert_eq!([false, true].map(|stranger| seen(stranger, &waits).counts_full()), [true, false]);
        // What binds it alone counts.
        assert_eq!((stranger.placement, stranger.stated_nodes.is_some()), (Spread::Apart, true));
    }

    #[test]
    fn a_sentence_names_the_field_or_the_rule() {
        assert_eq!(SaidBy::Spec.words("placement"), ", as its spec says (policy.placement)");
        assert_eq!(SaidBy::Rule(1).words("placement"), ", as its administrator says (rule 2 of the policy)");
        assert_eq!(SaidBy::Nobody.words("placement"), "");
    }
}
