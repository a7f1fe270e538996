//! Memory of the host and of its processes, node by node.

use crate::error::{LinuxError, read_text};
use crate::root::Root;
use std::collections::BTreeMap;
use std::ops::Range;
use topology::{Bytes, NodeId, NodeSet};

/// One mapping of a process, as `/proc/PID/numa_maps` shows it
/// (Documentation/filesystems/proc.rst).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Memory policy that the kernel applies, for example `bind:0` or `default`.
    pub policy: String,
    /// Resident pages by node.
    pub pages: BTreeMap<NodeId, u64>,
    /// Size of its pages.
    pub page_size: Bytes,
}

/// The mappings of a process that begin within `addresses`; all of them for `0..u64::MAX`. `None`
/// if this kernel keeps no `numa_maps` (built without NUMA).
pub fn mappings(pid: u32, addresses: &Range<u64>) -> Result<Option<Vec<Mapping>>, LinuxError> {
    mappings_in(&Root::default(), pid, addresses)
}

/// As [`mappings`], of a process in a captured tree.
pub(crate) fn mappings_in(root: &Root, pid: u32, addresses: &Range<u64>) -> Result<Option<Vec<Mapping>>, LinuxError> {
    let path = root.process(pid, "numa_maps");
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(LinuxError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            // A process that is gone has no directory either.
            let process = path.with_file_name("stat");
            return read_text(&process).map(|_| None);
        }
        Err(error) => return Err(error),
    };
    let wanted = |mapping: &Mapping| addresses.contains(&mapping.start);
    Ok(Some(text.lines().filter_map(parse_mapping).filter(wanted).collect()))
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace().peekable();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let mut policy = words.next()?.to_owned();
    // Two policies have names of two words (mm/mempolicy.c, `policy_modes`).
    let second = match policy.as_str() {
        "prefer" => "(many)",
        "weighted" => "interleave",
        _ => "",
    };
    if let Some(word) = words.next_if(|word| !second.is_empty() && word.starts_with(second)) {
        policy = format!("{policy} {word}");
    }
    let mut mapping = Mapping { start, policy, pages: BTreeMap::new(), page_size: Bytes::from_kib(4) };
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        let Ok(number) = value.parse::<u64>() else { continue };
        if name == "kernelpagesize_kB" {
            mapping.page_size = Bytes::from_kib(number);
        } else if let Some(node) = name.strip_prefix('N').and_then(|digits| digits.parse().ok()) {
            mapping.pages.insert(NodeId(node), number);
        }
    }
    Some(mapping)
}

/// Resident memory of a process by node. `None` as for [`mappings`].
pub fn resident_by_node(pid: u32) -> Result<Option<BTreeMap<NodeId, Bytes>>, LinuxError> {
    let Some(mappings) = mappings(pid, &(0..u64::MAX))? else { return Ok(None) };
    let mut sums = BTreeMap::<NodeId, Bytes>::new();
    for mapping in mappings {
        for (node, pages) in mapping.pages {
            let sum = sums.entry(node).or_default();
            *sum = sum.saturating_add(Bytes(pages * mapping.page_size.0));
        }
    }
    Ok(Some(sums))
}

/// The nodes that a policy names: `bind:0-1`, `prefer:2`, `interleave=static:0,2`; `None` for
/// `default` and `local`.
pub fn policy_nodes(policy: &str) -> Option<NodeSet> {
    policy.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_numa_maps_is_understood() {
        let line = "7fbcbbe00000 bind:0-1 anon=768 dirty=768 active=0 N0=512 N1=256 kernelpagesize_kB=2048";
        let mapping = parse_mapping(line).unwrap();
        assert_eq!((mapping.start, mapping.policy.as_str()), (0x7fbc_bbe0_0000, "bind:0-1"));
        assert_eq!(mapping.pages, BTreeMap::from([(NodeId(0), 512), (NodeId(1), 256)]));
        assert_eq!(mapping.page_size, Bytes::from_mib(2));
    }

    #[test]
    fn policies_of_two_words_are_one() {
        let policy = |words: &str| parse_mapping(&format!("7f00 {words} anon=3 N1=3 kernelpagesize_kB=4")).unwrap();
        let many = policy("prefer (many):0-1");
        assert_eq!((many.policy.as_str(), many.pages[&NodeId(1)]), ("prefer (many):0-1", 3));
        assert_eq!(policy("weighted interleave:0,2").policy, "weighted interleave:0,2");
        assert_eq!(policy("weighted interleave=static:0,2").policy, "weighted interleave=static:0,2");
        assert_eq!(policy("prefer:0").policy, "prefer:0");
    }

    #[test]
    fn a_file_named_like_a_node_is_not_counted() {
        let mapping = parse_mapping("10000 default file=/N0=5 mapped=3 N2=3 kernelpagesize_kB=4").unwrap();
        assert_eq!(mapping.pages, BTreeMap::from([(NodeId(2), 3)])); // `file=/N0=5` splits at its first `=`
    }

    #[test]
    fn our_own_memory_is_on_some_node() {
        let Some(resident) = resident_by_node(std::process::id()).unwrap() else {
            return eprintln!("SKIPPED our_own_memory_is_on_some_node: this kernel has no numa_maps");
        };
        assert!(resident.values().copied().sum::<Bytes>() > Bytes::from_kib(100));
    }
}
