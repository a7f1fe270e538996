//! What can be asked of the modelled host.

use super::SimulatedHost;
use super::state::ThreadSet;
use super::threads::Ground;
use scheduler::{
    Act, Action, ActionError, ClientId, Done, Mobility, Moment, Observation, Observe, ObserveError, VcpuGroup, VmKey,
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
            Action::Bind { vm, cpus, groups, .. } => self.bind(vm, client, cpus, groups),
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

    fn bind(&mut self, vm: &VmKey, client: usize, cpus: &CpuSet, groups: &[VcpuGroup]) -> Result<Done, ActionError> {
        let online: CpuSet = self.nodes.iter().flat_map(|node| node.online.iter()).collect();
        let usable = cpus.intersection(&online);
        if usable.is_empty() {
            return Err(failed(vm, "binding threads", format!("none of CPUs {cpus} is online")));
        }
        let Some(state) = self.vms.get_mut(vm) else { return Ok(Done::default()) };
        let bound = &mut state.clients[client];
        let mut sets = divided(&bound.sets, groups, self.places.len());
        for (set, group) in sets.iter_mut().zip(groups.iter().map(Some).chain(std::iter::repeat(None))) {
            let own = group.map(|group| group.cpus.intersection(&online)).filter(|cpus| !cpus.is_empty());
            set.cpus = own.unwrap_or_else(|| usable.clone());
        }
        let same = |(one, other): (&ThreadSet, &ThreadSet)| (&one.vcpus, &one.cpus) == (&other.vcpus, &other.cpus);
        let stays = sets.len() == bound.sets.len() && sets.iter().zip(&bound.sets).all(same);
        bound.sets = sets;
        state.account.binds += u32::from(!stays);
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        let mut loads = ground.loads(&self.vms);
        if let Some(client) = self.vms.get_mut(vm).and_then(|vm| vm.clients.get_mut(client)) {
            let one = client.load_of_thread();
            for set in &mut client.sets {
                ground.refresh_room(set);
                ground.settle(set, one, &mut loads);
            }
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

/// The sets of a client by these groups, in their order, and one with the threads of no group.
/// Where a set stays as it is, its threads stay where they run.
fn divided(before: &[ThreadSet], groups: &[VcpuGroup], places: usize) -> Vec<ThreadSet> {
    let all: Vec<u32> = before.iter().flat_map(|set| set.vcpus.iter().copied()).collect();
    let mut parts: Vec<Vec<u32>> =
        groups.iter().map(|group| group.vcpus.iter().copied().filter(|vcpu| all.contains(vcpu)).collect()).collect();
    let rest = all.iter().copied().filter(|vcpu| !groups.iter().any(|group| group.vcpus.contains(vcpu)));
    let rest: Vec<u32> = rest.collect();
    if !rest.is_empty() {
        parts.push(rest);
    }
    let set = |vcpus: Vec<u32>| {
        let known = before.iter().find(|set| set.vcpus == vcpus).cloned();
        known.unwrap_or_else(|| ThreadSet::new(vcpus, places))
    };
    parts.into_iter().map(set).collect()
}
