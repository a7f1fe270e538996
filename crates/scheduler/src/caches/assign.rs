//! Groups of one size to caches, exactly.
//!
//! **Rule.** A cache of C cores with d vCPUs bound to it loses 0.2 d^2 / C CPUs to crowding and one
//! for each vCPU beyond its cores: the balancer's figures. What the groups add to that is least.
//! With `own` as many caches as can be that hold a group get one first; with `pack` the number of
//! caches that get any is least first, as far as all groups then have their cores. Between equals
//! the lower caches get more.
//!
//! **How.** What a cache loses grows faster and faster, so that each group in turn goes where it
//! adds least. With `pack` the first group under a cache has a price of its own; there, from the
//! last cache to the first: the least cost of p groups on the caches from j on is the least over k
//! of what k cost on j and p - k on those after it.

use super::Cache;
use vm::spec::CachePolicy;

/// A cache that takes groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Cores.
    pub(super) units: u32,
    /// vCPUs of others that are bound to it.
    pub(super) load: u32,
    /// vCPUs of this VM that are bound to it so far.
    pub(super) own: u32,
}

impl Room {
    /// A cache without any of the VM.
    pub(super) fn of(cache: &Cache) -> Self {
        Self { units: cache.units, load: cache.load, own: 0 }
    }

    /// Groups for which it has cores, beside others of the VM.
    fn most(&self, size: u32) -> u32 {
        self.units.saturating_sub(self.own) / size.max(1)
    }
}

/// Divisible by every number of cores up to 16, so that costs of those are exact.
const SCALE: u64 = 720_720;

/// A vCPU that waits, in what d^2 / C counts 0.2 of.
const WAITS: u64 = 5;

/// What `more` vCPUs lose under a cache that has so many.
fn loss(units: u32, load: u32, more: u32) -> u64 {
    let (units, load, more) = (u64::from(units.max(1)), u64::from(load), u64::from(more));
    let crowds = more * (2 * load + more) * SCALE / units;
    let wait = (load + more).saturating_sub(units) - load.saturating_sub(units);
    crowds + WAITS * SCALE * wait
}

/// What so many groups add.
fn added(room: &Room, size: u32, groups: u32) -> u64 {
    loss(room.units, room.load + room.own, groups * size)
}

/// What the VM's vCPUs lose under a cache, in millionths of CPUs.
///
/// *Example.* 4 vCPUs beside 4 others on 4 cores: 0.2 x (8^2 - 4^2) / 4 + 4 = 6.4 CPUs.
pub(super) fn lost_micro(room: &Room) -> u64 {
    u64::try_from(u128::from(loss(room.units, room.load, room.own)) * 1_000_000 / u128::from(WAITS * SCALE))
        .unwrap_or(u64::MAX / 4)
}

/// The least that 0, 1, ... `count` groups lose, in millionths of CPUs.
pub(super) fn rising(mut rooms: Vec<Room>, size: u32, count: u32) -> Vec<u64> {
    let mut lost: u64 = 0;
    let mut all = vec![0];
    for _ in 0..count {
        let Some(room) = rooms.iter_mut().min_by_key(|room| added(room, size, 1)) else { break };
        let before = lost_micro(room);
        room.own += size;
        lost += lost_micro(room) - before;
        all.push(lost);
    }
    all
}

/// Groups that each cache gets.
pub(super) fn assign(rooms: &[Room], size: u32, count: u32, policy: CachePolicy) -> Vec<u32> {
    let hold = |rooms: &[Room]| rooms.iter().map(|room| u64::from(room.most(size))).sum::<u64>() >= u64::from(count);
    match policy {
        CachePolicy::Pack if hold(rooms) => fewest(rooms, size, count),
        _ => one_by_one(rooms, size, count, policy == CachePolicy::Own),
    }
}

/// Each group where it adds least; `apart`: first to caches that hold it and have none.
fn one_by_one(rooms: &[Room], size: u32, count: u32, apart: bool) -> Vec<u32> {
    let mut rooms = rooms.to_vec();
    let mut taken = vec![0; rooms.len()];
    for _ in 0..count {
        let shares = |room: &Room| apart && (room.own > 0 || room.units < size);
        let least = (0..rooms.len()).min_by_key(|&place| (shares(&rooms[place]), added(&rooms[place], size, 1)));
        let Some(place) = least else { break };
        rooms[place].own += size;
        taken[place] += 1;
    }
    taken
}

/// Caches that get any of the VM and had none, then what is added.
type Cost = (u32, u64);

