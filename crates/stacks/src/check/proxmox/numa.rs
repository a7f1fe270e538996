//! A `numaN` line: `cpus=0-3;8,hostnodes=0-1,memory=4096,policy=bind` (`parse_numa` and `$numa_fmt`
//! of qemu-server's Memory.pm).

use super::text::is_near;
use super::values::{Unreadable, properties, ranges};
use topology::input::excerpt;
use topology::{Bytes, CpuId, CpuSet, NodeId, NodeSet};

const KEYS: [&str; 4] = ["cpus", "hostnodes", "memory", "policy"];
const POLICIES: [&str; 3] = ["preferred", "bind", "interleave"];
/// More is no VM that QEMU starts; less than a number with which arithmetic fails.
const MOST_MIB: f64 = (1u64 << 30) as f64;

/// A `numaN` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumaNode {
    pub(super) cpus: CpuSet,
    /// `None`: it is not written, or 0.
    pub(super) memory: Option<Bytes>,
    pub(super) hostnodes: Option<HostNodes>,
    pub(super) policy: Option<String>,
}

/// Host nodes as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostNodes {
    pub(super) nodes: NodeSet,
    /// What QEMU takes for an option of its own, where they are more than one range: `1` of `0;1`.
    pub(super) second: Option<String>,
}

impl NumaNode {
    /// # Errors
    /// Why Proxmox cannot read it, in its words.
    pub(super) fn read(value: &str) -> Result<Self, Unreadable> {
        let found = properties(value, &KEYS, None)?;
        let no = |why: String| Unreadable(why);
        let set = |key: &'static str| {
            let read = found.get(key).map(|text| ranges(text, ';').ok_or(key));
            read.transpose().map_err(|key| no(format!("{key}: value does not match the regex pattern")))
        };
        let cpus = set("cpus")?.ok_or_else(|| no("cpus: property is missing and it is not optional".to_owned()))?;
        let cpus = cpus.into_iter().flat_map(|(first, last)| (first..=last).map(CpuId)).collect();
        let second = found.get("hostnodes").and_then(|text| text.split(';').nth(1)).map(str::to_owned);
        let hostnodes = set("hostnodes")?.map(|ranges| HostNodes {
            second,
            nodes: ranges.into_iter().flat_map(|(first, last)| (first..=last).map(NodeId)).collect(),
        });
        let memory = match found.get("memory").map(|text| (text, text.parse::<f64>())) {
            None => None,
            Some((_, Ok(mib))) if (0.0..=MOST_MIB).contains(&mib) => Some(mib),
            Some((text, _)) => {
                return Err(no(format!("memory: type check ('number') failed - got '{}'", excerpt(text))));
            }
        };
        let policy = found.get("policy").map(|policy| (*policy).to_owned());
        if let Some(policy) = policy.as_deref().filter(|policy| !POLICIES.contains(policy)) {
            let known = "does not have a value in the enumeration 'preferred, bind, interleave'";
            return Err(no(format!("policy: value '{}' {known}", excerpt(policy))));
        }
        let bytes = |mib: f64| Bytes((mib * Bytes::MIB.0 as f64) as u64);
        Ok(Self { cpus, memory: memory.map(bytes).filter(|memory| memory.0 > 0), hostnodes, policy })
    }

    /// As it is written.
    pub(super) fn text(&self) -> String {
        let set = |set: String| set.replace(',', ";");
        let mut parts = vec![format!("cpus={}", set(self.cpus.to_string()))];
        parts.extend(self.hostnodes.as_ref().map(|host| format!("hostnodes={}", set(host.nodes.to_string()))));
        parts.extend(self.memory.map(|memory| format!("memory={}", memory.0 as f64 / Bytes::MIB.0 as f64)));
        parts.extend(self.policy.as_ref().map(|policy| format!("policy={policy}")));
        parts.join(",")
    }
}

/// A value that Proxmox cannot read with its keys as they were likely meant: `hostnode=0`.
pub(super) fn repaired(key: &str, value: &str) -> Option<String> {
    key.strip_prefix("numa").and_then(|id| id.parse::<u32>().ok())?;
    let right = |part: &str| {
        let Some((key, value)) = part.split_once('=') else { return part.to_owned() };
        let plain = key.trim().to_lowercase().replace('-', "");
        let meant = KEYS.iter().find(|known| **known == plain || is_near(known, &plain));
        format!("{}={}", meant.copied().unwrap_or(key), value.trim())
    };
    // A comma inside of a set is a semicolon.
    let mut parts: Vec<String> = Vec::new();
    for part in value.split(',').filter(|part| !part.trim().is_empty()) {
        match parts.last_mut() {
            Some(last) if !part.contains('=') => *last = format!("{last};{}", part.trim()),
            _ => parts.push(right(part)),
        }
    }
    let text = parts.join(",");
    NumaNode::read(&text).is_ok().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_written() {
        let line = "cpus=0-1;4,hostnodes=0-1,memory=1024.5,policy=bind";
        assert_eq!(NumaNode::read(line).map(|node| node.text()), Ok(line.to_owned()));
        let gap = NumaNode::read("cpus=0,hostnodes=0;1,memory=1").expect("a line").hostnodes.expect("nodes");
        assert_eq!((gap.second.as_deref(), gap.nodes.len()), (Some("1"), 2));
    }

    #[test]
    fn what_proxmox_cannot_read_is_said_in_its_words() {
        let why = |line: &str| NumaNode::read(line).expect_err(line).to_string();
        assert_eq!(why("cpus=0,hostnode=0"), "invalid key in comma-separated list property: hostnode");
        assert_eq!(why("memory=1"), "cpus: property is missing and it is not optional");
        assert!(why("cpus=0,1,memory=1").starts_with("value without key"));
        assert!(why("cpus=0,memory=1G").starts_with("memory: type check"));
        assert!(why("cpus=0,policy=strict").starts_with("policy: value 'strict'"));
        assert!(why("cpus=3-0").starts_with("cpus: value"));
    }

    #[test]
    fn a_slip_is_mended_where_that_makes_a_line() {
        let of = |line: &str| repaired("numa0", line);
        assert_eq!(
            of("cpus=0-3,hostnode=1,memory=4096,policy=bind").as_deref(),
            Some("cpus=0-3,hostnodes=1,memory=4096,policy=bind")
        );
        assert_eq!(of("cpus=0,2,memory=1").as_deref(), Some("cpus=0;2,memory=1"));
        assert_eq!(of("cpus=0,memory=1G"), None);
    }
}
