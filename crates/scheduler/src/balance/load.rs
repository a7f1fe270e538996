//! Load moves: from a loaded node to a less loaded one.
//!
//! **Problem.** Clients share the cores of their home. Where one node has more to do than it has
//! cores, and another has cores free, CPU time is lost; but moving a client brings its memory
//! along, and loads that change anyway would move it back.
//!
//! **Rule.** ESXi's three thresholds: the nodes differ enough, the move shrinks the difference
//! enough, and does not turn it round. Then: somebody there waits or all cores are busy; the move
//! wins `least_gain_cpus`; the target has the room; the cost is won back in time. Or a client that
//! is too wide for its node gets more nodes ([`widen`]). The best by CPUs won goes first, and the
//! next is judged with that one made.
//!
//! **Properties.** No move makes more clients wait than before. Where nobody waits and cores are
//! free nothing moves. Under constant load moves come to an end. `why` asks the same functions, so
//! that it cannot say something else.
//!
//! Example: 8 + 2 busy vCPUs on a node of 8 cores, nothing on the other: the two go, which ends 2
//! CPUs of waiting for 1 GiB copied (docs/balancing.md has the arithmetic).

use super::judge::{self, Quick, Verdict, Witness, refusal, rule};
use super::plan::Planned;
use super::scene::Scene;
use super::{MoveKind, decimal, loss, siblings, widen};

/// Pairs of nodes that get a close look: so many of the most loaded with so many of the least
/// loaded.
const CLOSE: usize = 3;
/// Clients that are judged for a close pair, and for any other pair where the close ones have none.
const JUDGED_CLOSE: usize = 12;
const JUDGED_FAR: usize = 4;
/// Other pairs that are looked at, the widest apart first.
const FAR: usize = 48;

/// Clients that may be moved, by the node that is their home, the largest load first.
pub(super) type Buckets = Vec<Vec<usize>>;

/// Sorts clients with a home of one node into buckets, those that may be moved for this reason.
pub(super) fn buckets(scene: &Scene<'_>, kind: MoveKind) -> Buckets {
    let mut buckets = vec![Vec::new(); scene.nodes.len()];
    for client in 0..scene.clients.len() {
        if let [node] = scene.clients[client].home[..]
            && judge::may_move(scene, client, kind, &mut Quick)
        {
            buckets[node].push(client);
        }
    }
    for bucket in &mut buckets {
        bucket.sort_by(|&one, &other| {
            scene.clients[other].load.total_cmp(&scene.clients[one].load).then(one.cmp(&other))
        });
    }
    buckets
}

/// Pairs of nodes whose loads differ enough, the widest apart first.
pub(super) fn pairs(scene: &Scene<'_>) -> Vec<(usize, usize)> {
    let least = f64::from(scene.policy.least_cores_node).max(1.0);
    let takes_part = |&node: &usize| scene.nodes[node].cores >= least;
    let nodes: Vec<usize> = (0..scene.nodes.len()).filter(takes_part).collect();
    let percent: Vec<f64> = nodes.iter().map(|&node| scene.percent(node, 0.0)).collect();
    let mut pairs = Vec::new();
    for (i, &from) in nodes.iter().enumerate() {
        for (j, &to) in nodes.iter().enumerate() {
            let apart = percent[i] - percent[j];
            // What the judge would refuse for every client of the node.
            if scene.policy.least_gain_cpus > 0.0 && !scene.is_crowded(from) {
                continue;
            }
            if apart >= scene.policy.imbalance_percent && apart > 0.0 {
                pairs.push((apart, from, to));
            }
        }
    }
    pairs.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    pairs.into_iter().map(|(_, from, to)| (from, to)).collect()
}

