//! Where each client lives, and where it should: the one answer that the balancer, `doctor`, `why`
//! and `top` give.
//!
//! **Problem.** Four commands are asked about the same VM. With a rule of its own, each names
//! another home, and what one repairs another undoes.
//!
//! **Rule.** A client *lives* at the home that a balancer gave it; else on the nodes that its vCPUs
//! are held to, if those are not all. It *should* live where the balancer goes for now, with all
//! passes due and no limit of moves in a period; else where it lives. One kind of home is named
//! that the balancer does not go for: that of a client which floats and may not be moved, lives on
//! several nodes though one would hold it, shares a node that lacks the hardware threads or the
//! memory for it and its siblings, or lives beside the memory that somebody bound. It is what the
//! rule for first homes chooses, and comes with the reason why the balancer leaves it
//! ([`Next::Left`]): the balancer acts where a threshold says that it is worth it, a person who
//! asks `doctor` may want it sooner. Nobody else chooses homes for a VM that runs; a VM that is
//! only defined has those that the planner would give it.
//!
//! **Properties** (`crates/judge/tests/one_home.rs`). What `doctor` names is what a step binds to,
//! on every observation, or it says why no step does. When one of the two has done its work, the
//! other finds nothing to do for the same reason.
//!
//! **Example.** VM `db` has two virtual nodes that float over nodes 0 to 3, and half its memory on
//! each of nodes 2 and 3. It lives nowhere, and should live on nodes 2 and 3: `adopt`. `doctor`
//! names these two, and so does `why`; after `doctor --fix` the balancer finds it at home.

use super::judge::{self, Full, Quick};
use super::plan::Planned;
use super::scene::Scene;
use super::{BalancePolicy, BalanceState, Due, MoveKind, first_homes, load, locality, remember, why};
use crate::{ClientId, Mobility, Observation, VmKey};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology::{Machine, NodeSet};

/// Where a client lives, and where it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Where it lives; `None`: it floats, and lives nowhere.
    pub lives: Option<NodeSet>,
    /// Whether a balancer gave it that home. Else its vCPUs are held there by somebody else.
    pub decided: bool,
    /// Where it should live; `None` where it may live nowhere, or too little is known to say.
    pub should: Option<NodeSet>,
    /// What the balancer does about it.
    pub next: Next,
}

/// What the balancer does about a client's home, now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Next {
    /// Nothing: it lives where it should.
    Stays,
    /// It binds the client to where it should live.
    Goes {
        /// What kind of move that is.
        kind: MoveKind,
        /// Why, as a sentence with figures.
        because: String,
    },
    /// It leaves the client where it is, though another home would be right.
    Left {
        /// Why, as a sentence.
        because: String,
    },
}

/// The answers for all clients of a host.
pub type Homes = BTreeMap<(VmKey, ClientId), Home>;

/// Where each client lives, and where it should. `state`: what a balancer remembers; empty where
/// none runs. Changes nothing.
pub fn homes(machine: &Machine, policy: &BalancePolicy, state: &BalanceState, observation: &Observation) -> Homes {
    let (policy, mut state) = (unhurried(policy), state.clone());
    let synced = remember::sync(machine, &policy, &mut state, observation);
    let mut scene = Scene::new(machine, &policy, &state, observation, &synced);
    let mut planned = Vec::new();
    first_homes::settle(&mut scene, &mut planned);
    let mut homes: Vec<Home> = (0..scene.clients.len()).map(|client| as_it_lives(&scene, &planned, client)).collect();
    super::rebalance(&mut scene, Due::ALL, &mut planned);
    for planned in &planned {
        let Some(kind) = planned.kind else { continue };
        let home = &mut homes[planned.client];
        home.should = Some(scene.ids(&planned.home));
        home.next = Next::Goes { kind, because: planned.because.clone() };
    }
    let mut first = 0;
    while first < scene.clients.len() {
        let end = scene.clients[first].family.1;
        leave(&mut scene, first..end, &mut homes);
        first = end;
    }
    let key = |client: &super::scene::ClientScene<'_>| (client.vm.vm.clone(), client.seen.id);
    scene.clients.iter().map(key).zip(homes).collect()
}

/// The policy without its limits of what is done in one period: they are about pace, not about what
/// is right.
pub(super) fn unhurried(policy: &BalancePolicy) -> BalancePolicy {
    BalancePolicy { moves_per_period: 0, adoptions_per_period: 0, ..policy.clone() }
}

/// Where a client lives, with what `settle` found to be in place.
fn as_it_lives(scene: &Scene<'_>, planned: &[Planned], client: usize) -> Home {
    let this = &scene.clients[client];
    let in_place = planned.iter().find(|planned| planned.client == client && planned.kind.is_none());
    let known: Vec<usize> = this.known.home.iter().filter_map(|node| scene.index(node)).collect();
    // What a cpuset forbids since then is no home any more.
    let may_stay = known.iter().all(|&node| scene.may_live(client, node));
    let known = if may_stay { known } else { Vec::new() };
    let decided = in_place.is_none() && !known.is_empty();
    let nodes = match in_place {
        Some(planned) => planned.home.clone(),
        None if decided => known,
        None => scene.affinity(client).nodes,
    };
    let whole = decided || in_place.is_some() || nodes.len() == 1 || scene.affinity(client).full;
    let everywhere = nodes.len() > 1 && nodes.len() >= scene.nodes_with_cpus();
    let lives = (whole && !nodes.is_empty() && !everywhere).then(|| scene.ids(&nodes));
    Home { decided: decided && lives.is_some(), should: lives.clone(), lives, next: Next::Stays }
}

