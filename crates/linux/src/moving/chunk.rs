//! One chunk of a move: which pages are on the old node, how they are asked to move, and what
//! became of them.

use super::Move;
use crate::residence::PAGE;
use crate::sys::{MoveOutcome, PageLocation, Sharing, locate_pages, move_pages};
use crate::vm::{Region, RegionKind};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use topology::{Bytes, NodeId};

/// Size of a transparent huge page.
pub(super) const HUGE: u64 = 2 << 20;

/// A range of addresses of one region.
pub(super) struct Chunk<'a> {
    pub(super) region: &'a Region,
    pub(super) addresses: Range<u64>,
    /// Size of the pages that are asked one by one.
    pub(super) page_size: Bytes,
    /// No more than this may be moved.
    pub(super) room: Bytes,
    /// Whether the region has transparent huge pages; `None` where that is not known yet.
    pub(super) huge: Option<bool>,
}

/// Distance of the pages of a block that are looked at first: 16 of 512.
const SAMPLE_EVERY: usize = 32 * PAGE as usize;

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct ChunkDone {
    pub(super) moved: Bytes,
    pub(super) left: Bytes,
    /// Address to go on at.
    pub(super) next: u64,
    /// It ended before its end, since `room` was used up.
    pub(super) full: bool,
}

/// Why pages did not move: bytes by `errno`, 0 where the kernel gives no reason.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<i32, u64>);

impl Refusals {
    fn add(&mut self, errno: i32, bytes: u64) {
        *self.0.entry(errno).or_default() += bytes;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (&errno, &bytes) in &other.0 {
            self.add(errno, bytes);
        }
    }

