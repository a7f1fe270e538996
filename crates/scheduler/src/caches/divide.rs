//! How many groups, before homes are known.
//!
//! **Rule.** `pack`: the fewest caches that hold the vCPUs; `own`: as many as there are, or vCPUs.
//! A number that divides the vCPUs evenly is preferred where it is near (fewer than twice as many
//! for `pack`, more than half as many for `own`): the guest can then be told of each group.
//!
//! **Example.** Four caches of 4 cores. 6 vCPUs: `pack` makes 2 groups of 3, `own` 3 of 2 (4 would
//! be uneven). 5 vCPUs: 2 groups of 3 and 2, or 4 of 2, 1, 1, 1; the guest is not told of these.

use super::CachePolicy;
use vm::Shape;

/// The last-level caches of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caches {
    pub(crate) count: u32,
    /// Cores (hardware threads with `prefer_ht`) under the largest.
    pub(crate) units: u32,
}

/// Into how many groups so many vCPUs are divided.
pub(super) fn groups(policy: CachePolicy, vcpus: u32, caches: Caches) -> u32 {
    let fits = |count: u32| vcpus / count <= caches.units || count == caches.count;
    let even = |count: &u32| vcpus.is_multiple_of(*count) && fits(*count);
    match policy {
        CachePolicy::Own => {
            let most = vcpus.min(caches.count).max(1);
            (most / 2 + 1..=most).rev().find(even).unwrap_or(most)
        }
        _ => {
            let least = vcpus.div_ceil(caches.units.max(1)).clamp(1, caches.count.max(1));
            (least..(2 * least).min(caches.count + 1)).find(even).unwrap_or(least)
        }
    }
}

/// vCPUs in a virtual socket, so that each group is one: where the policy divides vCPUs, does not
/// say how many a socket has, and the virtual nodes divide into groups of one size.
pub(crate) fn per_socket(shape: &Shape, vcpus: impl Iterator<Item = u32>, caches: Option<Caches>) -> Option<u32> {
    let caches = caches.filter(|caches| caches.count > 1)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_even_where_that_is_near() {
        let caches = Caches { count: 4, units: 4 };
        let of = |policy, vcpus| groups(policy, vcpus, caches);
        let pack = [1, 4, 5, 6, 8, 9, 12, 16, 32].map(|vcpus| of(CachePolicy::Pack, vcpus));
        assert_eq!(pack, [1, 1, 2, 2, 2, 3, 3, 4, 4]);
        let own = [1, 2, 3, 5, 6, 7, 8, 9, 16, 32].map(|vcpus| of(CachePolicy::Own, vcpus));
        assert_eq!(own, [1, 2, 3, 4, 3, 4, 4, 3, 4, 4]);
    }
}
