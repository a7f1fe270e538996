//! Homes for clients that have none: VMs that appeared, whose home was lost, or whose affinity
//! another program changed.
//!
//! **Problem.** A VM that nobody placed floats: its threads run anywhere, its memory lies where
//! they were. Where is it at home? And which VMs that are bound were bound by somebody with a
//! reason?
//!
//! **Rule.** Bound to CPUs of one node, or to all CPUs of some: it is at home there. It floats: the
//! node that loses least, crowding by what idle vCPUs may do, memory and the price of bringing it;
//! among nodes that are `least_gain_cpus` apart the one with most of its memory, and of those that
//! lose the same the one whose distances are more like what its guest was told. No node has a core
//! for each vCPU: a node with room for it, or the fewest, nearest ones that have the cores
//! together, whichever loses less; more nodes come later, when more of its vCPUs are busy
//! ([`widen`](super::widen)). Only nodes that node affinity allows and that somebody bound its
//! memory to are asked; where somebody interleaved it, those nodes together are its home.
//!
//! **Properties.** A restart moves nothing. Memory that is all on one node is never halved, nor
//! left for siblings. A client of which nobody knows where its memory is gets no first home, unless
//! it can only be one. A lost home is given up at once, whatever else is known.
//!
//! Example: a floating VM of 2 virtual nodes with 48 MiB each, on nodes 0 and 1: their homes are
//! nodes 0 and 1, and nothing moves.

use super::cpu_load::CpuLoad;
use super::plan::Planned;
use super::scene::{Affinity, Scene};
use super::{MoveKind, bandwidth, decimal, judge, loss};
use crate::host::{Host, HostNode};
use crate::placement::{self, Demand, Terms};
use crate::{Mobility, balance::record};
use std::cmp::Reverse;
use topology::Bytes;

/// Assignments that are tried for a client that no single node holds.
const STRADDLE_STEPS: usize = 2_000;
/// Without a payback time in the policy, the cost of coming to a home is weighed over so many
/// seconds.
const WEIGHED_SECONDS: f64 = 120.0;
/// Part of a client's memory that must lie on one node to be taken for all of it.
const ALL_PART: f64 = 0.9;
/// Part of its memory that a client must have touched for that to say anything.
const TOUCHED_PART: f64 = 0.1;
/// A rebind counts as long ago after so many times the longest wait in a row.
const CALM_FAILURES: u32 = 5;

/// What is wrong with a client's home, if anything.
enum Need {
    Nothing,
    /// It is at home where it is; the state did not know.
    InPlace(Vec<usize>),
    /// It gets a home, since it has none there where it may run now.
    Home(MoveKind, Lack),
    /// Its home is right, its affinity is not.
    Rebind(String),
}

/// Why a client gets a home.
enum Lack {
    /// It is new, and floats.
    New,
    /// No CPU of its home may be used.
    HomeLost,
    /// It may use no CPU at all.
    NoCpu,
    /// It runs where it may not live.
    Elsewhere,
    /// The balancer bound it beside the nodes that somebody bound its memory to.
    BesideChosen,
}

impl Lack {
    fn sentence(&self, scene: &Scene<'_>, client: usize) -> String {
        let runs_on = || scene.ids(&scene.affinity(client).nodes);
        match self {
            Self::New => format!("it has no home yet: its vCPUs run on nodes {}", runs_on()),
            Self::HomeLost => {
                format!("its home, node {}, has no CPU that it may use", scene.clients[client].known.home)
            }
            Self::NoCpu => "it has no CPU that it may use".to_owned(),
            Self::BesideChosen => {
                format!("{}, and its vCPUs run on nodes {}", scene.chosen_words(client), runs_on())
            }
            Self::Elsewhere => format!("its vCPUs run on nodes {}, where it may not live", runs_on()),
        }
    }
}

/// Gives homes. Clients that lost theirs come first, then large ones.
pub(super) fn settle(scene: &mut Scene<'_>, planned: &mut Vec<Planned>) {
    settle_before(scene, planned, None);
}

