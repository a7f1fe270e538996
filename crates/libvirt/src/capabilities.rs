//! The machine of a libvirt, from its capabilities and from what is free on it now.

use crate::{Connection, LibvirtError};
use std::collections::BTreeMap;
use topology::{Bytes, Machine, NodeId, read};

impl Connection {
    /// The host of this libvirt, with the memory that is free on it now. What libvirt does not say
    /// stays unknown.
    ///
    /// # Errors
    /// libvirt cannot be reached, or does not say which CPUs and nodes its host has.
    pub fn machine(&self) -> Result<Machine, LibvirtError> {
        let commands = [vec!["capabilities"], vec!["hostname"], vec!["freecell", "--all"], vec!["freepages", "--all"]];
        let mut answers = self.ask_all(&owned(&commands))?.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| Err(self.strange("capabilities", "an answer is missing")));
        let capabilities = next()?;
        let mut machine = read::from_libvirt_capabilities(&capabilities, "its capabilities")
            .map_err(|error| self.strange("capabilities", error.to_string()))?;
        // Drivers of other hypervisors need not know these.
        let (name, free, pages) = (next().ok(), next().ok(), next().ok());
        let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
        machine.name =
            name.or_else(|| self.uri().map(str::to_owned)).unwrap_or_else(|| "the host of libvirt".to_owned());
        let free = free.as_deref().map(free_memory).unwrap_or_default();
        for node in &mut machine.nodes {
            node.free = free.get(&node.id).copied();
        }
        take_free_pages(&mut machine, &pages.as_deref().map(free_pages).unwrap_or_default());
        Ok(machine)
    }
}

pub(crate) fn owned(commands: &[Vec<&str>]) -> Vec<Vec<String>> {
    commands.iter().map(|command| command.iter().map(|&word| word.to_owned()).collect()).collect()
}

/// Free memory by node, from lines such as `    0:   10075572 KiB`.
pub fn free_memory(text: &str) -> BTreeMap<NodeId, Bytes> {
    let line = |line: &str| {
        let (node, amount) = line.split_once(':')?;
        let kib = amount.trim().strip_suffix("KiB")?.trim().parse::<u64>().ok()?;
        Some((NodeId(node.trim().parse().ok()?), Bytes(kib.checked_mul(1024)?)))
    };
    text.lines().filter_map(line).collect()
}

/// Free pages by node and size, from `Node 0:` and lines such as `2048KiB: 97` below it.
pub fn free_pages(text: &str) -> BTreeMap<(NodeId, Bytes), u64> {
    let mut node = None;
    let mut pages = BTreeMap::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        if let Some(number) = key.trim().strip_prefix("Node ") {
            node = number.parse().ok().map(NodeId);
            continue;
        }
        let size = key.trim().strip_suffix("KiB").and_then(|kib| kib.parse::<u64>().ok()?.checked_mul(1024));
        if let (Some(node), Some(size), Ok(count)) = (node, size, value.trim().parse()) {
            pages.insert((node, Bytes(size)), count);
        }
    }
    pages
}

fn take_free_pages(machine: &mut Machine, free: &BTreeMap<(NodeId, Bytes), u64>) {
    for node in &mut machine.nodes {
        for pool in &mut node.huge_pages {
            if let Some(&count) = free.get(&(node.id, pool.page_size)) {
                pool.free = count.min(pool.total);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_as_virsh_prints_it() {
        let text = "    0:   10075572 KiB\n   12:       4096 KiB\n--------------------\nTotal:       6144 KiB\n";
        let expected = [(NodeId(0), Bytes(10_075_572 << 10)), (NodeId(12), Bytes(4096 << 10))];
        assert_eq!(free_memory(text), BTreeMap::from(expected));
        assert!(free_memory("nonsense\n1: 18446744073709551615 KiB\n").is_empty());
    }

    #[test]
    fn free_pages_as_virsh_prints_them() {
        let pages = free_pages("Node 0:\n4KiB: 19\n2048KiB: 97\n\nNode 3:\n1048576KiB: 2\n\n");
        assert_eq!(pages.get(&(NodeId(0), Bytes(2 << 20))), Some(&97));
        assert_eq!(pages.get(&(NodeId(3), Bytes(1 << 30))), Some(&2));
        assert_eq!(pages.len(), 3);
    }
}
