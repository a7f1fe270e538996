//! What can be asked of the modelled host.

use super::SimulatedHost;
use super::threads;
use scheduler::{
    Act, Action, ActionError, ClientId, Done, Mobility, Moment, Observation, Observe, ObserveError, VmKey,
};
use topology::{CpuSet, Machine, NodeId};

impl Observe for SimulatedHost {
    fn machine(&self) -> &Machine {
        self.model.machine()
    }

    fn now(&self) -> Moment {
        Moment(self.now_ms)
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        Ok(self.look())
    }
}

impl Act for SimulatedHost {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        let client = self.client(action)?;
        match action {
            Action::Bind { vm, cpus, .. } => self.bind(vm, client, cpus),
            Action::MoveMemory { vm, from, to, at_most, .. } => {
                let (from, to) = (self.node(action, *from)?, self.node(action, *to)?);
                Ok(self.move_memory(vm, client, from, to, at_most.0))
            }
        }
    }
}

fn failed(vm: &VmKey, operation: &str, reason: String) -> ActionError {
    ActionError::Failed { vm: vm.name.clone(), operation: operation.to_owned(), reason }
}

impl SimulatedHost {
    /// Index of the client that an action is about.
    fn client(&self, action: &Action) -> Result<usize, ActionError> {
        let key = action.vm();
        let Some(vm) = self.vms.get(key) else { return Err(ActionError::Gone { vm: key.name.clone() }) };
        if let Mobility::Fixed { because } = &vm.shape.mobility {
            return Err(failed(key, "moving it", because.clone()));
        }
        let ClientId(client) = action.client();
        let count = vm.clients.len();
        (client < count as u32)
            .then_some(client as usize)
            .ok_or_else(|| failed(key, "finding the client", format!("client {client} of {count}")))
    }

    fn node(&self, action: &Action, node: NodeId) -> Result<usize, ActionError> {
        let index = self.nodes.iter().position(|state| state.id == node && state.present);
        index.ok_or_else(|| failed(action.vm(), "moving memory", format!("node {node} is not there")))
    }

    fn bind(&mut self, vm: &VmKey, client: usize, cpus: &CpuSet) -> Result<Done, ActionError> {
        let online: CpuSet = self.nodes.iter().flat_map(|node| node.online.iter()).collect();
        let usable = cpus.intersection(&online);
        if usable.is_empty() {
            return Err(failed(vm, "binding threads", format!("none of CPUs {cpus} is online")));
        }
        let mut load = threads::loads(self.nodes.len(), &self.vms);
        let capacity = threads::capacity(&self.nodes);
        if let Some(state) = self.vms.get_mut(vm) {
            let client = &mut state.clients[client];
            state.account.binds += u32::from(client.cpus != usable);
            client.cpus = usable;
            threads::refresh_room(&self.nodes, client);
            threads::settle(client, &mut load, &capacity);
        }
        Ok(Done::default())
    }

    /// New memory of the client comes from these nodes while they have any (`MPOL_PREFERRED_MANY`);
    /// none: from where its threads run. For rivals that bind memory when a VM starts: a strict
    /// binding would kill the VM where this spills.
    pub fn prefer_memory(&mut self, vm: &VmKey, client: ClientId, nodes: &[NodeId]) {
        let indices: Vec<usize> =
            (0..self.nodes.len()).filter(|&index| nodes.contains(&self.nodes[index].id)).collect();
        if let Some(client) = self.vms.get_mut(vm).and_then(|vm| vm.clients.get_mut(client.0 as usize)) {
            client.memory_nodes = indices;
        }
    }
}
