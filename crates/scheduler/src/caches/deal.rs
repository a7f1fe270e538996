//! Which client of a home takes which of the caches that its clients have together.

use super::assign::{Room, lost_micro};
use super::under::Place;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Clients of one home, and the vCPUs of each of their groups.
pub(super) type Pool = [(usize, Vec<u32>)];

/// Groups of one size.
pub(super) struct Taken {
    /// vCPUs of each.
    pub(super) size: u32,
    /// By cache how many are there.
    pub(super) numbers: Vec<u32>,
}

/// Swaps groups of two sizes while less is lost by it.
///
/// *Example.* Groups of 2, 2, 2 and 1 under caches of 6 and 2 cores, with a vCPU of others each:
/// the large ones were put first, two under 6 cores and one under 2, then the small one under 6:
/// they lose 0.2 x (6^2 - 1) / 6 + 0.2 x (3^2 - 1) / 2 + 1 = 2.97 CPUs. With the small one and the
/// third changed it is 0.2 x (7^2 - 1) / 6 + 1 + 0.2 x (2^2 - 1) / 2 = 2.9.
pub(super) fn swap(rooms: &mut [Room], taken: &mut [Taken]) {
    while let Some(((large, small), (from, to))) = better(rooms, taken) {
        let more = taken[large].size - taken[small].size;
        (rooms[from].own, rooms[to].own) = (rooms[from].own - more, rooms[to].own + more);
        for (size, leaves, comes) in [(large, from, to), (small, to, from)] {
            taken[size].numbers[leaves] -= 1;
            taken[size].numbers[comes] += 1;
        }
    }
}

/// A swap that wins: the sizes, and the caches where the larger and the smaller group are.
fn better(rooms: &[Room], taken: &[Taken]) -> Option<((usize, usize), (usize, usize))> {
    let pairs = |count: usize| (0..count).flat_map(move |one| (0..count).map(move |other| (one, other)));
    let lost = |room: &Room, own: u32| lost_micro(&Room { own, ..*room });
    let wins = |&((large, small), (from, to)): &((usize, usize), (usize, usize))| {
        if from == to || taken[large].numbers[from] == 0 || taken[small].numbers[to] == 0 {
            return false;
        }
        let (more, from, to) = (taken[large].size - taken[small].size, &rooms[from], &rooms[to]);
        lost(from, from.own - more) + lost(to, to.own + more) < lost_micro(from) + lost_micro(to)
    };
    let sizes = pairs(taken.len()).filter(|&(large, small)| taken[large].size > taken[small].size);
    sizes.flat_map(|sizes| pairs(rooms.len()).map(move |caches| (sizes, caches))).find(wins)
}

/// Each client takes its groups, under as many different caches as it can.
pub(super) fn deal(places: &[Place], pool: &Pool, taken: Vec<Taken>, groups: &mut [Vec<(u32, Place)>]) {
    let mut number = vec![vec![0u32; places.len()]; pool.len()];
    let mut by_size: Vec<BTreeMap<u32, Vec<usize>>> = vec![BTreeMap::new(); pool.len()];
    for Taken { size, numbers: mut left } in taken {
        for (index, (_, sizes)) in pool.iter().enumerate() {
            for _ in sizes.iter().filter(|own| **own == size) {
                let free = (0..places.len()).filter(|&place| left[place] > 0);
                let fewest = free.min_by_key(|&place| (number[index][place], Reverse(left[place]), place));
                let Some(place) = fewest else { continue };
                (left[place], number[index][place]) = (left[place] - 1, number[index][place] + 1);
                by_size[index].entry(size).or_default().push(place);
            }
        }
    }
    for ((client, sizes), mut own) in pool.iter().zip(by_size) {
        own.values_mut().for_each(|places| places.sort_unstable_by_key(|&place| Reverse(place)));
        let next = |size: &u32| Some((*size, places[own.get_mut(size)?.pop()?]));
        groups[*client] = sizes.iter().filter_map(next).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_two_sizes_are_swapped_where_that_wins() {
        // As in the example of `swap`.
        let room = |units, own| Room { units, load: 1, own };
        let mut rooms = [room(6, 5), room(2, 2)];
        let of = |size, numbers: &[u32]| Taken { size, numbers: numbers.to_vec() };
        let mut taken = [of(2, &[2, 1]), of(1, &[1, 0])];
        swap(&mut rooms, &mut taken);
        assert_eq!((&taken[0].numbers[..], &taken[1].numbers[..]), (&[3, 0][..], &[0, 1][..]));
        assert_eq!(rooms.map(|room| room.own), [6, 1]);
        assert_eq!(rooms.iter().map(lost_micro).sum::<u64>(), 2_900_000);
    }

    #[test]
    fn each_client_has_different_caches_where_it_can() {
        // Two under cache 0, one under each other: each client gets two different ones.
        let pool = [(0, vec![4, 4]), (1, vec![4, 4])];
        let mut groups = vec![Vec::new(); 2];
        let taken = vec![Taken { size: 4, numbers: vec![2, 1, 1] }];
        deal(&[(0, 0), (0, 1), (0, 2)], &pool, taken, &mut groups);
        assert_eq!(groups, [[(4, (0, 0)), (4, (0, 1))], [(4, (0, 0)), (4, (0, 2))]]);
    }
}
