//! numad as a daemon: it looks every 5 to 15 s, and rebinds at most one process each time, all of
//! its memory at once.

use super::numad::{Held, NodeState, Request, TARGET_UTILIZATION, advice};
use super::pins::bind;
use super::{Rival, distances, node_states};
use crate::host::SimulatedHost;
use scheduler::{Act, Action, ClientId, Observe, VmKey, VmObservation};
use std::collections::BTreeMap;
use topology::{Bytes, Machine, NodeId};

/// Seconds to the next look after a process was moved, and otherwise (`-i`, 5:15).
const INTERVAL_S: (u64, u64) = (5, 15);
/// CPUs (in hundredths) and MB from which a process is looked at.
const LEAST: (i64, i64) = (50, 300);
/// A process with this part of its memory on its nodes is at home, in percent.
const TARGET_LOCALITY: i64 = 90;
/// Seconds in which a process that was bound is left alone, unless its node is the busiest.
const REST_S: u64 = 300;
/// Looks of which the highest use of CPUs counts.
const RING: usize = 8;

/// The daemon.
#[derive(Clone, Debug, Default)]
pub struct Numad {
    known: BTreeMap<VmKey, Process>,
    next_look_ms: u64,
    migrating: Vec<Migration>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    used: Vec<i64>,
    nodes: Option<Vec<usize>>,
    bound_ms: Option<u64>,
}

/// Memory on its way: `migrate_pages` blocks until all of it has moved.
#[derive(Clone, Debug)]
struct Migration {
    action: Action,
}

/// What is free of a node, of one kind.
type Free = fn(&NodeState) -> i64;

/// One candidate of a look.
struct Candidate<'a> {
    vm: &'a VmObservation,
    cpus: i64,
    mb: Vec<i64>,
    mb_size: i64,
}

impl Candidate<'_> {
    fn mb_used(&self) -> i64 {
        self.mb.iter().sum()
    }

    fn magnitude(&self) -> i64 {
        self.cpus * self.mb_used()
    }
}

impl Rival for Numad {
    fn name(&self) -> &'static str {
        "numad"
    }

    fn period_ms(&self) -> u64 {
        1000
    }

    fn period(&mut self, host: &mut SimulatedHost) {
        self.migrate(host);
        let now_ms = host.now().0;
        if !self.migrating.is_empty() || now_ms < self.next_look_ms {
            return;
        }
        let Ok(observation) = host.observe() else { return };
        let machine = host.machine().clone();
        let nodes = node_states(&machine, &observation);
        let moved = self.look(host, &machine, &nodes, &observation.vms, now_ms);
        self.next_look_ms = now_ms + 1000 * if moved { INTERVAL_S.0 } else { INTERVAL_S.1 };
    }
}

impl Numad {
    fn migrate(&mut self, host: &mut SimulatedHost) {
        self.migrating.retain_mut(|migration| match host.carry_out(&migration.action) {
            // The copying lags behind: the call still blocks. Anything else that is left is left
            // for good.
            Ok(done) => done.because.as_deref().is_some_and(|because| because.contains("lags")),
            Err(_) => false,
        });
    }

    fn look(
        &mut self,
        host: &mut SimulatedHost,
        machine: &Machine,
        nodes: &[NodeState],
        vms: &[VmObservation],
        now_ms: u64,
    ) -> bool {
        self.known.retain(|key, _| vms.iter().any(|vm| vm.vm == *key));
        let mut candidates: Vec<Candidate<'_>> = vms.iter().map(|vm| self.candidate(machine, vm)).collect();
        candidates.retain(|candidate| candidate.cpus > LEAST.0 && candidate.mb_used() > LEAST.1);
        let used: i64 = candidates.iter().map(|candidate| candidate.cpus).sum();
        let enough = used <= nodes.iter().map(|node| node.cpus_total).sum();
        for candidate in self.in_order(candidates) {
            let request = self.request(&candidate, nodes, enough);
            if self.rests(&candidate, &request, nodes, now_ms) {
                continue;
            }
            let Some(chosen) = advice(nodes, &distances(machine), &request) else { continue };
            let away: i64 = (0..nodes.len()).filter(|node| !chosen.contains(node)).map(|node| candidate.mb[node]).sum();
            let process = self.known.entry(candidate.vm.vm.clone()).or_default();
            let mut sorted = chosen.clone();
            sorted.sort_unstable();
            let at_home = 100 * away / candidate.mb_used().max(1) <= 100 - TARGET_LOCALITY;
            let stays = at_home && process.bound_ms.is_some() && process.nodes.as_ref() == Some(&sorted);
            process.bound_ms = Some(now_ms);
            process.nodes = Some(sorted);
            if !stays {
                let ids: Vec<NodeId> = chosen.iter().map(|&node| machine.nodes[node].id).collect();
                self.rebind(host, candidate.vm, &ids);
                return true;
            }
        }
        false
    }

