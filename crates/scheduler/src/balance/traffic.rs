//! What a client would draw from memory if nobody were in its way.
//!
//! **Problem.** Measured traffic saturates: where a controller is full, a VM that streams shows
//! only what it gets, and two that want 30 GB/s of 18 look like two that want 9 each.
//!
//! **Rule.** While all controllers that a client draws from have something left, its traffic for
//! each CPU second that it used is averaged and remembered. Where one is full
//! (`controller_full_percent`) the figure can only rise; it falls where the client draws less than
//! half of what the others' presence explains: it does something else now. A client that was never
//! seen but beside a full controller, and draws at least half for a CPU second of what the heaviest
//! there does, is taken to wait for memory all of its time. What an administrator stated counts
//! instead of all this.
//!
//! **Properties.** What is not measured and not stated is unknown, and stays so.
//!
//! **Example.** Alone it drew 5 GB/s for a CPU second and used 3 CPUs: 15 GB/s. Beside another like
//! it on a controller of 18 GB/s it shows 9 GB/s, 3 for a CPU second. 18 / 30 of 5 are 3: that
//! explains it, and it still counts with 15.

use super::scene::Scene;
use super::state::TrafficMemory;
use super::{BalancePolicy, BalanceState};
use crate::{ClientObservation, Observation};
use std::collections::BTreeMap;
use topology::{Machine, NodeId, NodeSet};

/// A client that used fewer CPUs says nothing of what it draws when it works.
const LEAST_USED: f64 = 0.05;
/// Part of a client's memory on a node that makes the node's controllers matter to it.
const MATTERS: f64 = 0.1;

/// Part of its memory that is at home where its remote traffic is taken to be that to its siblings.
const AT_HOME: f64 = 0.98;

/// Bytes a second that were measured; `None` where nobody counted.
pub(super) fn measured(seen: &ClientObservation) -> Option<f64> {
    let sum = seen.all_traffic()?;
    (sum.is_finite() && sum >= 0.0).then_some(sum)
}

/// Parts of a client's memory by node.
fn parts(seen: &ClientObservation) -> impl Iterator<Item = (NodeId, f64)> + '_ {
    let all = seen.memory.iter().flatten().map(|(_, bytes)| bytes.0 as f64).sum::<f64>().max(1.0);
    seen.memory.iter().flatten().map(move |(&node, &bytes)| (node, bytes.0 as f64 / all))
}

/// Remembers what clients draw. `order`: where in the observation each VM of the state is.
pub(super) fn remember(
    machine: &Machine,
    policy: &BalancePolicy,
    state: &mut BalanceState,
    observation: &Observation,
    order: &[usize],
) {
    let (mut shown, mut wanted) = (BTreeMap::<NodeId, f64>::new(), BTreeMap::<NodeId, f64>::new());
    for (known, seen) in clients(state, observation, order) {
        let Some(traffic) = measured(seen) else { continue };
        let used = seen.cpu_used.unwrap_or(0.0);
        let alone = known.traffic.as_ref().map_or(traffic, |known| known.per_cpu_second * used).max(traffic);
        for (node, part) in parts(seen) {
            *shown.entry(node).or_default() += traffic * part;
            *wanted.entry(node).or_default() += alone * part;
        }
    }
    if shown.is_empty() {
        return;
    }
    let given = |node: NodeId| machine.bandwidth.of_memory(node).map(|given| given.0 as f64);
    // By node, what part of what they want those get who draw from full controllers.
    let full: BTreeMap<NodeId, f64> = shown
        .iter()
        .filter_map(|(&node, &drawn)| {
            let given = given(node)?;
            let wanted = wanted.get(&node).copied().unwrap_or(given).max(given);
            (drawn >= given * policy.controller_full_percent / 100.0).then_some((node, given / wanted))
        })
        .collect();
    for (vm, &index) in state.vms.iter_mut().zip(order) {
        let homes: Vec<NodeSet> = vm.clients.iter().map(|client| client.home.clone()).collect();
        for (slot, known) in vm.clients.iter_mut().enumerate() {
            let Some(seen) = observation.vms[index].clients.iter().find(|seen| seen.id == known.id) else { continue };
            let used = seen.cpu_used.filter(|used| *used >= LEAST_USED);
            let Some((traffic, used)) = measured(seen).zip(used) else { continue };
            let slowed = parts(seen)
                .filter(|(_, part)| *part >= MATTERS)
                .filter_map(|(node, _)| full.get(&node).copied())
                .reduce(f64::min);
            let apart = homes.iter().enumerate().any(|(other, home)| other != slot && *home != homes[slot]);
            let to_siblings = to_siblings(known, seen, apart, policy);
            let next = next(known.traffic.as_ref(), traffic / used, slowed, policy);
            known.traffic = Some(TrafficMemory { to_siblings, ..next });
        }
    }
}

