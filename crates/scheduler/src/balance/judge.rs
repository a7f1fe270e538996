//! Whether a client may go to a node, threshold by threshold. The same code decides and explains.

use super::cpu_load::CpuLoad;
use super::scene::Scene;
use super::{MoveKind, Refusal};
use super::{bandwidth, communication, loss};
use std::cmp::Ordering;
use topology::Bytes;

/// Hears what speaks against a move.
pub(super) trait Witness {
    /// Takes note; whether the judge shall go on.
    fn hears(&mut self, refusal: impl FnOnce() -> Refusal) -> bool;
    /// Whether anything is worth looking at after a refusal.
    fn wants_all(&self) -> bool;
}

/// Stops at the first refusal.
pub(super) struct Quick;

impl Witness for Quick {
    fn hears(&mut self, _refusal: impl FnOnce() -> Refusal) -> bool {
        false
    }
    fn wants_all(&self) -> bool {
        false
    }
}

/// Collects all refusals.
#[derive(Default)]
pub(super) struct Full(pub(super) Vec<Refusal>);

impl Witness for Full {
    fn hears(&mut self, refusal: impl FnOnce() -> Refusal) -> bool {
        self.0.push(refusal());
        true
    }
    fn wants_all(&self) -> bool {
        true
    }
}

/// What a move would do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    /// Whether nothing speaks against it.
    pub(super) accepted: bool,
    /// Loads of both nodes in percent of their cores: from, to; now and then.
    pub(super) before: (f64, f64),
    pub(super) after: (f64, f64),
    /// CPUs won by emptier CPUs.
    pub(super) crowding_gain: f64,
    /// CPUs won, by the client and by others, where less waits for memory bandwidth.
    pub(super) bandwidth_gain: f64,
    /// CPUs won by nearer memory and siblings, once memory has followed.
    pub(super) remote_gain: f64,
    /// CPU seconds that it costs once, beyond what staying costs; negative: going is cheaper.
    pub(super) cost: f64,
    /// Seconds until its memory begins to follow.
    pub(super) queue_seconds: f64,
    /// Bytes that move for it, beyond what would move if the client stayed; negative: fewer.
    pub(super) more_bytes: i128,
    /// By how much the client's distances to its VM's other clients become more like those that its
    /// guest was told, in parts of the local distance; negative: less. Of accepted moves only.
    pub(super) likeness: f64,
    /// What it is worth, to choose among moves.
    pub(super) worth: f64,
}

impl Verdict {
    pub(super) fn gain(&self) -> f64 {
        self.crowding_gain + self.bandwidth_gain + self.remote_gain
    }

    /// The worse move first: by worth, and where that is the same by likeness to what was told.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        same_worth(self.worth)
            .total_cmp(&same_worth(other.worth))
            .then_with(|| self.likeness.total_cmp(&other.likeness).then(self.worth.total_cmp(&other.worth)))
    }

    /// Seconds until the gain has won back the cost; `None`: never.
    pub(super) fn payback_seconds(&self) -> Option<f64> {
        match (self.cost <= 0.0, self.gain() > 0.0) {
            (true, _) => Some(0.0),
            (false, true) => Some(self.cost / self.gain()),
            (false, false) => None,
        }
    }
}

/// What is compared of CPUs before likeness to what was told decides: steps of a hundredth, as of
/// the planner. The offset keeps common fractions away from the edges of a step.
pub(super) fn same_worth(cpus: f64) -> f64 {
    (cpus * 100.0 + 0.37).floor()
}

/// `value` against `limit` of a threshold.
pub(super) fn refusal(threshold: &str, value: f64, limit: f64, unit: &str, because: String) -> Refusal {
    Refusal { threshold: threshold.to_owned(), value: Some(value), limit: Some(limit), unit: unit.to_owned(), because }
}

/// A rule without a number.
pub(super) fn rule(threshold: &str, because: String) -> Refusal {
    Refusal { threshold: threshold.to_owned(), value: None, limit: None, unit: String::new(), because }
}

