//! What a VM's spec says to whoever balances it: it stands on QEMU's command line.
//!
//! **Problem.** A balancer looks at processes. What their specs say is in files that it may not
//! read, that may have changed since, and that are on another host once a VM has come from there.
//!
//! **Rule.** The words of `[policy]` that mean something while a VM runs are part of the id of a
//! device: of a character device that leads nowhere, or of the serial port that libvirt gives to
//! QEMU. The guest does not see an id, and no stream of its state has it. So the words belong to
//! the process: nobody takes them for those of another, and a VM that goes elsewhere is started
//! there with them.
//!
//! **Properties.** What is written is what is read. A word that is not understood is left out, and
//! the others count: what was not told is unknown.
//!
//! **Example.** `-chardev null,id=policy--placement-apart--bandwidth-12000000000`: its clients are
//! to live apart, and draw 12 GB/s together.

use crate::MemoryPolicy;
use crate::spec::{BandwidthNeed, FarMemory, Policy, Spread};
use serde::Serialize;
use topology::{BytesPerSecond, NodeSet};

/// The first part of the id, of a character device.
pub const MARK: &str = "policy";
/// The same of a serial port of libvirt's, which takes ids of users that begin so.
pub const LIBVIRT_MARK: &str = "ua-policy";
/// The same of one that homenode started: it chose the homes, and nobody else did.
pub const HOMENODE_LIBVIRT_MARK: &str = "ua-homenode";

/// What stands between two words. No word has it: a value has no empty range of nodes.
const BETWEEN: &str = "--";

/// The words. A default says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stated {
    /// How far its clients are to be spread.
    pub placement: Spread,
    /// Its memory traffic.
    pub bandwidth: BandwidthNeed,
    /// Machine nodes that it may live on.
    pub node_affinity: Option<NodeSet>,
    /// It is drawn to the nodes of its network cards.
    pub near_device: bool,
    /// All of its vCPUs count as busy.
    pub latency_sensitive: bool,
    /// What of its memory lies on nodes without CPUs for good.
    pub far_memory: FarMemory,
    /// Its vCPUs count against hardware threads, not cores.
    pub prefer_ht: bool,
    /// Most vCPUs in a virtual node.
    pub max_vcpus_per_node: Option<u32>,
    /// Its memory is interleaved because its spec asks for it (`memory = "interleave"`).
    pub interleaves: bool,
}

/// The mark that an id begins with.
pub fn mark_of(id: &str) -> Option<&str> {
    let mark = id.split_once(BETWEEN).map_or(id, |(mark, _)| mark);
    [MARK, LIBVIRT_MARK, HOMENODE_LIBVIRT_MARK].contains(&mark).then_some(mark)
}

impl Stated {
    /// What a spec's policy says. Of memory on nodes without CPUs only its plan knows: nothing.
    pub fn of(policy: &Policy) -> Self {
        Self {
            placement: policy.placement,
            bandwidth: policy.bandwidth,
            node_affinity: policy.node_affinity.clone(),
            near_device: policy.near_device,
            latency_sensitive: policy.latency_sensitive,
            far_memory: FarMemory::Never,
            prefer_ht: policy.prefer_ht,
            max_vcpus_per_node: policy.max_vcpus_per_node,
            interleaves: policy.memory == Some(MemoryPolicy::Interleave),
        }
    }

    /// The words, each as a field of the policy and its value.
    fn words(&self) -> Vec<String> {
        let placement = match self.placement {
            Spread::Auto => None,
            Spread::Together => Some("together"),
            Spread::Apart => Some("apart"),
            Spread::MostVirtualNodes => Some("most_virtual_nodes"),
        };
        let bandwidth = match self.bandwidth {
            BandwidthNeed::Auto => None,
            BandwidthNeed::Low => Some("low".to_owned()),
            BandwidthNeed::High => Some("high".to_owned()),
            BandwidthNeed::Stated(all) => Some(all.0.to_string()),
        };
        let far = (self.far_memory == FarMemory::ByBandwidth).then_some("by_bandwidth");
        // An id has no comma.
        let nodes = self.node_affinity.as_ref().map(|nodes| nodes.to_string().replace(',', "_"));
        let said = |field: &str, value: &dyn AsRef<str>| format!("{field}-{}", value.as_ref());
        let words = [
            placement.map(|value| said("placement", &value)),
            bandwidth.map(|value| said("bandwidth", &value)),
            nodes.map(|value| said("node_affinity", &value)),
            self.near_device.then(|| "near_device".to_owned()),
            self.latency_sensitive.then(|| "latency_sensitive".to_owned()),
            far.map(|value| said("far_memory", &value)),
            self.prefer_ht.then(|| "prefer_ht".to_owned()),
            self.max_vcpus_per_node.map(|most| said("max_vcpus_per_node", &most.to_string())),
            self.interleaves.then(|| "memory-interleave".to_owned()),
        ];
        words.into_iter().flatten().collect()
    }

    /// Whether anything was told.
    pub fn says_something(&self) -> bool {
        *self != Self::default()
    }

    /// The id that begins with `mark` and has the words.
    pub fn id(&self, mark: &str) -> String {
        self.words().iter().fold(mark.to_owned(), |id, word| id + BETWEEN + word)
    }

    /// The words of an id; `None` where it does not begin with one of our marks.
    pub fn from_id(id: &str) -> Option<Self> {
        let words = &id[mark_of(id)?.len()..];
        let mut told = Self::default();
        for word in words.split(BETWEEN) {
            let (field, value) = word.split_once('-').unwrap_or((word, ""));
            told.hear(field, value);
        }
        Some(told)
    }

