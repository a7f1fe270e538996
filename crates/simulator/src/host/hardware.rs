//! Hardware that comes and goes.

use super::SimulatedHost;
use super::state::PAGE;
use super::threads::Ground;
use topology::{CpuSet, NodeId};

impl SimulatedHost {
    /// Takes all CPUs of a node offline, or brings them back. Threads that may run nowhere else are
    /// let run anywhere, as Linux does. The last node with CPUs keeps them: false.
    pub fn set_cpus_online(&mut self, node: NodeId, online: bool) -> bool {
        let Some(index) = self.nodes.iter().position(|state| state.id == node) else { return false };
        let others = self.nodes.iter().enumerate().any(|(other, state)| other != index && !state.online.is_empty());
        if !online && !others || online && !self.nodes[index].present {
            return false;
        }
        self.nodes[index].online = if online { self.nodes[index].all.clone() } else { CpuSet::new() };
        for place in &mut self.places[self.nodes[index].places.clone()] {
            place.online = if online { place.all.clone() } else { CpuSet::new() };
        }
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        let mut loads = ground.loads(&self.vms);
        for client in self.vms.values_mut().flat_map(|vm| &mut vm.clients) {
            let one = client.load_of_thread();
            for set in &mut client.sets {
                ground.refresh_room(set);
                ground.settle(set, one, &mut loads);
            }
        }
        true
    }

    /// Takes a whole node away, memory too: the kernel moves its pages to the nearest nodes with
    /// room. False, and nothing changes, where these have too little, where pages are held there,
    /// or where it is the last node with CPUs.
    pub fn take_away(&mut self, node: NodeId) -> bool {
        let Some(index) = self.nodes.iter().position(|state| state.id == node && state.present) else { return false };
        let elsewhere: u64 =
            self.nodes.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, state)| state.free()).sum();
        let is_held = self.vms.values().flat_map(|vm| &vm.clients).any(|client| client.held[index] > 0);
        if is_held || elsewhere < self.nodes[index].taken || !self.set_cpus_online(node, false) {
            return false;
        }
        self.nodes[index].present = false;
        let order = self.fallback[index].clone();
        let mut copies = Vec::new();
        for client in self.vms.values_mut().flat_map(|vm| &mut vm.clients) {
            for &to in order.iter().filter(|&&to| to != index) {
                let moved = client.memory[index].min(self.nodes[to].free()) / PAGE * PAGE;
                client.memory[index] -= moved;
                client.memory[to] += moved;
                self.nodes[index].taken -= moved;
                self.nodes[to].taken += moved;
                copies.push((to, moved));
            }
        }
        for (to, bytes) in copies {
            self.note_copy(index, to, bytes);
        }
        true
    }

    /// Brings a node back that was taken away, empty.
    pub fn bring_back(&mut self, node: NodeId) -> bool {
        let Some(index) = self.nodes.iter().position(|state| state.id == node && !state.present) else { return false };
        self.nodes[index].present = true;
        self.set_cpus_online(node, true)
    }
}
