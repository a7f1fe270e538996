//! What a guest was told of distances, and how the clients of its VM come to be so far apart.
//!
//! **Problem.** Somebody moved clients by hand, or a home was lost, and two that the guest takes to
//! be near are far apart. Each alone may have nowhere to go: where it belongs, another client of
//! the same VM lives.
//!
//! **Rule.** Distances between clients, and their difference from what the guest was told, are
//! losses ([`loss`]): every move is weighed by them. Here two clients of a VM change places, where
//! that wins enough by the rule of swaps for locality.
//!
//! **Properties.** A VM whose homes are as far apart as told is not looked at. A swap never makes
//! the sum of what the VM loses greater. What an idle VM wins is not worth moving its memory.
//!
//! **Example.** Nodes 0-1 and 2-3 are pairs, 12 apart, 32 from each other; the guest was told so.
//! Its clients 0 to 3 live on nodes 0, 2, 1, 3: clients 1 and 2 change places.

use super::judge::{self, Quick};
use super::plan::Planned;
use super::scene::Scene;
use super::{MoveKind, decimal, load, loss, swaps};
use crate::told::{self, Pair};

/// Clients that are compared with all others of their VM in one step; the next ones follow in the
/// next step.
const LOOKS: usize = 8;
/// SLIT value of a difference that is none.
const NO_DIFFERENCE: f64 = 0.05;

/// Lets clients of a VM change places while that is worth it and the budget lasts.
pub(super) fn pass(scene: &mut Scene<'_>, budget: &mut u32, planned: &mut Vec<Planned>) {
    if !scene.policy.swap_for_locality || scene.policy.locality_weight <= 0.0 {
        return;
    }
    // Each has its turn: a step begins where the one before may have ended.
    let clients = scene.clients.len();
    let start = (scene.steps as usize).wrapping_mul(LOOKS);
    let mut looks = 0;
    for step in 0..clients {
        let one = start.wrapping_add(step) % clients;
        if !is_misled(scene, one) {
            continue;
        }
        if *budget < 2 || looks == LOOKS {
            return;
        }
        looks += 1;
        let Some((other, because)) = best_partner(scene, one) else { continue };
        *budget -= 2;
        swaps::exchange(scene, one, other, MoveKind::LocalitySwap, &because, planned);
    }
}

fn is_misled(scene: &Scene<'_>, client: usize) -> bool {
    let this = &scene.clients[client];
    scene.told(client).is_some()
        && this.home.len() == 1
        && this.moved.is_none()
        && loss::told_difference(scene, client, &this.home, None).is_some_and(|difference| difference > 0.0)
}

/// The client of the same VM whose place is worth most, and why.
fn best_partner(scene: &Scene<'_>, one: usize) -> Option<(usize, String)> {
    let may = |client: usize| judge::may_move(scene, client, MoveKind::LocalitySwap, &mut Quick);
    let (first, end) = scene.clients[one].family;
    if !may(one) {
        return None;
    }
    let mut best: Option<(f64, usize, (f64, f64))> = None;
    for other in (first..end).filter(|&other| other != one) {
        let Some((now, then)) = differences(scene, one, other).filter(|(now, then)| then < now) else { continue };
        if may(other)
            && let Some((worth, _)) = swaps::judge_locality(scene, one, other)
            && best.is_none_or(|(known, ..)| worth > known)
        {
            best = Some((worth, other, (now, then)));
        }
    }
    let (_, other, (now, then)) = best?;
    let because = format!(
        "the distances from these two to the clients of their VM differ by {} from those that the guest was told, \
         then by {}; {}",
        decimal(now, 1),
        decimal(then, 1),
        load::price(&swaps::weigh(scene, one, other))
    );
    Some((other, because))
}

/// How distances differ from those told, in the mean over two clients and as SLIT values, before
/// and after they change places; `None` where they have not two nodes to change.
fn differences(scene: &Scene<'_>, one: usize, other: usize) -> Option<(f64, f64)> {
    let (&[from], &[to]) = (&scene.clients[one].home[..], &scene.clients[other].home[..]) else { return None };
    let differs = |client: usize, node: usize, partner| loss::told_difference(scene, client, &[node], partner);
    let now = differs(one, from, None)? + differs(other, to, None)?;
    let then = differs(one, to, Some((other, from)))? + differs(other, from, Some((one, to)))?;
    (from != to).then_some((5.0 * now, 5.0 * then))
}

/// By how much a client's distances to the others of its VM become more like those that its guest
/// was told where it goes to a node.
pub(super) fn likeness(scene: &Scene<'_>, client: usize, to: usize) -> f64 {
    let differs = |home: &[usize]| loss::told_difference(scene, client, home, None).unwrap_or(0.0);
    differs(&scene.clients[client].home) - differs(&[to])
}

/// How a client's distances to the others of its VM differ from what its guest was told, before and
/// after it goes to a node, as the end of a sentence; nothing where they do not.
pub(super) fn difference(scene: &Scene<'_>, client: usize, to: usize) -> String {
    let of = |home: &[usize]| Some(10.0 * loss::told_difference(scene, client, home, None)?);
    match (of(&scene.clients[client].home), of(&[to])) {
        (Some(now), Some(then)) if now >= NO_DIFFERENCE || then >= NO_DIFFERENCE => format!(
            "; its distances to its VM's other clients differ by {} from those that its guest was told, then by {}",
            decimal(now, 1),
            decimal(then, 1)
        ),
        _ => String::new(),
    }
}

/// The pairs with this client that mislead its guest where they live now, as a sentence.
pub(super) fn misleading(scene: &Scene<'_>, client: usize) -> Option<String> {
    let (first, end) = scene.clients[client].family;
    let told = scene.told(client)?;
    let home = &scene.clients[client].home;
    let lives = |&other: &usize| other != client && !scene.clients[other].home.is_empty();
    let node = |client: usize| scene.clients[client].seen.virtual_node.unwrap_or_default();
    let pair = |other: usize| {
        let real = 10.0 * (1.0 + loss::extra_between(scene, home, &scene.clients[other].home));
        Pair {
            from: node(client),
            to: node(other),
            told: told.slit(client - first, other - first),
            real: real.round() as u32,
        }
    };
    if home.is_empty() {
        return None;
    }
    told::misleading((first..end).filter(lives).map(pair).collect())
}
