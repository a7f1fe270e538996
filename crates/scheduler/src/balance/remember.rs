//! The state meets the observation: VMs that appeared or ended, the averages of demand, and the
//! time that passed.

use super::{BalancePolicy, BalanceState, ClientMemory, GroupMemory, VmMemory};
use crate::{ClientId, ClientObservation, GroupObservation, Moment, Observation, VmObservation};
use topology::Machine;

/// What holds for this step alone.
pub(super) struct Synced {
    /// Index in the observation of each VM of the state.
    pub(super) order: Vec<usize>,
    /// Seconds since the last step; one period at the first.
    pub(super) elapsed: f64,
}

/// A gap of so many periods makes averages and windows worthless.
const LONG_GAP_PERIODS: f64 = 10.0;

/// Demand of this period alone, in CPUs; `None` where a figure is missing.
pub(super) fn demand_now(seen: &ClientObservation) -> Option<f64> {
    let demand = seen.cpu_used? + seen.cpu_waited?;
    demand.is_finite().then(|| demand.clamp(0.0, f64::from(seen.vcpus.max(1))))
}

/// Brings the state up to the observation: afterwards it has the same VMs and clients, in order.
pub(super) fn sync(
    machine: &Machine,
    policy: &BalancePolicy,
    state: &mut BalanceState,
    observation: &Observation,
) -> Synced {
    let period = policy.period_ms.max(1) as f64 / 1000.0;
    if observation.at < state.at {
        forget_times(state);
    }
    let first = state.steps == 0 || observation.at < state.at;
    let gap = observation.at.0.saturating_sub(state.at.0) as f64 / 1000.0;
    let elapsed = if first { period } else { gap };
    let long_gap = elapsed > period * LONG_GAP_PERIODS;
    state.steps += 1;
    state.at = observation.at;
    // What the first look finds may have run for days; what a later one finds is new.
    let appeared_at = (!first && !long_gap).then_some(observation.at);
    let order = meet(state, observation);
    for (known, &index) in state.vms.iter_mut().zip(&order) {
        let vm = &observation.vms[index];
        sync_clients(known, vm, appeared_at);
        for (slot, client) in known.clients.iter_mut().enumerate() {
            if long_gap {
                (client.demand, client.owed, client.entitled) = (None, 0.0, 0.0);
            }
            let same = vm.clients.get(slot).filter(|seen| seen.id == client.id);
            let seen = same.or_else(|| vm.clients.iter().find(|seen| seen.id == client.id));
            if let Some(now) = seen.and_then(demand_now) {
                let before = client.demand.unwrap_or(now);
                client.demand = Some(before + (now - before) * policy.newest_percent / 100.0);
            }
            client.pending = None;
            if let Some(seen) = seen {
                sync_groups(policy, client, seen);
            }
            if long_gap {
                client.groups.iter_mut().for_each(|group| group.demand = None);
            }
        }
    }
    super::traffic::remember(machine, policy, state, observation, &order);
    Synced { order, elapsed: elapsed.min(period * LONG_GAP_PERIODS) }
}

/// The groups that are seen, but where the state knows a finer division: two groups under one cache
/// look like one. A home without caches to divide shows none, and they are for the next one.
fn sync_groups(policy: &BalancePolicy, known: &mut ClientMemory, seen: &ClientObservation) {
    if seen.groups.is_empty() {
        if known.bound.as_ref() != Some(&seen.cpus) {
            known.groups.clear();
        }
        return;
    }
    let of = |vcpus: &[u32]| seen.groups.iter().find(|seen| vcpus.iter().all(|vcpu| seen.group.vcpus.contains(vcpu)));
    let count = |groups: &[GroupMemory]| groups.iter().map(|group| group.vcpus.len()).sum::<usize>();
    let all: usize = seen.groups.iter().map(|seen| seen.group.vcpus.len()).sum();
    if count(&known.groups) != all || known.groups.iter().any(|group| of(&group.vcpus).is_none()) {
        let new =
            |seen: &GroupObservation| GroupMemory { vcpus: seen.group.vcpus.clone(), demand: None, moved_at: None };
        known.groups = seen.groups.iter().map(new).collect();
    }
    for group in &mut known.groups {
        let Some(seen) = of(&group.vcpus) else { continue };
        let part = group.vcpus.len() as f64 / seen.group.vcpus.len().max(1) as f64;
        let now = seen.cpu_used.zip(seen.cpu_waited).map(|(used, waited)| (used + waited) * part);
        if let Some(now) = now.filter(|now| now.is_finite()) {
            let now = now.clamp(0.0, group.vcpus.len() as f64);
            let before = group.demand.unwrap_or(now);
            group.demand = Some(before + (now - before) * policy.newest_percent / 100.0);
        }
    }
}

/// Brings the VMs of the state up to those of the observation, whose indices it gives back in the
/// order of the state.
fn meet(state: &mut BalanceState, observation: &Observation) -> Vec<usize> {
    // Nearly always they are the same, in the same order.
    let same = |(known, seen): (&VmMemory, &VmObservation)| known.vm == seen.vm;
    if state.vms.len() == observation.vms.len() && state.vms.iter().zip(&observation.vms).all(same) {
        return (0..observation.vms.len()).collect();
    }
    let order = order(observation);
    let mut old = std::mem::take(&mut state.vms).into_iter().peekable();
    for &index in &order {
        let vm = &observation.vms[index];
        while old.next_if(|known| known.vm < vm.vm).is_some() {}
        state.vms.push(old.next_if(|known| known.vm == vm.vm).unwrap_or_else(|| unknown(vm)));
    }
    order
}

/// Indices of the VMs by key, each key once.
fn order(observation: &Observation) -> Vec<usize> {
    let vms = &observation.vms;
    let mut order: Vec<usize> = (0..vms.len()).collect();
    if !vms.is_sorted_by(|one, other| one.vm < other.vm) {
        order.sort_by(|&one, &other| vms[one].vm.cmp(&vms[other].vm));
        order.dedup_by(|one, other| vms[*one].vm == vms[*other].vm);
    }
    order
}

fn unknown(vm: &VmObservation) -> VmMemory {
    VmMemory { vm: vm.vm.clone(), clients: Vec::new() }
}

fn sync_clients(known: &mut VmMemory, vm: &VmObservation, appeared_at: Option<Moment>) {
    let same = known.clients.len() == vm.clients.len()
        && known.clients.iter().zip(&vm.clients).all(|(known, seen)| known.id == seen.id);
    if same {
        return;
    }
    let mut ids: Vec<ClientId> = vm.clients.iter().map(|client| client.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut old = std::mem::take(&mut known.clients);
    let take = |id: ClientId| match old.iter().position(|client| client.id == id) {
        Some(index) => old.swap_remove(index),
        None => ClientMemory { appeared_at, ..ClientMemory::new(id) },
    };
    known.clients = ids.into_iter().map(take).collect();
}

/// The clock began anew: marks of the old one mean nothing.
fn forget_times(state: &mut BalanceState) {
    state.crowded.clear();
    for client in state.vms.iter_mut().flat_map(|vm| &mut vm.clients) {
        (client.moved_at, client.swapped_at, client.rebound_at, client.trouble) = (None, None, None, None);
        client.appeared_at = None;
        client.groups.iter_mut().for_each(|group| group.moved_at = None);
        (client.owed, client.entitled) = (0.0, 0.0);
        client.stuck.clear();
    }
}