/// Part of its traffic that goes to its siblings, in the mean; where this period says nothing of
/// it, what is known.
fn to_siblings(known: Known<'_>, seen: &ClientObservation, apart: bool, policy: &BalancePolicy) -> Option<f64> {
    let before = known.traffic.as_ref().and_then(|traffic| traffic.to_siblings);
    let [traffic, all] = [seen.traffic?.remote, measured(seen)?];
    let at_home: f64 = parts(seen).filter(|(node, _)| known.home.contains(*node)).map(|(_, part)| part).sum();
    if !apart || known.home.len() != 1 || at_home < AT_HOME || all <= 0.0 || !traffic.is_finite() {
        return before;
    }
    let now = (traffic / all).clamp(0.0, 1.0);
    Some(before.map_or(now, |before| before + (now - before) * policy.newest_percent / 100.0))
}

/// What is remembered next of a client that drew `now` for a CPU second. `slowed`: the part that it
/// gets of what it wants, beside a full controller.
fn next(known: Option<&TrafficMemory>, now: f64, slowed: Option<f64>, policy: &BalancePolicy) -> TrafficMemory {
    let toward = |before: f64, now: f64| before + (now - before) * policy.newest_percent / 100.0;
    match (known, slowed) {
        (None, _) => TrafficMemory { per_cpu_second: now, alone: slowed.is_none(), to_siblings: None },
        // Beside a full controller it was taken for less than it is.
        (Some(known), None) if !known.alone => TrafficMemory { per_cpu_second: now, alone: true, ..*known },
        (Some(known), None) => {
            TrafficMemory { per_cpu_second: toward(known.per_cpu_second, now), alone: true, ..*known }
        }
        (Some(known), Some(slowed)) if now * 2.0 >= known.per_cpu_second * slowed => {
            TrafficMemory { per_cpu_second: known.per_cpu_second.max(now), ..*known }
        }
        (Some(known), Some(_)) => TrafficMemory { per_cpu_second: toward(known.per_cpu_second, now), ..*known },
    }
}

/// Sets what each client of the scene draws alone, in bytes a second.
pub(super) fn estimate(scene: &mut Scene<'_>) {
    let each = scene.policy.waiting_cpu_draws();
    // By node, the most for a CPU second that anybody draws there who was never seen alone.
    let mut heaviest = vec![0.0f64; scene.nodes.len()];
    for client in scene.clients.iter() {
        let Some(traffic) = &client.known.traffic else { continue };
        for (node, part) in parts(client.seen) {
            if let Some(node) = scene.index(node).filter(|_| part >= MATTERS) {
                heaviest[node] = heaviest[node].max(traffic.per_cpu_second);
            }
        }
    }
    for client in 0..scene.clients.len() {
        let this = &scene.clients[client];
        let busy = this.demand.unwrap_or(this.expected);
        let (first, end) = this.family;
        let all: f64 = scene.clients[first..end].iter().map(|client| client.vcpus()).sum();
        let stated = match this.vm.bandwidth {
            vm::spec::BandwidthNeed::Stated(_) => this.vm.bandwidth.of(all, each).map(|sum| sum * this.vcpus() / all),
            need => need.of(busy, each),
        };
        let known = this.known.traffic.as_ref().map(|traffic| {
            let most = parts(this.seen)
                .filter(|(_, part)| *part >= MATTERS)
                .filter_map(|(node, _)| scene.index(node))
                .map(|node| heaviest[node])
                .fold(0.0, f64::max);
            let streams = !traffic.alone && traffic.per_cpu_second * 2.0 >= most;
            busy * if streams { traffic.per_cpu_second.max(each) } else { traffic.per_cpu_second }
        });
        scene.clients[client].traffic = stated.or(known);
    }
}

type Known<'a> = &'a super::ClientMemory;

fn clients<'a>(
    state: &'a BalanceState,
    observation: &'a Observation,
    order: &'a [usize],
) -> impl Iterator<Item = (Known<'a>, &'a ClientObservation)> {
    let vms = state.vms.iter().zip(order).map(|(known, &index)| (known, &observation.vms[index]));
    vms.flat_map(|(known, vm)| {
        known.clients.iter().filter_map(|known| Some((known, vm.clients.iter().find(|seen| seen.id == known.id)?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(per_cpu_second: f64, alone: bool) -> TrafficMemory {
        TrafficMemory { per_cpu_second, alone, to_siblings: None }
    }

    #[test]
    fn what_a_full_controller_explains_changes_nothing() {
        let policy = BalancePolicy { newest_percent: 50.0, ..BalancePolicy::default() };
        let known = memory(5e9, true);
        // It gets 18 of 30 GB/s: 3 of 5 GB/s for a CPU second.
        assert_eq!(next(Some(&known), 3e9, Some(0.6), &policy), known);
        // 1 GB/s is less than half of the 3 that it would get: it does something else.
        assert_eq!(next(Some(&known), 1e9, Some(0.6), &policy), memory(3e9, true));
        // More than ever before is more.
        assert_eq!(next(Some(&known), 6e9, Some(0.6), &policy), memory(6e9, true));
        // With room left, what is seen is what it wants, in the mean.
        assert_eq!(next(Some(&known), 1e9, None, &policy), memory(3e9, true));
    }

    #[test]
    fn the_first_sight_beside_a_full_controller_is_no_measure() {
        let policy = BalancePolicy::default();
        let first = next(None, 2e9, Some(1.0), &policy);
        assert_eq!(first, memory(2e9, false));
        assert_eq!(next(Some(&first), 7e9, None, &policy), memory(7e9, true));
    }
}