/// As [`settle`], as far as the turn of a client: what is said of its first home was said then.
pub(super) fn settle_before(scene: &mut Scene<'_>, planned: &mut Vec<Planned>, end: Option<usize>) {
    let mut homeless = Vec::new();
    for client in 0..scene.clients.len() {
        match need(scene, client) {
            Need::Nothing => {}
            Need::InPlace(home) => {
                scene.rehome(client, home.clone(), None);
                planned.push(Planned::in_place(client, home));
            }
            Need::Home(kind, lack) => homeless.push((client, kind, lack)),
            Need::Rebind(because) => {
                let home = scene.clients[client].home.to_vec();
                planned.push(Planned { rebind: true, ..Planned::bind(client, home, MoveKind::Adopt, because) });
            }
        }
    }
    homeless.sort_by_key(|(client, kind, _)| {
        let seen = scene.clients[*client].seen;
        (*kind != MoveKind::Evacuate, Reverse((seen.vcpus, seen.memory_size)), *client)
    });
    let mut adopted = 0;
    for (client, kind, lack) in homeless {
        if Some(client) == end {
            return;
        }
        let limit = scene.policy.adoptions_per_period;
        if kind == MoveKind::Adopt && (limit > 0 && adopted >= limit || !knows_enough(scene, client)) {
            continue;
        }
        let Some(home) = choose(scene, client) else { continue };
        adopted += u32::from(kind == MoveKind::Adopt);
        settle_at(scene, client, home, kind, &lack, planned);
    }
}

/// Whether a first home cannot be a wrong one for want of what nobody knows: where the client's
/// memory is.
pub(super) fn knows_enough(scene: &Scene<'_>, client: usize) -> bool {
    let homes = || (0..scene.nodes.len()).filter(|&node| scene.may_choose(client, node)).count();
    scene.clients[client].resident.is_some() || homes() <= 1
}

fn settle_at(
    scene: &mut Scene<'_>,
    client: usize,
    home: Vec<usize>,
    kind: MoveKind,
    lack: &Lack,
    planned: &mut Vec<Planned>,
) {
    let affinity = scene.affinity(client);
    if affinity.full && affinity.nodes == home {
        scene.rehome(client, home.clone(), None);
        planned.push(Planned::in_place(client, home));
        return;
    }
    let text = format!("{}; {}", lack.sentence(scene, client), describe(scene, client, &home));
    scene.rehome(client, home.clone(), Some(kind));
    planned.push(Planned::bind(client, home, kind, text));
}

fn need(scene: &Scene<'_>, client: usize) -> Need {
    let this = &scene.clients[client];
    let choices = this.known.home.len() == 1 && this.home.len() == 1 && scene.may_choose(client, this.home[0]);
    if choices && scene.sits_at_home(client) {
        return Need::Nothing;
    }
    let affinity = scene.affinity(client);
    if matches!(this.vm.mobility, Mobility::Fixed { .. }) {
        return if affinity.nodes == this.home[..] { Need::Nothing } else { Need::InPlace(affinity.nodes) };
    }
    let waits = this.known.trouble.as_ref().is_some_and(|trouble| trouble.until > scene.at);
    // What the state calls home may name nodes that are not in the machine any more.
    let lost = this.home.len() < this.known.home.len() || this.home.iter().any(|&node| !scene.may_live(client, node));
    if !this.known.home.is_empty() && lost {
        return if waits { Need::Nothing } else { Need::Home(MoveKind::Evacuate, Lack::HomeLost) };
    }
    // Memory policies may be read after the client was bound.
    let beside = scene.chosen(client).is_some() && this.home.iter().any(|&node| !scene.may_choose(client, node));
    if this.known.bound.is_some() && beside && !waits {
        return Need::Home(MoveKind::Evacuate, Lack::BesideChosen);
    }
    match (this.home.is_empty(), waits) {
        (true, waits) => newcomer(scene, client, affinity, waits),
        (false, true) => Need::Nothing,
        (false, false) => drifted(scene, client, affinity),
    }
}

