//! The machine that this kernel shows, as a report: what it is and what contradicts itself. In a
//! guest it shows whether the firmware tables (SRAT, SLIT, the caches of CPUID) arrived as they
//! were meant.

use topology::{Bytes, CpuSet, Distances, Machine, NodeSet};
use workloads::protocol::{SeenMachine, SeenNode};

/// The report on a machine.
pub(crate) fn seen(machine: &Machine) -> SeenMachine {
    let online = |wanted: &dyn Fn(&topology::HardwareThread) -> bool| -> CpuSet {
        machine.threads.iter().filter(|thread| thread.online && wanted(thread)).map(|thread| thread.id).collect()
    };
    let nodes = machine.nodes.iter().map(|node| SeenNode {
        id: node.id.0,
        cpus: online(&|thread| thread.node == node.id).to_string(),
        memory_bytes: node.memory.0,
        distances: machine.nodes.iter().map(|to| machine.distance(node.id, to.id)).collect(),
    });
    let llcs = machine.llcs.iter().map(|llc| online(&|thread| thread.llc == Some(llc.id)));
    let sockets = machine.sockets();
    let sockets = sockets.iter().map(|socket| online(&|thread| thread.socket == socket));
    let cores: topology::IdSet<topology::CoreId> = machine.threads.iter().map(|thread| thread.core).collect();
    let cores = cores.iter().map(|core| online(&|thread| thread.core == core));
    let text = |cpus: CpuSet| (!cpus.is_empty()).then(|| cpus.to_string());
    SeenMachine {
        nodes: nodes.collect(),
        llcs: llcs.filter_map(text).collect(),
        llc_bytes: machine.llcs.iter().find_map(|llc| llc.size).map(|size| size.0),
        sockets: sockets.filter_map(text).collect(),
        cores: cores.filter_map(text).collect(),
        online: online(&|_| true).to_string(),
        complaints: complaints(machine),
    }
}

/// What contradicts itself, as sentences.
fn complaints(machine: &Machine) -> Vec<String> {
    let mut complaints = machine.notes.clone();
    for node in &machine.nodes {
        if node.memory == Bytes(0) {
            complaints.push(format!("node {} has no memory", node.id));
        }
        if !machine.threads.iter().any(|thread| thread.online && thread.node == node.id) {
            complaints.push(format!("node {} has no CPU online", node.id));
        }
    }
    for llc in &machine.llcs {
        let nodes: NodeSet =
            machine.threads.iter().filter(|thread| thread.llc == Some(llc.id)).map(|thread| thread.node).collect();
        if nodes.len() > 1 {
            complaints.push(format!("last-level cache {} is shared by the CPUs of nodes {nodes}", llc.id));
        }
    }
    let homeless: CpuSet =
        machine.threads.iter().filter(|thread| machine.node(thread.node).is_none()).map(|thread| thread.id).collect();
    if !homeless.is_empty() {
        complaints.push(format!("CPUs {homeless} are in no node"));
    }
    complaints.extend(distance_complaints(machine));
    complaints
}

fn distance_complaints(machine: &Machine) -> Vec<String> {
    let mut complaints = Vec::new();
    let nodes: Vec<_> = machine.nodes.iter().map(|node| node.id).collect();
    for (index, &from) in nodes.iter().enumerate() {
        let local = machine.distance(from, from);
        if local != Distances::LOCAL {
            complaints.push(format!("the distance of node {from} to itself is {local}, not {}", Distances::LOCAL));
        }
        for &to in &nodes[index + 1..] {
            let (there, back) = (machine.distance(from, to), machine.distance(to, from));
            if there != back {
                complaints
                    .push(format!("the distance from node {from} to {to} is {there}, but {back} from {to} to {from}"));
            }
            if there.min(back) <= Distances::LOCAL {
                complaints.push(format!("nodes {from} and {to} are as near to each other as a node to itself"));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::NodeId;
    use topology::read::from_synthetic;

    fn machine() -> Machine {
        from_synthetic("pack:2 [numa] l3:1 core:2 pu:1").unwrap()
    }

    #[test]
    fn a_sound_machine_is_reported_without_complaint() {
        let seen = seen(&machine());
        assert_eq!(seen.complaints, machine().notes);
        assert_eq!((seen.online.as_str(), seen.llcs.clone()), ("0-3", vec!["0-1".to_owned(), "2-3".to_owned()]));
        assert_eq!(seen.sockets, seen.llcs);
        let nodes: Vec<_> = seen.nodes.iter().map(|node| (node.id, node.cpus.as_str())).collect();
        assert_eq!(nodes, [(0, "0-1"), (1, "2-3")]);
        assert_eq!(seen.nodes[0].distances[0], 10);
    }

    #[test]
    fn every_contradiction_is_named() {
        let mut machine = machine();
        machine.nodes[1].memory = Bytes(0);
        machine.threads[2].llc = machine.threads[0].llc;
        machine.threads[3].node = NodeId(9);
        machine.threads[2].online = false;
        machine.distances = Distances::new(vec![NodeId(0), NodeId(1)], vec![vec![11, 20], vec![21, 10]]).unwrap();
        let complaints = seen(&machine).complaints.join("\n");
        for wanted in [
            "node 1 has no memory",
            "node 1 has no CPU online",
            "shared by the CPUs of nodes 0-1",
            "CPUs 3 are in no node",
            "node 0 to itself is 11",
            "from node 0 to 1 is 20, but 21",
        ] {
            assert!(complaints.contains(wanted), "{wanted} in\n{complaints}");
        }
    }
}
