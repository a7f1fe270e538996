//! Dividing memory among nodes by weight, in pieces of a huge page.
//!
//! **Problem.** A guest that streams through its memory should find at each moment a part of it on
//! each node, so that all of them work at once. No policy of the kernel's does this for QEMU:
//! `MPOL_WEIGHTED_INTERLEAVE` (Linux 6.9) has one vector of weights for the whole host, which only
//! root may write, and QEMU cannot ask for it.
//!
//! **Rule.** Memory that is there is cut into pieces of 2 MiB; each node gets its number of them,
//! spread as evenly as that goes (smooth weighted round robin). They are moved there page by page.
//!
//! **Properties.** Each node gets the pieces that it is to have, and no other. A huge page is not
//! cut.
//!
//! **Example.** 16 MiB, of which node 2 is to have 4: of eight pieces the third and the seventh go
//! there.

use super::chunk::HUGE;
use super::{Move, Pace, Surroundings, carry_out};
use crate::vm::Region;
use std::io;
use std::ops::Range;
use topology::{Bytes, NodeId, NodeSet};

/// Threads that move at once: the guest does not run yet.
const THREADS: usize = 4;

/// Pieces of `addresses` for each of `parts`, rising; what is in none stays where it is.
fn pieces(addresses: &Range<u64>, parts: &[(NodeId, Bytes)]) -> Vec<(NodeId, Range<u64>)> {
    let first = addresses.start.next_multiple_of(HUGE);
    let count = (addresses.end.saturating_sub(first) / HUGE) as i64;
    let mut left = count;
    let counts: Vec<i64> = parts
        .iter()
        .map(|(_, bytes)| {
            let own = ((bytes.0 / HUGE) as i64).min(left);
            left -= own;
            own
        })
        .collect();
    // The last one is for what stays.
    let weights: Vec<i64> = counts.into_iter().chain([left]).collect();
    let mut owed = vec![0i64; weights.len()];
    let mut pieces = Vec::new();
    for piece in 0..count {
        owed.iter_mut().zip(&weights).for_each(|(owed, weight)| *owed += weight);
        // Of equals the last: what stays comes first.
        let Some(next) = (0..owed.len()).max_by_key(|&index| owed[index]) else { break };
        owed[next] -= count;
        let start = first + piece as u64 * HUGE;
        pieces.extend(parts.get(next).map(|&(node, _)| (node, start..start + HUGE)));
    }
    pieces
}

/// The process as long as it is there; nobody else takes the room that was planned.
struct Starting(u32);

impl Surroundings for Starting {
    fn is_there(&mut self) -> bool {
        std::path::Path::new(&format!("/proc/{}", self.0)).exists()
    }
    fn room(&mut self, _: NodeId, _: Bytes) -> Option<Bytes> {
        None
    }
}

/// Brings `parts` of a region to their nodes from wherever else on `nodes` they lie; bytes that
/// would not move, and why.
///
/// # Errors
/// As [`carry_out`].
pub fn divide(
    pid: u32,
    region: &Region,
    parts: &[(NodeId, Bytes)],
    nodes: &NodeSet,
) -> io::Result<Option<(Bytes, String)>> {
    let pieces = pieces(&region.addresses, parts);
    let mut left: Option<(Bytes, String)> = None;
    for &(to, _) in parts {
        let own = pieces.iter().filter(|(node, _)| *node == to);
        let regions: Vec<Region> =
            own.map(|(_, addresses)| Region { addresses: addresses.clone(), ..region.clone() }).collect();
        for from in nodes.iter().filter(|&from| from != to) {
            let at_most = Bytes(u64::MAX / 2);
            let order = Move { pid, regions: &regions, from, to, at_most, begin: 0, threads: THREADS };
            let moved = carry_out(&order, &mut Pace::new(None), &mut Starting(pid))?;
            if let Some(because) = moved.because.filter(|_| moved.left > Bytes(0)) {
                let before = left.map_or(Bytes(0), |(bytes, _)| bytes);
                left = Some((before.saturating_add(moved.left), because));
            }
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mib: u64, parts: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let parts: Vec<(NodeId, Bytes)> =
            parts.iter().map(|&(node, mib)| (NodeId(node), Bytes::from_mib(mib))).collect();
        let start = 1 << 30;
        let pieces = pieces(&(start..start + (mib << 20)), &parts);
        pieces.into_iter().map(|(node, range)| (node.0, (range.start - start) / HUGE)).collect()
    }

    #[test]
    fn a_quarter_is_every_fourth_piece() {
        assert_eq!(of(16, &[(2, 4)]), [(2, 2), (2, 6)]);
    }

    #[test]
    fn each_node_gets_its_number_of_pieces_and_no_piece_two() {
        for (mib, first, second) in [(64, 16, 8), (62, 20, 30), (10, 10, 10), (8, 0, 2), (2, 0, 0), (1, 4, 4)] {
            let pieces = of(mib, &[(1, first), (3, second)]);
            let count = |node: u32| pieces.iter().filter(|(other, _)| *other == node).count() as u64;
            let all = mib / 2;
            assert_eq!(count(1), (first / 2).min(all), "{mib} {first} {second}");
            assert_eq!(count(3), (second / 2).min(all - count(1)), "{mib} {first} {second}");
            assert!(pieces.windows(2).all(|pair| pair[0].1 < pair[1].1), "{pieces:?}");
        }
    }

    /// In any half of the memory a node has its share, to a piece.
    #[test]
    fn they_are_spread_over_all_of_it() {
        let pieces = of(256, &[(1, 64)]);
        let half = |range: Range<u64>| pieces.iter().filter(|(_, at)| range.contains(at)).count();
        assert_eq!((half(0..64), half(64..128)), (16, 16));
    }
}
