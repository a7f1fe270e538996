//! Nodes whose VMs were promised more memory than there is.
//!
//! **Problem.** Memory that a guest takes when it touches it may be promised twice. Nothing is
//! wrong until the guests touch it.
//!
//! **Rule.** What was promised of a node ([`scheduler::promised`]) against all memory of the node;
//! where no node is short, what was promised to all VMs, those that float too, against all memory.
//! A node whose memory nobody knows is left out.
//!
//! **Example.** A node of 24 GiB, and on it two VMs of 16 GiB of which 3 GiB are touched: 32 GiB
//! are promised.

use super::list;
use crate::finding::{Finding, Harm};
use scheduler::{Observation, Occupancy, VmObservation};
use topology::{Bytes, Machine, NodeId};
use vm::NodeUse;

/// So many VMs are named, those first that may still take most.
const NAMED: usize = 4;

/// A finding for each such node, or one for the host.
pub(super) fn findings(machine: &Machine, host: &Observation) -> Vec<Finding> {
    let known: Vec<NodeId> = machine.nodes.iter().filter(|node| node.memory > Bytes(0)).map(|node| node.id).collect();
    let by_node = scheduler::promised(machine, host);
    let kept = |vm: &&VmObservation| scheduler::keeps_to_nodes(machine, vm);
    let kept: Vec<&VmObservation> = host.vms.iter().filter(kept).collect();
    let of_node = known.iter().filter_map(|&node| Promised::of(&by_node, &kept, machine, host, &[node]).beyond());
    let found: Vec<Finding> = of_node.collect();
    if !found.is_empty() || known.len() < 2 {
        return found;
    }
    let (all, vms) = (Occupancy::of_observation(host, machine), host.vms.iter().collect::<Vec<_>>());
    Promised::of(&all, &vms, machine, host, &known).beyond().into_iter().collect()
}

/// What is promised of some nodes.
struct Promised<'a> {
    /// `node 3`, `the host`.
    who: String,
    memory: Bytes,
    free: Option<Bytes>,
    held: NodeUse,
    /// What each VM may still take, and its name; most first.
    expected: Vec<(Bytes, &'a str)>,
}

impl<'a> Promised<'a> {
    fn of(
        occupancy: &Occupancy,
        vms: &[&'a VmObservation],
        machine: &Machine,
        host: &Observation,
        nodes: &[NodeId],
    ) -> Self {
        let sum = |occupancy: &Occupancy| {
            nodes.iter().map(|&node| occupancy.of(node)).fold(NodeUse::default(), |sum, held| NodeUse {
                vcpus: 0,
                memory: sum.memory.saturating_add(held.memory),
                resident: sum.resident.saturating_add(held.resident),
                ..NodeUse::default()
            })
        };
        let more = |vm: &'a VmObservation| {
            let held = sum(&Occupancy::of_vms([vm], machine));
            (held.memory.saturating_sub(held.resident), vm.vm.name.as_str())
        };
        let mut expected: Vec<(Bytes, &str)> = vms.iter().map(|&vm| more(vm)).collect();
        expected.retain(|(more, _)| *more > Bytes(0));
        expected.sort_by(|one, other| other.cmp(one));
        let free = nodes.iter().map(|node| host.nodes.get(node).and_then(|seen| seen.memory_free));
        Self {
            who: if let [node] = nodes { format!("node {node}") } else { "the host".to_owned() },
            memory: nodes.iter().filter_map(|&node| machine.node(node)).map(|node| node.memory).sum(),
            free: free.map(|free| free.map(|free| free.0)).sum::<Option<u64>>().map(Bytes),
            held: sum(occupancy),
            expected,
        }
    }