/// Names homes for those clients of a VM that the balancer leaves where they should not be.
fn leave(scene: &mut Scene<'_>, family: std::ops::Range<usize>, homes: &mut [Home]) {
    let mut misplaced: Vec<usize> = family.filter(|&client| is_misplaced(scene, client, &homes[client])).collect();
    if misplaced.is_empty() {
        return;
    }
    misplaced.sort_by_key(|&client| (Reverse(scene.clients[client].seen.vcpus), client));
    let before: Vec<Vec<usize>> = misplaced.iter().map(|&client| scene.clients[client].home.to_vec()).collect();
    for &client in &misplaced {
        scene.rehome(client, Vec::new(), None);
    }
    let mut chosen = Vec::new();
    for &client in &misplaced {
        let known = first_homes::knows_enough(scene, client);
        let home = known.then(|| first_homes::choose(scene, client)).flatten().unwrap_or_default();
        scene.rehome(client, home.clone(), None);
        chosen.push(home);
    }
    // Reasons are asked for as things are; then what is named stands for those that come after.
    for (&client, home) in misplaced.iter().zip(before) {
        scene.rehome(client, home, None);
    }
    for (&client, home) in misplaced.iter().zip(&chosen) {
        let because = why_left(scene, client, home);
        let should = (!home.is_empty()).then(|| scene.ids(home));
        let answer = &mut homes[client];
        // All nodes are no home: who lives on some stays there, and who floats may.
        let everywhere = home.len() > 1 && home.len() >= scene.nodes_with_cpus();
        if answer.lives.is_some() && (should.is_none() || should == answer.lives || everywhere) {
            continue;
        }
        answer.next = if everywhere { Next::Stays } else { Next::Left { because } };
        answer.should = should;
    }
    for (&client, home) in misplaced.iter().zip(chosen) {
        scene.rehome(client, home, None);
    }
}

/// Whether a client that the balancer does not move lives nowhere, or where its VM is not well
/// held.
fn is_misplaced(scene: &Scene<'_>, client: usize, home: &Home) -> bool {
    if home.next != Next::Stays {
        return false;
    }
    let Some(lives) = &home.lives else { return true };
    let [node] = scene.clients[client].home[..] else { return lives.len() > 1 };
    let beside = scene.chosen(client).is_some_and(|chosen| !lives.is_subset(chosen));
    beside || !scene.may_live(client, node) || !holds_family(scene, client, node)
}

/// Whether a node has the memory for those clients of a VM that live there, and the hardware
/// threads for what is expected of them.
fn holds_family(scene: &Scene<'_>, client: usize, node: usize) -> bool {
    let (first, end) = scene.clients[client].family;
    let here: Vec<usize> = (first..end).filter(|&other| scene.clients[other].home[..] == [node]).collect();
    let expected: f64 = here.iter().map(|&other| scene.clients[other].expected).sum();
    let bytes: u64 = here.iter().map(|&other| scene.clients[other].memory_size.0).fold(0, u64::saturating_add);
    let place = &scene.nodes[node];
    expected <= place.threads && (place.size == 0 || bytes <= place.size)
}

/// Why the balancer does not bring a client to a home that would be right.
fn why_left(scene: &Scene<'_>, client: usize, to: &[usize]) -> String {
    let this = &scene.clients[client];
    let first = |refusals: Vec<super::Refusal>| refusals.into_iter().next().map(|refusal| refusal.because);
    if let Mobility::Fixed { because } = &this.vm.mobility {
        return format!("it may not be moved: {because}");
    }
    if to.is_empty() && this.resident.is_some() {
        return "no node that it may use has a CPU".to_owned();
    }
    let mut hears = Full::default();
    if !judge::may_move(scene, client, MoveKind::Locality, &mut hears)
        && let Some(because) = first(hears.0)
    {
        return because;
    }
    if let Some(because) = first(why::of_the_host(scene)) {
        return because;
    }
    let [to] = to[..] else {
        return "no single node holds it, and what has a home is moved to single nodes only".to_owned();
    };
    // What one says that does not judge this move is no reason: locality of a client that moves for
    // load, load of one with several nodes.
    let mut hears = Full::default();
    if locality::judge(scene, client, to, &mut Quick).accepted {
        return "it goes there when its turn comes".to_owned();
    }
    match this.home.len() {
        1 if this.bytes_on(&this.home) >= this.bytes_on(&[to]) => load::judge(scene, client, to, &mut hears),
        _ => locality::judge(scene, client, to, &mut hears),
    };
    first(hears.0).unwrap_or_else(|| "nothing there is better by as much as a move must win".to_owned())
}
