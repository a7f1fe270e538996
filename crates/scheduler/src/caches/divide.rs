//! How many groups, before homes are known.
//!
//! **Rule.** `pack`: the fewest caches that hold the vCPUs; `own`: as many as there are, or vCPUs.
//! A number that divides the vCPUs evenly is preferred where it is near (fewer than twice as many
//! for `pack`, more than half as many for `own`): the guest can then be told of each group. Groups
//! are no larger than the caches take, each cache whole groups: where caches are unlike, several
//! may be under a large one.
//!
//! **Examples.** Four caches of 4 cores. 6 vCPUs: `pack` makes 2 groups of 3, `own` 3 of 2 (4 would
//! be uneven). 5 vCPUs: 2 groups of 3 and 2, or 4 of 2, 1, 1, 1; the guest is not told of these.
//! Caches of 8 and 4 cores, 12 vCPUs: 2 groups of 6 would put 6 vCPUs under 4 cores; 3 groups of 4
//! fit, two of them under the larger cache.

use vm::Shape;
use vm::spec::CachePolicy;

/// The last-level caches of a home: cores under each (hardware threads with `prefer_ht`), the
/// largest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caches(Vec<u32>);

impl Caches {
    pub(crate) fn new(mut units: Vec<u32>) -> Self {
        units.sort_unstable_by(|a, b| b.cmp(a));
        Self(units)
    }

    /// What both have: as many caches as the one with fewer, each as large as the smaller.
    pub(crate) fn common(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, other)| *one.min(other)).collect())
    }

    fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Cores under the largest.
    pub(super) fn largest(&self) -> u32 {
        self.0.first().copied().unwrap_or(0)
    }

    fn are_alike(&self) -> bool {
        self.0.first() == self.0.last()
    }

    /// The fewest caches that hold so many vCPUs; all of them where none do.
    fn fewest(&self, vcpus: u32) -> u32 {
        let mut held = 0;
        let place = self.0.iter().position(|units| {
            held += units;
            held >= vcpus
        });
        place.map_or(self.count(), |last| last as u32 + 1).max(1)
    }

    /// Whether each cache, taking whole groups, has the cores for so many groups together.
    fn take(&self, vcpus: u32, groups: u32) -> bool {
        let size = vcpus.div_ceil(groups).max(1);
        self.0.iter().map(|units| units / size).sum::<u32>() >= groups
    }
}

/// Into how many groups so many vCPUs are divided.
pub(super) fn groups(policy: CachePolicy, vcpus: u32, caches: &Caches) -> u32 {
    let crowded = vcpus > caches.0.iter().sum();
    let fits = |count: u32| if crowded { count == caches.count() } else { caches.take(vcpus, count) };
    let even = |count: &u32| vcpus.is_multiple_of(*count) && fits(*count);
    let more = |from: u32| (from..2 * from).find(even).or_else(|| (from..=vcpus.min(2 * from)).find(|&n| fits(n)));
    match policy {
        CachePolicy::Own => {
            let most = vcpus.min(caches.count()).max(1);
            let even = (most / 2 + 1..=most).rev().find(even);
            even.or_else(|| if caches.are_alike() { None } else { more(most) }).unwrap_or(most)
        }
        _ => {
            let least = caches.fewest(vcpus);
            more(least).unwrap_or(least)
        }
    }
}

/// vCPUs in a virtual socket, so that each group is one: where the policy divides vCPUs, does not
/// say how many a socket has, and the virtual nodes divide into groups of one size.
pub(crate) fn per_socket(shape: &Shape, vcpus: impl Iterator<Item = u32>, caches: Option<&Caches>) -> Option<u32> {
    let caches = caches.filter(|caches| caches.count() > 1)?;
    let policy = shape.policy.cache;
    if shape.policy.cores_per_socket.is_some() || !matches!(policy, CachePolicy::Pack | CachePolicy::Own) {
        return None;
    }
    let mut sizes = vcpus.map(|vcpus| {
        let count = groups(policy, vcpus, caches);
        vcpus.is_multiple_of(count).then_some(vcpus / count)
    });
    let first = sizes.next()??;
    sizes.all(|size| size == Some(first)).then_some(first)
}

/// Dies in a virtual socket whose size the policy states, where no cache has the cores for one:
/// the fewest that divide it into what a cache holds, if fewer than twice as many as it needs.
///
/// *Example.* Sockets of 8 on caches of 4 cores: 2 dies of 4. Of 7: none, 7 of one would tell of no
/// cache that is shared.
pub(crate) fn dies(shape: &Shape, per_socket: u32, caches: &Caches) -> Option<u32> {
    let stated = shape.policy.cores_per_socket.is_some() && shape.policy.cache != CachePolicy::Ignore;
    let least = per_socket.div_ceil(caches.largest().max(1));
    let divides = |dies: &u32| per_socket.is_multiple_of(*dies) && per_socket / dies <= caches.largest();
    if stated && caches.count() > 1 && least > 1 { (least..2 * least).find(divides) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(policy: CachePolicy, vcpus: u32, units: &[u32]) -> u32 {
        groups(policy, vcpus, &Caches::new(units.to_vec()))
    }

    #[test]
    fn groups_are_even_where_that_is_near() {
        let rome = [4; 4];
        let pack = [1, 4, 5, 6, 8, 9, 12, 16, 32].map(|vcpus| of(CachePolicy::Pack, vcpus, &rome));
        assert_eq!(pack, [1, 1, 2, 2, 2, 3, 3, 4, 4]);
        let own = [1, 2, 3, 5, 6, 7, 8, 9, 16, 32].map(|vcpus| of(CachePolicy::Own, vcpus, &rome));
        assert_eq!(own, [1, 2, 3, 4, 3, 4, 4, 3, 4, 4]);
    }

    #[test]
    fn unlike_caches_take_whole_groups() {
        let unlike = [4, 8];
        // 6, 8: the larger holds them. 12: 2 of 6 do not fit, 3 of 4 do. 11: 4, 4 and 3.
        let pack = [6, 8, 9, 10, 11, 12, 24].map(|vcpus| of(CachePolicy::Pack, vcpus, &unlike));
        assert_eq!(pack, [1, 1, 3, 3, 3, 3, 2]);
        // 8: 4 under each. 10: 2 of 5 do not fit under 4 cores; 4, 3 and 3 do.
        let own = [1, 2, 8, 10, 12].map(|vcpus| of(CachePolicy::Own, vcpus, &unlike));
        assert_eq!(own, [1, 2, 2, 3, 3]);
    }

    #[test]
    fn wide_sockets_have_a_die_for_each_cache() {
        let mut shape = Shape::default();
        let rome = Caches::new(vec![4; 4]);
        assert_eq!(dies(&shape, 8, &rome), None); // nobody asked for sockets of 8
        shape.policy.cores_per_socket = Some(8);
        let of = |size| dies(&shape, size, &rome);
        // 6 = 2 x 3; 10 needs 3 and has 5 of 2; 7 has only 7 of 1.
        assert_eq!([4, 6, 7, 8, 10, 16].map(of), [None, Some(2), None, Some(2), Some(5), Some(4)]);
        shape.policy.cache = CachePolicy::Ignore;
        assert_eq!(dies(&shape, 8, &rome), None);
    }
}