/// Periods since a moment.
pub(super) fn periods_since(scene: &Scene<'_>, moment: Option<crate::Moment>) -> f64 {
    let since = |moment: crate::Moment| scene.at.0.saturating_sub(moment.0) as f64;
    moment.map_or(f64::INFINITY, |moment| since(moment) / scene.policy.period_ms.max(1) as f64)
}

/// Whether the client may be moved at all now, wherever to.
pub(super) fn may_move(scene: &Scene<'_>, client: usize, kind: MoveKind, witness: &mut impl Witness) -> bool {
    let (this, policy) = (&scene.clients[client], scene.policy);
    let mut may = true;
    let mut refuse = |refuses: bool, refusal: &dyn Fn() -> Refusal| -> bool {
        may &= !refuses;
        !refuses || witness.hears(refusal)
    };
    let fixed = || match &this.vm.mobility {
        crate::Mobility::Fixed { because } => rule("mobility", format!("it may not be moved: {because}")),
        _ => rule("mobility", "it was already moved in this period".to_owned()),
    };
    let nobody_knows = || {
        let why = this.seen.memory_unknown_because.as_deref().unwrap_or("it was not readable in this period");
        rule("memory_by_node", format!("where its memory lies is not known: {why}"))
    };
    let unknown = || rule("demand", "its CPU use or its wait for CPUs was not readable in this period".to_owned());
    let trouble = this.known.trouble.as_ref().filter(|trouble| trouble.until > scene.at);
    let failed = || {
        let text = trouble.map_or_else(String::new, |trouble| super::record::sentence(trouble, scene.at));
        rule("retry_periods", text)
    };
    let rested = periods_since(scene, this.known.moved_at);
    let rest = || {
        let text = format!("it was moved {rested:.0} periods ago, and rests for {}", policy.rest_periods);
        refusal("rest_periods", rested, policy.rest_periods.into(), "periods", text)
    };
    // The load of a start says little about what comes after it. Memory that lies elsewhere says
    // enough.
    let by_load = matches!(kind, MoveKind::Load | MoveKind::LoadSwap | MoveKind::Bandwidth | MoveKind::Fairness);
    let there = periods_since(scene, this.known.appeared_at);
    let start = || {
        let text = format!("it appeared {there:.0} periods ago, and rests for {}", policy.rest_periods);
        refusal("rest_periods", there, policy.rest_periods.into(), "periods", text)
    };
    let swap = matches!(kind, MoveKind::LoadSwap | MoveKind::LocalitySwap);
    let swapped = periods_since(scene, this.known.swapped_at);
    let swap_rest = || {
        let text = format!("it changed places {swapped:.0} periods ago, less than {}", policy.swap_reconsider_periods);
        refusal("swap_reconsider_periods", swapped, policy.swap_reconsider_periods.into(), "periods", text)
    };
    let owed = super::fairness::owed_percent(this.known).unwrap_or(0.0);
    let owes = policy.owed_prevents_percent > 0.0 && kind != MoveKind::Fairness && owed > policy.owed_prevents_percent;
    let owed_too_much = || {
        let text = format!("it is owed {owed:.0} % of its entitlement");
        refusal("owed_prevents_percent", owed, policy.owed_prevents_percent, "percent", text)
    };
    let _all_heard = refuse(!this.threads_move() || this.moved.is_some(), &fixed)
        && refuse(this.resident.is_none(), &nobody_knows)
        && refuse(this.demand.is_none(), &unknown)
        && refuse(trouble.is_some(), &failed)
        && refuse(rested < f64::from(policy.rest_periods), &rest)
        && refuse(by_load && there < f64::from(policy.rest_periods), &start)
        && refuse(swap && swapped < f64::from(policy.swap_reconsider_periods), &swap_rest)
        && refuse(owes, &owed_too_much);
    may
}

/// Whether this node may become the client's home, whatever it is worth. `freed`: bytes that leave
/// the node for this move.
pub(super) fn may_go(
    scene: &Scene<'_>,
    client: usize,
    to: usize,
    freed: u64,
    kind: MoveKind,
    witness: &mut impl Witness,
) -> bool {
    may_take_part(scene, client, (to, &[to]), freed, kind, witness)
}

