//! What qemu-server 9.2 and QEMU make of a configuration, told again from Memory.pm, QemuServer.pm
//! and QEMU's hw/core/numa.c in the order in which they look: which lines are read, what is
//! started, what is refused. It knows nothing of homenode.

use std::collections::{BTreeMap, BTreeSet};

/// A configuration as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read(pub(super) BTreeMap<String, String>);

#[derive(Debug)]
struct Node {
    cpus: Vec<u64>,
    memory: f64,
    /// As `host-nodes` has it, and the nodes.
    host: Option<(String, Vec<u64>)>,
    policy: bool,
}

fn numbers(text: &str, between: char) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    for part in text.trim_end_matches(between).split(between) {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        if last < first {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

fn node(value: &str) -> Option<Node> {
    let mut found = BTreeMap::new();
    for part in value.split(',') {
        let (key, value) = part.split_once('=')?;
        if !["cpus", "memory", "hostnodes", "policy"].contains(&key) || found.insert(key, value).is_some() {
            return None;
        }
    }
    let host = match found.get("hostnodes") {
        Some(text) => Some((text.replace(';', ","), numbers(text, ';')?)),
        None => None,
    };
    let memory = found.get("memory").map_or(Some(0.0), |memory| memory.parse().ok())?;
    let policy = found.get("policy").copied();
    if policy.is_some_and(|policy| !["bind", "preferred", "interleave"].contains(&policy)) {
        return None;
    }
    Some(Node { cpus: numbers(found.get("cpus")?, ';')?, memory, host, policy: policy.is_some() })
}

fn truth(value: &str) -> Option<bool> {
    match value.to_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

fn features(value: &str) -> Option<BTreeSet<&str>> {
    match value {
        "0" => Some(BTreeSet::new()),
        "1" => Some(["network", "disk", "usb"].into()),
        list => {
            let known = ["network", "disk", "cpu", "memory", "usb", "cloudinit"];
            let words: BTreeSet<&str> = list.split([',', ';', ' ']).filter(|word| !word.is_empty()).collect();
            words.iter().all(|word| known.contains(word)).then_some(words)
        }
    }
}

impl Read {
    /// The VM's own lines that Proxmox can read.
    pub(super) fn of(text: &str) -> Self {
        let own = text.lines().take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
        let pairs = own.filter_map(|line| line.split_once(": "));
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned()));
        Self(pairs.filter(|(key, value)| Self::reads(key, value)).collect())
    }

    fn reads(key: &str, value: &str) -> bool {
        let number = |value: &str| value.parse::<u64>().is_ok();
        match key {
            "sockets" | "cores" | "vcpus" => number(value),
            "memory" => value.strip_prefix("current=").unwrap_or(value).parse::<u64>().is_ok_and(|mib| mib >= 16),
            "numa" => truth(value).is_some(),
            "affinity" => numbers(value, ',').is_some(),
            "hotplug" => features(value).is_some(),
            "hugepages" => ["any", "2", "1024"].contains(&value),
            "name" | "args" | "cpu" | "virtiofs0" => true,
            _ if key.starts_with("numa") => key[4..].parse::<u32>().is_ok_and(|id| id < 8) && node(value).is_some(),
            _ => false,
        }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn number(&self, key: &str) -> u64 {
        self.get(key).and_then(|value| value.parse().ok()).filter(|&number| number > 0).unwrap_or(1)
    }

    pub(super) fn most_vcpus(&self) -> u64 {
        self.number("sockets") * self.number("cores")
    }

    /// vCPUs at the start; all where more are asked for than there are, which is refused.
    pub(super) fn vcpus(&self) -> u64 {
        let given = self.get("vcpus").and_then(|value| value.parse().ok()).filter(|&number| number > 0);
        given.unwrap_or(self.most_vcpus()).min(self.most_vcpus())
    }

    pub(super) fn memory(&self) -> u64 {
        let value = self.get("memory").unwrap_or("512");
        value.strip_prefix("current=").unwrap_or(value).parse().expect("MiB")
    }

    fn numa(&self) -> bool {
        self.get("numa").and_then(truth).unwrap_or(false)
    }

    fn nodes(&self) -> BTreeMap<u64, Node> {
        (0..8).filter_map(|id| Some((id, node(self.get(&format!("numa{id}"))?)?))).collect()
    }

    fn gigantic(&self) -> bool {
        self.get("hugepages") == Some("1024")
    }

    /// Why it does not start on a host with so many CPUs and nodes.
    pub(super) fn refused(&self, cpus: u64, host_nodes: u64) -> Option<String> {
        let hotplug = features(self.get("hotplug").unwrap_or("1")).expect("features").contains("memory");
        let (memory, sockets, pages) = (self.memory(), self.number("sockets"), self.get("hugepages").is_some());
        let no = |why: &str| Some(why.to_owned());
        if self.most_vcpus() > cpus {
            return no("MAX vcpus");
        }
        let given = self.get("vcpus").and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        if given > self.most_vcpus() {
            return no("maxcpus");
        }
        let nodes = self.nodes();
        let fixed = if self.gigantic() { 1024 * sockets } else { 1024 };
        if hotplug {
            let most = if self.get("cpu").is_some_and(|cpu| cpu.starts_with("host")) { 4 << 20 } else { 1 << 19 };
            if !self.numa() || !nodes.is_empty() || memory < fixed || memory > most {
                return no("memory hotplug");
            }
            if self.get("virtiofs0").is_some() {
                return no("virtio-fs");
            }
            let (mut sum, mut size) = (fixed, if self.gigantic() { 1024 } else { 512 });
            'all: for _ in 0..8 {
                for _ in 0..32 {
                    if sum >= memory {
                        break 'all;
                    }
                    sum += size;
                }
                size *= 2;
            }
            if sum != memory {
                return no("aligned");
            }
        }
        if pages && !self.numa() {
            return no("hugepages without numa");
        }
        let words: Vec<&str> = self.get("args").unwrap_or_default().split(' ').collect();
        let distances: Vec<(u64, u64)> = words.iter().filter_map(|word| distance(word)).collect();
        if !self.numa() {
            return if distances.is_empty() { None } else { no("distance without node") };
        }
        let count = if nodes.is_empty() { sockets } else { nodes.len() as u64 };
        let of_pages = |mib: f64| {
            let size = if self.gigantic() { 1024.0 } else { 2.0 };
            mib > 0.0 && mib % size == 0.0
        };
        if let Some(why) = self.nodes_refused(&nodes, host_nodes, pages, hotplug) {
            return Some(why);
        }
        if nodes.is_empty() {
            let each = (if hotplug { fixed } else { memory }) as f64 / sockets as f64;
            if pages && (sockets > host_nodes || !of_pages(each)) {
                return no("hugepages of sockets");
            }
            if (each * 1024.0 * 1024.0).fract() != 0.0 {
                return no("RAM size");
            }
        }
        let has = |one, other| distances.contains(&(one, other)) || distances.contains(&(other, one));
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
        let incomplete = pairs.into_iter().any(|(one, other)| !has(one, other));
        if !distances.is_empty() && (incomplete || distances.iter().any(|&(one, other)| one >= count || other >= count))
        {
            return no("distances");
        }
        None
    }

    fn nodes_refused(
        &self,
        nodes: &BTreeMap<u64, Node>,
        host_nodes: u64,
        pages: bool,
        hotplug: bool,
    ) -> Option<String> {
        let (mut sum, mut seen) = (0.0, BTreeSet::new());
        for (index, (&id, node)) in (0..).zip(nodes) {
            if id != index {
                return Some(format!("Node ID missing: {index}"));
            }
            if node.memory == 0.0 {
                return Some(format!("missing NUMA node{id} memory"));
            }
            sum += node.memory;
            for &vcpu in &node.cpus {
                if vcpu >= self.most_vcpus() || !seen.insert(vcpu) {
                    return Some(format!("CPU index {vcpu}"));
                }
            }
            match &node.host {
                Some((text, host)) => {
                    if let Some(lost) = host.iter().find(|&&node| node >= host_nodes) {
                        return Some(format!("host NUMA node{lost}"));
                    }
                    if !node.policy || text.contains(',') {
                        return Some(format!("policy or host-nodes={text}"));
                    }
                    if pages && (text.len() != 1) {
                        return Some("more than 1 hostnode".to_owned());
                    }
                }
                None if pages => return Some("hostnodes need to be defined".to_owned()),
                None => {}
            }
            let size = if self.gigantic() { 1024.0 } else { 2.0 };
            if pages && node.memory % size != 0.0 {
                return Some("pages".to_owned());
            }
        }
        (!nodes.is_empty() && !hotplug && sum != self.memory() as f64).then(|| "total memory".to_owned())
    }

    /// What `qm set` with these options makes of it.
    pub(super) fn set(&self, command: &str) -> Self {
        let mut values = self.0.clone();
        let words = command.split_once("--").expect("options").1;
        for option in words.split(" --") {
            let (key, value) = option.trim().split_once(' ').expect("a value");
            let value = value.trim_matches('\'').to_owned();
            match key {
                // It warns of an option that is not there.
                "delete" => value.split(',').for_each(|key| drop(values.remove(key))),
                _ => drop(values.insert(key.to_owned(), value)),
            }
        }
        Self(values)
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
    }
}

fn distance(word: &str) -> Option<(u64, u64)> {
    let rest = word.strip_prefix("dist,")?;
    let field = |name: &str| rest.split(',').find_map(|part| part.strip_prefix(name)?.parse().ok());
    Some((field("src=")?, field("dst=")?))
}
