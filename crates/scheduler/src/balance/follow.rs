//! Memory follows its client: a bounded amount each period, what costs most first.
//!
//! **Problem.** Memory away from home is paid for at each access; moving it all at once would take
//! the memory system and the VM's time.
//!
//! **Rule.** The rate times the time that passed, less under memory pressure, in chunks and in
//! turns: the client that loses most to its memory first, its farthest memory first. A home of
//! several nodes gets equal parts of what comes; what lies on any of its nodes stays, unless its
//! traffic wants it level ([`level`]).
//!
//! **Properties.** Never more than the rate, nor more than a node has free beside its headroom.
//! Nothing goes to a node beside those that somebody bound it to. Memory that would not move is
//! asked again later and later. It needs no floor: the home is decided, and a VM that idles will
//! wake up.
//!
//! Example: 900 MiB away at 256 MiB/s and 2 s a period: 512 MiB in the first, 388 MiB in the
//! second.

use super::plan::Chunk;
use super::scene::{ClientScene, Scene};
use super::{level, queue, room};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use topology::Bytes;

/// Less than this is not worth a system call.
pub(super) const LEAST_CHUNK: u64 = 1 << 20;

/// A client with memory away from home.
struct Behind {
    client: usize,
    /// CPUs lost to it now.
    lost: f64,
    bytes: u64,
    /// Nodes that hold memory which belongs elsewhere, and how much: the farthest from home first.
    sources: Vec<(usize, u64)>,
    /// Bytes on each node of the home.
    on: Vec<u64>,
}

/// Bytes that may move in this step: the rate over the time that passed, less under memory
/// pressure.
pub(super) fn budget(scene: &Scene<'_>) -> u64 {
    let policy = scene.policy;
    let rate = policy.move_bytes_per_second.0 as f64;
    // Pressure that nobody knows may be high.
    let part = match scene.observation.memory_pressure {
        Some(pressure) if pressure >= policy.pressure_stops => 0.0,
        Some(pressure) if pressure < policy.pressure_halves => 1.0,
        _ => 0.5,
    };
    // After a gap the rate counts for two periods at most: it bounds what moves at once.
    let seconds = scene.elapsed.min(2.0 * policy.period_ms as f64 / 1000.0);
    (rate * part * seconds) as u64
}

/// What moves in this step: in turns of one chunk for each client, as long as the budget lasts.
pub(super) fn chunks(scene: &Scene<'_>) -> Vec<Chunk> {
    let mut left = budget(scene);
    if !scene.policy.move_memory || left < LEAST_CHUNK {
        return Vec::new();
    }
    let mut taken = Taken { pools: Vec::new() };
    let mut chunks = Vec::new();
    let mut send = |behind: &mut Behind, left: &mut u64| {
        let sent = if *left < LEAST_CHUNK { 0 } else { follow(scene, behind, *left, &mut taken, &mut chunks) };
        *left -= sent;
        sent > 0
    };
    // First each in turn once; most steps send what they may to the first few.
    let mut waiting = waiting(scene);
    let mut all = Vec::new();
    while left >= LEAST_CHUNK
        && let Some(next) = waiting.pop()
    {
        let mut behind = Behind::new(scene, &next);
        if send(&mut behind, &mut left) {
            all.push(behind);
        }
    }
    while left >= LEAST_CHUNK && !all.is_empty() {
        all.retain_mut(|behind| send(behind, &mut left));
    }
    level::chunks(scene, left, &mut taken, &mut chunks);
    chunks
}

/// A client with memory away from home, before anybody asks where that lies: the greatest goes
/// first.
struct Waiting {
    lost: f64,
    bytes: u64,
    client: usize,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.lost.total_cmp(&other.lost).then(self.bytes.cmp(&other.bytes)).then(other.client.cmp(&self.client))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl Behind {
    fn new(scene: &Scene<'_>, waiting: &Waiting) -> Self {
        let this = &scene.clients[waiting.client];
        let on = this.home.iter().map(|&node| this.bytes_on(&[node])).collect();
        let sources = sources(scene, this);
        Self { client: waiting.client, lost: waiting.lost, bytes: waiting.bytes, sources, on }
    }
}

/// Clients with memory away from home, those that lose most to it first.
fn waiting(scene: &Scene<'_>) -> BinaryHeap<Waiting> {
    let of = |(client, this): (usize, &ClientScene<'_>)| {
        if !queue::follows(scene, client) {
            return None;
        }
        let (lost, bytes) = this.behind;
        let least = this.resident_bytes() as f64 * scene.policy.follow_least_percent / 100.0;
        (bytes >= LEAST_CHUNK && bytes as f64 >= least).then_some(Waiting { lost, bytes, client })
    };
    scene.clients.iter().enumerate().filter_map(of).collect()
}

/// Free memory of a node now for this kind of pages, less what stays free.
pub(super) fn free_now(scene: &Scene<'_>, client: &ClientScene<'_>, node: usize) -> u64 {
    let Some(seen) = scene.nodes[node].seen else { return 0 };
    match client.seen.huge_page_size {
        Some(page) => seen.huge_pages_free.get(&page.0).map_or(0, |free| free.0),
        None => {
            let coming = scene.observation.reserved.get(&scene.nodes[node].id);
            let coming = coming.map_or(0, |held| held.memory.saturating_sub(held.resident).0);
            let kept = room::headroom(scene, scene.nodes[node].size).saturating_add(coming);
            seen.memory_free.map_or(0, |free| free.0.saturating_sub(kept))
        }
    }
}

/// What this step has already sent to each pool.
pub(super) struct Taken {
    pools: Vec<((usize, Option<Bytes>), u64)>,
}

impl Taken {
    pub(super) fn of(&self, node: usize, page: Option<Bytes>) -> u64 {
        self.pools.iter().find(|(pool, _)| *pool == (node, page)).map_or(0, |(_, bytes)| *bytes)
    }

