//! Swaps: two clients change places, where a move alone is too large or has no room.
//!
//! **Problem.** A large client moved alone only turns the difference of loads round, and full nodes
//! take nobody; a large one for a small one may do.
//!
//! **Rule.** A swap is two moves judged as one: the difference of both loads against the thresholds
//! of load, the sum of gains and costs against the floor and the payback, each one's room with the
//! other gone. For locality: pairs that each want to where the other is.
//!
//! **Properties.** A swap counts two in the budget. Full nodes need a little free memory each, so
//! that the exchange can turn chunk by chunk. After it both rest `swap_reconsider_periods`. Two
//! halves of a VM beside their memory never change places: it wins nothing and moves both.
//!
//! Example: nodes of 8 cores with 6 + 4 and 2 + 2 busy vCPUs: the 6 alone would leave 4 against 10;
//! 4 against 2 leaves 8 and 6.

use super::cpu_load::CpuLoad;
use super::judge::{self, Quick, Verdict};
use super::load::{self, Buckets};
use super::plan::Planned;
use super::scene::Scene;
use super::{MoveKind, bandwidth, decimal, loss};
use topology::Bytes;

/// Pairs of nodes, and pairs of clients in each, that are judged.
const NODE_PAIRS: usize = 24;
const CLIENT_PAIRS: usize = 12;
/// Room that two full nodes need together so that their memory can change places in chunks.
const TURNING_ROOM: u64 = 64 << 20;

/// Swaps for load while that is worth it and the budget lasts.
pub(super) fn load_pass(scene: &mut Scene<'_>, budget: &mut u32, planned: &mut Vec<Planned>) {
    if !scene.policy.swap_for_load {
        return;
    }
    let mut buckets = load::buckets(scene, MoveKind::LoadSwap);
    while *budget >= 2 {
        let Some((one, other, because)) = best_load(scene, &buckets) else { return };
        *budget -= 2;
        for bucket in &mut buckets {
            bucket.retain(|&client| client != one && client != other);
        }
        exchange(scene, one, other, MoveKind::LoadSwap, &because, planned);
    }
}

/// Lets two clients change places.
pub(super) fn exchange(
    scene: &mut Scene<'_>,
    one: usize,
    other: usize,
    kind: MoveKind,
    because: &str,
    planned: &mut Vec<Planned>,
) {
    let (of_one, of_other) = (scene.clients[one].home.to_vec(), scene.clients[other].home.to_vec());
    for (client, partner, home) in [(one, other, of_other), (other, one, of_one)] {
        let partner = &scene.clients[partner];
        let text = format!("changes places with {} (client {}): {because}", partner.vm.vm.name, partner.seen.id.0);
        scene.rehome(client, home.clone(), Some(kind));
        planned.push(Planned::bind(client, home, kind, text));
    }
}

fn best_load(scene: &Scene<'_>, buckets: &Buckets) -> Option<(usize, usize, String)> {
    let mut best: Option<(f64, usize, usize, String)> = None;
    for (from, to) in load::pairs(scene).into_iter().take(NODE_PAIRS) {
        for (one, other) in near_pairs(scene, &buckets[from], &buckets[to], load::ideal(scene, from, to)) {
            let Some((worth, because)) = judge_load(scene, one, other) else { continue };
            if best.as_ref().is_none_or(|known| worth > known.0) {
                best = Some((worth, one, other, because));
            }
        }
    }
    best.map(|(_, one, other, because)| (one, other, because))
}

