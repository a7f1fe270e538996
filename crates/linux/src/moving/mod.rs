//! Moving a VM's memory to another node while it runs.
//!
//! **Problem.** The guest goes on meanwhile: a move must not take the memory system from it, nor
//! touch what is not meant. Some pages cannot move (pinned, mapped by others), the target may fill
//! up, and the VM may end.
//!
//! **Rule.** Page by page (`move_pages`), in chunks, and after each chunk a pause that keeps to the
//! rate ([`Pace`]). Before each one it is asked whether the process is still there and what room
//! the target has. A transparent huge page is asked for once and moves whole.
//!
//! **Properties.** Only pages on the old node, within the regions, are asked to move. No more than
//! `at_most` moves, and no more than the target has room for. What would not move is counted with
//! the kernel's reason, and never taken for moved. The next move goes on where this one ended.
//!
//! **Example.** 256 MiB/s: chunks of 12.8 MiB, 20 a second. 900 MiB with `at_most` 512 MiB: the
//! first move takes 2 s and ends in the middle of a region, at [`Moved::next`]; the second begins
//! there, moves 388 MiB, and is [`complete`](Moved::complete).

mod chunk;
mod pace;
mod pieces;
#[cfg(test)]
mod tests;

pub use pace::Pace;
pub use pieces::divide;

use crate::residence::PAGE;
use crate::vm::{Region, RegionKind};
use chunk::{Chunk, ChunkDone, HUGE, Refusals};
use std::io;
use std::ops::Range;
use topology::{Bytes, NodeId};

/// One move.
#[derive(Debug)]
pub struct Move<'a> {
    /// The process.
    pub pid: u32,
    /// Where its memory is.
    pub regions: &'a [Region],
    /// From this node.
    pub from: NodeId,
    /// To that.
    pub to: NodeId,
    /// At most so much.
    pub at_most: Bytes,
    /// Address to begin at: where the last move of the same memory ended.
    pub begin: u64,
    /// Threads that move at once where no limit is set: the kernel copies with one CPU for each.
    pub threads: usize,
}

/// What a move did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Now on the target.
    pub moved: Bytes,
    /// Asked to move, and still where it was.
    pub left: Bytes,
    /// Why some was left, or why it stopped early.
    pub because: Option<String>,
    /// Where the next move should begin.
    pub next: u64,
    /// Every page was looked at: nothing that can move is left.
    pub complete: bool,
}

/// Least memory that a thread of its own is worth, and a multiple of a huge page, which two threads
/// must not share.
const SMALLEST_SHARE: u64 = 8 << 20;

/// What a move asks of the world between its chunks.
pub trait Surroundings {
    /// Whether the process is still the one that was meant.
    fn is_there(&mut self) -> bool;
    /// Memory that the target can still take: small pages, or huge ones of this size.
    fn room(&mut self, node: NodeId, page_size: Bytes) -> Option<Bytes>;
}