/// Moves clients while that is worth it and the budget lasts.
pub(super) fn pass(scene: &mut Scene<'_>, budget: &mut u32, planned: &mut Vec<Planned>) {
    let mut buckets = buckets(scene, MoveKind::Load);
    while *budget > 0 {
        let single = best(scene, &buckets).map(|(client, to, verdict)| (client, vec![to], verdict));
        let wider = widen::best(scene, &buckets);
        let best = single.into_iter().chain(wider).max_by(|one, other| one.2.order(&other.2));
        let Some((client, home, verdict)) = best else { return };
        *budget -= 1;
        let because = sentence(scene, client, &home, &verdict);
        for bucket in &mut buckets {
            bucket.retain(|&other| other != client);
        }
        scene.rehome(client, home.clone(), Some(MoveKind::Load));
        planned.push(Planned::bind(client, home, MoveKind::Load, because));
    }
}

fn best(scene: &Scene<'_>, buckets: &Buckets) -> Option<(usize, usize, Verdict)> {
    let pairs = pairs(scene);
    let mut order: Vec<usize> = (0..scene.nodes.len()).filter(|&node| scene.has_cpus(node)).collect();
    order.sort_by(|&one, &other| scene.percent(other, 0.0).total_cmp(&scene.percent(one, 0.0)).then(one.cmp(&other)));
    let mut rank = vec![0; scene.nodes.len()];
    for (place, &node) in order.iter().enumerate() {
        rank[node] = place;
    }
    let close = |&(from, to): &(usize, usize)| rank[from] < CLOSE && rank[to] + CLOSE >= order.len();
    let (near, far): (Vec<_>, Vec<_>) = pairs.into_iter().partition(close);
    best_of(scene, buckets, &near, JUDGED_CLOSE)
        .or_else(|| best_of(scene, buckets, &far[..far.len().min(FAR)], JUDGED_FAR))
}

fn best_of(
    scene: &Scene<'_>,
    buckets: &Buckets,
    pairs: &[(usize, usize)],
    judged: usize,
) -> Option<(usize, usize, Verdict)> {
    let mut best: Option<(usize, usize, Verdict)> = None;
    for &(from, to) in pairs {
        for client in nearest(scene, &buckets[from], ideal(scene, from, to), judged) {
            let verdict = judge(scene, client, to, &mut Quick);
            if verdict.accepted && best.as_ref().is_none_or(|(.., known)| verdict.order(known).is_gt()) {
                best = Some((client, to, verdict));
            }
        }
    }
    best
}

/// The load, in CPUs, whose move makes two nodes equal.
pub(super) fn ideal(scene: &Scene<'_>, from: usize, to: usize) -> f64 {
    let per_cpu = |node: usize| 100.0 / scene.nodes[node].cores.max(1.0);
    (scene.percent(from, 0.0) - scene.percent(to, 0.0)) / (per_cpu(from) + per_cpu(to))
}

/// Up to `count` clients of a bucket whose load is nearest to `ideal`.
fn nearest<'b>(
    scene: &Scene<'_>,
    bucket: &'b [usize],
    ideal: f64,
    count: usize,
) -> impl Iterator<Item = usize> + use<'b> {
    let middle = bucket.partition_point(|&client| scene.clients[client].load > ideal);
    let first = middle.saturating_sub(count / 2);
    let end = (first + count).min(bucket.len());
    let first = end.saturating_sub(count).min(first);
    bucket[first..end].iter().copied()
}

/// Judges one load move.
pub(super) fn judge(scene: &Scene<'_>, client: usize, to: usize, witness: &mut impl Witness) -> Verdict {
    let (this, policy) = (&scene.clients[client], scene.policy);
    let [from] = this.home[..] else {
        witness
            .hears(|| rule("home", "its home has several nodes: it moves only to where it fits as a whole".to_owned()));
        return Verdict::default();
    };
    if from == to {
        return Verdict::default();
    }
    let pre = scene.percent(from, 0.0) - scene.percent(to, 0.0);
    let post = scene.percent(from, -scene.load_on(client, from)) - scene.percent(to, scene.load_on(client, to));
    let post = post.abs();
    // What costs least to find out comes first: most moves are refused here.
    let mut accepted = thresholds(scene, from, to, this.load, (pre, post), witness);
    if accepted || witness.wants_all() {
        accepted &= judge::may_go(scene, client, to, 0, MoveKind::Load, witness);
    }
    if !accepted && !witness.wants_all() {
        return Verdict::default();
    }
    let mut verdict = Verdict { accepted, ..judge::weigh(scene, client, to) };
    if !unreserved(scene, to, &verdict, witness) || !follows_soon(scene, &verdict, witness) {
        verdict.accepted = false;
    }
    if !crowded(scene, from, witness) || !judge::enough(scene, verdict.gain(), witness) {
        verdict.accepted = false;
    }
    let payback = payback(scene, from);
    if payback > 0.0 && !pays(&verdict, payback, witness) {
        verdict.accepted = false;
    }
    if verdict.accepted {
        verdict.likeness = siblings::likeness(scene, client, to);
    }
    verdict.worth = if payback > 0.0 {
        verdict.gain() - verdict.cost.max(0.0) / payback
    } else {
        pre - post + policy.locality_weight * local_points(scene, client, to)
    };
    verdict
}