/// A client that the state does not know: at home where its affinity says so, else it gets a home.
fn newcomer(scene: &Scene<'_>, client: usize, affinity: Affinity, waits: bool) -> Need {
    let allowed = affinity.nodes.iter().all(|&node| scene.may_live(client, node));
    let everywhere = affinity.nodes.len() == scene.nodes_with_cpus() && affinity.full;
    let one = affinity.nodes.len() == 1;
    if allowed && one {
        return Need::InPlace(affinity.nodes);
    }
    let bound = allowed && affinity.full && !everywhere && !affinity.nodes.is_empty();
    let by_caches = allowed && !scene.clients[client].seen.groups.is_empty();
    // All CPUs of some nodes, or of caches of some: what no single node held when it was bound. A
    // locality move brings it to one when that is worth it.
    if bound || by_caches {
        return Need::InPlace(affinity.nodes);
    }
    match (waits, affinity.nodes.is_empty()) {
        (true, _) => Need::Nothing,
        (false, true) => Need::Home(MoveKind::Evacuate, Lack::NoCpu),
        (false, false) if allowed || everywhere => Need::Home(MoveKind::Adopt, Lack::New),
        (false, false) => Need::Home(MoveKind::Evacuate, Lack::Elsewhere),
    }
}

/// A client that has a home: what its affinity has become.
fn drifted(scene: &Scene<'_>, client: usize, affinity: Affinity) -> Need {
    let this = &scene.clients[client];
    let inside = !affinity.nodes.is_empty() && affinity.nodes.iter().all(|node| this.home.contains(node));
    if inside && affinity.full && affinity.nodes == this.home[..] {
        return Need::Nothing;
    }
    // Fewer CPUs than the node has are somebody's choice, unless the node has got more since we
    // bound the client.
    let cpus = || scene.cpus(&this.home);
    let grown = this.known.bound.as_ref().is_some_and(|bound| *bound == this.seen.cpus && *bound != cpus());
    if inside && !grown {
        return Need::Nothing;
    }
    let allowed = affinity.nodes.iter().all(|&node| scene.may_live(client, node));
    if !inside && affinity.nodes.len() == 1 && allowed {
        return Need::InPlace(affinity.nodes);
    }
    let wait = record::backoff_ms(scene.policy, this.known.rebinds);
    let rebound = this.known.rebound_at.map_or(u64::MAX, |moment| scene.at.0.saturating_sub(moment.0));
    if this.known.rebinds > 0 && rebound < wait {
        return Need::Nothing;
    }
    let home = scene.ids(&this.home);
    Need::Rebind(match grown {
        true => format!("node {home} has other CPUs than when it was bound"),
        false => format!("its home is node {home}, and its vCPUs may run on nodes {}", scene.ids(&affinity.nodes)),
    })
}

/// Whether rebinds of a client are long ago.
pub(super) fn calm(scene: &Scene<'_>, client: usize) -> bool {
    let known = scene.clients[client].known;
    let longest = record::backoff_ms(scene.policy, known.rebinds + CALM_FAILURES);
    known.rebound_at.is_some_and(|moment| scene.at.0.saturating_sub(moment.0) > longest)
}

/// Whether a node has the cores (hardware threads where the client prefers them) and the memory for
/// the whole client. Memory of which nobody knows
/// does not stand in the way of a first home: any is better than none.
fn takes_whole(scene: &Scene<'_>, client: usize, node: usize) -> bool {
    let this = &scene.clients[client];
    this.vcpus() <= scene.nodes[node].units(this) && has_room(scene, client, node)
}

fn has_room(scene: &Scene<'_>, client: usize, node: usize) -> bool {
    let this = &scene.clients[client];
    scene.may_choose(client, node)
        && (!scene.policy.memory_aware || scene.room.left(this, node).is_none() || scene.room.holds(this, node))
}

/// The node on which all of a client's memory lies, as good as; `None` where it is on several, or
/// hardly touched.
fn all_local(scene: &Scene<'_>, client: usize) -> Option<usize> {
    let this = &scene.clients[client];
    let all = this.resident_bytes();
    let touched = all > 0 && all as f64 >= this.memory_size.0 as f64 * TOUCHED_PART;
    let holds = |&&(_, bytes): &&(usize, u64)| bytes as f64 >= all as f64 * ALL_PART;
    this.resident.as_ref()?.iter().find(holds).filter(|_| touched).map(|&(node, _)| node)
}

