//! Memory that files occupy and that the kernel gives back when a VM needs it: libvirt tells how
//! much of the whole host, not of which node.

use scheduler::Occupancy;
use topology::{Bytes, Machine};

/// Buffers and page cache of the host, from lines such as `cached : 10075572 KiB` (`virsh
/// nodememstats`).
pub fn cached(text: &str) -> Bytes {
    let line = |line: &str| {
        let (what, amount) = line.split_once(':')?;
        let kib = amount.trim().strip_suffix("KiB")?.trim().parse::<u64>().ok()?;
        matches!(what.trim(), "buffers" | "cached").then(|| Bytes(kib.saturating_mul(1024)))
    };
    text.lines().filter_map(line).sum()
}

/// Counts it as free. Of several nodes, each is taken to hold as much of it as it has memory that
/// is neither free nor a domain's.
pub(super) fn credit(machine: &mut Machine, cached: Bytes, occupancy: &Occupancy) {
    let room = |node: &topology::Node| {
        let free = node.free.unwrap_or(node.memory);
        node.memory.saturating_sub(free).saturating_sub(occupancy.of(node.id).resident)
    };
    let rooms: Vec<Bytes> = machine.nodes.iter().map(room).collect();
    let all: Bytes = rooms.iter().copied().sum();
    if all == Bytes(0) {
        return;
    }
    let share = cached.0.min(all.0) as f64 / all.0 as f64;
    for (node, room) in machine.nodes.iter_mut().zip(rooms) {
        node.free = node.free.map(|free| free.saturating_add(Bytes((room.0 as f64 * share) as u64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use topology::NodeId;
    use vm::NodeUse;

    #[test]
    fn buffers_and_cache_as_virsh_prints_them() {
        let text = "total  :             24640252 KiB\nfree   :             14866716 \
            KiB\nbuffers:                 1024 KiB\ncached :                 2048 KiB\n";
        assert_eq!(cached(text), Bytes::from_mib(3)); // 1024 + 2048 KiB
        assert_eq!(cached("cached : many\nnonsense"), Bytes(0));
    }

    #[test]
    fn cache_is_where_nothing_else_is_known_to_be() {
        let gib = |gib: u64| Bytes::from_mib(gib << 10);
        let mut machine = topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:4 pu:1").expect("a machine");
        machine.nodes[0].free = Some(gib(1));
        machine.nodes[1].free = Some(gib(1));
        // Domains have 2 GiB of node 0, so that 1 GiB there and 3 GiB of node 1 may be cache: of 2
        // GiB, a quarter and three.
        let held = NodeUse { vcpus: 0, memory: gib(2), resident: gib(2), ..NodeUse::default() };
        let occupancy = Occupancy { nodes: BTreeMap::from([(NodeId(0), held)]), ..Occupancy::default() };
        let free = |machine: &Machine| machine.nodes.iter().map(|node| node.free.map(Bytes::mib)).collect::<Vec<_>>();
        credit(&mut machine, gib(2), &occupancy);
        assert_eq!(free(&machine), [Some(1024 + 512), Some(1024 + 1536)]);
        // More than there can be is not believed.
        credit(&mut machine, gib(100), &occupancy);
        assert_eq!(free(&machine), [Some(2048), Some(4096)]);
    }

    #[test]
    fn what_is_unknown_stays_unknown() {
        let mut machine = topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:4 pu:1").expect("a machine");
        credit(&mut machine, Bytes::from_mib(1), &Occupancy::default());
        assert!(machine.nodes.iter().all(|node| node.free.is_none()));
    }
}
