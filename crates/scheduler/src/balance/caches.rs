//! Moves inside a home: a group of vCPUs from one last-level cache to another.
//!
//! **Problem.** vCPUs that keep to one cache cannot go where a core of their node is free, and
//! share capacity and bandwidth of that cache with whoever keeps to it too. Where demand changes,
//! what was even when the VM started is so no more.
//!
//! **Rule.** As load moves, with thresholds of its own: the loads of two caches of one node differ
//! enough; the move shrinks the difference enough, and neither cache is then beyond what the other
//! was; it wins `cache_gain_cpus`, by the same losses as nodes; what fills the new cache is won
//! back in time. No memory moves, so that a gain need not be waited for: caches shared below full
//! load count. The best move goes first. A client that got another home in this step is left.
//!
//! **Properties.** The spread of loads over the caches of a node never grows. A group stays under
//! caches of its home. A client changes once a step, a group once in `cache_rest_periods`. Under
//! constant load such moves come to an end.
//!
//! **Example.** Caches of 4 cores; two groups of 4 busy vCPUs under one, none under the other. One
//! goes: 0.2 x 8^2 / 4 + 4 that wait become 2 x 0.2 x 4^2 / 4, which wins 5.6 CPUs for 16 MiB.

use super::cache_scene::{self, NO_CACHE};
use super::explanation::{CacheCandidate, GroupExplanation};
use super::judge::{self, Full, Quick, Witness, refusal, rule};
use super::plan::Planned;
use super::scene::Scene;
use super::{Due, MoveKind, decimal, loss};
use crate::{Mobility, Moment};
use topology::Bytes;

/// Moves in one node and step.
const MOVES_A_NODE: usize = 4;

/// A group of a client.
type Group = (usize, usize);

/// What such a move would do.
#[derive(Clone, Copy, Default)]
struct Verdict {
    accepted: bool,
    /// Loads of both caches in percent of their cores: from, to; now and then.
    before: (f64, f64),
    after: (f64, f64),
    /// CPUs won.
    gain: f64,
    /// CPU seconds that it costs once.
    cost: f64,
}

/// Moves groups while that is worth it, node by node.
pub(super) fn pass(scene: &mut Scene<'_>, due: Due, planned: &mut Vec<Planned>) {
    if scene.caches.all.is_empty() || !balances(scene) || !(due.moves || due.swaps) {
        return;
    }
    let mut under: Vec<Vec<Group>> = vec![Vec::new(); scene.caches.all.len()];
    for client in 0..scene.clients.len() {
        if scene.clients[client].places.is_empty() || !may_move(scene, client, &mut Quick) {
            continue;
        }
        for (group, &place) in scene.clients[client].places.iter().enumerate() {
            if let Some(under) = under.get_mut(usize::from(place)) {
                under.push((client, group));
            }
        }
    }
    let mut first = 0;
    while first < scene.caches.all.len() {
        let node = scene.caches.all[first].node;
        let end = first + scene.caches.all[first..].iter().take_while(|cache| cache.node == node).count();
        for _ in 0..MOVES_A_NODE {
            let Some(((client, group), to, verdict)) = best(scene, &under, first..end) else { break };
            let because = sentence(scene, (client, group), to, &verdict);
            let home = scene.clients[client].home.to_vec();
            cache_scene::move_group(scene, client, group, to);
            scene.clients[client].moved = Some(MoveKind::Cache);
            planned.push(Planned { group: Some(group), ..Planned::bind(client, home, MoveKind::Cache, because) });
        }
        first = end;
    }
}

fn balances(scene: &Scene<'_>) -> bool {
    let policy = scene.policy;
    let cores: f64 = scene.nodes.iter().map(|node| node.cores).sum();
    policy.rebalance && policy.move_between_caches && cores >= f64::from(policy.least_cores_host)
}

fn best(scene: &Scene<'_>, under: &[Vec<Group>], caches: std::ops::Range<usize>) -> Option<(Group, usize, Verdict)> {
    let percent = |cache: usize| scene.caches.all[cache].percent(0.0);
    let mut best: Option<(Group, usize, Verdict)> = None;
    for from in caches.clone() {
        for to in caches.clone() {
            if percent(from) - percent(to) < scene.policy.cache_imbalance_percent.max(f64::MIN_POSITIVE) {
                continue;
            }
            for &group in &under[from] {
                if scene.clients[group.0].moved.is_some() {
                    continue;
                }
                let verdict = judge(scene, group, to, &mut Quick);
                if verdict.accepted && best.as_ref().is_none_or(|(.., known)| verdict.gain > known.gain) {
                    best = Some((group, to, verdict));
                }
            }
        }
    }
    best
}