/// The best home: of the nodes that hold the client if there are any; else of single nodes with
/// room for it and the fewest, nearest nodes that hold it together. `None` if it may live nowhere.
/// Among homes between which nobody would move it, the one that holds most of its memory.
pub(super) fn choose(scene: &Scene<'_>, client: usize) -> Option<Vec<usize>> {
    let this = &scene.clients[client];
    let homes = homes(scene, client);
    let lost: Vec<(&Vec<usize>, f64)> = homes.iter().map(|home| (home, lost_at(scene, client, home))).collect();
    let least = lost.iter().map(|&(_, lost)| lost).min_by(f64::total_cmp)?;
    let near = least + (this.expected * scene.policy.gain_percent / 100.0).max(scene.policy.least_gain_cpus);
    let best = lost.iter().filter(|(_, lost)| *lost <= near).min_by(|one, other| {
        let bytes = |home: &[usize]| Reverse(this.bytes_on(home));
        let differs = |home: &[usize]| loss::told_difference(scene, client, home, None).unwrap_or(0.0);
        let lost = || judge::same_worth(one.1).total_cmp(&judge::same_worth(other.1));
        let like = || differs(one.0).total_cmp(&differs(other.0));
        let exactly = || one.1.total_cmp(&other.1).then(one.0.cmp(other.0));
        bytes(one.0).cmp(&bytes(other.0)).then_with(lost).then_with(like).then_with(exactly)
    });
    best.map(|&(home, _)| home.clone())
}

/// Homes that are compared: single nodes with a core for each vCPU; where none has, nodes with
/// room, and the fewest, nearest ones that have the cores together. How many of its vCPUs are busy
/// says which of these is better. Of memory that somebody interleaved, all of those nodes.
fn homes(scene: &Scene<'_>, client: usize) -> Vec<Vec<usize>> {
    if let Some(home) = scene.spread_home(client) {
        return vec![home];
    }
    let single = |holds: &dyn Fn(usize) -> bool| -> Vec<Vec<usize>> {
        let nodes = (0..scene.nodes.len()).filter(|&node| holds(node)).collect();
        apart(scene, client, nodes).into_iter().map(|node| vec![node]).collect()
    };
    let whole = single(&|node| takes_whole(scene, client, node));
    if !whole.is_empty() {
        return whole;
    }
    let mut homes = single(&|node| has_room(scene, client, node));
    homes.extend(straddle(scene, client).filter(|straddle| !homes.contains(straddle)));
    homes
}

/// Of nodes, those where no other client of a VM lives whose clients are to live apart; all where
/// there are none.
fn apart(scene: &Scene<'_>, client: usize, nodes: Vec<usize>) -> Vec<usize> {
    let alone: Vec<usize> = nodes.iter().copied().filter(|&node| !judge::lives_apart(scene, client, node)).collect();
    if alone.is_empty() { nodes } else { alone }
}

/// CPUs lost if the client lived on these nodes, the one-time cost spread over the payback time.
/// Siblings count for a client whose memory does not say yet where it belongs: bringing a VM
/// together is the business of locality moves, which know what it does.
fn lost_at(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    let this = &scene.clients[client];
    let seconds = if scene.policy.payback_seconds > 0.0 { scene.policy.payback_seconds } else { WEIGHED_SECONDS };
    let threads: f64 = home.iter().map(|&node| scene.nodes[node].threads).sum::<f64>().max(1.0);
    let crowding = |&node: &usize| {
        let (before, own) = counted(scene, client, node, scene.nodes[node].threads / threads);
        loss::crowding(scene, node, before + own) - loss::crowding(scene, node, before)
    };
    let steady = match all_local(scene, client) {
        Some(_) => {
            let extra = loss::of_memory(scene, client, home) + loss::of_devices(scene, client, home);
            loss::stall(scene, this) * extra
        }
        None => loss::steady(scene, client, home) + loss::lost_by_siblings(scene, client, home, None),
    };
    let waits = -bandwidth::won(scene, &[(client, home)]);
    home.iter().map(crowding).sum::<f64>() + waits + steady + loss::transition(scene, client, home) / seconds
}

/// CPUs that a node counts with where a client gets its first home, without the client, and those
/// of a part of the client: what idle vCPUs may do counts too. Where memory cannot follow, locality
/// moves would soon weigh the same again by what runs: a home by what may run would not last.
fn counted(scene: &Scene<'_>, client: usize, node: usize, part: f64) -> (CpuLoad, CpuLoad) {
    let (this, place) = (&scene.clients[client], &scene.nodes[node]);
    let measured = !this.memory_moves() && this.demand.is_some();
    let (before, own) = if measured { (place.load, this.load) } else { (place.expected(this), this.expected) };
    (before, place.of(this, own * part))
}

