//! The kernel's automatic NUMA balancing, plainly: pages go to the threads that use them, threads
//! to the nodes with most memory.

use super::SimulatedHost;
use super::rules::AutoNuma;
use super::state::{ClientState, NodeState, PAGE};
use super::threads::{Ground, Loads};
use scheduler::{Mobility, VmKey};

impl SimulatedHost {
    /// One tick of it. The kernel sees a process: a guest's clients have their own threads but one
    /// another's memory too.
    pub(crate) fn auto_numa(&mut self, seconds: f64) {
        let Some(rule) = self.rules.auto_numa.clone() else { return };
        let keys: Vec<VmKey> = self.vms.keys().cloned().collect();
        let mut loads = Ground { nodes: &self.nodes, places: &self.places }.loads(&self.vms);
        for key in keys {
            let clients = self.vms.get(&key).map_or(0, |vm| vm.clients.len());
            for client in 0..clients {
                self.scan(&rule, &key, client, seconds);
                self.follow_memory(&rule, &key, client, &mut loads);
            }
        }
    }

    /// Hint faults: a page moves when two accesses in a row came from the same other node.
    fn scan(&mut self, rule: &AutoNuma, key: &VmKey, client: usize, seconds: f64) {
        let Some(vm) = self.vms.get_mut(key) else { return };
        let is_movable = vm.shape.mobility == Mobility::Movable;
        let state = &mut vm.clients[client];
        let (resident, threads) = (state.resident() as f64, f64::from(state.shape.vcpus));
        if resident == 0.0 || state.load_of_thread() == 0.0 {
            (state.fault_cpus, state.footprint) = (0.0, 0);
            return;
        }
        let on = |node: &NodeState| f64::from(state.threads_on(&node.places)) / threads;
        let runs: Vec<f64> = self.nodes.iter().map(on).collect();
        let local: f64 = state.memory.iter().zip(&runs).map(|(&bytes, runs)| bytes as f64 / resident * runs).sum();
        let step = if local >= rule.good_locality { 1.0 + 0.1 * seconds } else { 1.0 / (1.0 + 0.1 * seconds) };
        state.scan_period_s = (state.scan_period_s * step).clamp(rule.least_period_s, rule.most_period_s);
        // The period is one of run time: a task that sleeps is not scanned.
        let running = (state.load_of_thread() * threads).min(1.0);
        let scanned = (rule.scan_bytes as f64 * running * seconds / state.scan_period_s).min(resident);
        // All that was marked is used before the next scan: a guest's memory is used alike.
        state.footprint = (rule.scan_bytes as f64).min(resident) as u64;
        state.fault_cpus = scanned / PAGE as f64 * rule.fault_ns / 1e9 / seconds;
        let memory = state.memory.clone();
        for (from, &bytes) in memory.iter().enumerate().filter(|(_, bytes)| is_movable && **bytes > 0) {
            for (to, runs) in runs.iter().enumerate().filter(|(to, runs)| *to != from && **runs > 0.0) {
                let moving = scanned * bytes as f64 / resident * runs * runs;
                self.move_memory(key, client, from, to, moving as u64);
            }
        }
    }

    /// A thread off the active nodes goes to the one with most of the memory that has an idle CPU.
    fn follow_memory(&mut self, rule: &AutoNuma, key: &VmKey, client: usize, loads: &mut Loads) {
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        let Some(vm) = self.vms.get_mut(key) else { return };
        let state: &mut ClientState = &mut vm.clients[client];
        let (most, one) = (state.memory.iter().copied().max().unwrap_or(0) as f64, state.load_of_thread());
        if most == 0.0 || one == 0.0 {
            return;
        }
        let memory = &state.memory;
        let is_active = |node: usize| memory[node] as f64 >= rule.active_part * most;
        for set in &mut state.sets {
            let nodes = || 0..ground.nodes.len();
            let from = nodes().find(|&node| set.on(&ground.nodes[node].places) > 0 && !is_active(node));
            let has_idle = |node: usize| {
                let state = &ground.nodes[node];
                set.room_on(&state.places) > 0 && loads.node[node] + one <= state.online.len() as f64
            };
            let to = nodes().filter(|&node| is_active(node) && has_idle(node)).max_by_key(|&node| memory[node]);
            if let (Some(from), Some(to)) = (from, to) {
                ground.take(set, from, one, loads);
                ground.put(set, to, one, loads);
            }
        }
    }
}
