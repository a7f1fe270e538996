//! The policy file: thresholds of balancing by their names, and rules for single VMs.

use crate::DaemonError;
use linux::{Root, TrafficFrom, Users};
use scheduler::VmObservation;
use scheduler::balance::BalancePolicy;
use serde::{Deserialize, Serialize};
use std::path::Path;
use topology::{NodeSet, TomlError, TomlText};
use vm::spec::{BandwidthNeed, Spread};

/// What an administrator decided. All of it has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyFile {
    /// Thresholds, periods and guards.
    pub balance: BalancePolicy,
    /// Whether a balancer that is told to stop undoes the affinities that it set.
    pub release_on_stop: bool,
    /// What counts the memory traffic of VMs.
    pub traffic: TrafficFrom,
    /// Rules for single VMs; the first that matches a VM counts.
    #[serde(rename = "vm")]
    pub vms: Vec<VmRule>,
}

/// A rule for the VMs that it names. A VM that does not run (yet) is no mistake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VmRule {
    /// The guest's name; `*` stands for any text and `?` for any one character.
    pub name: Option<String>,
    /// The guest's UUID. Either this or a name.
    pub uuid: Option<String>,
    /// Whose VMs it is about; `None`: those of root, of libvirt's system service, and of whoever
    /// balances. Anybody can give a VM any name and UUID.
    pub owner: Option<Owner>,
    /// Never moved: neither threads nor memory.
    pub opt_out: bool,
    /// Nodes that it may live on, in list format (ESXi: `numa.nodeAffinity`).
    pub node_affinity: Option<NodeSet>,
    /// Its weight where CPUs are short; 1024 is usual.
    pub shares: Option<u32>,
    /// Whether its memory follows its vCPUs.
    pub memory: MemoryRule,
    /// Whether it is latency-sensitive, so that all of its vCPUs count as busy, whatever is seen of
    /// it. Default: as it is seen.
    pub latency_sensitive: Option<bool>,
    /// Whether its clients are to live `together` or `apart`, or `auto`, as it is worth most.
    /// Default: as its spec says, else `auto`.
    pub placement: Option<Spread>,
    /// Its memory traffic: `low`, `high`, an amount such as `12 GB/s`, or `auto`, as it is
    /// measured. Default: as its spec says, else `auto`.
    pub bandwidth: Option<BandwidthNeed>,
    /// Whether it is drawn to the nodes of its devices. Default: as its spec says, else as
    /// `balance.near_device` does.
    pub near_device: Option<bool>,
    /// Whether its vCPUs count against hardware threads, not cores. Default: as its spec says, else
    /// against cores.
    pub prefer_ht: Option<bool>,
    /// Most vCPUs in a virtual node: for what `doctor` says of its size. Default: as its spec says,
    /// else the cores of a machine node.
    pub max_vcpus_per_node: Option<u32>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a user: a name in quotes, or a number")]
pub enum Owner {
    /// By number: what a policy that was read has.
    Number(u32),
    /// By name.
    Name(String),
}

/// Whether memory follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryRule {
    /// It follows the vCPUs to their home.
    #[default]
    Follow,
    /// It stays where it is: only vCPUs move.
    Stay,
}

/// Most shares that a VM may have: as in libvirt's `cputune`.
const MOST_SHARES: u32 = 262_144;
/// Fewest shares.
const FEWEST_SHARES: u32 = 2;

impl PolicyFile {
    /// Reads and checks the file at `path` for a host with these nodes.
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be used.
    pub fn read(path: &Path, nodes: &NodeSet) -> Result<Self, DaemonError> {
        let text = topology::input::text(path, topology::input::LONGEST_TEXT)
            .map_err(|source| DaemonError::file(path, "read the policy", source))?;
        Ok(Self::from_toml(&text, &path.display().to_string(), nodes, &Users::read(&Root::default()))?)
    }

    /// Reads and checks a policy for a host with these nodes and users. `file` only names the text
    /// in errors.
    ///
    /// # Errors
    /// The first thing in it that cannot be used, with its line.
    pub fn from_toml(text: &str, file: &str, nodes: &NodeSet, users: &Users) -> Result<Self, TomlError> {
        let text = TomlText::new(text, file);
        let mut policy: Self = text.read()?;
        policy.balance.check().map_err(|error| {
            let fault = text.fault(&format!("balance.{}", error.field), format!("expected {}", error.valid));
            TomlError { value: Some(error.value), ..fault }
        })?;
        for (index, rule) in policy.vms.iter_mut().enumerate() {
            if let Some((field, problem)) = rule.number_owner(users).err().or_else(|| rule.fault(nodes)) {
                let path = if field.is_empty() { format!("vm[{index}]") } else { format!("vm[{index}].{field}") };
                return Err(text.fault(&path, problem));
            }
        }
        Ok(policy)
    }
}