/// Whether anybody on the node that is left waits for a CPU or shares a core: else there is no load
/// to take away.
pub(super) fn crowded(scene: &Scene<'_>, from: usize, witness: &mut impl Witness) -> bool {
    if scene.policy.least_gain_cpus <= 0.0 || scene.is_crowded(from) {
        return true;
    }
    let node = scene.nodes[from].id;
    witness.hears(|| rule("load", format!("nobody on node {node} waits for a CPU or shares a core")));
    false
}

/// Whether memory that must follow need not wait too long for other memory.
pub(super) fn follows_soon(scene: &Scene<'_>, verdict: &Verdict, witness: &mut impl Witness) -> bool {
    let (seconds, limit) = (verdict.queue_seconds, scene.policy.backlog_seconds);
    if limit <= 0.0 || seconds <= limit {
        return true;
    }
    let text = || format!("its memory would wait {seconds:.0} s for memory that loses more");
    witness.hears(|| refusal("backlog_seconds", seconds, limit, "seconds", text()));
    false
}

/// Whether the VMs that are being started on the target leave it less loaded than the source is
/// now.
fn unreserved(scene: &Scene<'_>, to: usize, verdict: &Verdict, witness: &mut impl Witness) -> bool {
    let node = &scene.nodes[to];
    let vcpus = scene.observation.reserved.get(&node.id).map_or(0, |held| held.vcpus);
    let then = verdict.after.1 + 100.0 * f64::from(vcpus) / node.cores.max(1.0);
    if vcpus == 0 || then <= verdict.before.0 {
        return true;
    }
    let text =
        || format!("{vcpus} vCPUs are being started on node {}: with them it would be loaded {then:.0} %", node.id);
    witness.hears(|| refusal("reserved", then, verdict.before.0, "percent", text()));
    false
}

/// Points of load that are none.
const NO_DIFFERENCE: f64 = 0.1;

/// The three thresholds of ESXi: enough imbalance, enough gain, no thrashing.
pub(super) fn thresholds(
    scene: &Scene<'_>,
    from: usize,
    to: usize,
    moved: f64,
    (pre, post): (f64, f64),
    witness: &mut impl Witness,
) -> bool {
    let policy = scene.policy;
    let (a, b) = (scene.nodes[from].id, scene.nodes[to].id);
    let mut accepted = true;
    if pre < policy.imbalance_percent {
        accepted = false;
        let text = || format!("node {a} is loaded {} points more than node {b}: too little to act on", decimal(pre, 1));
        if !witness.hears(|| refusal("imbalance_percent", pre, policy.imbalance_percent, "points", text())) {
            return false;
        }
    }
    let gain = pre - post;
    if gain < policy.gain_percent {
        accepted = false;
        let text = || {
            format!("the difference would shrink by {} points, from {} to {post:.1}", decimal(gain, 1), decimal(pre, 1))
        };
        if !witness.hears(|| refusal("gain_percent", gain, policy.gain_percent, "points", text())) {
            return false;
        }
    }
    let limit = pre * policy.thrash_percent / 100.0;
    if post > limit && !ends_waiting(scene, from, to, moved) {
        accepted = false;
        let text =
            || format!("the difference would still be {post:.1} of {pre:.1} points, and no wait for CPUs would end");
        // Of no difference, however small the one that a move would make, there is no share: it
        // would be all of it.
        let left = if pre < NO_DIFFERENCE { 100.0 } else { 100.0 * post / pre };
        witness.hears(|| refusal("thrash_percent", left, policy.thrash_percent, "percent", text()));
    }
    accepted
}

