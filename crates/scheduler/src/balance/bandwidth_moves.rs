//! Moves and swaps for memory bandwidth: away from controllers that are asked for more than they
//! give.
//!
//! **Problem.** VMs that stream came to share a controller, because their traffic was not known
//! when they got their homes, or because they changed. CPU loads are even, so that no load move
//! parts them.
//!
//! **Rule.** From the node that loses most CPU time to its controllers a client that draws goes to
//! another node, or changes places with a client there. It must win `least_gain_cpus` of bandwidth,
//! and as much in all, crowded CPUs and distances counted; it must be paid back, as a load move.
//! Clients that are to live together (`placement = "together"`) are not parted for it.
//!
//! **Properties.** A host without measured or stated traffic, or of which nobody says what its
//! memory gives, sees no such move. None makes more wait for memory than before.
//!
//! **Example.** Two VMs of 4 busy vCPUs and 1 GiB stream on node 0, which gives 18 GB/s; node 1
//! idles. 1.67 CPUs wait for memory ([`bandwidth`]). One goes: it costs 1 CPU s to copy and 6.3
//! CPU s of remote memory meanwhile, paid back in 4 s.

use super::judge::{self, Quick, Verdict, Witness, refusal, rule};
use super::plan::Planned;
use super::scene::Scene;
use super::{MoveKind, bandwidth, decimal, load, swaps};
use vm::spec::Spread;

/// Nodes that are looked at in a step, those that lose most.
const NODES: usize = 3;
/// Clients of each that are judged, those that draw most.
const CLIENTS: usize = 6;

/// Moves clients while that is worth it and the budget lasts. `swap`: also two at a time.
pub(super) fn pass(scene: &mut Scene<'_>, swap: bool, budget: &mut u32, planned: &mut Vec<Planned>) {
    let floor = floor(scene);
    let mut losing: Vec<(f64, usize)> =
        (0..scene.nodes.len()).map(|node| (bandwidth::lost_on(scene, node), node)).collect();
    losing.retain(|(lost, _)| *lost >= floor);
    losing.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    for (_, from) in losing.into_iter().take(NODES) {
        while *budget > 0 {
            let Some((client, to, verdict)) = best(scene, from) else { break };
            *budget -= 1;
            let because = sentence(scene, from, to, &verdict);
            scene.rehome(client, vec![to], Some(MoveKind::Bandwidth));
            planned.push(Planned::bind(client, vec![to], MoveKind::Bandwidth, because));
        }
        while swap && scene.policy.swap_for_load && *budget > 1 {
            let Some((one, other, verdict)) = best_swap(scene, from) else { break };
            *budget -= 2;
            let to = scene.clients[other].home[0];
            let because = sentence(scene, from, to, &verdict);
            swaps::exchange(scene, one, other, MoveKind::Bandwidth, &because, planned);
        }
    }
}

/// CPUs of bandwidth that a move wins at least.
fn floor(scene: &Scene<'_>) -> f64 {
    scene.policy.least_gain_cpus.max(f64::MIN_POSITIVE)
}

/// Clients at home on this node alone that draw from memory and may be moved, those that draw most
/// first.
fn drawing(scene: &Scene<'_>, node: usize) -> Vec<usize> {
    let draws = |client: usize| scene.clients[client].traffic.unwrap_or(0.0);
    let mut clients: Vec<usize> = (0..scene.clients.len())
        .filter(|&client| scene.clients[client].home[..] == [node] && draws(client) > 0.0)
        .filter(|&client| judge::may_move(scene, client, MoveKind::Bandwidth, &mut Quick))
        .collect();
    clients.sort_by(|&one, &other| draws(other).total_cmp(&draws(one)).then(one.cmp(&other)));
    clients.truncate(CLIENTS);
    clients
}

fn best(scene: &Scene<'_>, from: usize) -> Option<(usize, usize, Verdict)> {
    let mut best: Option<(usize, usize, Verdict)> = None;
    for client in drawing(scene, from) {
        for to in (0..scene.nodes.len()).filter(|&to| to != from && scene.has_cpus(to)) {
            let verdict = judge(scene, client, to, &mut Quick);
            if verdict.accepted && best.as_ref().is_none_or(|(.., known)| verdict.order(known).is_gt()) {
                best = Some((client, to, verdict));
            }
        }
    }
    best
}