    /// A finding where that is more than there is.
    fn beyond(self) -> Option<Finding> {
        let Self { who, memory, free, held, expected } = self;
        if held.memory <= memory {
            return None;
        }
        let sentence = format!("{who} has {memory}, and {} of it are promised to VMs", held.memory);
        let because = "when their guests touch it all, the host takes memory of other nodes, then swaps, then kills";
        let found = Finding::new("memory_overcommitted", Harm::Chance, sentence, because);
        let free = free.map_or_else(String::new, |free| format!(", {free} are free"));
        let mut found = found.seen(format!("{} of that are taken{free}; {}", held.resident, still(&expected)));
        found.cure.advice = "move one of them to another node or host, make one smaller, or stop one".to_owned();
        Some(found)
    }
}

/// Who may still take how much.
fn still(expected: &[(Bytes, &str)]) -> String {
    let rest: Bytes = expected.iter().skip(NAMED).map(|(more, _)| *more).sum();
    let mut words: Vec<String> = expected.iter().take(NAMED).map(|(more, name)| format!("{name} {more}")).collect();
    words.extend((rest > Bytes(0)).then(|| format!("others {rest}")));
    if words.is_empty() { "VMs are being started".to_owned() } else { format!("still to be taken: {}", list(&words)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{ClientObservation, NodeObservation, VmKey};

    /// A VM that may have so much and has touched 1 GiB on node 0.
    fn vm(name: &str, cpus: &str, memory_gib: u64) -> VmObservation {
        let client = ClientObservation {
            vcpus: 1,
            cpus: cpus.parse().unwrap(),
            memory_size: Bytes(memory_gib << 30),
            memory: Some([(NodeId(0), Bytes::GIB)].into()),
            ..ClientObservation::default()
        };
        VmObservation::of_clients(VmKey { name: name.into(), pid: 7, started: 1 }, vec![client])
    }

    /// Two nodes of 8 GiB and two CPUs.
    fn found(vms: Vec<VmObservation>) -> Vec<Finding> {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=8GiB)] core:2 pu:1").expect("a machine");
        let node = |free_gib: u64| NodeObservation {
            cpus: "0-1".parse().unwrap(),
            cpu_used: None,
            memory_free: Some(Bytes(free_gib << 30)),
            huge_pages_free: Default::default(),
        };
        let nodes = [(NodeId(0), node(6)), (NodeId(1), node(8))].into();
        findings(&machine, &Observation { vms, nodes, ..Observation::default() })
    }

    #[test]
    fn a_node_that_promised_more_than_it_has_is_named_with_who_may_still_take_it() {
        // 6 + 5 and 1 of the third are 12 of 8 GiB on node 0; 1 GiB of each is there. Node 1: 7 of
        // 8.
        let found = found(vec![vm("db", "0-1", 6), vm("web", "0-1", 5), vm("cache", "2-3", 8)]);
        let [one] = &found[..] else { panic!("{found:#?}") };
        assert_eq!((one.what, one.severity), ("memory_overcommitted", crate::Severity::Warning));
        assert_eq!(one.sentence, "node 0 has 8 GiB, and 12 GiB of it are promised to VMs");
        assert_eq!(one.seen, "3 GiB of that are taken, 6 GiB are free; still to be taken: db 5 GiB and web 4 GiB");
    }

    #[test]
    fn what_a_node_has_may_all_be_promised() {
        assert_eq!(found(vec![vm("db", "0-1", 5), vm("web", "0-1", 3)]), []);
        // One that floats may lie on both nodes: 14 of 16 GiB.
        assert_eq!(found(vec![vm("db", "0-3", 14)]), []);
    }

    #[test]
    fn vms_that_float_count_against_the_whole_host() {
        let found = found(vec![vm("db", "0-3", 14), vm("web", "0-1", 3)]);
        let [one] = &found[..] else { panic!("{found:#?}") };
        assert_eq!(one.sentence, "the host has 16 GiB, and 17 GiB of it are promised to VMs");
        assert_eq!(one.seen, "2 GiB of that are taken, 14 GiB are free; still to be taken: db 13 GiB and web 2 GiB");
    }
}