/// Whether the groups of a client may be moved between caches at all now.
fn may_move(scene: &Scene<'_>, client: usize, witness: &mut impl Witness) -> bool {
    let this = &scene.clients[client];
    let mut may = true;
    let mut refuse = |refuses: bool, refusal: &dyn Fn() -> super::Refusal| -> bool {
        may &= !refuses;
        !refuses || witness.hears(refusal)
    };
    let fixed = || match &this.vm.mobility {
        Mobility::Fixed { because } => rule("mobility", format!("it may not be moved: {because}")),
        _ => rule("mobility", "it was already moved in this period".to_owned()),
    };
    let unknown = || rule("demand", "its CPU use or its wait for CPUs was not readable in this period".to_owned());
    let trouble = this.known.trouble.as_ref().filter(|trouble| trouble.until > scene.at);
    let failed = || {
        rule("retry_periods", trouble.map_or_else(String::new, |trouble| super::record::sentence(trouble, scene.at)))
    };
    let _all_heard = refuse(!this.threads_move() || this.moved.is_some(), &fixed)
        && refuse(this.demand.is_none(), &unknown)
        && refuse(trouble.is_some(), &failed);
    may
}

/// Judges one move of a group to another cache of its node.
fn judge(scene: &Scene<'_>, (client, group): Group, to: usize, witness: &mut impl Witness) -> Verdict {
    let (this, policy) = (&scene.clients[client], scene.policy);
    let from = usize::from(this.places[group]);
    let Some(old) = scene.caches.all.get(from).filter(|_| from != to) else { return Verdict::default() };
    let new = &scene.caches.all[to];
    let load = cache_scene::load(scene, client, group);
    let before = (old.percent(0.0), new.percent(0.0));
    let after = (old.percent(-load), new.percent(load));
    let apart = before.0 - before.1;
    let vcpus = this.known.groups[group].vcpus.len();
    let mut accepted = true;
    let mut refuse = |refuses: bool, refusal: &dyn Fn() -> super::Refusal| -> bool {
        accepted &= !refuses;
        !refuses || witness.hears(refusal)
    };
    let small = || {
        let text = format!("{} hardware threads are under that cache, for {vcpus} vCPUs", new.threads());
        refusal("cache_threads", new.threads(), vcpus as f64, "threads", text)
    };
    let rested = rested_periods(scene, this.known.groups[group].moved_at);
    let rest = || {
        let text =
            format!("they got another cache {rested:.0} periods ago, and rest for {}", policy.cache_rest_periods);
        refusal("cache_rest_periods", rested, policy.cache_rest_periods.into(), "periods", text)
    };
    let alike = || {
        let text = format!("it is loaded {} points less: too little to act on", decimal(apart, 1));
        refusal("cache_imbalance_percent", apart, policy.cache_imbalance_percent, "points", text)
    };
    let shrinks = apart - (after.0 - after.1).abs();
    let no_gain = || {
        let text = format!("the difference would shrink by {} points", decimal(shrinks, 1));
        refusal("gain_percent", shrinks, policy.gain_percent, "points", text)
    };
    let beyond = after.0 < before.1 || after.1 > before.0;
    let turned = || {
        let text = format!("they would be loaded {:.0} % and {:.0} %: farther out than both are now", after.0, after.1);
        rule("cache_spread", text)
    };
    let crowding = |cache: &cache_scene::CacheScene, more: f64| {
        loss::crowding_of(&loss::Crowding::of(policy), cache.cores, cache.threads(), (cache.load + more).max(0.0))
    };
    let gain = crowding(old, 0.0) + crowding(new, 0.0) - crowding(old, -load) - crowding(new, load);
    let little = || {
        let text = format!("it wins {} CPUs", decimal(gain, 2));
        refusal("cache_gain_cpus", gain, policy.cache_gain_cpus, "CPUs", text)
    };
    let cost = new.bytes.min(old.bytes) as f64 / policy.copy_bytes_per_cpu_second.0.max(1) as f64;
    let dear = policy.payback_seconds > 0.0 && cost > gain.max(0.0) * policy.payback_seconds;
    let unpaid = || {
        let text = format!("it wins {} CPUs and costs {} CPU seconds", decimal(gain, 2), decimal(cost, 2));
        refusal("payback_seconds", cost / gain.max(f64::MIN_POSITIVE), policy.payback_seconds, "seconds", text)
    };
    let _all_heard = refuse(new.threads() < vcpus as f64, &small)
        && refuse(rested < f64::from(policy.cache_rest_periods), &rest)
        && refuse(apart < policy.cache_imbalance_percent, &alike)
        && refuse(shrinks < policy.gain_percent, &no_gain)
        && refuse(beyond, &turned)
        && refuse(gain < policy.cache_gain_cpus || gain <= 0.0, &little)
        && refuse(dear, &unpaid);
    Verdict { accepted, before, after, gain, cost }
}