/// Judges one move for bandwidth.
pub(super) fn judge(scene: &Scene<'_>, client: usize, to: usize, witness: &mut impl Witness) -> Verdict {
    if scene.clients[client].home.len() != 1 || scene.clients[client].home[..] == [to] {
        return Verdict::default();
    }
    // What costs least to find out comes first: most moves are refused here.
    if !witness.wants_all() && bandwidth::won(scene, &[(client, &[to])]) < floor(scene) {
        return Verdict::default();
    }
    let mut verdict = judge::weigh(scene, client, to);
    let may = judge::may_go(scene, client, to, 0, MoveKind::Bandwidth, witness);
    verdict.accepted = wins(scene, &verdict, witness) && may && stays_together(scene, client, witness);
    if verdict.accepted {
        verdict.worth = worth(scene, &verdict);
    }
    verdict
}

/// Whether a move wins enough bandwidth, enough in all, and its cost back.
fn wins(scene: &Scene<'_>, verdict: &Verdict, witness: &mut impl Witness) -> bool {
    let least = floor(scene);
    if verdict.bandwidth_gain < least {
        let text = || format!("it wins {} CPUs of memory bandwidth", decimal(verdict.bandwidth_gain, 2));
        witness.hears(|| refusal("least_gain_cpus", verdict.bandwidth_gain, least, "CPUs", text()));
        return false;
    }
    judge::enough(scene, verdict.gain(), witness)
        && load::follows_soon(scene, verdict, witness)
        && (scene.policy.payback_seconds <= 0.0 || load::pays(verdict, scene.policy.payback_seconds, witness))
}

fn worth(scene: &Scene<'_>, verdict: &Verdict) -> f64 {
    let seconds = scene.policy.payback_seconds;
    verdict.gain() - if seconds > 0.0 { verdict.cost.max(0.0) / seconds } else { 0.0 }
}

/// Whether a client leaves no sibling that it is to live with.
fn stays_together(scene: &Scene<'_>, client: usize, witness: &mut impl Witness) -> bool {
    let this = &scene.clients[client];
    let (first, end) = this.family;
    let shares = (first..end).any(|other| other != client && scene.clients[other].home == this.home);
    if this.vm.placement != Spread::Together || !shares {
        return true;
    }
    witness.hears(|| rule("placement", "its clients are to live together".to_owned()));
    false
}

/// The swap of a client that draws much with one of another node that draws less.
fn best_swap(scene: &Scene<'_>, from: usize) -> Option<(usize, usize, Verdict)> {
    let mut best: Option<(usize, usize, Verdict)> = None;
    let others: Vec<usize> = (0..scene.clients.len())
        .filter(|&client| scene.clients[client].home.len() == 1 && scene.clients[client].home[..] != [from])
        .filter(|&client| judge::may_move(scene, client, MoveKind::LoadSwap, &mut Quick))
        .collect();
    for one in drawing(scene, from) {
        if !judge::may_move(scene, one, MoveKind::LoadSwap, &mut Quick) || !stays_together(scene, one, &mut Quick) {
            continue;
        }
        for other in near_load(scene, &others, scene.clients[one].load) {
            if scene.clients[other].traffic.unwrap_or(0.0) >= scene.clients[one].traffic.unwrap_or(0.0)
                || !stays_together(scene, other, &mut Quick)
            {
                continue;
            }
            let homes = [scene.clients[one].home.clone(), scene.clients[other].home.clone()];
            if bandwidth::won(scene, &[(one, &homes[1]), (other, &homes[0])]) < floor(scene)
                || !swaps::may_change(scene, one, other, MoveKind::Bandwidth)
            {
                continue;
            }
            let mut verdict = swaps::weigh(scene, one, other);
            if !wins(scene, &verdict, &mut Quick) {
                continue;
            }
            verdict.worth = worth(scene, &verdict);
            if best.as_ref().is_none_or(|(.., known)| verdict.order(known).is_gt()) {
                best = Some((one, other, verdict));
            }
        }
    }
    best
}

/// The clients whose load is most like this one.
fn near_load(scene: &Scene<'_>, clients: &[usize], load: f64) -> Vec<usize> {
    let apart = |client: usize| (scene.clients[client].load - load).abs();
    let mut near = clients.to_vec();
    let nearer = |one: &usize, other: &usize| apart(*one).total_cmp(&apart(*other)).then(one.cmp(other));
    if near.len() > CLIENTS {
        near.select_nth_unstable_by(CLIENTS, nearer);
        near.truncate(CLIENTS);
    }
    near.sort_by(nearer);
    near
}

fn sentence(scene: &Scene<'_>, from: usize, to: usize, verdict: &Verdict) -> String {
    let of: Vec<String> = [from, to].into_iter().filter_map(|node| bandwidth::sentence(scene, node)).collect();
    format!(
        "{}; {} CPUs fewer wait for memory bandwidth; {}",
        of.join(", "),
        decimal(verdict.bandwidth_gain, 2),
        load::price(verdict)
    )
}
