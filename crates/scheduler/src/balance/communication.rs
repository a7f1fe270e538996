//! VMs that exchange much are drawn together, where the policy says so.
//!
//! **Problem.** Packets from VM to VM are copied from the memory of the one to that of the other;
//! on different nodes both wait longer for it. ESXi draws such clients together (action affinity),
//! and switched that off in 9.1, because it piled VMs up on one node.
//!
//! **Rule.** Each of two VMs that exchange bytes waits for them as for its own memory: so many CPUs
//! for each unit of extra distance between their homes, of which `communication_percent` counts. It
//! is a loss like the others: every move is weighed by it, and a locality move is made for it.
//!
//! **Properties.** Off unless the policy says otherwise. Loads bound it: a locality move never
//! loads a node beyond `core_cap_percent`, and crowded CPUs speak against it. VMs of which nobody
//! knows what they exchange are not drawn anywhere.
//!
//! **Example.** Two VMs exchange 1.42 GB/s on nodes twice as far as local memory. A CPU that only
//! waits draws 2.84 GB/s: each waits 0.5 CPUs longer, of which 20 % count: 0.2 CPUs for both.

use super::loss;
use super::scene::Scene;
use std::collections::BTreeMap;

/// By client: the clients that it exchanges bytes with, and the CPUs that it waits for these.
#[derive(Debug, Default)]
pub(super) struct Partners {
    of: Vec<Vec<(usize, f64)>>,
}

/// Looks up who exchanges bytes with whom. What two VMs exchange is that of all their clients
/// alike: nobody counts it client by client.
pub(super) fn set(scene: &mut Scene<'_>) {
    if scene.policy.communication_percent <= 0.0 || scene.observation.exchanges.is_empty() {
        return;
    }
    let mut families = BTreeMap::new();
    for client in &scene.clients {
        families.insert(&client.vm.vm, client.family);
    }
    let mut of = vec![Vec::new(); scene.clients.len()];
    for exchange in &scene.observation.exchanges {
        let (one, other) = (families.get(&exchange.one), families.get(&exchange.other));
        let Some((&one, &other)) = one.zip(other).filter(|(one, other)| one != other) else { continue };
        if !exchange.bytes_per_second.is_finite() || exchange.bytes_per_second <= 0.0 {
            continue;
        }
        let pairs = ((one.1 - one.0) * (other.1 - other.0)) as f64;
        let waits = exchange.bytes_per_second / scene.policy.waiting_cpu_draws() / pairs;
        for (a, b) in (one.0..one.1).flat_map(|a| (other.0..other.1).map(move |b| (a, b))) {
            of[a].push((b, waits));
            of[b].push((a, waits));
        }
    }
    scene.partners = Partners { of };
}

/// CPUs that a client waits longer at a home because those that it exchanges bytes with are away;
/// as far as that counts.
pub(super) fn lost(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    let Some(partners) = scene.partners.of.get(client) else { return 0.0 };
    let away = |&(other, waits): &(usize, f64)| {
        let there = &scene.clients[other].home;
        if there.is_empty() || home.is_empty() { 0.0 } else { waits * loss::extra_between(scene, home, there) }
    };
    // Nobody waits more than it runs.
    let this = &scene.clients[client];
    let busy = this.demand.unwrap_or(this.expected);
    partners.iter().map(away).sum::<f64>().min(busy) * scene.policy.communication_percent / 100.0
}

/// Whether a client exchanges bytes with anybody, as far as that counts.
pub(super) fn has_partners(scene: &Scene<'_>, client: usize) -> bool {
    scene.partners.of.get(client).is_some_and(|partners| !partners.is_empty())
}

/// CPUs that those whom a client exchanges bytes with win when it goes to other nodes.
pub(super) fn won_by_partners(scene: &Scene<'_>, client: usize, to: &[usize]) -> f64 {
    let Some(partners) = scene.partners.of.get(client) else { return 0.0 };
    let home = &scene.clients[client].home;
    let won = |&(other, waits): &(usize, f64)| {
        let there = &scene.clients[other].home;
        if there.is_empty() || home.is_empty() {
            return 0.0;
        }
        waits * (loss::extra_between(scene, there, home) - loss::extra_between(scene, there, to))
    };
    partners.iter().map(won).sum::<f64>() * scene.policy.communication_percent / 100.0
}

/// `; it exchanges 1.4 GB/s with web, on node 1`: the end of a sentence.
pub(super) fn words(scene: &Scene<'_>, client: usize) -> String {
    let this = &scene.clients[client];
    if scene.partners.of.get(client).is_none_or(Vec::is_empty) {
        return String::new();
    }
    let with = |exchange: &crate::Exchange| match () {
        () if exchange.one == this.vm.vm => Some((exchange.bytes_per_second, exchange.other.name.clone())),
        () if exchange.other == this.vm.vm => Some((exchange.bytes_per_second, exchange.one.name.clone())),
        () => None,
    };
    let most = scene.observation.exchanges.iter().filter_map(with).max_by(|one, other| one.0.total_cmp(&other.0));
    most.map_or_else(String::new, |(bytes, name)| {
        format!("; it exchanges {} with {name}", topology::BytesPerSecond(bytes.max(0.0) as u64))
    })
}
