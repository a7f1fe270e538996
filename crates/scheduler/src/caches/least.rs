//! What clients lose under caches at least, before all have homes: a bound for the search.
//!
//! **Rule.** Groups are cut into parts of one size, the largest that divides them all. Each part
//! goes where it adds least, so that no way to put the groups loses less.
//!
//! **Example.** Groups of 4 and 2 on two idle caches of 4 cores: three parts of 2. They lose 0.2 x
//! 4^2 / 4 + 0.2 x 2^2 / 4 = 1 CPU at least.

use super::assign::{Room, rising};
use super::division::Division;
use crate::divide::common_divisor;
use crate::host::Host;

/// The least that clients lose under the caches of single nodes, whatever their groups.
#[derive(Clone)]
pub(crate) struct Least {
    /// By client and node: parts of groups that it brings.
    parts: Vec<Vec<u32>>,
    /// By node: what so many parts lose, in millionths of CPUs.
    lost: Vec<Vec<u64>>,
}

impl Least {
    /// `None` where caches say nothing of homes.
    pub(crate) fn of(host: &Host, division: &Division) -> Option<Self> {
        if !division.counts(host) {
            return None;
        }
        let mut least = Self { parts: vec![Vec::new(); division.clients.len()], lost: Vec::new() };
        for index in 0..host.nodes.len() {
            let node = &host.nodes[index];
            let units: Vec<u32> = node.caches.iter().map(|cache| cache.units).collect();
            let divides = units.len() > 1;
            let sizes = |client: usize| match divides {
                // One that is too wide for these caches floats, which may lose less.
                true => division.groups(client, units.clone()).map_or(Vec::new(), |groups| groups.sizes),
                false => vec![division.clients[client].len() as u32],
            };
            let sizes: Vec<Vec<u32>> = (0..division.clients.len()).map(sizes).collect();
            let part = common_divisor(sizes.iter().flatten().copied()).max(1);
            let mut all = 0;
            for (client, sizes) in sizes.iter().enumerate() {
                let own = sizes.iter().sum::<u32>() / part;
                least.parts[client].push(own);
                all += own;
            }
            let load = node.caches.iter().map(|cache| cache.load).sum();
            let whole = || vec![Room { units: host.units(index), load, own: 0 }];
            let rooms = if divides { node.caches.iter().map(Room::of).collect() } else { whole() };
            least.lost.push(rising(rooms, part, all));
        }
        Some(least)
    }

    /// Parts that a client brings to a node that is all of its home.
    pub(crate) fn parts(&self, client: usize, node: usize) -> u32 {
        self.parts[client][node]
    }

    /// What so many parts lose on a node.
    pub(crate) fn lost(&self, node: usize, parts: u32) -> u64 {
        self.lost[node].get(parts as usize).or(self.lost[node].last()).copied().unwrap_or(0)
    }
}
