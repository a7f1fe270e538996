//! Where memory lies: first touch, free memory, moving.

use super::SimulatedHost;
use super::state::{ClientState, NodeState, PAGE};
use scheduler::{Done, Mobility};
use topology::{Bytes, Machine};

/// Order in which each node's threads look for free memory: the nearest first, the node itself
/// before all (Linux's zone list).
pub(crate) fn fallback(machine: &Machine) -> Vec<Vec<usize>> {
    let order = |from: usize| {
        let mut nodes: Vec<usize> = (0..machine.nodes.len()).collect();
        let distance = |to: usize| machine.distance(machine.nodes[from].id, machine.nodes[to].id);
        nodes.sort_by_key(|&to| (to != from, distance(to), to));
        nodes
    };
    (0..machine.nodes.len()).map(order).collect()
}

/// Gives the client `pages` more from the first node of `order` that has any, and so on; what no
/// node has stays untouched.
fn take(nodes: &mut [NodeState], client: &mut ClientState, order: &[usize], mut pages: u64) {
    for &node in order {
        let taken = pages.min(nodes[node].free() / PAGE);
        nodes[node].taken += taken * PAGE;
        client.memory[node] += taken * PAGE;
        client.held[node] += (taken as f64 * client.shape.held_part) as u64 * PAGE;
        pages -= taken;
    }
}

impl SimulatedHost {
    /// Guests touch memory for the first time: it comes from the node of the thread that touches.
    pub(crate) fn touch_memory(&mut self, seconds: f64) {
        for client in self.vms.values_mut().flat_map(|vm| &mut vm.clients) {
            let target = client.now().resident.0.min(client.shape.memory.0);
            let missing = target.saturating_sub(client.resident()) / PAGE;
            if missing == 0 {
                continue;
            }
            // A guest that touches memory is busy with one vCPU at least.
            let rate = self.rules.touch_bytes_per_second as f64 * client.now().busy.max(1.0);
            let pages = missing.min((rate * seconds / PAGE as f64) as u64);
            let threads = u64::from(client.shape.vcpus);
            let mut rest = pages;
            for node in 0..self.nodes.len() {
                let here = client.threads_on(&self.nodes[node].places);
                let part = (pages * u64::from(here)).div_ceil(threads.max(1)).min(rest);
                rest -= part;
                let bound = &client.memory_nodes;
                let order: Vec<usize> = if bound.is_empty() {
                    self.fallback[node].clone()
                } else {
                    let (first, last): (Vec<usize>, Vec<usize>) =
                        self.fallback[node].iter().partition(|node| bound.contains(node));
                    first.into_iter().chain(last).collect()
                };
                take(&mut self.nodes, client, &order, part);
            }
        }
    }

    /// Moves memory of a client, as far as it will go, and notes the copying that this costs.
    pub(crate) fn move_memory(
        &mut self,
        vm: &scheduler::VmKey,
        client: usize,
        from: usize,
        to: usize,
        at_most: u64,
    ) -> Done {
        let lag = self.copying.iter().map(|copy| copy.bytes).sum::<u64>();
        let room = (self.rules.copy_bytes_per_second as f64 * self.rules.copy_lag_s) as u64;
        let budget = room.saturating_sub(lag);
        let Some(state) = self.vms.get_mut(vm) else { return Done::default() };
        let fixed = !matches!(state.shape.mobility, Mobility::Movable);
        let client = &mut state.clients[client];
        let asked = at_most.min(client.memory[from]) / PAGE * PAGE;
        let held = if fixed { client.memory[from] } else { client.held[from] };
        let limits = [
            (client.memory[from].saturating_sub(held), "pages are pinned"),
            (self.nodes[to].free(), "the target node has no free memory left"),
            (budget, "the copying lags behind"),
        ];
        let mut moved = asked;
        let mut because = None;
        for (limit, reason) in limits {
            if limit < moved {
                moved = limit / PAGE * PAGE;
                because = Some(reason.to_owned());
            }
        }
        client.memory[from] -= moved;
        client.memory[to] += moved;
        self.nodes[from].taken -= moved;
        self.nodes[to].taken += moved;
        state.account.moved_bytes += moved;
        self.note_copy(from, to, moved);
        Done { moved: Bytes(moved), left: Bytes(asked - moved), because }
    }

    pub(crate) fn note_copy(&mut self, from: usize, to: usize, bytes: u64) {
        if bytes > 0 {
            match self.copying.iter_mut().find(|copy| (copy.from, copy.to) == (from, to)) {
                Some(copy) => copy.bytes += bytes,
                None => self.copying.push(Copying { from, to, bytes }),
            }
        }
    }
}

/// Pages that have moved and whose copying still has to be paid for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Copying {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: u64,
}