impl VmRule {
    /// Whether it is about this VM. A VM of which nobody says whose it is (a modelled one, one of
    /// another host's libvirt) is that of whoever shows it: a rule without an owner is about it,
    /// and no other.
    pub fn matches(&self, seen: &VmObservation) -> bool {
        let is_owners = match &self.owner {
            None => !seen.stranger,
            Some(Owner::Number(owner)) => seen.owner_uid == Some(*owner),
            Some(Owner::Name(_)) => false,
        };
        is_owners
            && match (&self.name, &self.uuid) {
                (Some(pattern), _) => glob(pattern, &seen.vm.name),
                (None, Some(wanted)) => seen.uuid.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted)),
                (None, None) => false,
            }
    }

    /// Replaces the owner's name by the number.
    fn number_owner(&mut self, users: &Users) -> Result<(), (&'static str, String)> {
        let Some(Owner::Name(name)) = &self.owner else { return Ok(()) };
        let unknown = || {
            let valid = "expected a user of this host (/etc/passwd), or a user's number without quotes";
            ("owner", valid.to_owned())
        };
        self.owner = Some(Owner::Number(users.number(name).ok_or_else(unknown)?));
        Ok(())
    }

    /// The first field that cannot be used, and why.
    fn fault(&self, nodes: &NodeSet) -> Option<(&'static str, String)> {
        match (&self.name, &self.uuid) {
            (None, None) => return Some(("", "no VM is named: write `name = \"web-*\"` or `uuid = \"...\"`".into())),
            (Some(_), Some(_)) => return Some(("uuid", "a name is given too: keep one of the two".into())),
            (Some(name), None) if name.is_empty() => {
                return Some(("name", "expected a guest's name, or a pattern with `*` and `?`".into()));
            }
            (None, Some(uuid)) if !is_uuid(uuid) => {
                let valid = "expected a UUID such as 3f2504e0-4f89-11d3-9a0c-0305e82c3301";
                return Some(("uuid", valid.into()));
            }
            _ => {}
        }
        if self.shares.is_some_and(|shares| !(FEWEST_SHARES..=MOST_SHARES).contains(&shares)) {
            return Some(("shares", format!("expected {FEWEST_SHARES} to {MOST_SHARES}; 1024 is usual")));
        }
        if let Some(wanted) = &self.node_affinity {
            let missing = wanted.difference(nodes);
            if wanted.is_empty() || !missing.is_empty() {
                return Some(("node_affinity", format!("expected some of this host's nodes, {nodes}")));
            }
        }
        if self.placement == Some(Spread::MostVirtualNodes) {
            let valid = "expected `auto`, `together` or `apart`: a VM that runs keeps its virtual nodes";
            return Some(("placement", valid.into()));
        }
        if self.max_vcpus_per_node == Some(0) {
            return Some(("max_vcpus_per_node", "a node has at least 1 vCPU".into()));
        }
        let says_more = self.node_affinity.is_some()
            || self.shares.is_some()
            || self.memory != MemoryRule::Follow
            || self.placement.is_some()
            || self.bandwidth.is_some()
            || self.near_device.is_some()
            || self.prefer_ht.is_some()
            || self.max_vcpus_per_node.is_some();
        (self.opt_out && says_more)
            .then(|| ("opt_out", "a VM that is never moved has no other rule: keep one of the two".into()))
    }
}