    /// A sentence, or nothing where everything moved.
    pub(super) fn because(&self, from: NodeId) -> Option<String> {
        let mut sums = BTreeMap::<String, u64>::new();
        for (&errno, &bytes) in &self.0 {
            *sums.entry(reason(errno)).or_default() += bytes;
        }
        let part = |(why, bytes): (String, u64)| format!("{} stay on node {from}: they {why}", Bytes(bytes));
        let parts: Vec<String> = sums.into_iter().map(part).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// At most `most` of these pages, so that the pages of a block stay together where that leaves any.
fn end_of_block(pages: &[u64], most: usize) -> usize {
    let ends = |&at: &usize| pages[at - 1] / HUGE != pages[at] / HUGE;
    (1..=most.min(pages.len() - 1)).rev().find(ends).unwrap_or(most)
}

fn reason(errno: i32) -> String {
    match errno {
        libc::EACCES => "are mapped by other processes too".to_owned(),
        libc::ENOMEM => "found no memory on the target".to_owned(),
        0 | libc::EBUSY | libc::EAGAIN => "are pinned or in use".to_owned(),
        other => format!("were refused ({})", io::Error::from_raw_os_error(other)),
    }
}

impl Chunk<'_> {
    /// Moves its pages that are on the old node.
    pub(super) fn carry_out(&self, order: &Move<'_>, refused: &mut Refusals) -> io::Result<ChunkDone> {
        let mut done = ChunkDone { next: self.addresses.end, ..ChunkDone::default() };
        let mut there = self.likely_on_old_node(order)?;
        let most = (self.room.0 / self.page_size.0) as usize;
        if there.len() > most {
            let most = end_of_block(&there, most);
            done.next = there[most];
            done.full = true;
            there.truncate(most);
        }
        let mut ask = Asker { order, sharing: self.sharing(), arrived: 0, errors: BTreeMap::new() };
        if self.huge == Some(true) {
            there = ask.huge_pages(there)?;
        }
        let mut stay = ask.pages(&there)?;
        if !stay.is_empty() && stay.len() < there.len() {
            // The kernel gives the rest of a request up at its first failure.
            stay = ask.pages(&stay)?;
        }
        for page in &stay {
            refused.add(ask.errors.get(page).copied().unwrap_or(0), self.page_size.0);
        }
        done.left = Bytes(stay.len() as u64 * self.page_size.0);
        done.moved = Bytes(ask.arrived * self.page_size.0);
        Ok(done)
    }

    /// Whether it has transparent huge pages, told by moving the first page of a block and looking
    /// where the second is. Where the first block is no huge page, the others are none either,
    /// nearly always. With what moved; `None` if no block lies wholly on the old node.
    pub(super) fn probe(&self, order: &Move<'_>) -> io::Result<(Option<bool>, Bytes)> {
        if self.region.kind == RegionKind::HugePages || self.room.0 < HUGE {
            return Ok((None, Bytes(0)));
        }
        let first = self.addresses.start.next_multiple_of(HUGE);
        let block = Chunk { region: self.region, addresses: first..first + HUGE, ..*self };
        if first + HUGE > self.addresses.end || block.on_old_node(order)?.len() as u64 != HUGE / PAGE {
            return Ok((None, Bytes(0)));
        }
        let mut ask = Asker { order, sharing: self.sharing(), arrived: 0, errors: BTreeMap::new() };
        ask.ask(&[first])?;
        let arrived = PageLocation::Node(order.to);
        let found = locate_pages(order.pid, &[first, first + PAGE])?;
        let moved = match (found[0] == arrived, found[1] == arrived) {
            (true, true) => HUGE,
            (true, false) => PAGE,
            _ => 0,
        };
        Ok((Some(found[1] == arrived), Bytes(moved)))
    }

    /// Its pages on the old node, rising.
    fn on_old_node(&self, order: &Move<'_>) -> io::Result<Vec<u64>> {
        on_old_node(order, self.addresses.clone().step_by(self.page_size.0 as usize).collect())
    }

    /// The same, but of a block of small pages only some are looked at where these are all on the
    /// old node: to look a page up costs a good part of what it costs to move it. A page of such a
    /// block that lies elsewhere goes to the target too; one that is absent is refused.
    fn likely_on_old_node(&self, order: &Move<'_>) -> io::Result<Vec<u64>> {
        if self.page_size.0 != PAGE {
            return self.on_old_node(order);
        }
        let Range { start, end } = self.addresses;
        let blocks: Vec<Range<u64>> =
            (start / HUGE..end.div_ceil(HUGE)).map(|at| (at * HUGE).max(start)..((at + 1) * HUGE).min(end)).collect();
        let sampled = |block: &Range<u64>| block.clone().step_by(SAMPLE_EVERY);
        let there = on_old_node(order, blocks.iter().flat_map(sampled).collect())?;
        let mut there = there.into_iter().peekable();
        let all_there =
            |block: &Range<u64>| sampled(block).filter(|page| there.next_if_eq(page).is_none()).count() == 0;
        let all_there: Vec<bool> = blocks.iter().map(all_there).collect();
        let pages = |block: &Range<u64>| block.clone().step_by(PAGE as usize);
        let doubtful = blocks.iter().zip(&all_there).filter(|(_, all)| !**all).flat_map(|(block, _)| pages(block));
        let mut found = on_old_node(order, doubtful.collect())?.into_iter().peekable();
        let mut likely = Vec::with_capacity(((end - start) / PAGE) as usize);
        for (block, all_there) in blocks.iter().zip(all_there) {
            if all_there {
                likely.extend(pages(block));
            } else {
                likely.extend(std::iter::from_fn(|| found.next_if(|page| *page < block.end)));
            }
        }
        Ok(likely)
    }

    /// A guest's memory file is mapped by its helpers too (vhost-user, virtiofsd), and moves for
    /// all of them. Anonymous memory that others map is shared by the kernel itself (KSM), perhaps
    /// with another VM, and stays.
    fn sharing(&self) -> Sharing {
        match self.region.kind {
            RegionKind::Memfd | RegionKind::File | RegionKind::HugePages => Sharing::Shared,
            RegionKind::Anonymous => Sharing::Private,
        }
    }
}

fn on_old_node(order: &Move<'_>, addresses: Vec<u64>) -> io::Result<Vec<u64>> {
    let locations = locate_pages(order.pid, &addresses)?;
    let old = PageLocation::Node(order.from);
    Ok(addresses.into_iter().zip(locations).filter(|(_, place)| *place == old).map(|(page, _)| page).collect())
}

struct Asker<'a> {
    order: &'a Move<'a>,
    sharing: Sharing,
    /// Pages that are on the target now.
    arrived: u64,
    /// Why pages stay, by address.
    errors: BTreeMap<u64, i32>,
}

