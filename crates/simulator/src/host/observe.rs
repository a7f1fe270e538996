//! What the modelled host says of itself: what a real one can read, no more.

use super::SimulatedHost;
use super::state::{ClientState, ThreadSet, VmState};
use scheduler::{
    ClientId, ClientObservation, GroupObservation, Moment, NodeObservation, Observation, Traffic, VmKey, VmObservation,
    vcpu_groups,
};
use std::collections::BTreeMap;
use topology::rates::LINE_BYTES;
use topology::{Bytes, NodeId};

impl SimulatedHost {
    /// Where everything is now. Counters are `None`: they go on counting for the next look.
    pub fn peek(&self) -> Observation {
        let ids: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        let node = |node: &super::state::NodeState| {
            let memory_free = Some(Bytes(node.free()));
            let cpus = node.online.clone();
            (node.id, NodeObservation { cpus, cpu_used: None, memory_free, huge_pages_free: BTreeMap::new() })
        };
        Observation {
            at: Moment(self.now_ms),
            nodes: self.nodes.iter().filter(|node| node.present).map(node).collect(),
            vms: self.vms.iter().map(|(key, vm)| self.vm(key, vm, &ids)).collect(),
            memory_pressure: Some(0.0),
            exchanges: self.exchanges.clone(),
            ..Observation::default()
        }
    }

    /// Looks at everything; what is counted starts again from zero.
    pub(crate) fn look(&mut self) -> Observation {
        let seconds = self.last_observed_ms.map(|last| (self.now_ms - last) as f64 / 1000.0);
        // Two looks at the same moment: nothing was counted between them.
        let seconds = seconds.filter(|seconds| *seconds > 0.0);
        let mut observation = self.peek();
        for node in self.nodes.iter_mut() {
            let used_s = std::mem::take(&mut node.used_s);
            if let Some(shown) = observation.nodes.get_mut(&node.id) {
                shown.cpu_used = seconds.map(|seconds| used_s / seconds);
            }
        }
        for (vm, shown) in self.vms.values_mut().zip(&mut observation.vms) {
            for (client, shown) in vm.clients.iter_mut().zip(&mut shown.clients) {
                // At first sight a real host has nothing to subtract from.
                count(client, shown, seconds.filter(|_| client.seen));
            }
        }
        self.last_observed_ms = Some(self.now_ms);
        observation
    }

    fn vm(&self, key: &VmKey, vm: &VmState, ids: &[NodeId]) -> VmObservation {
        let client = |(index, client): (usize, &ClientState)| {
            let memory = ids.iter().zip(&client.memory).filter(|(_, bytes)| **bytes > 0);
            ClientObservation {
                id: ClientId(index as u32),
                virtual_node: (vm.clients.len() > 1).then_some(index as u32),
                vcpus: client.shape.vcpus,
                cpus: client.cpus(),
                groups: self.groups(vm, client),
                cpu_used: None,
                cpu_waited: None,
                memory: Some(memory.map(|(&node, &bytes)| (node, Bytes(bytes))).collect()),
                memory_size: client.shape.memory,
                ..ClientObservation::default()
            }
        };
        let mut seen = VmObservation {
            mobility: vm.shape.mobility.clone(),
            shares: vm.shape.shares,
            node_affinity: vm.shape.node_affinity.clone(),
            guest: vm.shape.guest.clone(),
            latency_sensitive: vm.shape.latency_sensitive.then(|| "its shape says so".to_owned()),
            ..VmObservation::of_clients(key.clone(), vm.clients.iter().enumerate().map(client).collect())
        };
        seen.takes_over(&vm.shape.stated);
        seen
    }

    /// Its groups, told as a real host tells them: by what each vCPU may use.
    fn groups(&self, vm: &VmState, client: &ClientState) -> Vec<GroupObservation> {
        let is_bound = |set: &ThreadSet| self.nodes.iter().any(|node| set.bound_to(&node.places).is_some());
        if !client.sets.iter().all(is_bound) {
            return Vec::new();
        }
        let each = client.sets.iter().flat_map(|set| set.vcpus.iter().map(|&vcpu| (vcpu, set.cpus.clone())));
        let told = vm.shape.guest.as_ref().map(|guest| guest.cpus.cores.saturating_mul(guest.cpus.threads));
        let groups = vcpu_groups(self.model.machine(), &each.collect(), told.unwrap_or(client.shape.vcpus));
        groups.into_iter().map(|group| GroupObservation { group, ..GroupObservation::default() }).collect()
    }
}

/// Takes what was counted since the last look.
fn count(client: &mut ClientState, shown: &mut ClientObservation, seconds: Option<f64>) {
    client.seen = true;
    for group in &mut shown.groups {
        let of = |figure: fn(&ThreadSet) -> f64| -> f64 {
            let each = |set: &ThreadSet| figure(set) / set.vcpus.len() as f64;
            let within = |set: &&ThreadSet| set.vcpus.iter().any(|vcpu| group.group.vcpus.contains(vcpu));
            let part =
                |set: &ThreadSet| set.vcpus.iter().filter(|vcpu| group.group.vcpus.contains(vcpu)).count() as f64;
            client.sets.iter().filter(within).map(|set| each(set) * part(set)).sum()
        };
        group.cpu_used = seconds.map(|seconds| of(|set| set.used_s) / seconds);
        group.cpu_waited = seconds.map(|seconds| of(|set| set.waited_s) / seconds);
    }
    let (mut used_s, mut waited_s) = (0.0, 0.0);
    for set in &mut client.sets {
        used_s += std::mem::take(&mut set.used_s);
        waited_s += std::mem::take(&mut set.waited_s);
    }
    shown.cpu_used = seconds.map(|seconds| used_s / seconds);
    shown.cpu_waited = seconds.map(|seconds| waited_s / seconds);
    let (local, remote) = (std::mem::take(&mut client.local_lines), std::mem::take(&mut client.remote_lines));
    let rate = |lines: f64, seconds: f64| lines * LINE_BYTES / seconds;
    shown.traffic = seconds.map(|seconds| Traffic { local: rate(local, seconds), remote: rate(remote, seconds) });
}
