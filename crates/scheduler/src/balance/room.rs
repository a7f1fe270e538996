//! Memory that nodes have left, when everything that is promised has come: the ledger that keeps
//! moves from ending half-way. What a stranger claims ([`crate::claims`]) is missing for VMs of the
//! same user only: no user can make a node look full to others.

use super::scene::{ClientScene, Scene};
use std::collections::BTreeMap;

/// Bytes of a pool on each node.
#[derive(Clone, Debug)]
struct Pool {
    /// Size of its huge pages; `None`: ordinary pages.
    page: Option<u64>,
    /// By node; negative where more is promised than there is; `None` where nobody knows.
    left: Vec<Option<i128>>,
    /// What strangers still bring to each node, by user.
    of_strangers: BTreeMap<Option<u32>, Vec<i128>>,
}

/// What is left of each pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    pools: Vec<Pool>,
    /// Untouched memory counts so much, in thousandths: all of it where the host could keep every
    /// promise.
    untouched_milli: u64,
    /// The same for strangers, by user.
    milli_of_strangers: BTreeMap<Option<u32>, u64>,
}

impl Room {
    pub(super) fn new(scene: &Scene<'_>) -> Self {
        let mut pages: Vec<u64> =
            scene.clients.iter().filter_map(|client| client.seen.huge_page_size).map(|page| page.0).collect();
        pages.sort_unstable();
        pages.dedup();
        let pool = |page, left| Pool { page, left, of_strangers: BTreeMap::new() };
        let mut pools = vec![pool(None, (0..scene.nodes.len()).map(|node| ordinary(scene, node)).collect())];
        for page in pages {
            let free = |node: usize| {
                Some(i128::from(scene.nodes[node].seen?.huge_pages_free.get(&page).map_or(0, |free| free.0)))
            };
            pools.push(pool(Some(page), (0..scene.nodes.len()).map(free).collect()));
        }
        let (mut untouched, mut of_strangers) = (0, BTreeMap::<Option<u32>, u128>::new());
        for client in scene.clients.iter().filter(|client| client.seen.huge_page_size.is_none()) {
            let sum = match client.stranger() {
                Some(user) => of_strangers.entry(user).or_default(),
                None => &mut untouched,
            };
            *sum += u128::from(client.untouched());
        }
        // What nobody may live on keeps no promise.
        let free = pools[0].left.iter().enumerate().filter(|(node, _)| scene.has_cpus(*node));
        let free: i128 = free.filter_map(|(_, free)| *free).map(|free| free.max(0)).sum();
        let milli = |sum: u128| (free.unsigned_abs() * 1000).checked_div(sum).unwrap_or(1000).min(1000) as u64;
        let milli_of_strangers = of_strangers.into_iter().map(|(user, sum)| (user, milli(sum + untouched))).collect();
        let mut room = Self { pools, untouched_milli: milli(untouched), milli_of_strangers };
        for client in &scene.clients {
            room.claim(client, 1);
        }
        room
    }

    /// Bytes that a client still brings to each node of a home: what lies elsewhere and may move,
    /// and what it has not touched.
    pub(super) fn needed(&self, client: &ClientScene<'_>, home: &[usize]) -> u64 {
        let away = if client.memory_moves() { client.resident_bytes() - client.bytes_on(home) } else { 0 };
        let of_user = client.stranger().and_then(|user| self.milli_of_strangers.get(&user));
        let milli = of_user.copied().unwrap_or(self.untouched_milli);
        let untouched = match client.seen.huge_page_size {
            Some(_) => client.untouched(),
            None if milli == 1000 => client.untouched(),
            None => (u128::from(client.untouched()) * u128::from(milli) / 1000) as u64,
        };
        away.saturating_add(untouched) / home.len().max(1) as u64
    }

    /// Adds (`sign` 1) or takes away (-1) what a client claims at its home.
    pub(super) fn claim(&mut self, client: &ClientScene<'_>, sign: i128) {
        let needed = i128::from(self.needed(client, &client.home));
        let index = self.pool_index(client);
        let pool = &mut self.pools[index];
        if let Some(user) = client.stranger() {
            let nodes = pool.left.len();
            let of_user = pool.of_strangers.entry(user).or_insert_with(|| vec![0; nodes]);
            client.home.iter().for_each(|&node| of_user[node] += sign * needed);
            return;
        }
        for &node in &client.home {
            if let Some(left) = &mut pool.left[node] {
                *left -= sign * needed;
            }
        }
    }

    /// Bytes left for a client's kind of memory on a node; `None` where nobody knows.
    pub(super) fn left(&self, client: &ClientScene<'_>, node: usize) -> Option<i128> {
        let pool = &self.pools[self.pool_index(client)];
        let of_user =
            client.stranger().and_then(|user| pool.of_strangers.get(&user)).map_or(0, |of_user| of_user[node]);
        pool.left[node].map(|left| left - of_user)
    }

    /// Whether the whole client has room on a node beside all that is promised there.
    pub(super) fn holds(&self, client: &ClientScene<'_>, node: usize) -> bool {
        self.holds_with(client, node, 0)
    }

    /// The same when `freed` more bytes will have left the node.
    pub(super) fn holds_with(&self, client: &ClientScene<'_>, node: usize, freed: u64) -> bool {
        self.holds_part(client, (node, &[node]), freed)
    }

    /// The same of a node's part of a client whose home has several.
    pub(super) fn holds_part(&self, client: &ClientScene<'_>, (node, home): (usize, &[usize]), freed: u64) -> bool {
        let own = if client.home.contains(&node) { self.needed(client, &client.home) } else { 0 };
        let needed = self.needed(client, home);
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