/// Pairs of a client on the loaded node and one on the other whose loads differ by about `ideal`,
/// the nearest first.
fn near_pairs(scene: &Scene<'_>, from: &[usize], to: &[usize], ideal: f64) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    for &one in from {
        let wanted = scene.clients[one].load - ideal;
        let middle = to.partition_point(|&other| scene.clients[other].load > wanted);
        for &other in &to[middle.saturating_sub(1)..(middle + 1).min(to.len())] {
            let difference = scene.clients[one].load - scene.clients[other].load;
            if difference > 0.0 {
                pairs.push(((difference - ideal).abs(), one, other));
            }
        }
    }
    pairs.sort_by(|one, other| one.0.total_cmp(&other.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    pairs.into_iter().take(CLIENT_PAIRS).map(|(_, one, other)| (one, other)).collect()
}

/// What a load swap is worth and why, if nothing refuses it.
fn judge_load(scene: &Scene<'_>, one: usize, other: usize) -> Option<(f64, String)> {
    let (&[from], &[to]) = (&scene.clients[one].home[..], &scene.clients[other].home[..]) else { return None };
    let moved = scene.clients[one].load - scene.clients[other].load;
    let exchanged = |node: usize| scene.load_on(one, node) - scene.load_on(other, node);
    let (pre_from, pre_to) = (scene.percent(from, 0.0), scene.percent(to, 0.0));
    let (post_from, post_to) = (scene.percent(from, -exchanged(from)), scene.percent(to, exchanged(to)));
    let (pre, post) = (pre_from - pre_to, (post_from - post_to).abs());
    let enough = load::thresholds(scene, from, to, moved, (pre, post), &mut Quick);
    if !enough || !may_change(scene, one, other, MoveKind::LoadSwap) {
        return None;
    }
    let verdict = weigh(scene, one, other);
    let needed = load::crowded(scene, from, &mut Quick) && judge::enough(scene, verdict.gain(), &mut Quick);
    if !needed || !load::follows_soon(scene, &verdict, &mut Quick) {
        return None;
    }
    let payback = load::payback(scene, from);
    let worth = if payback > 0.0 {
        if !load::pays(&verdict, payback, &mut Quick) {
            return None;
        }
        verdict.gain() - verdict.cost.max(0.0) / payback
    } else {
        pre - post
    };
    let (a, b) = (scene.nodes[from].id, scene.nodes[to].id);
    let because = format!(
        "nodes {a} and {b} are loaded {} % and {} %: then {} % and {} %; {}",
        decimal(pre_from, 0),
        decimal(pre_to, 0),
        decimal(post_from, 0),
        decimal(post_to, 0),
        load::price(&verdict)
    );
    Some((worth, because))
}

/// Whether each may live where the other does, and whether both have room there.
pub(super) fn may_change(scene: &Scene<'_>, one: usize, other: usize, kind: MoveKind) -> bool {
    let (&[from], &[to]) = (&scene.clients[one].home[..], &scene.clients[other].home[..]) else { return false };
    let freed = |client: usize, node: usize| {
        let this = &scene.clients[client];
        // What the partner claims here it will not claim any more, and what of it lies here leaves.
        let leaves = if this.memory_moves() { this.bytes_on(&[node]) } else { 0 };
        scene.room.needed(this, &this.home).saturating_add(leaves)
    };
    let same_pages = scene.clients[one].seen.huge_page_size == scene.clients[other].seen.huge_page_size;
    let part = |client: usize, node: usize| if same_pages { freed(client, node) } else { 0 };
    let may = judge::may_go(scene, one, to, part(other, to), kind, &mut Quick)
        && judge::may_go(scene, other, from, part(one, from), kind, &mut Quick);
    may && (!scene.policy.memory_aware || can_turn(scene, one, other, from, to))
}

/// Whether the nodes have free memory now, so that the exchange of memory can begin: chunk by chunk
/// it then goes on.
fn can_turn(scene: &Scene<'_>, one: usize, other: usize, from: usize, to: usize) -> bool {
    let comes = |client: usize, node: usize| {
        let this = &scene.clients[client];
        this.memory_moves() && this.resident_bytes() > this.bytes_on(&[node])
    };
    let free = |client: usize, node: usize| super::follow::free_now(scene, &scene.clients[client], node);
    let turns = |client: usize, node: usize| !comes(client, node) || free(client, node) >= TURNING_ROOM;
    turns(one, to) && turns(other, from)
}

/// What a swap wins and costs: as two moves, the second of them after the first.
pub(super) fn weigh(scene: &Scene<'_>, one: usize, other: usize) -> Verdict {
    let (from, to) = (scene.clients[one].home[0], scene.clients[other].home[0]);
    let exchanged = |node: usize| scene.load_on(one, node) - scene.load_on(other, node);
    let loss = |node: usize, more: CpuLoad| loss::crowding(scene, node, (scene.nodes[node].load + more).or_none());
    let now = CpuLoad::default();
    let crowding_gain = loss(from, now) - loss(from, -exchanged(from)) + loss(to, now) - loss(to, exchanged(to));
    // Of two clients of a VM each is a sibling of the other, where that goes.
    let siblings = scene.clients[one].family == scene.clients[other].family;
    let there = |partner: usize, node: usize| siblings.then_some((partner, node));
    let first = judge::weigh_beside(scene, one, &[to], there(other, from));
    let second = judge::weigh_beside(scene, other, &[from], there(one, to));
    Verdict {
        crowding_gain,
        bandwidth_gain: bandwidth::won(scene, &[(one, &[to]), (other, &[from])]),
        remote_gain: first.remote_gain + second.remote_gain,
        cost: first.cost + second.cost,
        queue_seconds: first.queue_seconds.max(second.queue_seconds),
        more_bytes: first.more_bytes + second.more_bytes,
        ..first
    }
}

/// Swaps for locality among clients that want to where another wants away from.
pub(super) fn locality_pass(
    scene: &mut Scene<'_>,
    wanted: &[(usize, usize)],
    budget: &mut u32,
    planned: &mut Vec<Planned>,
) {
    if !scene.policy.swap_for_locality {
        return;
    }
    let mut wishes: Vec<(usize, usize, u64, usize)> = Vec::new();
    for &(client, to) in wanted {
        if let [from] = scene.clients[client].home[..]
            && judge::may_move(scene, client, MoveKind::LocalitySwap, &mut Quick)
        {
            wishes.push((from, to, scene.clients[client].bytes_on(&[to]), client));
        }
    }
    // By pair of nodes, most memory first: the best of one direction meets the best of the other.
    wishes.sort_by(|one, other| (one.0, one.1, other.2, one.3).cmp(&(other.0, other.1, one.2, other.3)));
    let mut start = 0;
    while start < wishes.len() && *budget >= 2 {
        let (from, to, ..) = wishes[start];
        let end = start + wishes[start..].partition_point(|wish| (wish.0, wish.1) == (from, to));
        let back = wishes.partition_point(|wish| (wish.0, wish.1) < (to, from));
        let back_end = wishes.partition_point(|wish| (wish.0, wish.1) <= (to, from));
        if from < to {
            for (one, other) in wishes[start..end].iter().zip(&wishes[back..back_end]).take(CLIENT_PAIRS) {
                if *budget >= 2
                    && let Some((_, verdict)) = judge_locality(scene, one.3, other.3)
                {
                    *budget -= 2;
                    let because = locality_sentence(scene, one.3, other.3, &verdict);
                    exchange(scene, one.3, other.3, MoveKind::LocalitySwap, &because, planned);
                }
            }
        }
        start = end;
    }
}

/// What it is worth that two clients change places for locality, if nothing refuses it.
pub(super) fn judge_locality(scene: &Scene<'_>, one: usize, other: usize) -> Option<(f64, Verdict)> {
    if scene.clients[one].moved.is_some() || scene.clients[other].moved.is_some() {
        return None;
    }
    if !may_change(scene, one, other, MoveKind::LocalitySwap) {
        return None;
    }
    let policy = scene.policy;
    let (from, to) = (scene.clients[one].home[0], scene.clients[other].home[0]);
    let verdict = weigh(scene, one, other);
    if !load::follows_soon(scene, &verdict, &mut Quick) {
        return None;
    }
    if policy.payback_seconds <= 0.0 {
        let points = load::local_points(scene, one, to) + load::local_points(scene, other, from);
        let worth = points * policy.locality_weight;
        return (worth >= policy.gain_percent).then_some((worth, verdict));
    }
    let busy = |client: usize| scene.clients[client].demand.unwrap_or(0.0);
    let worth = verdict.gain() - verdict.cost / policy.payback_seconds;
    let enough = verdict.more_bytes <= 0 || judge::enough(scene, worth, &mut Quick);
    let least = policy.gain_percent / 100.0 * (busy(one) + busy(other)).max(0.01);
    (enough && worth >= least).then_some((worth, verdict))
}

/// Why two clients change places for locality.
fn locality_sentence(scene: &Scene<'_>, one: usize, other: usize, verdict: &Verdict) -> String {
    let (from, to) = (scene.clients[one].home[0], scene.clients[other].home[0]);
    let here = |client: usize, node: usize| Bytes(scene.clients[client].bytes_on(&[node]));
    format!(
        "{} of the one's memory is on node {}, {} of the other's on node {}; {}",
        here(one, to),
        scene.nodes[to].id,
        here(other, from),
        scene.nodes[from].id,
        load::price(verdict)
    )
}
