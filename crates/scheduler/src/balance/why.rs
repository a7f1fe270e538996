//! Why a VM is where it is: the same judges as in a step, asked about every node and made to say
//! everything.

use super::cpu_load::CpuLoad;
use super::explanation::{Candidate, ClientExplanation, Explanation, Refusal};
use super::judge::{Full, Quick, Verdict};
use super::scene::Scene;
use super::{
    BalancePolicy, BalanceState, Due, Home, MoveKind, bandwidth, bandwidth_moves, caches, fairness, first_homes, home,
    judge, load, locality, loss, record, remember, shape, siblings,
};
use crate::{ClientId, Observation, VmKey};
use topology::{Bytes, Machine, NodeSet};

/// Why a VM is where it is, and what speaks against moving it; `None` for a VM that the observation
/// lacks. Changes nothing. Candidates and decisions are those of a period in which all moves are
/// considered, as in [`homes`](super::homes).
pub fn why(
    machine: &Machine,
    policy: &BalancePolicy,
    state: &BalanceState,
    observation: &Observation,
    vm: &VmKey,
) -> Option<Explanation> {
    let (unhurried, mut state) = (home::unhurried(policy), state.clone());
    let homes = super::homes(machine, policy, &state, observation);
    let synced = remember::sync(machine, &unhurried, &mut state, observation);
    let scene = || Scene::new(machine, &unhurried, &state, observation, &synced);
    let (mut decisions, _) = super::decide(&mut scene(), Due::ALL);
    decisions.retain(|decision| decision.action.vm() == vm);
    let all = scene();
    let clients: Vec<usize> = (0..all.clients.len()).filter(|&client| all.clients[client].vm.vm == *vm).collect();
    let home = |id: ClientId| homes.get(&(vm.clone(), id));
    let of = |client: usize| {
        // What gets its first home before it counts, as it does in the decision.
        let mut scene = scene();
        let mut before = Vec::new();
        first_homes::settle_before(&mut scene, &mut before, Some(client));
        // All of them first: what is said of one is also about its distance to the others.
        for &own in clients.iter().filter(|own| **own == client || !before.iter().any(|one| one.client == **own)) {
            let Some(home) = home(scene.clients[own].seen.id) else { continue };
            let lives = home.lives.iter().flat_map(NodeSet::iter).filter_map(|node| scene.index(node)).collect();
            scene.rehome(own, lives, None);
        }
        Some(explain(&scene, client, home(scene.clients[client].seen.id)?))
    };
    let clients: Vec<ClientExplanation> = clients.iter().filter_map(|&client| of(client)).collect();
    (!clients.is_empty()).then(|| Explanation { vm: vm.clone(), clients, decisions })
}

fn explain(scene: &Scene<'_>, client: usize, home: &Home) -> ClientExplanation {
    let this = &scene.clients[client];
    let mut general = Full::default();
    judge::may_move(scene, client, MoveKind::Load, &mut general);
    let mut refused = general.0;
    refused.extend(of_the_host(scene));
    let nodes = (0..scene.nodes.len()).filter(|&node| scene.nodes[node].seen.is_some());
    let stuck = this
        .known
        .stuck
        .iter()
        .map(|stuck| format!("memory on node {}: {}", stuck.from, record::sentence(&stuck.trouble, scene.at)));
    let bound = this.known.trouble.iter().map(|trouble| format!("binding it: {}", record::sentence(trouble, scene.at)));
    ClientExplanation {
        client: this.seen.id,
        home: home.clone(),
        demand: this.demand,
        entitled: this.demand.map(|_| this.entitled),
        always_busy: this.vm.latency_sensitive.clone().filter(|_| this.vm.counts_full()),
        owed_percent: fairness::owed_percent(this.known),
        misled: siblings::misleading(scene, client),
        bandwidth: shape::bandwidth_words(scene, client),
        shape: shape::words_of_shape(scene, client),
        away: this.resident.as_ref().map(|_| Bytes(this.resident_bytes() - this.bytes_on(&this.home))),
        rested_seconds: this.known.moved_at.map(|moment| scene.at.0.saturating_sub(moment.0) as f64 / 1000.0),
        groups: caches::explain(scene, client),
        candidates: nodes.map(|node| candidate(scene, client, node)).collect(),
        refused,
        troubles: bound.chain(stuck).collect(),
    }
}