/// Whether a node may become part of a home of several nodes.
pub(super) fn may_take_part(
    scene: &Scene<'_>,
    client: usize,
    (to, home): (usize, &[usize]),
    freed: u64,
    kind: MoveKind,
    witness: &mut impl Witness,
) -> bool {
    let (this, policy) = (&scene.clients[client], scene.policy);
    let node = &scene.nodes[to];
    let mut may = true;
    let mut refuse = |refuses: bool, refusal: &dyn Fn() -> Refusal| -> bool {
        may &= !refuses;
        !refuses || witness.hears(refusal)
    };
    let no_cpus = || rule("cpus", format!("node {} has no CPU that may be used", node.id));
    let affinity = || {
        let elsewhere = this.vm.stated_nodes.as_ref().filter(|stated| !stated.contains(node.id));
        let by = elsewhere.map_or_else(String::new, |stated| {
            let nodes = topology::words::named("node", stated);
            format!(", but on {nodes}{}", this.vm.said.node_affinity.words("node_affinity"))
        });
        rule("node_affinity", format!("it may not live on node {}{by}", node.id))
    };
    let chosen = || {
        let text = format!("{}: that is where its home may be", scene.chosen_words(client));
        rule("chosen_nodes", text)
    };
    // Who lives on one of the nodes was put there by somebody else.
    let gathers = this.is_spread() && this.home.len() > 1 && !this.home.iter().all(|node| home.contains(node));
    let spread = || rule("chosen_nodes", format!("{}: all of them are its home", scene.chosen_words(client)));
    let small = || {
        let text = format!("node {} has {} usable cores", node.id, node.cores);
        refusal("least_cores_node", node.cores, policy.least_cores_node.into(), "cores", text)
    };
    let left = periods_since(scene, this.known.moved_at);
    let returns = kind != MoveKind::Fairness
        && this.known.left.as_ref().is_some_and(|home| home.contains(node.id))
        && left < f64::from(policy.return_periods);
    let back = || {
        let text =
            format!("it left node {} {left:.0} periods ago, and stays away for {}", node.id, policy.return_periods);
        refusal("return_periods", left, policy.return_periods.into(), "periods", text)
    };
    let short = || {
        let needed = scene.room.needed(this, home);
        let room = scene.room.left(this, to).map(|left| (left + i128::from(freed)).max(0) as u64);
        let text = match room {
            Some(room) => {
                let (needed, room) = Bytes(needed).told_apart(Bytes(room));
                format!("it needs {needed} there, and node {} has {room} left", node.id)
            }
            None => format!("it needs {} there, and nobody knows what node {} has left", Bytes(needed), node.id),
        };
        let mib = |bytes: u64| bytes as f64 / Bytes::MIB.0 as f64;
        Refusal { value: room.map(mib), ..refusal("memory", 0.0, mib(needed), "MiB", text) }
    };
    let small_cache = super::cache_scene::too_small(scene, client, to);
    let caches = || {
        let vcpus = small_cache.unwrap_or_default();
        let text = format!("{vcpus} of its vCPUs keep to one last-level cache, and node {} has none as large", node.id);
        rule("caches", text)
    };
    let apart = || {
        let said = this.vm.said.placement.words("placement");
        let text = format!("another client of its VM lives on node {}, and they are to live apart{said}", node.id);
        rule("placement", text)
    };
    let together = lives_apart(scene, client, to);
    let full = policy.memory_aware && !scene.room.holds_part(this, (to, home), freed);
    let _all_heard = refuse(!scene.has_cpus(to), &no_cpus)
        && refuse(scene.has_cpus(to) && !scene.may_live(client, to), &affinity)
        && refuse(scene.may_live(client, to) && !scene.may_choose(client, to), &chosen)
        && refuse(gathers && scene.may_choose(client, to), &spread)
        && refuse(node.cores < f64::from(policy.least_cores_node), &small)
        && refuse(together, &apart)
        && refuse(small_cache.is_some(), &caches)
        && refuse(returns, &back)
        && refuse(full, &short);
    may
}

