//! A domain brought to a plan before its power-on: homes, and what its VM has by now.
//!
//! **Rule.** Where it lives is [`rehomed`]. Its vCPUs, cells, sockets and distances change only
//! where they are not those of the plan's virtual topology: where the VM grew, or is to be sized
//! anew. What the domain says already is not touched, however it is written, and what its owner
//! added stays.
//!
//! **Example.** A VM got 256 MiB more in virtual node 1 while it ran: of its cell 1
//! `memory='524288'` becomes `memory='786432'`, `<memory>` grows by as much, and nothing else
//! changes.

use super::{Domain, DomainError, Edit, Step, apply, parse, rehomed};
use std::collections::BTreeMap;
use topology::{Bytes, CpuId, CpuSet};
use vm::{Plan, VirtualNode};

/// The domain with the virtual topology and at the homes of a plan. `file` is what errors call the
/// text.
///
/// # Errors
/// Those of [`parse`].
pub fn planned(text: &str, file: &str, plan: &Plan) -> Result<String, DomainError> {
    let edits = topology(&parse(text, file)?, plan);
    rehomed(&apply(text, file, &edits)?, file, plan)
}

fn path(names: &[&str]) -> Vec<Step> {
    names.iter().copied().map(Step::new).collect()
}

fn below(names: &[&str], element: &str, key: &str, value: u32) -> Vec<Step> {
    let mut steps = path(names);
    steps.push(Step::keyed(element, key, value));
    steps
}

fn set(at: Vec<Step>, name: &str, value: &(impl ToString + ?Sized)) -> Edit {
    Edit::SetAttribute { at, name: name.to_owned(), value: value.to_string() }
}

/// An amount in libvirt's own unit.
fn amount(edits: &mut Vec<Edit>, element: &str, amount: Bytes) {
    edits.push(set(path(&[element]), "unit", "KiB"));
    edits.push(Edit::SetText { at: path(&[element]), text: (amount.0 >> 10).to_string() });
}

fn vcpus_of(node: &VirtualNode) -> CpuSet {
    node.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect()
}

fn topology(domain: &Domain, plan: &Plan) -> Vec<Edit> {
    let (mut edits, topology) = (Vec::new(), &plan.topology);
    if domain.vcpus != topology.max_vcpus() {
        edits.push(Edit::SetText { at: path(&["vcpu"]), text: topology.max_vcpus().to_string() });
    }
    for &gone in domain.vcpu_pins.keys().filter(|&&vcpu| vcpu >= topology.max_vcpus()) {
        edits.push(Edit::Remove { at: below(&["cputune"], "vcpupin", "vcpu", gone) });
    }
    edits.extend(presence(domain, plan));
    let of_cells: Bytes = domain.cells.iter().map(|cell| cell.memory).sum();
    let had = if domain.cells.is_empty() { domain.memory } else { of_cells };
    if had != topology.memory() {
        // What is not the cells' is a device's.
        let all = domain.memory.saturating_sub(had).saturating_add(topology.memory());
        amount(&mut edits, "memory", all);
        amount(&mut edits, "currentMemory", all);
    }
    if domain.cells.is_empty() && topology.nodes.len() == 1 {
        return edits;
    }
    edits.extend(cells(domain, plan));
    let guest = domain.guest;
    let (sockets, dies, threads) = (topology.sockets, topology.dies_per_socket.max(1), topology.threads_per_core);
    let cores = topology.cores_per_socket / dies;
    if (guest.sockets, guest.dies.max(1), guest.cores, guest.threads) != (sockets, dies, cores, threads) {
        let of_cpu = [("sockets", sockets), ("dies", dies), ("cores", cores), ("threads", threads)];
        edits.extend(of_cpu.map(|(name, value)| set(path(&["cpu", "topology"]), name, &value)));
    }
    edits
}

