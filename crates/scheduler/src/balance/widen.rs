//! Wider homes: a client with more vCPUs than its node has cores gets more nodes when more of them
//! are busy.
//!
//! **Problem.** A VM with more vCPUs than any node has cores lives on one node while few of them
//! are busy: there all of its memory is near. When more become busy they crowd their node, and no
//! move to another single node mends that.
//!
//! **Rule.** A client whose node is crowded, and that has more vCPUs than the node has cores, is
//! weighed on that node and the nearest others that have the cores together, of equally near ones
//! the emptiest, as a load move is: it goes there if what it and its neighbours win in CPUs is more
//! than what its threads lose by memory that is then on another node for some of them, by
//! `least_gain_cpus`. No memory moves for it. It comes back by a locality move, when a node alone
//! is better again.
//!
//! Of a client that prefers hardware threads these count, not cores.
//!
//! **Properties.** Rests, returns and payback are those of load moves. A client that has a core for
//! each vCPU on its node is never spread.
//!
//! **Example.** Two nodes of 8 cores and 16 hardware threads, twice as far as local memory. A VM of
//! 12 vCPUs lives on node 0 with 2 busy ones. With 12 busy it loses 0.2 x 12^2 / 8 + 4 x 0.7 = 6.4
//! CPUs there, on both nodes 2 x 0.2 x 6^2 / 8 = 1.8 and 12 x 0.3 / 2 = 1.8 by memory: it is
//! spread, and wins 2.8 CPUs.

use super::judge::{self, Quick, Verdict};
use super::scene::Scene;
use super::{MoveKind, load};

/// Clients of a node that are judged, the largest load first.
const JUDGED: usize = 4;

/// The best wider home for a client of a crowded node, of those in the buckets.
pub(super) fn best(scene: &Scene<'_>, buckets: &load::Buckets) -> Option<(usize, Vec<usize>, Verdict)> {
    let mut best: Option<(usize, Vec<usize>, Verdict)> = None;
    for (from, bucket) in buckets.iter().enumerate().filter(|(from, _)| scene.is_crowded(*from)) {
        let units = |client: usize| scene.nodes[from].units(&scene.clients[client]);
        let too_wide = |client: &&usize| scene.clients[**client].vcpus() > units(**client);
        for &client in bucket.iter().filter(too_wide).take(JUDGED) {
            let Some((home, verdict)) = wider(scene, client, from) else { continue };
            if best.as_ref().is_none_or(|(.., known)| verdict.order(known).is_gt()) {
                best = Some((client, home, verdict));
            }
        }
    }
    best
}

/// A home of several nodes, its own among them, that is worth going to.
fn wider(scene: &Scene<'_>, client: usize, from: usize) -> Option<(Vec<usize>, Verdict)> {
    let home = with_neighbours(scene, client, from);
    let may = |&node: &usize| {
        node == from || judge::may_take_part(scene, client, (node, &home), 0, MoveKind::Load, &mut Quick)
    };
    if home.len() < 2 || !home.iter().all(may) {
        return None;
    }
    let mut verdict = judge::weigh_beside(scene, client, &home, None);
    // Its memory stays where it is, and draws from the same controllers.
    verdict.bandwidth_gain = verdict.bandwidth_gain.min(0.0);
    let payback = load::payback(scene, from);
    let pays = payback <= 0.0 || load::pays(&verdict, payback, &mut Quick);
    verdict.worth = verdict.gain() - if payback > 0.0 { verdict.cost.max(0.0) / payback } else { 0.0 };
    let wins = verdict.gain() > 0.0 && judge::enough(scene, verdict.gain(), &mut Quick);
    (pays && wins).then_some((home, verdict))
}

/// A node and as many of those around it as have a core for each of the client's vCPUs together.
fn with_neighbours(scene: &Scene<'_>, client: usize, from: usize) -> Vec<usize> {
    let mut others: Vec<usize> =
        (0..scene.nodes.len()).filter(|&node| node != from && scene.may_choose(client, node)).collect();
    let far = |node: usize| (scene.extra(from, node), scene.percent(node, 0.0));
    others.sort_by(|&one, &other| {
        let ((near, empty), (other_near, other_empty)) = (far(one), far(other));
        near.total_cmp(&other_near).then(empty.total_cmp(&other_empty)).then(one.cmp(&other))
    });
    let this = &scene.clients[client];
    let (mut home, mut units) = (vec![from], scene.nodes[from].units(this));
    for node in others {
        if units >= this.vcpus() {
            break;
        }
        units += scene.nodes[node].units(this);
        home.push(node);
    }
    home.sort_unstable();
    home
}