/// Whether the move takes enough waiting away to be made although it leaves the loads far apart.
fn ends_waiting(scene: &Scene<'_>, from: usize, to: usize, moved: f64) -> bool {
    if !scene.policy.waiting_overrules_thrash {
        return false;
    }
    let waiting = |node: usize, more: f64| loss::waiting(scene, node, scene.nodes[node].load.cpus + more);
    let ended = waiting(from, 0.0) + waiting(to, 0.0) - waiting(from, -moved) - waiting(to, moved);
    ended > 0.0 && ended >= scene.policy.gain_percent / 100.0 * scene.nodes[from].cores
}

/// Seconds in which a load move away from a node must be paid back; 0: cost does not count. What
/// has lasted for a while may last as long again: a node that has just become crowded is left by
/// clients that cost little, one that stays so by others too. The period before it was first seen
/// so counts.
pub(super) fn payback(scene: &Scene<'_>, from: usize) -> f64 {
    let most = scene.policy.payback_seconds;
    if !scene.policy.crowding_lasts {
        return most;
    }
    let since = scene.nodes[from].crowded_since.unwrap_or(scene.at);
    let lasted = (scene.at.0.saturating_sub(since.0) + scene.policy.period_ms) as f64 / 1000.0;
    most.min(lasted)
}

/// Whether a move wins its cost back in so many seconds.
pub(super) fn pays(verdict: &Verdict, limit: f64, witness: &mut impl Witness) -> bool {
    let (gain, cost) = (verdict.gain(), verdict.cost);
    if gain > 0.0 && cost <= gain * limit {
        return true;
    }
    let text = || match verdict.payback_seconds() {
        Some(seconds) if gain > 0.0 => {
            format!("it wins {gain:.2} CPUs and costs {cost:.1} CPU seconds: paid back in {seconds:.0} s")
        }
        _ => format!("it wins nothing: {} CPUs", decimal(gain, 2)),
    };
    let seconds = verdict.payback_seconds().filter(|_| gain > 0.0);
    witness.hears(|| super::Refusal { value: seconds, ..refusal("payback_seconds", 0.0, limit, "seconds", text()) });
    false
}

/// Points of locality that a client wins by going to a node.
pub(super) fn local_points(scene: &Scene<'_>, client: usize, to: usize) -> f64 {
    let this = &scene.clients[client];
    let all = this.resident_bytes().max(1) as f64;
    100.0 * (this.bytes_on(&[to]) as f64 - this.bytes_on(&this.home) as f64) / all
}

fn sentence(scene: &Scene<'_>, client: usize, home: &[usize], verdict: &Verdict) -> String {
    let from = scene.ids(&scene.clients[client].home);
    let new: Vec<usize> = home.iter().copied().filter(|node| !scene.clients[client].home.contains(node)).collect();
    let (wider, told) = match home {
        [to] => (String::new(), siblings::difference(scene, client, *to)),
        _ => (format!("with more of its vCPUs busy it lives on nodes {}: ", scene.ids(home)), String::new()),
    };
    format!(
        "{wider}node {from} is loaded {} %, node {} {} %: then {} % and {} %; {}{told}",
        decimal(verdict.before.0, 0),
        scene.ids(&new),
        decimal(verdict.before.1, 0),
        decimal(verdict.after.0, 0),
        decimal(verdict.after.1, 0),
        price(verdict),
    )
}

/// What a move wins and costs.
pub(super) fn price(verdict: &Verdict) -> String {
    let payback = match verdict.payback_seconds() {
        Some(seconds) => format!("paid back in {seconds:.0} s"),
        None => "never paid back".to_owned(),
    };
    format!("wins {} CPUs, costs {} CPU s, {payback}", decimal(verdict.gain(), 2), decimal(verdict.cost, 1))
}
