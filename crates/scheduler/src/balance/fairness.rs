//! Long-term fairness: a client that got less than its share for long goes where it gets more, or
//! changes places with one that got more than its own.
//!
//! **Problem.** Loads may be as even as they can be and still unfair: three busy VMs on two CPUs,
//! one of them alone on its node for ever.
//!
//! **Rule.** Each step adds to what a client is owed: what its shares entitled it to, less what it
//! got. At the end of a window the client that is owed most, and still waits, goes to a node where
//! it gets more, or takes the place of one of its size that was owed less. Then what is owed is
//! halved.
//!
//! **Properties.** At most one move or swap a window. An idle client is owed nothing. A client that
//! is helped wins `gain_percent` of its vCPUs and `least_gain_cpus`, and nobody of another size has
//! to pay with waiting.
//!
//! Example: of three VMs that each want 1 CPU, two share one: after a window each of them is owed
//! 25 % of its entitlement of 2/3, the third got 50 % too much; it changes places with one of them.

use super::judge::{self, Quick};
use super::plan::Planned;
use super::scene::Scene;
use super::state::ClientMemory;
use super::{MoveKind, loads, remember, swaps};

/// Clients that are owed most, and partners of each, that are judged.
const JUDGED: usize = 8;
const PARTNERS: usize = 64;
/// Entitlement in CPU seconds below which nothing is judged: a client that idles is owed nothing.
const LEAST_ENTITLED: f64 = 0.1;

/// What a client is owed, in percent of its entitlement in the running window; negative: it got
/// more. `None`: it was entitled to next to nothing.
pub(super) fn owed_percent(known: &ClientMemory) -> Option<f64> {
    (known.entitled >= LEAST_ENTITLED).then(|| 100.0 * known.owed / known.entitled)
}

/// CPU seconds owed and entitled in this step, by client.
pub(super) fn accrue(scene: &Scene<'_>) -> Vec<((usize, usize), f64, f64)> {
    let of = |client: &super::scene::ClientScene<'_>| {
        let wanted = remember::demand_now(client.seen)?;
        let used = client.seen.cpu_used?;
        // The entitlement is of the mean; a client that wants less now is not owed what it does not
        // want.
        let entitled = client.entitled.min(wanted);
        (client.threads_move()).then_some((client.slot, (entitled - used) * scene.elapsed, entitled * scene.elapsed))
    };
    scene.clients.iter().filter_map(of).collect()
}

/// Whether this step ends a window.
pub(super) fn window_ends(scene: &Scene<'_>) -> bool {
    let periods = u64::from(scene.policy.fairness_periods);
    periods > 0 && scene.steps.is_multiple_of(periods)
}

/// Moves at most one client, or lets two change places.
pub(super) fn pass(scene: &mut Scene<'_>, budget: &mut u32, planned: &mut Vec<Planned>) {
    if !window_ends(scene) || *budget == 0 {
        return;
    }
    let mut owed: Vec<(f64, usize)> = (0..scene.clients.len())
        .filter_map(|client| Some((owed_percent(scene.clients[client].known)?, client)))
        .filter(|&(percent, client)| {
            percent >= scene.policy.fairness_percent
                && scene.clients[client].home.len() == 1
                && still_waits(scene, client)
                && judge::may_move(scene, client, MoveKind::Fairness, &mut Quick)
        })
        .collect();
    owed.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    for &(percent, client) in owed.iter().take(JUDGED) {
        if let Some((to, because)) = better_place(scene, client, percent) {
            *budget -= 1;
            scene.rehome(client, vec![to], Some(MoveKind::Fairness));
            planned.push(Planned::bind(client, vec![to], MoveKind::Fairness, because));
            return;
        }
        if *budget >= 2
            && let Some((other, because)) = partner(scene, client, percent)
        {
            *budget -= 2;
            swaps::exchange(scene, client, other, MoveKind::Fairness, &because, planned);
            return;
        }
    }
}

/// Whether the client gets too little in this period too: what load moves have mended is over.
fn still_waits(scene: &Scene<'_>, client: usize) -> bool {
    let this = &scene.clients[client];
    let (Some(wanted), Some(used)) = (remember::demand_now(this.seen), this.seen.cpu_used) else { return false };
    let entitled = this.entitled.min(wanted);
    100.0 * (entitled - used) >= scene.policy.fairness_percent * entitled && entitled > 0.0
}

/// What the other clients of a node want, in CPUs, and their shares together.
#[derive(Clone, Copy)]
struct Others {
    want: f64,
    weight: f64,
}

