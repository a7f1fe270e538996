//! Memory that nodes have left, when everything that is promised has come: the ledger that keeps
//! moves from ending half-way.

use super::scene::{ClientScene, Scene};

/// Bytes of a pool on each node.
#[derive(Clone, Debug)]
struct Pool {
    /// Size of its huge pages; `None`: ordinary pages.
    page: Option<u64>,
    /// By node; negative where more is promised than there is; `None` where nobody knows.
    left: Vec<Option<i128>>,
}

/// What is left of each pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    pools: Vec<Pool>,
    /// Untouched memory counts so much, in thousandths: all of it where the host could keep every
    /// promise.
    untouched_milli: u64,
}

impl Room {
    pub(super) fn new(scene: &Scene<'_>) -> Self {
        let mut pages: Vec<u64> =
            scene.clients.iter().filter_map(|client| client.seen.huge_page_size).map(|page| page.0).collect();
        pages.sort_unstable();
        pages.dedup();
        let mut pools =
            vec![Pool { page: None, left: (0..scene.nodes.len()).map(|node| ordinary(scene, node)).collect() }];
        for page in pages {
            let free = |node: usize| {
                Some(i128::from(scene.nodes[node].seen?.huge_pages_free.get(&page).map_or(0, |free| free.0)))
            };
            pools.push(Pool { page: Some(page), left: (0..scene.nodes.len()).map(free).collect() });
        }
        let ordinary_clients = scene.clients.iter().filter(|client| client.seen.huge_page_size.is_none());
        let untouched: u128 = ordinary_clients.map(|client| u128::from(client.untouched())).sum();
        let free: i128 = pools[0].left.iter().flatten().map(|free| (*free).max(0)).sum();
        let milli = (free.unsigned_abs() * 1000).checked_div(untouched).unwrap_or(1000);
        let mut room = Self { pools, untouched_milli: milli.min(1000) as u64 };
        for client in &scene.clients {
            room.claim(client, 1);
        }
        room
    }

    /// Bytes that a client still brings to each node of a home: what lies elsewhere and may move,
    /// and what it has not touched.
    pub(super) fn needed(&self, client: &ClientScene<'_>, home: &[usize]) -> u64 {
        let away = if client.memory_moves() { client.resident_bytes() - client.bytes_on(home) } else { 0 };
        let untouched = match client.seen.huge_page_size {
            Some(_) => client.untouched(),
            None if self.untouched_milli == 1000 => client.untouched(),
            None => (u128::from(client.untouched()) * u128::from(self.untouched_milli) / 1000) as u64,
        };
        away.saturating_add(untouched) / home.len().max(1) as u64
    }

    /// Adds (`sign` 1) or takes away (-1) what a client claims at its home.
    pub(super) fn claim(&mut self, client: &ClientScene<'_>, sign: i128) {
        let needed = i128::from(self.needed(client, &client.home));
        let pool = self.pool_index(client);
        for &node in &client.home {
            if let Some(left) = &mut self.pools[pool].left[node] {
                *left -= sign * needed;
            }
        }
    }

    /// Bytes left for a client's kind of memory on a node; `None` where nobody knows.
    pub(super) fn left(&self, client: &ClientScene<'_>, node: usize) -> Option<i128> {
        self.pools[self.pool_index(client)].left[node]
    }

    /// Whether the whole client has room on a node beside all that is promised there.
    pub(super) fn holds(&self, client: &ClientScene<'_>, node: usize) -> bool {
        self.holds_with(client, node, 0)
    }

    /// The same when `freed` more bytes will have left the node.
    pub(super) fn holds_with(&self, client: &ClientScene<'_>, node: usize, freed: u64) -> bool {
        let own = if client.home.contains(&node) { self.needed(client, &client.home) } else { 0 };
        let needed = self.needed(client, &[node]);
        needed == 0
            || self
                .left(client, node)
                .is_some_and(|left| left + i128::from(own) + i128::from(freed) >= i128::from(needed))
    }

    fn pool_index(&self, client: &ClientScene<'_>) -> usize {
        let page = client.seen.huge_page_size.map(|page| page.0);
        self.pools.iter().position(|pool| pool.page == page).unwrap_or(0)
    }
}

/// Ordinary memory of a node that can be taken, less what is kept back and what VMs that start will
/// still take.
fn ordinary(scene: &Scene<'_>, node: usize) -> Option<i128> {
    let node = &scene.nodes[node];
    let free = i128::from(node.seen?.memory_free?.0);
    let reserved = scene.observation.reserved.get(&node.id);
    let coming = reserved.map_or(0, |held| held.memory.saturating_sub(held.resident).0);
    Some(free - i128::from(headroom(scene, node.size)) - i128::from(coming))
}

/// Bytes that stay free on a node of this size.
pub(super) fn headroom(scene: &Scene<'_>, size: u64) -> u64 {
    (size as f64 * scene.policy.headroom_percent / 100.0) as u64
}
