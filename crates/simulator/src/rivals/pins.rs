//! Placed once, at the start, and never looked at again.

use super::numad::{NodeState, Request, advice};
use super::{Rival, distances, node_states};
use crate::host::SimulatedHost;
use scheduler::{Act, Action, ClientId, Observe, VcpuGroup, VmKey};
use topology::{CpuSet, NodeId, NodeSet};

/// Binds a client's threads and its memory to nodes.
pub(crate) fn bind(host: &mut SimulatedHost, vm: &VmKey, client: ClientId, nodes: &[NodeId]) {
    bind_groups(host, vm, client, nodes, Vec::new());
}

/// The same, with groups of its vCPUs under caches of these nodes.
pub(crate) fn bind_groups(
    host: &mut SimulatedHost,
    vm: &VmKey,
    client: ClientId,
    nodes: &[NodeId],
    groups: Vec<VcpuGroup>,
) {
    let cpus: CpuSet = nodes.iter().flat_map(|&node| host.online(node).iter().collect::<Vec<_>>()).collect();
    let home: NodeSet = nodes.iter().copied().collect();
    let action = Action::Bind { vm: vm.clone(), client, home, cpus, groups };
    // Nodes without a CPU that is online hold no VM: it stays where it is.
    if host.carry_out(&action).is_ok() {
        host.prefer_memory(vm, client, nodes);
    }
}

/// Every client in turn to the next node, or the next nodes where one has too few cores: what
/// scripts with fixed pins do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pins {
    next: usize,
}

impl Rival for Pins {
    fn name(&self) -> &'static str {
        "static pins"
    }

    fn started(&mut self, host: &mut SimulatedHost, vm: &VmKey) {
        let machine = host.machine();
        let with_cpus = machine.nodes.iter().filter(|node| !machine.usable_cpus(node.id).is_empty());
        let nodes: Vec<(NodeId, usize)> =
            with_cpus.map(|node| (node.id, machine.usable_cores(node.id).len())).collect();
        let vcpus: Vec<u32> =
            host.shape(vm).map(|shape| shape.clients.iter().map(|client| client.vcpus).collect()).unwrap_or_default();
        for (client, vcpus) in (0..).zip(vcpus) {
            let (mut home, mut cores) = (Vec::new(), 0);
            while cores < vcpus as usize && home.len() < nodes.len() {
                let (node, its) = nodes[self.next % nodes.len()];
                home.push(node);
                cores += its;
                self.next += 1;
            }
            bind(host, vm, ClientId(client), &home);
        }
    }
}

/// libvirt with `placement='auto'`: numad is asked once, when the VM starts, and threads and memory
/// are bound to its advice. A guest that sees nodes cannot have them bound one by one then: all of
/// its clients get all of the nodes.
#[derive(Clone, Debug, Default)]
pub struct OneShot {
    known: Vec<NodeState>,
}

impl Rival for OneShot {
    fn name(&self) -> &'static str {
        "libvirt auto, one shot"
    }

    fn period(&mut self, host: &mut SimulatedHost) {
        if let Ok(observation) = host.observe() {
            self.known = node_states(host.machine(), &observation);
        }
    }

    fn started(&mut self, host: &mut SimulatedHost, vm: &VmKey) {
        self.period(host);
        let Some(shape) = host.shape(vm) else { return };
        let request =
            Request { cpus: i64::from(shape.vcpus()) * 100, mb: shape.memory().mib() as i64, ..Request::default() };
        let clients = shape.clients.len() as u32;
        let machine = host.machine();
        let Some(chosen) = advice(&self.known, &distances(machine), &request) else { return };
        let nodes: Vec<NodeId> = chosen.into_iter().map(|index| machine.nodes[index].id).collect();
        for client in 0..clients {
            bind(host, vm, ClientId(client), &nodes);
        }
    }
}