    fn hear(&mut self, field: &str, value: &str) {
        match (field, value) {
            ("placement", "together") => self.placement = Spread::Together,
            ("placement", "apart") => self.placement = Spread::Apart,
            ("placement", "most_virtual_nodes") => self.placement = Spread::MostVirtualNodes,
            ("bandwidth", "low") => self.bandwidth = BandwidthNeed::Low,
            ("bandwidth", "high") => self.bandwidth = BandwidthNeed::High,
            ("bandwidth", amount) => {
                let stated = amount.parse().ok().map(BytesPerSecond).filter(|&all| BandwidthNeed::is_possible(all));
                self.bandwidth = stated.map_or(self.bandwidth, BandwidthNeed::Stated);
            }
            ("node_affinity", nodes) => {
                let named = nodes.replace('_', ",").parse().ok().filter(|nodes: &NodeSet| !nodes.is_empty());
                self.node_affinity = named.or(self.node_affinity.take());
            }
            ("near_device", "") => self.near_device = true,
            ("latency_sensitive", "") => self.latency_sensitive = true,
            ("far_memory", "by_bandwidth") => self.far_memory = FarMemory::ByBandwidth,
            ("prefer_ht", "") => self.prefer_ht = true,
            ("max_vcpus_per_node", most) => {
                self.max_vcpus_per_node = most.parse().ok().filter(|&most| most > 0).or(self.max_vcpus_per_node);
            }
            ("memory", "interleave") => self.interleaves = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_word_has_the_name_of_its_field() {
        let policy = Policy {
            placement: Spread::Apart,
            bandwidth: BandwidthNeed::Stated(BytesPerSecond(12_000_000_000)),
            node_affinity: Some("0-1,4".parse().unwrap()),
            near_device: true,
            latency_sensitive: true,
            prefer_ht: true,
            max_vcpus_per_node: Some(4),
            memory: Some(MemoryPolicy::Interleave),
            ..Policy::default()
        };
        let id = Stated::of(&policy).id(MARK);
        let words = "policy--placement-apart--bandwidth-12000000000--node_affinity-0-1_4--near_device\
            --latency_sensitive--prefer_ht--max_vcpus_per_node-4--memory-interleave";
        assert_eq!(id, words);
        assert_eq!(Stated::from_id(&id), Some(Stated::of(&policy)));
        assert_eq!(Stated::of(&Policy::default()).id(HOMENODE_LIBVIRT_MARK), "ua-homenode");
    }

    #[test]
    fn what_is_not_understood_is_unknown_and_the_rest_counts() {
        for other in ["", "policy-apart", "monitor", "policyx--placement-apart", "serial0"] {
            assert_eq!(Stated::from_id(other), None, "{other}");
        }
        let apart = Stated { placement: Spread::Apart, ..Stated::default() };
        for id in [
            "policy--placement-apart",
            "ua-homenode--placement-apart",
            "ua-policy--placement-apart--colour-red",
            "policy--bandwidth-much--placement-apart--bandwidth-",
            "policy--bandwidth-999999999999999999--placement-apart",
            "policy--node_affinity-4-1--placement-apart--node_affinity-_",
            "policy--placement-apart--placement-near--latency_sensitive-no--prefer_ht-no",
            "policy--placement-apart--max_vcpus_per_node-0--memory-bind",
            "policy----placement-apart--",
        ] {
            assert_eq!(Stated::from_id(id), Some(apart.clone()), "{id}");
        }
        assert_eq!(Stated::from_id("ua-homenode"), Some(Stated::default()));
    }

    fn any_stated() -> impl Strategy<Value = Stated> {
        let placement = prop_oneof![
            Just(Spread::Auto),
            Just(Spread::Together),
            Just(Spread::Apart),
            Just(Spread::MostVirtualNodes),
        ];
        let bandwidth = prop_oneof![
            Just(BandwidthNeed::Auto),
            Just(BandwidthNeed::Low),
            Just(BandwidthNeed::High),
            (0..=100_000_000_000_000_u64).prop_map(|all| BandwidthNeed::Stated(BytesPerSecond(all))),
        ];
        let nodes = prop::collection::btree_set(0_u32..1024, 1..9)
            .prop_map(|nodes| nodes.into_iter().map(topology::NodeId).collect::<NodeSet>());
        let far = prop_oneof![Just(FarMemory::Never), Just(FarMemory::ByBandwidth)];
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        (placement, bandwidth, prop::option::of(nodes), flags, far, prop::option::of(1_u32..)).prop_map(
            |(placement, bandwidth, node_affinity, flags, far_memory, max_vcpus_per_node)| Stated {
                placement,
                bandwidth,
                node_affinity,
                near_device: flags.0,
                latency_sensitive: flags.1,
                far_memory,
                prefer_ht: flags.2,
                max_vcpus_per_node,
                interleaves: flags.3,
            },
        )
    }

    properties::properties! {
        #[test]
        fn what_is_written_is_what_is_read(told in any_stated()) {
            for mark in [MARK, LIBVIRT_MARK, HOMENODE_LIBVIRT_MARK] {
                let id = told.id(mark);
                // What QEMU and libvirt take in an id.
                let is_taken = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
                prop_assert!(id.chars().all(is_taken), "{}", id);
                prop_assert_eq!(Stated::from_id(&id), Some(told.clone()));
            }
        }

        #[test]
        fn any_text_is_read_without_harm(text in "(policy|ua-policy)(--[a-z_]{0,12}-?[0-9_-]{0,9}){0,5}") {
            let told = Stated::from_id(&text);
            prop_assert!(told.is_some_and(|told| Stated::from_id(&told.id(MARK)) == Some(told)));
        }
    }
}
