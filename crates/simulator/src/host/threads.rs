//! Where threads run, as Linux would have it: on CPUs that they may use, spread by load, now and
//! then elsewhere.

use super::SimulatedHost;
use super::state::{ClientState, NodeState, Vms};
use crate::traces::Random;

/// Of each node, how many of the client's CPUs are online. Where none is, Linux lets the threads
/// run anywhere.
pub(crate) fn refresh_room(nodes: &[NodeState], client: &mut ClientState) {
    let count = |client: &ClientState| -> Vec<u32> {
        nodes.iter().map(|node| node.online.intersection(&client.cpus).len() as u32).collect()
    };
    let mut room = count(client);
    if room.iter().all(|&cpus| cpus == 0) {
        client.cpus = nodes.iter().flat_map(|node| node.online.iter()).collect();
        room = count(client);
    }
    client.room = room;
}

/// Takes threads off nodes that they may not use, each to the node with most room for its load.
pub(crate) fn settle(client: &mut ClientState, load: &mut [f64], capacity: &[f64]) {
    let one = client.load_of_thread();
    for node in 0..load.len() {
        while client.room[node] == 0 && client.threads[node] > 0 {
            client.threads[node] -= 1;
            load[node] -= one;
            place(client, load, capacity);
        }
    }
    let placed: u32 = client.threads.iter().sum();
    for _ in placed..client.shape.vcpus {
        place(client, load, capacity);
    }
}

/// One more thread, on the node with the fewest of the client's threads for its room, then the
/// least load.
fn place(client: &mut ClientState, load: &mut [f64], capacity: &[f64]) {
    let crowding = |node: usize| (load[node] + 1e-3 * f64::from(client.threads[node])) / capacity[node].max(1e-9);
    let own = |node: usize| f64::from(client.threads[node] / client.room[node].max(1));
    let allowed = (0..load.len()).filter(|&node| client.room[node] > 0);
    let best = allowed.min_by(|&a, &b| own(a).total_cmp(&own(b)).then(crowding(a).total_cmp(&crowding(b))));
    if let Some(node) = best {
        client.threads[node] += 1;
        load[node] += client.load_of_thread();
    }
}

/// CPUs wanted on each node.
pub(crate) fn loads(nodes: usize, vms: &Vms) -> Vec<f64> {
    let mut load = vec![0.0; nodes];
    for client in vms.values().flat_map(|vm| &vm.clients) {
        for (node, load) in load.iter_mut().enumerate() {
            *load += client.demand(node);
        }
    }
    load
}

/// Online hardware threads of each node.
pub(crate) fn capacity(nodes: &[NodeState]) -> Vec<f64> {
    nodes.iter().map(|node| node.online.len() as f64).collect()
}

impl SimulatedHost {
    /// The load balancer between nodes, and threads that wake up elsewhere, over `seconds`.
    pub(crate) fn float_threads(&mut self, seconds: f64) {
        let capacity = capacity(&self.nodes);
        let mut load = loads(self.nodes.len(), &self.vms);
        let moves = (self.rules.moves_per_second * seconds).ceil() as u32;
        for _ in 0..moves {
            if !self.balance_once(&mut load, &capacity) {
                break;
            }
        }
        let probability = 1.0 - (-self.rules.drift_per_second * seconds).exp();
        for client in self.vms.values_mut().flat_map(|vm| &mut vm.clients) {
            if client.room.iter().filter(|&&cpus| cpus > 0).count() > 1 && client.load_of_thread() > 0.0 {
                drift(client, probability, &mut load, &capacity, &mut self.random);
            }
        }
    }

    /// One thread from the busiest node to the idlest one; false where that would mend nothing.
    fn balance_once(&mut self, load: &mut [f64], capacity: &[f64]) -> bool {
        let used = (0..load.len()).filter(|&node| capacity[node] > 0.0);
        let level = |node: &usize| load[*node] / capacity[*node];
        let Some(busiest) = used.clone().max_by(|a, b| level(a).total_cmp(&level(b))) else { return false };
        let Some(idlest) = used.min_by(|a, b| level(a).total_cmp(&level(b))) else { return false };
        if level(&busiest) <= self.rules.imbalance * level(&idlest) {
            return false;
        }
        let auto_numa = self.rules.auto_numa.is_some();
        let gap = level(&busiest) - level(&idlest);
        let mends = |client: &ClientState| {
            let one = client.load_of_thread();
            let after = (load[busiest] - one) / capacity[busiest] - (load[idlest] + one) / capacity[idlest];
            client.threads[busiest] > 0 && client.room[idlest] > 0 && one > 0.0 && after.abs() < gap
                // Linux will not take a task off the node where its memory is, unless CPUs there
                // are short.
                && !(auto_numa && client.memory[busiest] > client.memory[idlest] && level(&busiest) <= 1.0)
        };
        let mut candidates: Vec<&mut ClientState> =
            self.vms.values_mut().flat_map(|vm| &mut vm.clients).filter(|client| mends(client)).collect();
        let chosen = self.random.below(candidates.len());
        let Some(client) = candidates.get_mut(chosen) else { return false };
        client.threads[busiest] -= 1;
        client.threads[idlest] += 1;
        load[busiest] -= client.load_of_thread();
        load[idlest] += client.load_of_thread();
        true
    }
}

fn drift(client: &mut ClientState, probability: f64, load: &mut [f64], capacity: &[f64], random: &mut Random) {
    for from in 0..load.len() {
        for _ in 0..client.threads[from] {
            if !random.chance(probability) {
                continue;
            }
            let idle = |node: usize| if client.room[node] > 0 { (capacity[node] - load[node]).max(0.0) } else { 0.0 };
            let mut point = random.unit() * (0..load.len()).map(idle).sum::<f64>();
            let to = (0..load.len()).find(|&node| {
                point -= idle(node);
                point < 0.0
            });
            if let Some(to) = to {
                client.threads[from] -= 1;
                client.threads[to] += 1;
                load[from] -= client.load_of_thread();
                load[to] += client.load_of_thread();
            }
        }
    }
}