/// The fewest caches that have the cores for all, which they must have.
fn fewest(rooms: &[Room], size: u32, count: u32) -> Vec<u32> {
    let groups = count as usize;
    // least[p]: the cost of p groups on the rooms after j, and choices[j][p]: what j gets of them.
    let mut least: Vec<Option<Cost>> = vec![None; groups + 1];
    least[0] = Some((0, 0));
    let mut choices: Vec<Vec<u32>> = Vec::with_capacity(rooms.len());
    for room in rooms.iter().rev() {
        let cost = |groups: u32| (u32::from(groups > 0 && room.own == 0), added(room, size, groups));
        let own: Vec<Cost> = (0..=room.most(size).min(count)).map(cost).collect();
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

    fn room(units: u32, load: u32) -> Room {
        Room { units, load, own: 0 }
    }

    #[test]
    fn groups_go_where_the_fewest_vcpus_are_a_core() {
        // 4 cores each, so that all is in quarters. 4 vCPUs more on a load of 4: 8^2 - 4^2 = 48,
        // and 4 of them wait, 20 each: 128; on 0: 16; on 2: 6^2 - 2^2 and 2 that wait, 72.
        let rooms = [room(4, 4), room(4, 0), room(4, 2), room(4, 0)];
        let auto = |count| assign(&rooms, 4, count, CachePolicy::Auto);
        assert_eq!(auto(2), [0, 1, 0, 1]);
        assert_eq!(auto(3), [0, 1, 1, 1]);
        // The fourth: 128 on cache 0, as on caches 1 and 3; on cache 2 10^2 - 6^2 + 80 = 144.
        assert_eq!(auto(4), [1, 1, 1, 1]);
        // Larger caches take more: 4 vCPUs cost 16/8 on 8 cores, the next 48/8; 16/4 on 4 cores.
        assert_eq!(assign(&[room(4, 0), room(8, 0)], 4, 3, CachePolicy::Auto), [1, 2]);
    }

    #[test]
    fn the_fewest_caches_are_those_with_the_least_load() {
        let rooms = [room(8, 1), room(8, 0), room(8, 0), room(8, 2)];
        let pack = |count| assign(&rooms, 4, count, CachePolicy::Pack);
        assert_eq!(pack(2), [0, 2, 0, 0]);
        // Two caches for three groups: 8^2 - 0 and 4^2 - 0.
        assert_eq!(pack(3), [0, 2, 1, 0]);
        // 36 vCPUs on 32 cores: no caches hold them, and the ninth waits where it adds least.
        assert_eq!(pack(9), [2, 3, 2, 2]);
    }

    #[test]
    fn each_has_a_cache_of_its_own_before_two_share_one() {
        // 1/12, 3/12 and 5/12 on 12 cores, before 1/2 on 2; apart each cache gets one first.
        let rooms = [room(12, 0), room(2, 0)];
        assert_eq!(assign(&rooms, 1, 3, CachePolicy::Auto), [3, 0]);
        assert_eq!(assign(&rooms, 1, 3, CachePolicy::Own), [2, 1]);
        // No cache of 2 cores for a group of 3.
        assert_eq!(assign(&rooms, 3, 2, CachePolicy::Own), [2, 0]);
    }

    /// All ways, one after the other, in floating point: the cost by policy, and the loss.
    fn by_force(rooms: &[Room], size: u32, count: u32, policy: CachePolicy) -> Option<(u32, f64)> {
        let Some((first, rest)) = rooms.split_first() else { return (count == 0).then_some((0, 0.0)) };
        let most = if policy == CachePolicy::Pack { count.min(first.units / size) } else { count };
        let ways = (0..=most).filter_map(|here| {
            let after = by_force(rest, size, count - here, policy)?;
            Some((after.0 + counted(first, size, here, policy), after.1 + loss(first, size, here)))
        });
        ways.min_by(|one, other| one.partial_cmp(other).expect("numbers"))
    }

    fn counted(room: &Room, size: u32, here: u32, policy: CachePolicy) -> u32 {
        match policy {
            CachePolicy::Pack => u32::from(here > 0),
            CachePolicy::Own => u32::from(here == 0 && room.units >= size),
            _ => 0,
        }
    }

    fn loss(room: &Room, size: u32, groups: u32) -> f64 {
        let (before, after) = (f64::from(room.load), f64::from(room.load + groups * size));
        let waits = |vcpus: f64| 5.0 * (vcpus - f64::from(room.units)).max(0.0);
        (after * after - before * before) / f64::from(room.units) + waits(after) - waits(before)
    }

    properties::properties! {
        #[test]
        fn no_other_way_is_better(
            rooms in prop::collection::vec((1u32..9, 0u32..12), 1..5),
            size in 1u32..5,
            count in 0u32..9,
            policy in prop_oneof![Just(CachePolicy::Auto), Just(CachePolicy::Own), Just(CachePolicy::Pack)],
        ) {
            let rooms: Vec<Room> = rooms.into_iter().map(|(units, load)| room(units, load)).collect();
            let given = assign(&rooms, size, count, policy);
            prop_assert_eq!(given.iter().sum::<u32>(), count);
            let all = given.iter().zip(&rooms);
            let sum: f64 = all.clone().map(|(&here, room)| loss(room, size, here)).sum();
            let counts: u32 = all.map(|(&here, room)| counted(room, size, here, policy)).sum();
            let Some(best) = by_force(&rooms, size, count, policy) else { return Ok(()) };
            prop_assert_eq!(counts, best.0);
            prop_assert!(sum <= best.1 * 1.000_001 + 1e-6, "{} where {} is possible", sum, best.1);
            if policy == CachePolicy::Auto {
                // Of the loss in CPUs, 0.2 of what is counted here.
                let least = *rising(rooms, size, count).last().expect("of none") as f64;
                prop_assert!((least - best.1 * 200_000.0).abs() < 50.0, "{} {}", least, best.1);
            }
        }
    }
}
