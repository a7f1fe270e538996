//! How wide the VMs of an experiment are, where the host decides: `vcpus = "cores"`.

use topology::Machine;
use workloads::choice::Choosable;

/// vCPUs of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vcpus {
    /// So many.
    Count(u32),
    /// One for each core of the machine: `"cores"`.
    Cores,
    /// One for each core of a NUMA node: `"node_cores"`.
    NodeCores,
    /// One for every second core of a NUMA node: `"half_node"`.
    HalfNode,
    /// One for each hardware thread of a NUMA node: `"node_threads"`.
    NodeThreads,
}

const WORDS: [(&str, Vcpus); 4] = [
    ("cores", Vcpus::Cores),
    ("node_cores", Vcpus::NodeCores),
    ("half_node", Vcpus::HalfNode),
    ("node_threads", Vcpus::NodeThreads),
];

impl Vcpus {
    /// How many these are on a machine, at least 1. Of nodes of different sizes the smallest
    /// counts; nodes without a CPU do not.
    pub fn on(self, machine: &Machine) -> u32 {
        let cores = || machine.nodes.iter().map(|node| machine.usable_cores(node.id).len() as u32);
        let threads = || machine.nodes.iter().map(|node| machine.usable_cpus(node.id).len() as u32);
        let smallest = |of_nodes: &mut dyn Iterator<Item = u32>| of_nodes.filter(|&count| count > 0).min().unwrap_or(1);
        match self {
            Self::Count(count) => count,
            Self::Cores => cores().sum::<u32>().max(1),
            Self::NodeCores => smallest(&mut cores()),
            Self::HalfNode => (smallest(&mut cores()) / 2).max(1),
            Self::NodeThreads => smallest(&mut threads()),
        }
    }
}

impl Choosable for Vcpus {
    const VALID: &'static str = "a whole number from 1, \"cores\", \"node_cores\", \"half_node\" or \"node_threads\"";
    fn from_value(value: &toml::Value) -> Option<Self> {
        let word = |text: &str| WORDS.iter().find(|(word, _)| *word == text).map(|(_, vcpus)| *vcpus);
        u32::from_value(value).map(Self::Count).or_else(|| word(value.as_str()?))
    }
}

impl serde::Serialize for Vcpus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self, WORDS.iter().find(|(_, vcpus)| vcpus == self)) {
            (Self::Count(count), _) => serializer.serialize_u32(*count),
            (_, Some((word, _))) => serializer.serialize_str(word),
            (_, None) => Err(serde::ser::Error::custom("a width without a word")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workloads::choice::Choice;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Written {
        vcpus: Choice<Vcpus>,
    }

    fn read(text: &str) -> Result<Written, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn widths_follow_the_machine() {
        // Two nodes of four cores with two hardware threads each.
        let machine = topology::read::shipped("hp-dl380-g6").expect("shipped").expect("valid");
        let on = |vcpus: Vcpus| vcpus.on(&machine);
        assert_eq!([on(Vcpus::Cores), on(Vcpus::NodeCores), on(Vcpus::HalfNode), on(Vcpus::Count(3))], [8, 4, 2, 3]);
        assert_eq!(on(Vcpus::NodeThreads), 8);
    }

    #[test]
    fn every_width_is_read_as_it_was_written() {
        for text in ["vcpus = 3\n", "vcpus = \"auto\"\n", "vcpus = \"cores\"\n", "vcpus = \"half_node\"\n"] {
            assert_eq!(toml::to_string(&read(text).expect(text)).expect("written"), text);
        }
        for text in ["vcpus = 0", "vcpus = \"core\""] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains("\"node_cores\"") && error.contains("\"auto\""), "{error}");
        }
    }
}