/// CPUs that a client gets on a node beside others: what they do not want, or its part by shares.
fn gets(scene: &Scene<'_>, client: usize, node: usize, others: Others) -> f64 {
    let wants = scene.clients[client].demand.unwrap_or(0.0);
    let threads = scene.nodes[node].threads;
    let weight = loads::weight(scene, client);
    wants.min((threads - others.want).max(threads * weight / (weight + others.weight)))
}

/// All clients of a node but these two.
fn beside(scene: &Scene<'_>, client: usize, partner: Option<usize>, node: usize) -> Others {
    let mut others = Others { want: 0.0, weight: 0.0 };
    for (index, other) in scene.clients.iter().enumerate() {
        if other.home[..] == [node] && index != client && Some(index) != partner {
            others.want += other.known.demand.unwrap_or(other.load);
            others.weight += loads::weight(scene, index);
        }
    }
    others
}

/// CPUs that a client must win at least.
fn least_gain(scene: &Scene<'_>, client: usize) -> f64 {
    (scene.policy.gain_percent / 100.0 * scene.clients[client].vcpus()).max(scene.policy.least_gain_cpus)
}

/// A node where the client alone would get more, and nobody there less than it gets now.
fn better_place(scene: &Scene<'_>, client: usize, percent: f64) -> Option<(usize, String)> {
    let from = *scene.clients[client].home.first()?;
    let now = gets(scene, client, from, beside(scene, client, None, from));
    // Of nodes where it gets the same, the one that loses least to distance.
    let mut best: Option<(f64, f64, usize)> = None;
    for to in (0..scene.nodes.len()).filter(|&to| to != from) {
        let then = gets(scene, client, to, beside(scene, client, None, to));
        let wins = then - now;
        let cost = super::loss::transition(scene, client, &[to]) - super::loss::transition(scene, client, &[from]);
        let seconds = scene.policy.payback_seconds;
        let pays = seconds <= 0.0 || cost <= wins * seconds;
        let enough = wins > least_gain(scene, client);
        let lost = super::loss::steady(scene, client, &[to]);
        if enough
            && pays
            && best.is_none_or(|(known, least, _)| wins > known || (wins == known && lost < least))
            && judge::may_go(scene, client, to, 0, MoveKind::Fairness, &mut Quick)
        {
            best = Some((wins, lost, to));
        }
    }
    best.map(|(wins, _, to)| {
        let text = format!(
            "it is owed {percent:.0} % of its entitlement, and gets {wins:.2} CPUs more on node {}",
            scene.nodes[to].id
        );
        (to, text)
    })
}

/// A client elsewhere that got more than its share and is about as large: the owed one takes its
/// place.
fn partner(scene: &Scene<'_>, client: usize, percent: f64) -> Option<(usize, String)> {
    let from = *scene.clients[client].home.first()?;
    let mut others: Vec<(f64, usize)> = (0..scene.clients.len())
        .filter(|&other| scene.clients[other].home.len() == 1 && scene.clients[other].home[0] != from)
        .filter_map(|other| Some((owed_percent(scene.clients[other].known)?, other)))
        .filter(|(theirs, _)| percent - theirs >= scene.policy.fairness_percent && *theirs < percent / 2.0)
        .collect();
    others.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let chosen = others.into_iter().take(PARTNERS).find(|&(_, other)| changes_well(scene, client, other))?;
    let text = format!("the one is owed {percent:.0} % of its entitlement, the other {:.0} %", chosen.0);
    Some((chosen.1, text))
}

fn changes_well(scene: &Scene<'_>, client: usize, other: usize) -> bool {
    let (this, that) = (&scene.clients[client], &scene.clients[other]);
    let (from, to) = (this.home[0], that.home[0]);
    let wants = this.demand.unwrap_or(0.0);
    let now = gets(scene, client, from, beside(scene, client, None, from));
    let wins = gets(scene, client, to, beside(scene, client, Some(other), to)) - now;
    // A partner of another size would only hand the waiting on.
    let alike = (wants - that.demand.unwrap_or(0.0)).abs() <= 0.25 * wants;
    let seconds = scene.policy.payback_seconds;
    let cost = swaps::weigh(scene, client, other).cost;
    alike
        && wins > least_gain(scene, client)
        && (seconds <= 0.0 || cost <= wins * seconds)
        && judge::may_move(scene, other, MoveKind::Fairness, &mut Quick)
        && swaps::may_change(scene, client, other, MoveKind::Fairness)
}