    fn candidate<'a>(&mut self, machine: &Machine, vm: &'a VmObservation) -> Candidate<'a> {
        let process = self.known.entry(vm.vm.clone()).or_default();
        let used: f64 = vm.clients.iter().filter_map(|client| client.cpu_used).sum();
        process.used.push((used * 100.0) as i64);
        if process.used.len() > RING {
            process.used.remove(0);
        }
        let on = |node: NodeId| -> i64 {
            let of = vm.clients.iter().filter_map(|client| client.memory.as_ref()?.get(&node));
            of.map(|bytes| bytes.mib() as i64).sum()
        };
        Candidate {
            vm,
            cpus: process.used.iter().copied().max().unwrap_or(0),
            mb: machine.nodes.iter().map(|node| on(node.id)).collect(),
            mb_size: vm.clients.iter().map(|client| client.memory_size.mib() as i64).sum(),
        }
    }

    /// Those that are not bound first, the largest before all; then the others, the largest first
    /// and of those that differ by less than a fifth the one that was bound longest ago.
    fn in_order<'a>(&self, candidates: Vec<Candidate<'a>>) -> Vec<Candidate<'a>> {
        let bound_ms =
            |candidate: &Candidate<'_>| self.known.get(&candidate.vm.vm).and_then(|process| process.bound_ms);
        let (mut free, mut bound): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|one| bound_ms(one).is_none());
        free.sort_by_key(|candidate| std::cmp::Reverse(candidate.magnitude()));
        let mut ordered = free;
        while !bound.is_empty() {
            let mut best = 0;
            for index in 1..bound.len() {
                let (one, top) = (bound[index].magnitude(), bound[best].magnitude());
                let differ = (top - one).abs() > 0 && one.min(top) / (top - one).abs() < 5;
                if if differ { one > top } else { bound_ms(&bound[index]) < bound_ms(&bound[best]) } {
                    best = index;
                }
            }
            ordered.push(bound.swap_remove(best));
        }
        ordered
    }

    fn request(&self, candidate: &Candidate<'_>, nodes: &[NodeState], assume_enough_cpus: bool) -> Request {
        let (node_mb, used, size) = (nodes[0].mb_total, candidate.mb_used(), candidate.mb_size);
        let mb = if size > node_mb && used * 5 / 4 > node_mb { size } else { used };
        let threads: u32 = candidate.vm.clients.iter().map(|client| client.vcpus).sum();
        let held_nodes = self.known.get(&candidate.vm.vm).and_then(|process| process.nodes.clone());
        let held = Held {
            cpus: candidate.cpus,
            mb: candidate.mb.clone(),
            nodes: held_nodes.unwrap_or_else(|| (0..nodes.len()).collect()),
        };
        Request {
            cpus: (candidate.cpus * 100 / TARGET_UTILIZATION).min(i64::from(threads) * 100),
            mb: mb * 100 / TARGET_UTILIZATION,
            held: Some(held),
            assume_enough_cpus,
        }
    }

    /// Whether the process was bound too recently to be looked at again: yes, unless it is small,
    /// on the busiest or fullest node, and its going to the idlest would even things out.
    fn rests(&self, candidate: &Candidate<'_>, request: &Request, nodes: &[NodeState], now_ms: u64) -> bool {
        let Some(process) = self.known.get(&candidate.vm.vm) else { return false };
        let Some(bound_ms) = process.bound_ms else { return false };
        if now_ms >= bound_ms + REST_S * 1000 {
            return false;
        }
        let evens_out = |free: Free, used: i64, slop: i64| {
            let (least, most) = (nodes.iter().map(free).min().unwrap_or(0), nodes.iter().map(free).max().unwrap_or(0));
            let mean = nodes.iter().map(free).sum::<i64>() / nodes.len() as i64;
            (least + used - mean).abs() + (most - used - mean).abs() < most - least - slop
        };
        let is_on = |free: Free| {
            let least = (0..nodes.len()).min_by_key(|&node| free(&nodes[node]));
            process.nodes.as_ref().zip(least).is_some_and(|(on, least)| on.contains(&least))
        };
        let cpus_free: Free = |node| node.cpus_free;
        let mb_free: Free = |node| node.mb_free;
        let may_move = (is_on(cpus_free) || is_on(mb_free))
            && request.cpus < nodes[0].cpus_total
            && request.mb < nodes[0].mb_total
            && evens_out(cpus_free, candidate.cpus, LEAST.0)
            && evens_out(mb_free, candidate.mb_used(), 0);
        !may_move
    }

    fn rebind(&mut self, host: &mut SimulatedHost, vm: &VmObservation, nodes: &[NodeId]) {
        for client in &vm.clients {
            bind(host, &vm.vm, client.id, nodes);
            // numad binds no memory for what comes later.
            host.prefer_memory(&vm.vm, client.id, &[]);
            let memory = client.memory.iter().flatten().filter(|(node, _)| !nodes.contains(node));
            for (index, (&from, &bytes)) in memory.enumerate() {
                let to = nodes[index % nodes.len()];
                self.migrating.push(Migration { action: move_all(&vm.vm, client.id, from, to, bytes) });
            }
        }
        self.migrate(host);
    }
}

fn move_all(vm: &VmKey, client: ClientId, from: NodeId, to: NodeId, at_most: Bytes) -> Action {
    Action::MoveMemory { vm: vm.clone(), client, from, to, at_most }
}