/// Which vCPUs are there at power-on. The first ones of the first node are always there.
fn presence(domain: &Domain, plan: &Plan) -> Vec<Edit> {
    let nodes = &plan.topology.nodes;
    let absent: CpuSet = nodes.iter().flat_map(|node| &node.absent).map(|&vcpu| CpuId(vcpu)).collect();
    if absent == domain.absent && domain.vcpus == plan.topology.max_vcpus() {
        return Vec::new();
    }
    let mut edits = vec![Edit::Remove { at: path(&["vcpus"]) }];
    if absent.is_empty() {
        edits.push(Edit::RemoveAttribute { at: path(&["vcpu"]), name: "current".to_owned() });
        return edits;
    }
    edits.push(set(path(&["vcpu"]), "current", &plan.topology.vcpus()));
    let mut each: BTreeMap<u32, bool> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        each.extend(node.vcpus.iter().map(|&vcpu| (vcpu, index > 0 || absent.contains(CpuId(vcpu)))));
    }
    let yes = |holds: bool| if holds { "yes" } else { "no" };
    for (vcpu, pluggable) in each {
        let at = || below(&["vcpus"], "vcpu", "id", vcpu);
        edits.push(set(at(), "enabled", yes(!absent.contains(CpuId(vcpu)))));
        edits.push(set(at(), "hotpluggable", yes(pluggable)));
    }
    edits
}

/// Whether its virtual nodes are others than until now.
fn is_sized_anew(domain: &Domain, plan: &Plan) -> bool {
    let is = domain.cells.iter().map(|cell| (cell.id, cell.vcpus.clone()));
    is.ne(plan.topology.nodes.iter().map(|node| (node.id, vcpus_of(node))))
}

/// All memory that it may have from now on.
fn most_memory(plan: &Plan) -> Vec<Edit> {
    let topology = &plan.topology;
    if topology.max_memory() == topology.memory() {
        return vec![Edit::Remove { at: path(&["maxMemory"]) }];
    }
    let mut edits = vec![set(path(&["maxMemory"]), "slots", &crate::emit::MEMORY_SLOTS)];
    amount(&mut edits, "maxMemory", topology.max_memory());
    edits
}

fn cells(domain: &Domain, plan: &Plan) -> Vec<Edit> {
    let nodes = &plan.topology.nodes;
    let mut edits = vec![Edit::Number { at: path(&["cpu", "numa", "cell"]), name: "id".to_owned() }];
    let anew = is_sized_anew(domain, plan);
    if anew {
        edits.extend(most_memory(plan));
        let old = |node: &&VirtualNode| domain.cells.iter().any(|cell| cell.id == node.id);
        edits.extend(nodes.iter().filter(old).map(|node| {
            let mut at = below(&["cpu", "numa"], "cell", "id", node.id);
            at.push(Step::new("distances"));
            Edit::Remove { at }
        }));
    }
    for gone in domain.cells.iter().filter(|cell| nodes.iter().all(|node| node.id != cell.id)) {
        edits.push(Edit::Remove { at: below(&["cpu", "numa"], "cell", "id", gone.id) });
        edits.push(Edit::Remove { at: below(&["numatune"], "memnode", "cellid", gone.id) });
    }
    for (row, node) in nodes.iter().enumerate() {
        let cell = || below(&["cpu", "numa"], "cell", "id", node.id);
        let written = domain.cells.iter().find(|written| written.id == node.id);
        if written.is_none_or(|written| written.vcpus != vcpus_of(node)) {
            edits.push(set(cell(), "cpus", &vcpus_of(node)));
        }
        if written.is_none_or(|written| written.memory != node.memory) {
            edits.push(set(cell(), "memory", &(node.memory.0 >> 10)));
            edits.push(set(cell(), "unit", "KiB"));
        }
        let distances = plan.topology.distances.get(row).filter(|_| plan.topology.exposed && nodes.len() > 1);
        for (other, &value) in nodes.iter().zip(distances.into_iter().flatten()) {
            let implied = if other.id == node.id { 10 } else { 20 };
            let said = written.and_then(|written| written.distances.get(&other.id)).copied().unwrap_or(implied);
            if anew || said != value {
                let mut at = cell();
                at.extend([Step::new("distances"), Step::keyed("sibling", "id", other.id)]);
                edits.push(set(at, "value", &value));
            }
        }
    }
    edits
}