impl Asker<'_> {
    fn ask(&mut self, pages: &[u64]) -> io::Result<Vec<MoveOutcome>> {
        match move_pages(self.order.pid, pages, self.order.to, self.sharing) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && self.sharing == Sharing::Shared => {
                self.sharing = Sharing::Private;
                move_pages(self.order.pid, pages, self.order.to, Sharing::Private)
            }
            result => result,
        }
    }

    /// Asks pages to move; those that stay.
    fn pages(&mut self, pages: &[u64]) -> io::Result<Vec<u64>> {
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let outcomes = self.ask(pages)?;
        let arrived = MoveOutcome::Node(self.order.to);
        let doubtful = pages.iter().zip(outcomes).filter(|(_, outcome)| *outcome != arrived);
        let mut doubtful: Vec<u64> = doubtful
            .map(|(&page, outcome)| {
                if let MoveOutcome::Refused(errno) = outcome {
                    self.errors.insert(page, errno);
                }
                page
            })
            .collect();
        self.arrived += (pages.len() - doubtful.len()) as u64;
        // The kernel's silence is no refusal.
        let mut locations = locate_pages(self.order.pid, &doubtful)?.into_iter();
        let (old, new) = (PageLocation::Node(self.order.from), PageLocation::Node(self.order.to));
        doubtful.retain(|_| {
            let place = locations.next();
            self.arrived += u64::from(place == Some(new));
            place == Some(old)
        });
        Ok(doubtful)
    }

    /// A transparent huge page moves whole when its first page is asked; asking for the other 511
    /// too costs as much as moving them. Asks the first page of each block that could be one, and
    /// gives back the pages that are still to be asked.
    fn huge_pages(&mut self, pages: Vec<u64>) -> io::Result<Vec<u64>> {
        let mut count = BTreeMap::<u64, u64>::new();
        for page in &pages {
            *count.entry(page / HUGE).or_default() += 1;
        }
        let whole = |(block, pages): (u64, u64)| (pages == HUGE / PAGE).then_some(block * HUGE);
        let first: Vec<u64> = count.into_iter().filter_map(whole).collect();
        if first.is_empty() {
            return Ok(pages);
        }
        self.ask(&first)?;
        let second: Vec<u64> = first.iter().map(|block| block + PAGE).collect();
        let moved = locate_pages(self.order.pid, &second)?;
        let arrived = PageLocation::Node(self.order.to);
        let huge: BTreeSet<u64> =
            first.iter().zip(moved).filter(|(_, place)| *place == arrived).map(|(block, _)| block / HUGE).collect();
        self.arrived += huge.len() as u64 * (HUGE / PAGE);
        Ok(pages.into_iter().filter(|page| !huge.contains(&(page / HUGE))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_block_stay_together() {
        let pages: Vec<u64> = (0..1024).map(|page| page * PAGE).collect(); // two blocks of 512 pages
        assert_eq!(end_of_block(&pages, 700), 512);
        assert_eq!(end_of_block(&pages, 512), 512);
        assert_eq!(end_of_block(&pages, 100), 100); // less than a block: as many as there may be
        assert_eq!(end_of_block(&pages, 0), 0);
    }

    #[test]
    fn reasons_are_added_up() {
        let mut refused = Refusals::default();
        assert_eq!(refused.because(NodeId(3)), None);
        refused.add(0, 4096);
        refused.add(libc::EBUSY, 4096);
        refused.add(libc::EACCES, 1 << 20);
        let said = "1 MiB stay on node 3: they are mapped by other processes too; 8 KiB stay on node 3: they are \
            pinned or in use";
        assert_eq!(refused.because(NodeId(3)).as_deref(), Some(said));
    }
}