/// Moves memory. Between chunks it waits as `pace` says.
///
/// # Errors
/// The kernel refused before the first page moved (see [`crate::sys::move_pages`]); `ESRCH` also
/// when the process ended on the way.
pub fn carry_out(order: &Move<'_>, pace: &mut Pace, around: &mut impl Surroundings) -> io::Result<Moved> {
    let mut done = Moved { next: order.begin, ..Moved::default() };
    let mut refused = Refusals::default();
    pace.begin();
    for (region, addresses) in parts(order.regions, order.begin) {
        let page_size = page_size_of(region);
        let mut huge = None;
        let mut at = addresses.start;
        while at < addresses.end {
            let open = order.at_most.saturating_sub(done.moved).saturating_sub(done.left);
            if open < page_size {
                done.because = refused.because(order.from);
                return Ok(done);
            }
            if !around.is_there() {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            // A huge page that two chunks share would be moved by the first and counted by neither.
            let end = (at + pace.chunk().0.max(page_size.0)).next_multiple_of(HUGE).min(addresses.end);
            let room = around.room(order.to, page_size).unwrap_or(Bytes(u64::MAX));
            let mut chunk = Chunk { region, addresses: at..end, page_size, room: room.min(open), huge };
            if huge.is_none() {
                let moved;
                (huge, moved) = chunk.probe(order)?;
                chunk.huge = huge;
                chunk.room = chunk.room.saturating_sub(moved);
                done.moved = done.moved.saturating_add(moved);
                pace.pay(moved);
            }
            // Two threads that move huge pages of one file keep each other from its lock, and the
            // kernel then calls the pages busy.
            let alone = pace.is_limited() || region.kind == RegionKind::HugePages;
            let threads = if alone { 1 } else { order.threads };
            match in_threads(&chunk, order, threads, &mut refused) {
                Ok(part) => {
                    done.moved = done.moved.saturating_add(part.moved);
                    done.left = done.left.saturating_add(part.left);
                    at = part.next;
                    done.next = at;
                    if part.full && room < open {
                        done.because = Some(full(order.to, page_size, room));
                        return Ok(done);
                    }
                    pace.pay(part.moved);
                }
                // What moved has moved: an error would hide it.
                Err(error) if done.moved > Bytes(0) && error.raw_os_error() != Some(libc::ESRCH) => {
                    done.because = Some(error.to_string());
                    return Ok(done);
                }
                Err(error) => return Err(error),
            }
        }
    }
    done.complete = true;
    done.next = 0;
    done.because = refused.because(order.from);
    Ok(done)
}

/// Splits a chunk over threads, unless it could not be moved whole.
fn in_threads(chunk: &Chunk<'_>, order: &Move<'_>, threads: usize, refused: &mut Refusals) -> io::Result<ChunkDone> {
    let length = chunk.addresses.end - chunk.addresses.start;
    let threads = threads.min((length / SMALLEST_SHARE).max(1) as usize);
    if threads < 2 || chunk.room.0 < length {
        return chunk.carry_out(order, refused);
    }
    let share = (length / threads as u64).next_multiple_of(SMALLEST_SHARE);
    let starts = (chunk.addresses.start..chunk.addresses.end).step_by(share as usize);
    let results: Vec<io::Result<(ChunkDone, Refusals)>> = std::thread::scope(|scope| {
        let handles: Vec<_> = starts
            .map(|start| {
                let addresses = start..(start + share).min(chunk.addresses.end);
                let part = Chunk { addresses, ..*chunk };
                scope.spawn(move || {
                    let mut refused = Refusals::default();
                    part.carry_out(order, &mut refused).map(|done| (done, refused))
                })
            })
            .collect();
        let ended = || io::Error::other("a thread that moved memory ended");
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| Err(ended()))).collect()
    });
    let mut all = ChunkDone { next: chunk.addresses.end, ..ChunkDone::default() };
    for result in results {
        let (part, why) = result?;
        all.moved = all.moved.saturating_add(part.moved);
        all.left = all.left.saturating_add(part.left);
        refused.merge(&why);
    }
    Ok(all)
}

fn full(node: NodeId, page_size: Bytes, room: Bytes) -> String {
    if page_size.0 > PAGE {
        format!("node {node} has only {room} free in huge pages of {page_size}")
    } else {
        format!("node {node} can take only {room} more")
    }
}

/// Every region, from address `begin` on. What lies before it was looked at by an earlier move.
fn parts(regions: &[Region], begin: u64) -> impl Iterator<Item = (&Region, Range<u64>)> {
    let mut order: Vec<&Region> = regions.iter().collect();
    order.sort_by_key(|region| region.addresses.start);
    order.into_iter().filter_map(move |region| {
        let start = region.addresses.start.max(begin);
        (start < region.addresses.end).then_some((region, start..region.addresses.end))
    })
}

fn page_size_of(region: &Region) -> Bytes {
    match region.kind {
        RegionKind::HugePages => region.page_size.unwrap_or(Bytes::from_mib(2)),
        _ => Bytes(PAGE),
    }
}
