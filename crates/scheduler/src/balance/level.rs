//! Memory of a client whose home is several nodes, levelled over them where it streams.
//!
//! **Problem.** A wide VM whose memory lies on one node of its home draws all of it from that
//! node's controllers, while those of the others idle. The planner interleaves such memory at the
//! start; a VM that others started, or that came to be wide, has it where it touched it first.
//!
//! **Rule.** What a node of the home has beyond an equal part goes to those that have less, while
//! the bandwidth that is won pays the copying back, as for every move; with what memory that is
//! away from home left of the rate; who wins most first.
//!
//! **Properties.** A client that waits for latency draws little, wins nothing and keeps its memory:
//! half of its threads are near it wherever it lies. So does one whose traffic nobody knows, and on
//! nodes of which nobody says what they give. Memory only goes toward equal parts, and no farther
//! than until no node is asked for more than it gives.
//!
//! **Example.** 8 vCPUs on two nodes that give 18 GB/s each draw 22.8 GB/s, all of it from node 0:
//! 8 x (1 - 18 / 22.8) = 1.67 CPUs wait. From both, 11.4 GB/s each, none does: 2 of 4 GiB would
//! cost 2 CPU seconds, paid back in 1.2 s. With 3 GiB on node 0 it gives 17.1 GB/s, and what is
//! left stays.

use super::bandwidth;
use super::follow::{LEAST_CHUNK, Taken, free_now};
use super::plan::Chunk;
use super::queue;
use super::scene::{ClientScene, Scene};
use topology::Bytes;

/// Adds what moves in this step, at most `left` bytes.
pub(super) fn chunks(scene: &Scene<'_>, mut left: u64, taken: &mut Taken, chunks: &mut Vec<Chunk>) {
    let worth = |client: usize| Some((worth(scene, client)?, client));
    let mut uneven: Vec<(f64, usize)> = (0..scene.clients.len()).filter_map(worth).collect();
    uneven.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    for (gain, client) in uneven {
        if left < LEAST_CHUNK {
            return;
        }
        left -= level(scene, client, gain, left, taken, chunks);
    }
}

/// What a node of the home has if all of them have the same.
fn part(client: &ClientScene<'_>) -> u64 {
    client.bytes_on(&client.home) / client.home.len().max(1) as u64
}

/// Bytes on nodes of the home beyond their parts.
fn beyond(client: &ClientScene<'_>) -> u64 {
    let part = part(client);
    client.home.iter().map(|&node| client.bytes_on(&[node]).saturating_sub(part)).sum()
}

/// CPUs won if the client's memory were level; `None` where it is, or it is not worth it.
fn worth(scene: &Scene<'_>, client: usize) -> Option<f64> {
    let (this, policy) = (&scene.clients[client], scene.policy);
    if this.home.len() < 2 || this.behind.1 >= LEAST_CHUNK || !queue::follows(scene, client) {
        return None;
    }
    let bytes = beyond(this);
    let least = this.resident_bytes() as f64 * policy.follow_least_percent / 100.0;
    if bytes < LEAST_CHUNK || (bytes as f64) < least {
        return None;
    }
    let gain = bandwidth::won_by_equal_parts(scene, client);
    let cost = bytes as f64 / policy.copy_bytes_per_cpu_second.0.max(1) as f64;
    let pays = policy.payback_seconds <= 0.0 || cost <= gain * policy.payback_seconds;
    (gain > 0.0 && gain >= policy.least_gain_cpus && pays).then_some(gain)
}

/// Sends what one client has beyond its parts; how many bytes that is.
fn level(scene: &Scene<'_>, client: usize, gain: f64, budget: u64, taken: &mut Taken, chunks: &mut Vec<Chunk>) -> u64 {
    let this = &scene.clients[client];
    let page = this.seen.huge_page_size;
    let page_bytes = page.map_or(4096, |page| page.0.max(4096));
    let part = part(this);
    let mut on: Vec<u64> = this.home.iter().map(|&node| this.bytes_on(&[node])).collect();
    let mut left = budget;
    let moves = |&from: &usize| !this.waits(scene.nodes[this.home[from]].id, scene.at);
    for from in (0..on.len()).filter(moves) {
        for to in 0..on.len() {
            let node = this.home[to];
            let room = free_now(scene, this, node).saturating_sub(taken.of(node, page));
            let uneven = on[from].saturating_sub(part).min(part.saturating_sub(on[to]));
            let bytes = uneven.min(left).min(room) / page_bytes * page_bytes;
            if bytes < LEAST_CHUNK.max(page_bytes) {
                continue;
            }
            let because = sentence(scene, client, (from, to), on[from], gain);
            (on[from], on[to], left) = (on[from] - bytes, on[to] + bytes, left - bytes);
            taken.add(node, page, bytes);
            chunks.push(Chunk { client, from: this.home[from], to: node, bytes, because });
        }
    }
    budget - left
}

fn sentence(scene: &Scene<'_>, client: usize, (from, to): (usize, usize), there: u64, gain: f64) -> String {
    let this = &scene.clients[client];
    let id = |index: usize| scene.nodes[this.home[index]].id;
    format!(
        "{} of its {} lie on node {} of its home, nodes {} (to {}); equal parts win about {} CPUs of bandwidth",
        Bytes(there),
        Bytes(this.resident_bytes()),
        id(from),
        scene.ids(&this.home),
        id(to),
        super::decimal(gain, 2)
    )
}
