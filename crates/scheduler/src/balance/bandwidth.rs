//! Memory bandwidth as a demand like CPU: what controllers and links are asked for, and what waits
//! where they give less.
//!
//! **Problem.** Two VMs that stream share one node's controllers while another node's idle. Each
//! waits for the other, and the CPU load of the nodes says nothing of it.
//!
//! **Rule.** A client draws what it would draw alone ([`traffic`](super::traffic)), by where its
//! memory lies once it has followed: on the nodes of its home in equal parts, else where it is.
//! What goes to another node takes the way there too. Where the sum is more than a controller or a
//! way gives, all who draw wait in the same proportion: of the CPU time that they wait for memory
//! the part (1 - given / drawn) is lost.
//!
//! **Properties.** A client whose traffic nobody knows, a controller of which nobody says what it
//! gives, and a way without a figure count nothing. What is lost never falls as traffic comes.
//!
//! **Example.** A node gives 18 GB/s. Two VMs of 4 busy vCPUs draw 11.4 GB/s each, all of their
//! time waiting: drawn 22.8, lost 8 x (1 - 18 / 22.8) = 1.67 CPUs. With one of them on another node
//! nothing is.

use super::scene::{ClientScene, Scene};
use smallvec::SmallVec;
use topology::BytesPerSecond;

/// Something that memory traffic passes: the controllers of a node (both the same), or the way from
/// one node's CPUs to another's memory.
type Passage = (usize, usize);

/// What is asked of a passage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drawn {
    /// Bytes a second.
    pub(crate) traffic: f64,
    /// CPUs that wait for it, while nobody waits for another.
    pub(crate) waiting: f64,
}

/// Controllers and ways whose limits are known, and what is asked of them.
#[derive(Debug, Default)]
pub(super) struct Passages {
    /// Nodes; the passage from one to another is at `from * nodes + to`. 0: nothing is known.
    nodes: usize,
    given: Vec<Option<f64>>,
    drawn: Vec<Drawn>,
}

impl Passages {
    fn at(&self, (from, to): Passage) -> usize {
        from * self.nodes + to
    }

    fn given(&self, passage: Passage) -> Option<f64> {
        *self.given.get(self.at(passage))?
    }

    fn drawn(&self, passage: Passage) -> Drawn {
        self.drawn.get(self.at(passage)).copied().unwrap_or_default()
    }
}

/// Parts of a client's traffic by passage.
type Parts = SmallVec<[(Passage, f64); 4]>;

/// Counts the traffic of all clients at their homes.
pub(super) fn set(scene: &mut Scene<'_>, machine: &topology::Machine) {
    let bandwidth = &machine.bandwidth;
    if !scene.policy.bandwidth_aware || bandwidth.is_unknown() {
        return;
    }
    let nodes = scene.nodes.len();
    let (given, drawn) = (vec![None; nodes * nodes], vec![Drawn::default(); nodes * nodes]);
    let mut passages = Passages { nodes, given, drawn };
    for (from, node) in scene.nodes.iter().enumerate() {
        for (to, other) in scene.nodes.iter().enumerate() {
            let given = if from == to { bandwidth.of_memory(node.id) } else { bandwidth.of_link(node.id, other.id) };
            let at = passages.at((from, to));
            passages.given[at] = given.map(|given| given.0 as f64);
        }
    }
    for (index, node) in scene.nodes.iter().enumerate() {
        let starting = scene.observation.reserved.get(&node.id).map_or(0, |held| held.traffic.0) as f64;
        if starting > 0.0 {
            let waiting = starting / scene.policy.waiting_cpu_draws();
            let at = passages.at((index, index));
            passages.drawn[at] = Drawn { traffic: starting, waiting };
        }
    }
    scene.passages = passages;
    super::traffic::estimate(scene);
    for client in 0..scene.clients.len() {
        add(scene, client, 1.0);
    }
}

/// Adds (`sign` 1) or takes away (-1) what a client asks for at its home.
pub(super) fn add(scene: &mut Scene<'_>, client: usize, sign: f64) {
    let this = &scene.clients[client];
    let Some(asked) = asked(scene, this) else { return };
    for (passage, part) in parts(scene, this, &this.home) {
        let at = scene.passages.at(passage);
        let drawn = &mut scene.passages.drawn[at];
        drawn.traffic = (drawn.traffic + sign * asked.traffic * part).max(0.0);
        drawn.waiting = (drawn.waiting + sign * asked.waiting * part).max(0.0);
    }
}

/// What a client asks for; `None` where nobody knows, or it is nothing.
fn asked(scene: &Scene<'_>, client: &ClientScene<'_>) -> Option<Drawn> {
    let traffic = client.traffic.filter(|traffic| *traffic > 0.0 && scene.passages.nodes > 0)?;
    let busy = client.demand.unwrap_or(client.expected);
    Some(Drawn { traffic, waiting: (traffic / scene.policy.waiting_cpu_draws()).min(busy) })
}

