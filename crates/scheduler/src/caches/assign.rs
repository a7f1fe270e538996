//! Groups of one size to caches, exactly.
//!
//! **Rule.** A cache of C cores with d vCPUs bound to it loses 0.2 d^2 / C CPUs to crowding and one
//! for each vCPU beyond its cores: the balancer's figures. What the groups add to that is least;
//! with `fewest` the number of caches that get any is least first. Between equals the lower caches
//! get more.
//!
//! **How.** From the last cache to the first: the least cost of p groups on the caches from j on is
//! the least over k of what k cost on j and p - k on those after it. So many steps as caches times
//! groups times the most that a cache takes.

/// A cache that takes groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Cores.
    pub(super) units: u32,
    /// vCPUs that are bound to it already.
    pub(super) load: u32,
    /// Most groups that it may take.
    pub(super) most: u32,
}

/// Caches that get any (counted only for `fewest`), then the sum.
type Cost = (u32, u64);

/// Divisible by every number of cores up to 16, so that costs of those are exact.
const SCALE: u64 = 720_720;

/// A vCPU that waits, in what d^2 / C counts 0.2 of.
const WAITS: u64 = 5;

fn cost(room: &Room, size: u32, groups: u32, fewest: bool) -> Cost {
    let (units, load) = (u64::from(room.units.max(1)), u64::from(room.load));
    let more = u64::from(groups) * u64::from(size);
    let crowds = more * (2 * load + more) * SCALE / units;
    let wait = (load + more).saturating_sub(units) - load.saturating_sub(units);
    (u32::from(fewest && groups > 0), crowds + WAITS * SCALE * wait)
}

/// Groups that each cache gets. The rooms must have room for `count`.
pub(super) fn assign(rooms: &[Room], size: u32, count: u32, fewest: bool) -> Vec<u32> {
    let groups = count as usize;
    // least[p]: the cost of p groups on the rooms after j, and choices[j][p]: what j gets of them.
    let mut least: Vec<Option<Cost>> = vec![None; groups + 1];
    least[0] = Some((0, 0));
    let mut choices: Vec<Vec<u32>> = Vec::with_capacity(rooms.len());
    for room in rooms.iter().rev() {
        let own: Vec<Cost> = (0..=room.most.min(count)).map(|groups| cost(room, size, groups, fewest)).collect();
        let best = |wanted: usize| {
            let with = |here: usize| {
                let after = least[wanted - here]?;
                Some(((own[here].0 + after.0, own[here].1 + after.1), here))
            };
            // The larger number first: between equals it stays.
            let mut all = (0..own.len().min(wanted + 1)).rev().filter_map(with);
            let first = all.next()?;
            Some(all.fold(first, |best, next| if next.0 < best.0 { next } else { best }))
        };
        let found: Vec<Option<(Cost, usize)>> = (0..=groups).map(best).collect();
        choices.push(found.iter().map(|found| found.map_or(0, |(_, here)| here as u32)).collect());
        least = found.into_iter().map(|found| found.map(|(cost, _)| cost)).collect();
    }
    let mut left = groups;
    let taken = choices.iter().rev().map(|choice| {
        let here = choice[left];
        left -= here as usize;
        here
    });
    taken.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn room(units: u32, load: u32, most: u32) -> Room {
        Room { units, load, most }
    }

    #[test]
    fn groups_go_where_the_fewest_vcpus_are_a_core() {
        // 4 cores each, so that all is in quarters. 4 vCPUs more on a load of 4: 8^2 - 4^2 = 48,
        // and 4 of them wait, 20 each: 128; on 0: 16; on 2: 6^2 - 2^2 and 2 that wait, 72.
        let rooms = [room(4, 4, 9), room(4, 0, 9), room(4, 2, 9), room(4, 0, 9)];
        assert_eq!(assign(&rooms, 4, 2, false), [0, 1, 0, 1]);
        assert_eq!(assign(&rooms, 4, 3, false), [0, 1, 1, 1]);
        // The fourth: 128 on cache 0, as on caches 1 and 3; on cache 2 10^2 - 6^2 + 80 = 144.
        assert_eq!(assign(&rooms, 4, 4, false), [1, 1, 1, 1]);
        // Larger caches take more: 4 vCPUs cost 16/8 on 8 cores, the next 48/8; 16/4 on 4 cores.
        assert_eq!(assign(&[room(4, 0, 9), room(8, 0, 9)], 4, 3, false), [1, 2]);
    }

    #[test]
    fn the_fewest_caches_are_those_with_the_least_load() {
        let rooms = [room(8, 1, 2), room(8, 0, 2), room(8, 0, 2), room(8, 2, 2)];
        assert_eq!(assign(&rooms, 4, 2, true), [0, 2, 0, 0]);
        // Two caches for three groups: 8^2 - 0 and 4^2 - 0.
        assert_eq!(assign(&rooms, 4, 3, true), [0, 2, 1, 0]);
    }

    /// All ways, one after the other, in floating point.
    fn by_force(rooms: &[Room], size: u32, count: u32, fewest: bool) -> Option<(u32, f64)> {
        let Some((first, rest)) = rooms.split_first() else { return (count == 0).then_some((0, 0.0)) };
        let ways = (0..=first.most.min(count)).filter_map(|here| {
            let after = by_force(rest, size, count - here, fewest)?;
            Some((after.0 + u32::from(fewest && here > 0), after.1 + loss(first, size, here)))
        });
        ways.min_by(|one, other| one.partial_cmp(other).expect("numbers"))
    }

    fn loss(room: &Room, size: u32, groups: u32) -> f64 {
        let (before, after) = (f64::from(room.load), f64::from(room.load + groups * size));
        let waits = |vcpus: f64| 5.0 * (vcpus - f64::from(room.units)).max(0.0);
        (after * after - before * before) / f64::from(room.units) + waits(after) - waits(before)
    }

    properties::properties! {
        #[test]
        fn no_other_way_is_better(
            rooms in prop::collection::vec((1u32..9, 0u32..12, 1u32..4), 1..5),
            size in 1u32..5,
            part in 0u32..100,
            fewest in any::<bool>(),
        ) {
            let rooms: Vec<Room> = rooms.into_iter().map(|(units, load, most)| room(units, load, most)).collect();
            let all: u32 = rooms.iter().map(|room| room.most).sum();
            let count = all * part / 100;
            let given = assign(&rooms, size, count, fewest);
            prop_assert_eq!(given.iter().sum::<u32>(), count);
            prop_assert!(given.iter().zip(&rooms).all(|(&here, room)| here <= room.most));
            let sum: f64 = given.iter().zip(&rooms).map(|(&here, room)| loss(room, size, here)).sum();
            let used = given.iter().filter(|&&here| here > 0).count() as u32;
            let best = by_force(&rooms, size, count, fewest).expect("room for all");
            prop_assert!(!fewest || used == best.0, "{} caches, {} would do", used, best.0);
            prop_assert!(sum <= best.1 * 1.000_001 + 1e-6, "{} where {} is possible", sum, best.1);
        }
    }
}