    pub(super) fn add(&mut self, node: usize, page: Option<Bytes>, bytes: u64) {
        match self.pools.iter_mut().find(|(pool, _)| *pool == (node, page)) {
            Some((_, taken)) => *taken += bytes,
            None => self.pools.push(((node, page), bytes)),
        }
    }
}

/// Sends one chunk of what a client has away from home, the farthest first; how many bytes that is.
fn follow(scene: &Scene<'_>, behind: &mut Behind, budget: u64, taken: &mut Taken, chunks: &mut Vec<Chunk>) -> u64 {
    let this = &scene.clients[behind.client];
    let page = this.seen.huge_page_size;
    let page_bytes = page.map_or(4096, |page| page.0.max(4096));
    let part = this.resident_bytes() / this.home.len().max(1) as u64;
    let mut left = budget.min(scene.policy.chunk.0);
    let mut sent = 0;
    for source in 0..behind.sources.len() {
        let (from, mut bytes) = behind.sources[source];
        let mut open: Vec<usize> = (0..this.home.len()).filter(|&index| this.home[index] != from).collect();
        // The emptiest node of the home takes until it has its part.
        open.sort_by_key(|&index| (behind.on[index], this.home[index]));
        for index in open {
            let to = this.home[index];
            let room = free_now(scene, this, to).saturating_sub(taken.of(to, page));
            let even = if this.home.len() > 1 { part.saturating_sub(behind.on[index]) } else { u64::MAX };
            let amount = bytes.min(left).min(room).min(even) / page_bytes * page_bytes;
            if amount < LEAST_CHUNK.max(page_bytes) {
                continue;
            }
            (bytes, left, sent) = (bytes - amount, left - amount, sent + amount);
            behind.on[index] += amount;
            taken.add(to, page, amount);
            let because = sentence(scene, behind, from, to);
            chunks.push(Chunk { client: behind.client, from, to, bytes: amount, because });
        }
        behind.sources[source].1 = bytes;
    }
    sent
}

/// Memory away from home, by node. What lies on one node of a home of several is none: half of the
/// threads are near it wherever it lies.
fn sources(scene: &Scene<'_>, client: &ClientScene<'_>) -> Vec<(usize, u64)> {
    let extra = |node: usize| client.home.iter().map(|&from| scene.extra(from, node)).sum::<f64>();
    let away = |&(node, bytes): &(usize, u64)| (!client.home.contains(&node)).then_some((node, bytes));
    let moves = |(node, bytes): &(usize, u64)| *bytes > 0 && !client.waits(scene.nodes[*node].id, scene.at);
    let mut sources: Vec<(usize, u64)> = client.resident.iter().flatten().filter_map(away).filter(moves).collect();
    sources.sort_by(|one, other| extra(other.0).total_cmp(&extra(one.0)).then(one.0.cmp(&other.0)));
    sources
}

fn sentence(scene: &Scene<'_>, behind: &Behind, from: usize, to: usize) -> String {
    let this = &scene.clients[behind.client];
    let home = scene.ids(&this.home);
    format!(
        "{} of its {} is away from its home, node {home} (from {} to {}); that loses about {:.2} CPUs{}",
        Bytes(behind.bytes),
        Bytes(this.resident_bytes()),
        scene.nodes[from].id,
        scene.nodes[to].id,
        behind.lost,
        measured(this)
    )
}

/// `, N MB/s of its traffic is remote`, where hardware counts it.
pub(super) fn measured(client: &ClientScene<'_>) -> String {
    let traffic = client.seen.traffic.filter(|traffic| traffic.remote.is_finite());
    traffic.map(|traffic| format!(", {:.0} MB/s of its traffic is remote", traffic.remote / 1e6)).unwrap_or_default()
}
