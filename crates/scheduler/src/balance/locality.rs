//! Locality moves: threads go to where their memory is, or nearer to the rest of their VM or to its
//! devices, where that is better than memory coming to them.
//!
//! **Problem.** A client whose memory is elsewhere pays for each access until one has followed the
//! other. Which of the two should go depends on how much memory there is, whether it can move at
//! all, and who else is there.
//!
//! **Rule.** Worth = what nearer memory, siblings and devices win for good - the difference of the
//! one-time costs over the payback time - what crowded CPUs take away. It must be `gain_percent` of
//! the client's CPU time, and, where more memory moves than if the client stayed,
//! `least_gain_cpus`; the target stays under the core cap. A client that got several nodes because
//! none has a core for each vCPU goes to one of them when so few work that this loses less: half of
//! its memory would be remote for good. The core cap is not asked then: by the same losses it was
//! spread.
//!
//! **Properties.** Threads that go to memory that lies on one node move no memory. Halves of a wide
//! VM that each sit beside their memory stay apart unless being together is worth moving it. What
//! somebody bound is never left (`chosen_nodes`).
//!
//! Example: a VM that idles on node 0 with 4 GiB on node 1 goes there: copying them would take 4
//! CPU s, going takes none.

use super::judge::{self, Quick, Verdict, Witness, refusal};
use super::load::{self, local_points};
use super::plan::Planned;
use super::scene::Scene;
use super::{MoveKind, communication, decimal, loss, queue, siblings};

/// Clients of wide VMs that are compared with every node in one step; the next ones follow in the
/// next step.
const WIDE_LOOKS: usize = 48;
/// CPUs by which sums of the same numbers in another order may differ.
const ROUNDING: f64 = 1e-9;