/// The load of a node in percent of its cores, as a first home counts it; with a part of the
/// client.
pub(super) fn percent(scene: &Scene<'_>, client: usize, node: usize, part: f64) -> f64 {
    let (before, own) = counted(scene, client, node, part);
    100.0 * (before + own).in_cores() / scene.nodes[node].cores.max(1.0)
}

/// The fewest, nearest nodes that hold the client together: the search that places new VMs, beside
/// what is promised now.
fn straddle(scene: &Scene<'_>, client: usize) -> Option<Vec<usize>> {
    let this = &scene.clients[client];
    let allowed: Vec<usize> = (0..scene.nodes.len()).filter(|&node| scene.may_choose(client, node)).collect();
    let units: f64 = allowed.iter().map(|&node| scene.nodes[node].units(this)).sum();
    if allowed.len() < 2 || this.vcpus() > units {
        return (!allowed.is_empty()).then_some(allowed);
    }
    let own = |node: usize| i128::from(this.bytes_on(&[node]));
    let host_node = |&node: &usize| {
        let left = scene.room.left(this, node).unwrap_or(0).max(0) + own(node);
        let available = left.unsigned_abs().min(u128::from(scene.nodes[node].size)) as u64;
        HostNode {
            id: scene.nodes[node].id,
            cpus: scene.cpus(&[node]),
            cores: scene.nodes[node].cores as u32,
            threads: scene.nodes[node].threads as u32,
            caches: Vec::new(),
            memory: scene.nodes[node].size,
            free: available,
            available,
            vcpus_held: scene.nodes[node].expected(this).cpus.ceil() as u32,
            always_busy: scene.nodes[node].always_busy as u32,
            bandwidth: bandwidth::of_node(scene, node).map(|(_, given)| given as u64),
            traffic_held: bandwidth::of_node(scene, node).map_or(0, |(drawn, _)| drawn as u64),
            memory_only: false,
            to_cards: (loss::device_extra(scene, client, &[node]) * 1000.0).round() as u64,
        }
    };
    let distance = |from: usize, to: usize| ((1.0 + scene.extra(from, to)) * 10.0).round() as u32;
    let distances = allowed.iter().map(|&from| allowed.iter().map(|&to| distance(from, to)).collect()).collect();
    let host = Host::of(String::new(), allowed.iter().map(host_node).collect(), distances, this.vm.prefer_ht);
    let memory = if scene.policy.memory_aware { this.memory_size.0 } else { 0 };
    let traffic = this.traffic.unwrap_or(0.0) as u64;
    let demand = Demand { vcpus: this.vcpus() as u32, memory, least_home: 1, traffic };
    let placed = placement::place(&host, &[demand], Terms::default(), STRADDLE_STEPS);
    let home = placed.and_then(|placed| placed.best.homes.first().map(|home| home.nodes.clone()));
    Some(home.map_or_else(|| allowed.clone(), |home| home.into_iter().map(|index| allowed[index]).collect()))
}

/// What the home has to offer, with figures.
fn describe(scene: &Scene<'_>, client: usize, home: &[usize]) -> String {
    let this = &scene.clients[client];
    let here = Bytes(this.bytes_on(home));
    let all = Bytes(this.resident_bytes());
    let threads: f64 = home.iter().map(|&node| scene.nodes[node].threads).sum::<f64>().max(1.0);
    let load = |&node: &usize| {
        let with = percent(scene, client, node, scene.nodes[node].threads / threads);
        format!("node {}: {} % loaded with it", scene.nodes[node].id, decimal(with, 0))
    };
    let loads = home.iter().map(load).collect::<Vec<_>>().join(", ");
    let whole = match home {
        [_] | [] => "",
        _ if this.is_spread() => "; somebody interleaved its memory over these",
        _ => "; no single node holds it",
    };
    let devices = loss::devices_words(scene, client);
    match this.resident {
        Some(_) if all.0 == 0 => format!("{loads}, and it has no memory yet{whole}{devices}"),
        Some(_) => format!("{loads}, {here} of its {all} are there{whole}{devices}"),
        None => format!("{loads}; where its memory is, nobody knows{whole}{devices}"),
    }
}