/// 8, 4, 4, 4 and 12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// Whether the whole of `text` is what `pattern` describes. Linear in each: only the last `*` is
/// ever tried again.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (p, t) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::VmKey;

    fn nodes() -> NodeSet {
        "0-3".parse().unwrap()
    }

    fn read(text: &str) -> Result<PolicyFile, TomlError> {
        PolicyFile::from_toml(text, "balance.toml", &nodes(), &Users::parse("alice:x:1000:1000::/:\n"))
    }

    fn vm(uuid: Option<&str>) -> VmObservation {
        let key = VmKey { name: "db-7".into(), pid: 1, started: 1 };
        VmObservation { uuid: uuid.map(str::to_owned), ..VmObservation::of_clients(key, Vec::new()) }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, same) in [
            ("web-*", "web-1", true),
            ("web-*", "my-web-1", false),
            ("*", "", true),
            ("w?b", "web", true),
            ("w?b", "wb", false),
            ("*a*b", "xaxxab", true),
            ("*a*b", "xaxxac", false),
            ("web", "web2", false),
        ] {
            assert_eq!(glob(pattern, name), same, "{pattern} {name}");
        }
    }

    #[test]
    fn an_empty_file_is_the_default_and_a_full_one_is_read() {
        assert_eq!(read("").unwrap(), PolicyFile::default());
        let text = "release_on_stop = true\ntraffic = \"resctrl\"\n[balance]\nperiod_ms = 5000\n[[vm]]\nname = \"db-*\"\nnode_affinity = \
            \"0-1\"\nshares = 2048\nmemory = \"stay\"\nplacement = \"apart\"\nbandwidth = \"12 GB/s\"\n[[vm]]\nuuid = \
            \"3F2504E0-4f89-11d3-9a0c-0305e82c3301\"\nopt_out = true\n";
        let policy = read(text).unwrap();
        assert_eq!((policy.balance.period_ms, policy.release_on_stop, policy.vms.len()), (5000, true, 2));
        let twelve = BandwidthNeed::Stated(topology::BytesPerSecond(12_000_000_000));
        assert_eq!((policy.vms[0].placement, policy.vms[0].bandwidth), (Some(Spread::Apart), Some(twelve)));
        assert!(policy.vms[0].matches(&vm(None)));
        assert!(policy.vms[1].matches(&vm(Some("3f2504e0-4f89-11d3-9a0c-0305e82c3301"))));
        assert!(!policy.vms[1].matches(&vm(None)));
    }

    #[test]
    fn a_rule_is_about_vms_of_its_owner_and_without_one_about_those_that_are_believed() {
        let rule =
            |owner: &str| read(&format!("[[vm]]\nname = \"db-*\"\n{owner}\nopt_out = true\n")).unwrap().vms.remove(0);
        let is_about = |owner: &str, seen: (Option<u32>, bool)| {
            let (owner_uid, stranger) = seen;
            rule(owner).matches(&VmObservation { owner_uid, stranger, ..vm(None) })
        };
        // Root's, libvirt's, a stranger's, and one of which nobody knows.
        let seen = [(Some(0), false), (Some(64055), false), (Some(1000), true), (None, false)];
        let about = |owner: &str| seen.map(|seen| is_about(owner, seen));
        assert_eq!(about(""), [true, true, false, true]);
        assert_eq!(about("owner = \"root\""), [true, false, false, false]);
        assert_eq!(
            (about("owner = 1000"), about("owner = \"alice\"")),
            ([false, false, true, false], [false, false, true, false])
        );
        assert_eq!(rule("owner = \"alice\"").owner, Some(Owner::Number(1000)));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_line() {
        for (text, parts) in [
            ("[balance]\nperiodms = 1\n", ["balance.toml:2", "periodms", "unknown field"]),
            ("[balance]\nperiod_ms = \"2 s\"\n", ["balance.toml:2", "balance.period_ms", "\"2 s\""]),
            ("[balance]\n\nperiod_ms = 9\n", ["balance.toml:3", "balance.period_ms = 9", "100 to 60000"]),
            ("[[vm]]\nopt_out = true\n", ["balance.toml:1", "vm[0]", "no VM is named"]),
            ("[[vm]]\nname = \"a\"\nuuid = \"x\"\n", ["balance.toml:3", "vm[0].uuid", "keep one"]),
            ("[[vm]]\nuuid = \"x\"\n", ["balance.toml:2", "vm[0].uuid = \"x\"", "expected a UUID"]),
            ("[[vm]]\nname = \"a\"\nshares = 0\n", ["balance.toml:3", "vm[0].shares = 0", "2 to 262144"]),
            ("[[vm]]\nname = \"a\"\nnode_affinity = \"4\"\n", ["balance.toml:3", "node_affinity = \"4\"", "0-3"]),
            ("[[vm]]\nname = \"a\"\nmemory = \"go\"\n", ["balance.toml:3", "vm[0].memory", "`follow` or `stay`"]),
            ("[[vm]]\nname = \"a\"\nopt_out = true\nshares = 9\n", ["balance.toml:3", "opt_out", "never moved"]),
            ("[[vm]]\nname = \"a\"\nowner = \"bob\"\n", ["balance.toml:3", "vm[0].owner = \"bob\"", "a user's number"]),
            ("[[vm]]\nname = \"a\"\nowner = -1\n", ["balance.toml:3", "vm[0].owner", "a name in quotes, or a number"]),
            (
                "[[vm]]\nname = \"a\"\nbandwidth = \"much\"\n",
                ["balance.toml:3", "vm[0].bandwidth", "`low`, `high`, or an amount such as `12 GB/s`"],
            ),
            ("[[vm]]\nname = \"a\"\nplacement = \"near\"\n", ["balance.toml:3", "vm[0].placement", "`together`"]),
            (
                "[[vm]]\nname = \"a\"\nplacement = \"most_virtual_nodes\"\n",
                ["balance.toml:3", "vm[0].placement", "keeps its virtual nodes"],
            ),
            ("[balance]\ncontroller_full_percent = 101\n", ["balance.toml:2", "= 101", "0 to 100 percent"]),
            ("[balance]\ncommunication_percent = -1\n", ["balance.toml:2", "= -1", "0 to 100 percent"]),
            ("[[vms]]\nname = \"a\"\n", ["balance.toml:1", "vms", "unknown field"]),
            ("release_on_stop = 1\n", ["balance.toml:1", "release_on_stop = 1", "boolean"]),
            ("[balance\n", ["balance.toml:1", "[balance", ":"]),
        ] {
            let error = read(text).unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{part} in {error}");
            }
        }
    }
}
