//! vCPUs, memory, and where both live.

use super::super::Emission;
use super::super::common::{may_grow, vcpus as vcpus_of};
use super::xml::Element;
use crate::domain::memory_mode as mode;
use topology::{CpuSet, Machine, NodeSet};
use vm::spec::Fill;
use vm::{Client, Plan, VirtualNode, VmSpec};

/// Most host threads that fill the memory at start, as of `homenode run`.
const PREALLOC_THREADS: usize = 16;

/// Memory is filled before the guest starts, so that a home without room shows then, unless the
/// plan has it taken on touch. Huge pages are a memfd: no mount, as under `homenode run`.
pub(super) fn memory_backing(machine: &Machine, plan: &Plan) -> Option<Element> {
    let mut elements = Vec::new();
    if let Some(page) = plan.backing.huge_pages {
        let page = Element::new("page").with("size", page.0 >> 10).with("unit", "KiB");
        elements.push(Element::holding("hugepages", [page]));
        elements.push(Element::new("source").with("type", "memfd"));
    }
    let bound = plan.placement.clients.iter().filter(|client| mode(client).is_some());
    let fills = plan.backing.fill == Fill::AtStart && home_without_cpus(machine, plan).is_none();
    if let Some(most) = bound.map(|client| client.cpus.len()).max().filter(|_| fills) {
        let threads = most.clamp(1, PREALLOC_THREADS);
        elements.push(Element::new("allocation").with("mode", "immediate").with("threads", threads));
    }
    (!elements.is_empty()).then(|| Element::holding("memoryBacking", elements))
}

/// A home that libvirt cannot fill at the start: it has threads on the home's own CPUs do that, and
/// QEMU ends if it may use none of them.
pub(super) fn home_without_cpus<'a>(machine: &Machine, plan: &'a Plan) -> Option<&'a NodeSet> {
    let ours = plan.cpus();
    let fills = |home: &NodeSet| {
        machine.threads.iter().any(|thread| thread.online && home.contains(thread.node) && ours.contains(thread.id))
    };
    let bound = plan.placement.clients.iter().filter(|client| mode(client).is_some());
    bound.map(|client| &client.home).find(|home| !fills(home))
}

/// Each vCPU may run on all CPUs of its client's home, or on the one that it is bound to; QEMU's
/// own threads on those of all homes, and each I/O thread on a home.
pub(super) fn vcpus(spec: &VmSpec, plan: &Plan) -> Vec<Element> {
    let count: usize = plan.topology.nodes.iter().map(|node| node.vcpus.len()).sum();
    let present: usize = plan.topology.nodes.iter().map(|node| node.present().count()).sum();
    let all = Element::text("vcpu", count).with("placement", "static");
    let mut elements = vec![if present < count { all.with("current", present) } else { all }];
    let iothreads = iothreads(spec, plan);
    if !iothreads.is_empty() {
        elements.push(Element::text("iothreads", iothreads.len()));
    }
    let pin = |name, key, index: u32, cpus: CpuSet| Element::new(name).with(key, index).with("cpuset", cpus);
    let mut homes: Vec<(u32, &Client)> = Vec::new();
    for node in &plan.topology.nodes {
        let client = plan.client_of(node.id);
        homes.extend(node.vcpus.iter().filter_map(|&vcpu| Some((vcpu, client?))));
    }
    homes.sort_by_key(|&(vcpu, _)| vcpu);
    let mut pins: Vec<Element> =
        homes.into_iter().map(|(vcpu, client)| pin("vcpupin", "vcpu", vcpu, client.cpus_of(vcpu))).collect();
    pins.push(Element::new("emulatorpin").with("cpuset", plan.qemu_cpus()));
    let iothreads = (1..).zip(iothreads);
    pins.extend(iothreads.map(|(index, client)| pin("iothreadpin", "iothread", index, iothread_cpus(plan, client))));
    elements.push(Element::holding("cputune", pins));
    elements
}

/// The client at whose home each I/O thread runs: one for each disk, as long as there are homes.
pub(super) fn iothreads<'a>(spec: &VmSpec, plan: &'a Plan) -> Vec<&'a Client> {
    plan.placement.clients.iter().take(spec.disks.len()).collect()
}

/// CPUs of an I/O thread: of its client's home; where vCPUs are bound alone, of QEMU's.
fn iothread_cpus(plan: &Plan, client: &Client) -> CpuSet {
    if plan.left_to_qemu.is_empty() { client.cpus.clone() } else { plan.qemu_cpus() }
}

/// Each virtual node is bound by itself, and nothing else is.
///
/// `<memory mode='strict'>` for the whole process would also write the `cpuset.mems` of the VM's
/// cgroup, and then nobody could move its memory to another home. What QEMU has of its own comes
/// from where its threads run, which is a home in any case.
pub(super) fn numatune(plan: &Plan) -> Option<Element> {
    let nodes: Vec<Element> = plan.topology.nodes.iter().filter_map(|node| memory_node(plan, node)).collect();
    (!nodes.is_empty()).then(|| Element::holding("numatune", nodes))
}

fn memory_node(plan: &Plan, node: &VirtualNode) -> Option<Element> {
    let client = plan.client_of(node.id)?;
    let element = Element::new("memnode").with("cellid", node.id).with("mode", mode(client)?);
    Some(element.with("nodeset", client.bound_to()))
}

/// The CPU with its sockets, its last-level cache, and the virtual nodes.
///
/// The cache is emulated, one for each die of a virtual socket, and so never across virtual nodes.
/// The host's own figures (`passthrough`) would tell of hardware threads that share a first-level
/// cache, which vCPUs that float over a home do not.
pub(super) fn cpu(emission: &Emission<'_>) -> Element {
    let Emission { plan, accelerator, .. } = *emission;
    let topology = &plan.topology;
    let mode = if accelerator.is_hardware() { "host-passthrough" } else { "maximum" };
    let shape = Element::new("topology")
        .with("sockets", topology.sockets)
        .with("dies", topology.dies_per_socket)
        .with("cores", topology.cores_per_socket / topology.dies_per_socket.max(1))
        .with("threads", topology.threads_per_core);
    let mut elements = vec![shape, Element::new("cache").with("level", 3).with("mode", "emulate")];
    if emission.needs_topoext() {
        elements.push(Element::new("feature").with("policy", "require").with("name", "topoext"));
    }
    // A guest that is not told of nodes has one, which is all of it: it sees the same, and libvirt
    // has something to bind.
    // It also plugs no memory into a VM without cells.
    if topology.exposed || may_grow(plan) || topology.nodes.iter().any(|node| memory_node(plan, node).is_some()) {
        elements.push(Element::holding("numa", topology.nodes.iter().map(|node| cell(plan, node))));
    }
    Element::holding("cpu", elements).with("mode", mode)
}

fn cell(plan: &Plan, node: &VirtualNode) -> Element {
    let row = plan.topology.distances.get(node.id as usize).filter(|_| plan.topology.exposed);
    let row = row.map(Vec::as_slice).unwrap_or_default();
    let siblings = (0_u32..).zip(row).map(|(id, value)| Element::new("sibling").with("id", id).with("value", value));
    let siblings: Vec<Element> = siblings.collect();
    let inside = if siblings.is_empty() { None } else { Some(Element::holding("distances", siblings)) };
    let mut cell = Element::holding("cell", inside).with("id", node.id);
    if !node.vcpus.is_empty() {
        cell = cell.with("cpus", vcpus_of(node));
    }
    cell.with("memory", node.memory.0 >> 10).with("unit", "KiB")
}