/// What keeps the balancer from moving anything.
pub(super) fn of_the_host(scene: &Scene<'_>) -> Vec<Refusal> {
    let policy = scene.policy;
    let mut refused = Vec::new();
    if !policy.rebalance {
        refused.push(judge::rule("rebalance", "rebalancing is switched off".to_owned()));
    }
    let cores: f64 = scene.nodes.iter().map(|node| node.cores).sum();
    if cores < f64::from(policy.least_cores_host) {
        let text = format!("the host has {cores} usable cores");
        refused.push(judge::refusal("least_cores_host", cores, policy.least_cores_host.into(), "cores", text));
    }
    if scene.nodes_with_cpus() < 2 {
        refused.push(judge::rule("nodes", "the host has one node with CPUs: there is nowhere to go".to_owned()));
    }
    refused
}

fn candidate(scene: &Scene<'_>, client: usize, node: usize) -> Candidate {
    let this = &scene.clients[client];
    let is_home = this.home.contains(&node);
    let alone = this.home[..] == [node];
    let homeless = this.home.is_empty();
    let mut hears = Full::default();
    let verdict = if alone {
        None
    } else if homeless {
        judge::may_go(scene, client, node, 0, MoveKind::Adopt, &mut hears);
        None
    } else {
        Some(judged(scene, client, node, &mut hears))
    };
    let known = verdict.filter(|_| this.demand.is_some());
    let part = this.resident_bytes();
    let distance = |extra: f64| (1.0 + extra) * 10.0;
    let own = scene.load_on(client, node);
    let more = if is_home { CpuLoad::default() } else { own };
    // A first home is decided by what may run.
    let percent = |with: bool| match (homeless, with) {
        (true, with) => first_homes::percent(scene, client, node, if with { 1.0 } else { 0.0 }),
        (false, with) => scene.percent(node, if with { more } else { CpuLoad::default() }),
    };
    let before = scene.nodes[node].load - if alone { own } else { CpuLoad::default() };
    let crowding = loss::crowding(scene, node, before + own) - loss::crowding(scene, node, before);
    Candidate {
        node: scene.nodes[node].id,
        is_home,
        load_percent: percent(false),
        load_with_percent: (this.demand.is_some() || homeless).then(|| percent(true)),
        memory_available: scene.room.left(this, node).map(|left| Bytes(left.max(0).min(u64::MAX.into()) as u64)),
        memory_needed: Bytes(scene.room.needed(this, &[node])),
        local_percent: (part > 0).then(|| 100.0 * this.bytes_on(&[node]) as f64 / part as f64),
        memory_distance: loss::memory_extra(scene, this, &[node]).filter(|_| part > 0).map(distance),
        sibling_distance: loss::sibling_extra(scene, client, &[node]).map(distance),
        crowding_loss: this.demand.map(|_| crowding),
        told_difference: loss::told_difference(scene, client, &[node], None).map(|extra| extra * 10.0),
        controller_loss: bandwidth::of_node(scene, node).map(|_| bandwidth::lost_on(scene, node)),
        remote_loss: this.demand.map(|_| loss::steady(scene, client, &[node])),
        cost: known.map(|verdict| unsigned_zero(verdict.cost)),
        gain: known.map(|verdict| unsigned_zero(verdict.gain())),
        payback_seconds: known.and_then(|verdict| verdict.payback_seconds()),
        refused: hears.0,
    }
}

/// The value; `-0` as `0`.
fn unsigned_zero(value: f64) -> f64 {
    value + 0.0
}

/// Judged for load, and for locality where that refuses; what both say if both refuse.
fn judged(scene: &Scene<'_>, client: usize, node: usize, hears: &mut Full) -> Verdict {
    // Where controllers lose nothing, nobody would go for them.
    let loses = scene.clients[client].home.iter().any(|&home| bandwidth::lost_on(scene, home) > 0.0);
    let for_bandwidth = bandwidth_moves::judge(scene, client, node, &mut Quick);
    if loses && for_bandwidth.accepted {
        return for_bandwidth;
    }
    let (mut for_load, mut for_locality) = (Full::default(), Full::default());
    let by_load = load::judge(scene, client, node, &mut for_load);
    let by_locality = locality::judge(scene, client, node, &mut for_locality);
    if by_load.accepted || by_locality.accepted {
        return if by_load.accepted { by_load } else { by_locality };
    }
    hears.0 = for_load.0;
    if loses {
        bandwidth_moves::judge(scene, client, node, hears);
    }
    for refusal in for_locality.0 {
        if !hears.0.iter().any(|known| known.because == refusal.because) {
            hears.0.push(refusal);
        }
    }
    if scene.clients[client].home.len() == 1 { by_load } else { by_locality }
}
