//! Memory that waits to follow its client: what loses most goes first, so that a newcomer waits
//! only for what loses as much.

use super::loss;
use super::scene::Scene;
use std::cell::OnceCell;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// CPUs lost by a client, and its bytes, in any order.
    waiting: Vec<(f64, u64)>,
    /// By falling loss, with the bytes of all clients that lose at least as much; many steps never
    /// ask.
    sorted: OnceCell<Vec<(f64, u64)>>,
    /// Clients that were moved in this step.
    joined: Vec<(f64, u64)>,
}

impl Queue {
    pub(super) fn new(scene: &Scene<'_>) -> Self {
        let all = scene.clients.iter().map(|client| client.behind);
        Self { waiting: all.filter(|(_, bytes)| *bytes > 0).collect(), ..Self::default() }
    }

    fn sorted(&self) -> &[(f64, u64)] {
        self.sorted.get_or_init(|| {
            let mut sorted = self.waiting.clone();
            sorted.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)));
            let mut sum = 0;
            for (_, bytes) in &mut sorted {
                sum += *bytes;
                *bytes = sum;
            }
            sorted
        })
    }

    /// Takes note of a client that has just been moved.
    pub(super) fn join(&mut self, place: (f64, u64)) {
        self.joined.push(place);
    }

    /// Bytes of all clients that lose at least `lost`.
    fn ahead(&self, lost: f64) -> u64 {
        let sorted = self.sorted();
        let end = sorted.partition_point(|waiting| waiting.0 >= lost);
        let waiting = end.checked_sub(1).map_or(0, |last| sorted[last].1);
        waiting + self.joined.iter().filter(|joined| joined.0 >= lost).map(|joined| joined.1).sum::<u64>()
    }
}

/// Whether a client has memory that follows it: not to a home beside the nodes that somebody bound
/// it to.
pub(super) fn follows(scene: &Scene<'_>, client: usize) -> bool {
    let this = &scene.clients[client];
    scene.follows_to(client, &this.home) && !this.home.is_empty() && this.resident.is_some()
}

/// What a client would lose at `home` until its memory has come, in CPUs, and the bytes that come.
pub(super) fn place(scene: &Scene<'_>, client: usize, home: &[usize]) -> (f64, u64) {
    let client = &scene.clients[client];
    let (bytes, extra) = loss::away(scene, client, home);
    (loss::stall(scene, client) * extra, bytes)
}

/// Bytes of others that move before those of a client with this place in the queue.
pub(super) fn before(scene: &Scene<'_>, client: usize, (lost, bytes): (f64, u64)) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let ahead = scene.queue.ahead(lost);
    if ahead == 0 || !follows(scene, client) {
        return ahead;
    }
    let own = scene.clients[client].behind;
    if own.0 >= lost { ahead.saturating_sub(own.1) } else { ahead }
}