/// Parts of a client's traffic by passage, with its threads on the nodes of `home` and its memory
/// where it lies once it has followed.
fn parts(scene: &Scene<'_>, client: &ClientScene<'_>, home: &[usize]) -> Parts {
    let mut parts = Parts::new();
    if home.is_empty() {
        return parts;
    }
    let mut add = |passage: Passage, part: f64| match parts.iter_mut().find(|(known, _)| *known == passage) {
        Some((_, known)) => *known += part,
        None => parts.push((passage, part)),
    };
    let each = 1.0 / home.len() as f64;
    let mut of_node =
        |memory: usize, part: f64| ways(home, memory).for_each(|(passage, share)| add(passage, part * share));
    let follows = client.memory_moves() && scene.policy.move_memory;
    match &client.resident {
        Some(resident) if !follows && client.resident_bytes() > 0 => {
            let all = client.resident_bytes() as f64;
            resident.iter().for_each(|&(node, bytes)| of_node(node, bytes as f64 / all));
        }
        _ => home.iter().for_each(|&node| of_node(node, each)),
    }
    parts
}

/// What traffic from the CPUs of `home` to memory on a node passes, and which part of it does.
fn ways(home: &[usize], memory: usize) -> impl Iterator<Item = (Passage, f64)> + '_ {
    let each = 1.0 / home.len() as f64;
    let far = home.iter().filter(move |&&from| from != memory).map(move |&from| ((from, memory), each));
    std::iter::once(((memory, memory), 1.0)).chain(far)
}

/// CPUs won by all who draw if what a client has on its home lay there in equal parts, and not as
/// it lies: nothing where it draws no more than its nodes give.
pub(super) fn won_by_equal_parts(scene: &Scene<'_>, client: usize) -> f64 {
    let this = &scene.clients[client];
    let all = this.bytes_on(&this.home) as f64;
    let Some(asked) = asked(scene, this).filter(|_| all > 0.0) else { return 0.0 };
    let each = 1.0 / this.home.len() as f64;
    let of = |&memory: &usize| -> f64 {
        // What is drawn counts it in equal parts.
        let more = this.bytes_on(&[memory]) as f64 / all - each;
        let of_passage = |(passage, share): (Passage, f64)| {
            let Some(given) = scene.passages.given(passage) else { return 0.0 };
            let (equal, part) = (scene.passages.drawn(passage), more * share);
            let traffic = (equal.traffic + asked.traffic * part).max(0.0);
            let waiting = (equal.waiting + asked.waiting * part).max(0.0);
            lost(Drawn { traffic, waiting }, given) - lost(equal, given)
        };
        ways(&this.home, memory).map(of_passage).sum()
    };
    this.home.iter().map(of).sum()
}

/// CPUs that wait at a passage that gives so much. The planner asks it too.
///
/// 22.8 GB/s drawn by 8 CPUs that wait for memory, 18 given: 8 x (1 - 18 / 22.8) = 1.67 CPUs.
pub(crate) fn lost(drawn: Drawn, given: f64) -> f64 {
    if drawn.traffic <= given { 0.0 } else { drawn.waiting * (1.0 - given / drawn.traffic) }
}

/// CPUs that wait for the controllers of a node now.
pub(super) fn lost_on(scene: &Scene<'_>, node: usize) -> f64 {
    let passages = &scene.passages;
    passages.given((node, node)).map_or(0.0, |given| lost(passages.drawn((node, node)), given))
}

/// What is drawn from the controllers of a node, and what they give, in bytes a second; `None`
/// where nobody says what they give.
pub(super) fn of_node(scene: &Scene<'_>, node: usize) -> Option<(f64, f64)> {
    let given = scene.passages.given((node, node))?;
    Some((scene.passages.drawn((node, node)).traffic, given))
}

/// CPUs won by all who draw if these clients lived on these nodes instead of at their homes.
pub(super) fn won(scene: &Scene<'_>, moves: &[(usize, &[usize])]) -> f64 {
    let mut changes: SmallVec<[(Passage, Drawn); 8]> = SmallVec::new();
    for &(client, home) in moves {
        let this = &scene.clients[client];
        let Some(asked) = asked(scene, this) else { continue };
        for (home, sign) in [(&this.home[..], -1.0), (home, 1.0)] {
            for (passage, part) in parts(scene, this, home) {
                let more = Drawn { traffic: sign * asked.traffic * part, waiting: sign * asked.waiting * part };
                match changes.iter_mut().find(|(known, _)| *known == passage) {
                    Some((_, change)) => {
                        change.traffic += more.traffic;
                        change.waiting += more.waiting;
                    }
                    None => changes.push((passage, more)),
                }
            }
        }
    }
    let of = |(passage, change): &(Passage, Drawn)| {
        let Some(given) = scene.passages.given(*passage) else { return 0.0 };
        let now = scene.passages.drawn(*passage);
        let traffic = (now.traffic + change.traffic).max(0.0);
        let then = Drawn { traffic, waiting: (now.waiting + change.waiting).max(0.0) };
        lost(now, given) - lost(then, given)
    };
    changes.iter().map(of).sum()
}

/// `22.8 GB/s would be drawn from node 0, which gives 18 GB/s`.
pub(super) fn sentence(scene: &Scene<'_>, node: usize) -> Option<String> {
    let (drawn, given) = of_node(scene, node)?;
    let (drawn, given) = (BytesPerSecond(drawn as u64), BytesPerSecond(given as u64));
    Some(format!("{drawn} would be drawn from node {}, which gives {given}", scene.nodes[node].id))
}