fn rested_periods(scene: &Scene<'_>, moved_at: Option<Moment>) -> f64 {
    judge::periods_since(scene, moved_at)
}

fn sentence(scene: &Scene<'_>, (client, group): Group, to: usize, verdict: &Verdict) -> String {
    let this = &scene.clients[client];
    let name = |cache: usize| scene.caches.all.get(cache).map_or_else(String::new, |cache| cpus(cache).to_string());
    format!(
        "vCPUs {} from the cache of CPUs {}, loaded {} %, to that of CPUs {}, {} %: then {} % and {} %; wins {} CPUs, \
         costs {} CPU s, moves no memory",
        vcpus(&this.known.groups[group].vcpus),
        name(usize::from(this.places[group])),
        decimal(verdict.before.0, 0),
        name(to),
        decimal(verdict.before.1, 0),
        decimal(verdict.after.0, 0),
        decimal(verdict.after.1, 0),
        decimal(verdict.gain, 2),
        decimal(verdict.cost, 2),
    )
}

fn cpus(cache: &cache_scene::CacheScene) -> topology::CpuSet {
    cache.cpus.iter().copied().collect()
}

/// Numbers of vCPUs in short: `0-3,8`.
fn vcpus(vcpus: &[u32]) -> String {
    vcpus.iter().map(|&vcpu| topology::CpuId(vcpu)).collect::<topology::CpuSet>().to_string()
}

/// What is said of each group of a client, and of the least loaded other cache of its node.
pub(super) fn explain(scene: &Scene<'_>, client: usize) -> Vec<GroupExplanation> {
    let this = &scene.clients[client];
    let known = (0..this.places.len()).filter(|&group| this.places[group] != NO_CACHE);
    known.map(|group| explain_group(scene, (client, group))).collect()
}

fn explain_group(scene: &Scene<'_>, (client, group): Group) -> GroupExplanation {
    let this = &scene.clients[client];
    let here = usize::from(this.places[group]);
    let cache = &scene.caches.all[here];
    let others = (0..scene.caches.all.len()).filter(|&to| to != here && scene.caches.all[to].node == cache.node);
    let percent = |cache: usize| scene.caches.all[cache].percent(0.0);
    let least = others.min_by(|&one, &other| percent(one).total_cmp(&percent(other)).then(one.cmp(&other)));
    let candidate = |to: usize| {
        let mut hears = Full::default();
        may_move(scene, client, &mut hears);
        let verdict = judge(scene, (client, group), to, &mut hears);
        if !balances(scene) {
            hears.0.insert(0, rule("move_between_caches", "moves between caches are switched off".to_owned()));
        }
        CacheCandidate {
            llc: scene.caches.all[to].id,
            cpus: cpus(&scene.caches.all[to]),
            load_percent: percent(to),
            gain: Some(verdict.gain).filter(|_| this.demand.is_some()),
            refused: hears.0,
        }
    };
    GroupExplanation {
        vcpus: this.known.groups[group].vcpus.clone(),
        llc: cache.id,
        cpus: cpus(cache),
        load_percent: cache.percent(0.0),
        capacity: Some(Bytes(cache.bytes)).filter(|bytes| bytes.0 > 0),
        demand: this.demand.map(|_| cache_scene::load(scene, client, group)),
        other: least.map(candidate),
    }
}