/// Moves clients while that is worth it and the budget lasts. Gives back the moves that only the
/// target refused: a swap may do.
pub(super) fn pass(scene: &mut Scene<'_>, budget: &mut u32, planned: &mut Vec<Planned>) -> Vec<(usize, usize)> {
    if scene.policy.locality_weight <= 0.0 {
        return Vec::new();
    }
    let mut wishes: Vec<(Verdict, usize, usize)> = Vec::new();
    let mut wanted = Vec::new();
    for client in 0..scene.clients.len() {
        let Some(to) = memory_node(scene, client) else { continue };
        if !judge::may_move(scene, client, MoveKind::Locality, &mut Quick) {
            continue;
        }
        let verdict = judge(scene, client, to, &mut Quick);
        if verdict.accepted {
            wishes.push((verdict, client, to));
        } else {
            wanted.push((client, to));
        }
    }
    wishes.extend(wide(scene));
    wishes.sort_by(|one, other| other.0.order(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    for (_, client, to) in wishes {
        if *budget == 0 {
            break;
        }
        // Earlier moves have changed loads and room.
        let verdict = judge(scene, client, to, &mut Quick);
        if !verdict.accepted || scene.clients[client].moved.is_some() {
            continue;
        }
        *budget -= 1;
        let because = sentence(scene, client, to, &verdict);
        scene.rehome(client, vec![to], Some(MoveKind::Locality));
        planned.push(Planned::bind(client, vec![to], MoveKind::Locality, because));
    }
    wanted
}

/// The node that holds most of the client's memory, if that is more than its home holds.
fn memory_node(scene: &Scene<'_>, client: usize) -> Option<usize> {
    let this = &scene.clients[client];
    if this.home.is_empty() {
        return None;
    }
    let resident = this.resident.as_ref()?;
    let &(node, bytes) = resident.iter().max_by(|one, other| one.1.cmp(&other.1).then(other.0.cmp(&one.0)))?;
    let inside = this.home.contains(&node);
    (scene.has_cpus(node) && ((this.home.len() > 1) || (!inside && bytes > this.bytes_on(&this.home)))).then_some(node)
}

/// Moves of wide VMs' clients nearer to their siblings, of clients nearer to their devices, and of
/// clients with several home nodes to a single one.
fn wide(scene: &Scene<'_>) -> Vec<(Verdict, usize, usize)> {
    if !scene.policy.distance_aware {
        return Vec::new();
    }
    let candidates: Vec<usize> = (0..scene.clients.len())
        .filter(|&client| {
            let this = &scene.clients[client];
            let far = this.family.1 - this.family.0 > 1
                && loss::sibling_extra(scene, client, &this.home).is_some_and(|extra| extra > 0.0);
            let drawn = || loss::device_extra(scene, client, &this.home) > 0.0;
            let exchanges = || communication::lost(scene, client, &this.home) > 0.0;
            !this.home.is_empty() && (this.home.len() > 1 || far || drawn() || exchanges())
        })
        .collect();
    let start = candidates.len().clamp(1, WIDE_LOOKS);
    let turn = (scene.steps as usize).wrapping_mul(start);
    let mut wishes = Vec::new();
    for look in 0..candidates.len().min(WIDE_LOOKS) {
        let client = candidates[turn.wrapping_add(look) % candidates.len()];
        if !judge::may_move(scene, client, MoveKind::Locality, &mut Quick) {
            continue;
        }
        let stays = Stays::of(scene, client);
        for to in 0..scene.nodes.len() {
            let other = scene.has_cpus(to) && scene.clients[client].home[..] != [to];
            if !other || !capped(scene, client, to, &mut Quick) || !stays.may_be_left(scene, client, to) {
                continue;
            }
            let verdict = judge(scene, client, to, &mut Quick);
            if verdict.accepted {
                wishes.push((verdict, client, to));
            }
        }
    }
    wishes
}

/// What a client loses where it lives, of which a move wins a part: in CPUs for good, with what its
/// siblings lose by it, and in CPU seconds once.
struct Stays {
    for_good: f64,
    once: f64,
}

impl Stays {
    fn of(scene: &Scene<'_>, client: usize) -> Self {
        let home = &scene.clients[client].home;
        Self { for_good: for_good(scene, client, home), once: loss::transition(scene, client, home) }
    }

    /// Whether going to a node may be worth enough: without what loads say, which only speaks
    /// against it. [`judge`] says the same of those that are left out, and takes longer.
    fn may_be_left(&self, scene: &Scene<'_>, client: usize, to: usize) -> bool {
        let (policy, target) = (scene.policy, [to]);
        if policy.payback_seconds <= 0.0 || communication::has_partners(scene, client) {
            return true;
        }
        let wins = (self.for_good - for_good(scene, client, &target)) * policy.locality_weight;
        let least = least_worth(scene, client) - ROUNDING - self.once / policy.payback_seconds;
        wins >= least && wins - loss::transition(scene, client, &target) / policy.payback_seconds >= least
    }
}

fn for_good(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    loss::steady(scene, client, home) + loss::lost_by_siblings(scene, client, home, None)
}

/// CPUs that a move must be worth.
fn least_worth(scene: &Scene<'_>, client: usize) -> f64 {
    scene.policy.gain_percent / 100.0 * busy(scene, client)
}

/// CPU time that the client wants, in CPUs, and never none.
fn busy(scene: &Scene<'_>, client: usize) -> f64 {
    scene.clients[client].demand.unwrap_or(0.0).max(0.01)
}

/// Judges one locality move.
pub(super) fn judge(scene: &Scene<'_>, client: usize, to: usize, witness: &mut impl Witness) -> Verdict {
    let this = &scene.clients[client];
    if this.resident.is_none() {
        // `judge::may_move` says why.
        return Verdict::default();
    }
    if this.home[..] == [to] {
        return Verdict { accepted: false, ..judge::weigh(scene, client, to) };
    }
    // What costs least to find out comes first: most moves are refused here.
    let all = witness.wants_all();
    let may = judge::may_go(scene, client, to, 0, MoveKind::Locality, witness);
    let capped = (may || all) && capped(scene, client, to, witness);
    if !capped && !all {
        return Verdict::default();
    }
    let mut verdict = judge::weigh(scene, client, to);
    let worth = worth(scene, client, to, &verdict, witness);
    let soon = load::follows_soon(scene, &verdict, witness);
    verdict.accepted = may && capped && soon && worth.is_some();
    verdict.worth = worth.unwrap_or(0.0);
    if verdict.accepted {
        verdict.likeness = siblings::likeness(scene, client, to);
    }
    verdict
}

/// Whether the target stays under the core cap. A client that comes back to one of its nodes was
/// spread by the same losses.
fn capped(scene: &Scene<'_>, client: usize, to: usize, witness: &mut impl Witness) -> bool {
    let (cap, after) = (scene.policy.core_cap_percent, judge::percent_with(scene, client, to));
    if scene.clients[client].home.contains(&to) || after <= cap {
        return true;
    }
    let text = || format!("node {} would be loaded {} %", scene.nodes[to].id, decimal(after, 0));
    witness.hears(|| refusal("core_cap_percent", after, cap, "percent", text()));
    false
}

/// What the move is worth, if it is worth enough: in CPUs over the payback time, or in points of
/// locality where cost does not count.
fn worth(scene: &Scene<'_>, client: usize, to: usize, verdict: &Verdict, witness: &mut impl Witness) -> Option<f64> {
    let policy = scene.policy;
    if policy.payback_seconds <= 0.0 {
        let points = policy.locality_weight * local_points(scene, client, to);
        let worse = (verdict.after.1 - verdict.before.0).max(0.0);
        let worth = points - worse;
        if worth >= policy.gain_percent {
            return Some(worth);
        }
        let text = || format!("{} points of locality against {} points of load", decimal(points, 1), decimal(worse, 1));
        witness.hears(|| refusal("gain_percent", worth, policy.gain_percent, "points", text()));
        return None;
    }
    let busy = busy(scene, client);
    // Emptier CPUs alone are the business of load moves and their thresholds; crowded ones speak
    // against it here too.
    let locality = verdict.remote_gain - verdict.cost / policy.payback_seconds;
    let worth = locality + verdict.crowding_gain.min(0.0) + verdict.bandwidth_gain.min(0.0);
    let percent = 100.0 * worth / busy;
    if percent >= policy.gain_percent {
        // Threads that go to their memory spare it the way: that is worth it however little is won.
        // What somebody bound elsewhere has no way to go, and who bound the threads here had a
        // reason.
        let stays = scene.chosen(client).is_some() && !queue::follows(scene, client);
        let enough = (verdict.more_bytes <= 0 && !stays) || judge::enough(scene, worth, witness);
        return enough.then_some(worth);
    }
    let text = || {
        format!(
            "nearer memory is worth {} % of its CPU time: {} CPUs for good, {} CPU s once, {} CPUs by other load",
            decimal(percent, 1),
            decimal(verdict.remote_gain, 2),
            decimal(-verdict.cost, 1),
            decimal(verdict.crowding_gain.min(0.0), 2)
        )
    };
    witness.hears(|| refusal("gain_percent", percent, policy.gain_percent, "percent", text()));
    None
}

fn sentence(scene: &Scene<'_>, client: usize, to: usize, verdict: &Verdict) -> String {
    let this = &scene.clients[client];
    let all = this.resident_bytes().max(1) as f64;
    let part = |nodes: &[usize]| 100.0 * this.bytes_on(nodes) as f64 / all;
    format!(
        "{:.0} % of its memory is on node {}, {:.0} % at its home, node {}{}; {}{}{}{}",
        part(&[to]),
        scene.nodes[to].id,
        part(&this.home),
        scene.ids(&this.home),
        super::follow::measured(this),
        load::price(verdict),
        siblings::difference(scene, client, to),
        loss::devices_words(scene, client),
        communication::words(scene, client)
    )
}