/// Whether a client that is to live apart from the other clients of its VM, and does, would share a
/// node there.
pub(super) fn lives_apart(scene: &Scene<'_>, client: usize, to: usize) -> bool {
    let this = &scene.clients[client];
    if !this.vm.placement.keeps_apart() {
        return false;
    }
    let shared = |node: usize| {
        let (first, end) = this.family;
        (first..end).any(|other| other != client && scene.clients[other].home.contains(&node))
    };
    shared(to) && !this.home.iter().any(|&node| shared(node))
}

/// Whether what is won is worth moving memory for.
pub(super) fn enough(scene: &Scene<'_>, gain: f64, witness: &mut impl Witness) -> bool {
    let least = scene.policy.least_gain_cpus;
    if gain >= least {
        return true;
    }
    let text = || format!("it wins {} CPUs: too little to move memory for", super::decimal(gain, 2));
    witness.hears(|| refusal("least_gain_cpus", gain, least, "CPUs", text()));
    false
}

/// CPUs of a client's load that are on a node if it lives at `home`.
fn part_on(scene: &Scene<'_>, client: usize, node: usize, home: &[usize]) -> CpuLoad {
    if !home.contains(&node) {
        return CpuLoad::default();
    }
    let threads: f64 = home.iter().map(|&node| scene.nodes[node].threads).sum::<f64>().max(1.0);
    scene.load_on(client, node) * (scene.nodes[node].threads / threads)
}

/// Load of a node in percent of its cores, with all of a client there.
pub(super) fn percent_with(scene: &Scene<'_>, client: usize, node: usize) -> f64 {
    scene.percent(node, scene.load_on(client, node) - part_on(scene, client, node, &scene.clients[client].home))
}

/// Gains and costs of going to `to` alone, without any threshold.
pub(super) fn weigh(scene: &Scene<'_>, client: usize, to: usize) -> Verdict {
    weigh_beside(scene, client, &[to], None)
}

/// The same of a home of several nodes, and while another client of the VM goes elsewhere.
pub(super) fn weigh_beside(scene: &Scene<'_>, client: usize, home: &[usize], partner: loss::Partner) -> Verdict {
    let this = &scene.clients[client];
    let more = |node: usize| part_on(scene, client, node, home) - part_on(scene, client, node, &this.home);
    let loss = |node: usize, more: CpuLoad| loss::crowding(scene, node, (scene.nodes[node].load + more).or_none());
    let left = this.home.iter().filter(|node| !home.contains(node));
    let now = CpuLoad::default();
    let crowding_gain = left.chain(home).map(|&node| loss(node, now) - loss(node, more(node))).sum();
    let remote_gain = loss::steady(scene, client, &this.home) - loss::steady_beside(scene, client, home, partner)
        + loss::won_by_siblings(scene, client, home, partner)
        + communication::won_by_partners(scene, client, home);
    let cost = loss::transition(scene, client, home) - loss::transition(scene, client, &this.home);
    // Of a home of several nodes, the one that comes to be the fullest of those that are new.
    let percent = |node: usize| scene.percent(node, more(node));
    let new = home.iter().copied().filter(|node| !this.home.contains(node));
    let fullest = new.max_by(|&one, &other| percent(one).total_cmp(&percent(other)));
    let to = fullest.or(home.first().copied()).unwrap_or_default();
    let from = this.home.first().copied().unwrap_or(to);
    Verdict {
        accepted: true,
        before: (scene.percent(from, 0.0), scene.percent(to, 0.0)),
        after: (percent(from), percent(to)),
        crowding_gain,
        bandwidth_gain: bandwidth::won(scene, &[(client, home)]),
        remote_gain: remote_gain * scene.policy.locality_weight,
        cost,
        queue_seconds: loss::queue_seconds(scene, client, home),
        more_bytes: loss::moving(scene, client, home) - loss::moving(scene, client, &this.home),
        likeness: 0.0,
        worth: 0.0,
    }
}
