//! Threads that walk over pages: each page is on some node, so a thread's demand changes from page
//! to page.

use crate::events::{BarrierId, MemoryId, Phase};
use crate::traces::Random;

/// Where the pages of an array are, and how many a thread walks over.
#[derive(Clone, Debug, PartialEq)]
pub struct Pages {
    /// Kinds of memory work, one for each node that holds pages, with the node's share of the
    /// pages.
    pub homes: Vec<(MemoryId, f64)>,
    /// Lines that a page's work moves.
    pub lines_per_page: f64,
    /// Pages of the thread's part of an array.
    pub pages_per_array: u32,
    /// Arrays, or times that one is walked over.
    pub arrays: u32,
    /// Where all threads meet after each array; without one each goes on alone.
    pub barrier: Option<BarrierId>,
}

/// The phases of one thread: page after page, each on a node drawn by chance.
#[derive(Clone, Debug)]
pub struct PageWalk {
    pages: Pages,
    random: Random,
    page: u32,
    array: u32,
}

impl PageWalk {
    /// A walk of its own: threads of one run need different seeds.
    pub fn new(pages: Pages, seed: u64) -> Self {
        Self { pages, random: Random::new(seed), page: 0, array: 0 }
    }

    /// A kind of work, as often as its share says.
    fn draw(&mut self) -> Option<MemoryId> {
        let all: f64 = self.pages.homes.iter().map(|(_, share)| share).sum();
        let mut left = self.random.unit() * all;
        let found = self.pages.homes.iter().find(|(_, share)| {
            left -= share;
            left < 0.0
        });
        // Rounding may leave the last one a little short.
        found.or(self.pages.homes.last()).map(|(memory, _)| *memory)
    }
}

impl Iterator for PageWalk {
    type Item = Phase;

    fn next(&mut self) -> Option<Phase> {
        while self.array < self.pages.arrays {
            if self.page < self.pages.pages_per_array {
                self.page += 1;
                return self.draw().map(|memory| Phase::Memory { memory, lines: self.pages.lines_per_page });
            }
            self.page = 0;
            self.array += 1;
            if let Some(barrier) = self.pages.barrier {
                return Some(Phase::Barrier { barrier });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_fall_as_the_shares_say() {
        let (near, far) = (MemoryId(0), MemoryId(1));
        let homes = vec![(near, 3.0), (far, 1.0)];
        let pages =
            Pages { homes, lines_per_page: 1.0, pages_per_array: 1000, arrays: 10, barrier: Some(BarrierId(0)) };
        let phases: Vec<Phase> = PageWalk::new(pages, 1).collect();
        assert_eq!(phases.len(), 10 * 1001);
        let on_far =
            phases.iter().filter(|phase| matches!(phase, Phase::Memory { memory, .. } if *memory == far)).count();
        // A quarter of 10 000, standard deviation 43.
        assert!(on_far.abs_diff(2500) < 200, "{on_far}");
    }
}
