//! Dividing whole numbers into whole shares.

/// `total` in `parts` shares that differ by at most one, larger ones first.
pub(crate) fn evenly(total: u64, parts: usize) -> Vec<u64> {
    let parts = parts as u64;
    (0..parts).map(|part| total / parts + u64::from(part < total % parts)).collect()
}

/// `total` in shares as near to proportional to `weights` as whole numbers allow, none over its
/// limit, each at least 1 where `total` has enough; `None` where the limits do not hold `total`.
pub(crate) fn in_proportion(total: u64, weights: &[u64], limits: &[u64]) -> Option<Vec<u64>> {
    if limits.iter().fold(0u64, |sum, &limit| sum.saturating_add(limit)) < total {
        return None;
    }
    let least = u64::from(total >= weights.len() as u64);
    let mut shares: Vec<u64> = limits.iter().map(|&limit| least.min(limit)).collect();
    let mut rest = total - shares.iter().sum::<u64>();
    while rest > 0 {
        // The most underfilled share, by (share + 1) / weight, in blocks that keep the loop short.
        let open: u64 = (0..shares.len()).filter(|&i| shares[i] < limits[i]).map(|i| weights[i].max(1)).sum();
        let before = rest;
        for i in 0..shares.len() {
            let ideal = u128::from(before) * u128::from(weights[i].max(1)) / u128::from(open.max(1));
            let given = (ideal as u64).min(limits[i] - shares[i]).min(rest);
            shares[i] += given;
            rest -= given;
        }
        if rest == before {
            let next = most_underfilled(&shares, weights, limits)?;
            shares[next] += 1;
            rest -= 1;
        }
    }
    Some(shares)
}

/// Index of the share below its limit with the smallest (share + 1) / weight; the first of equals.
fn most_underfilled(shares: &[u64], weights: &[u64], limits: &[u64]) -> Option<usize> {
    let open = (0..shares.len()).filter(|&i| shares[i] < limits[i]);
    open.min_by(|&a, &b| {
        let left = u128::from(shares[a] + 1) * u128::from(weights[b].max(1));
        let right = u128::from(shares[b] + 1) * u128::from(weights[a].max(1));
        left.cmp(&right)
    })
}

/// What is to be filled further, or emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vessel {
    /// What it has.
    pub(crate) has: u64,
    /// What it may have at most.
    pub(crate) size: u64,
    /// Steps that it can take.
    pub(crate) room: u64,
}

/// How finely levels are told apart before steps are compared one by one.
const LEVEL: u128 = 1 << 32;

/// How many of `steps`, each of `step` units, each vessel takes so that all are as evenly full as
/// can be: the sum of size x (level - mean level)^2 is the least. The first of equals comes first.
/// `None` where they have no room for so many.
///
/// Each step goes where (2 has + step) / size is smallest: by so much, but for what is the same
/// everywhere, a step raises that sum, and the more a vessel has, the more it is raised, so that
/// the cheapest steps together are the best. (Sainte-Lague's rule for seats of a parliament.)
pub(crate) fn fill(vessels: &[Vessel], step: u64, steps: u64) -> Option<Vec<u64>> {
    if vessels.iter().fold(0u64, |sum, vessel| sum.saturating_add(vessel.room)) < steps {
        return None;
    }
    // Steps that end at or below a level.
    let below = |vessel: &Vessel, level: u128| {
        let twice = level * u128::from(vessel.size) / LEVEL;
        let first = 2 * u128::from(vessel.has) + u128::from(step);
        let taken = if twice < first { 0 } else { (twice - first) / (2 * u128::from(step.max(1))) + 1 };
        taken.min(u128::from(vessel.room)) as u64
    };
    let (mut low, mut high) = (0u128, 4 * LEVEL);
    while high - low > 1 {
        let level = (low + high) / 2;
        let all = vessels.iter().fold(0u64, |sum, vessel| sum.saturating_add(below(vessel, level)));
        if all <= steps { low = level } else { high = level }
    }
    let mut taken: Vec<u64> = vessels.iter().map(|vessel| below(vessel, low)).collect();
    // A level of 0 takes nothing.
    for _ in 0..steps.saturating_sub(taken.iter().sum()) {
        let next = cheapest(vessels, &taken, step)?;
        taken[next] += 1;
    }
    Some(taken)
}

/// Index of the vessel with room whose next step costs least; the first of equals.
fn cheapest(vessels: &[Vessel], taken: &[u64], step: u64) -> Option<usize> {
    let cost = |index: usize| 2 * u128::from(vessels[index].has + taken[index] * step) + u128::from(step);
    let open = (0..vessels.len()).filter(|&index| taken[index] < vessels[index].room);
    let size = |index: usize| u128::from(vessels[index].size.max(1));
    open.min_by(|&a, &b| (cost(a) * size(b)).cmp(&(cost(b) * size(a))))
}

/// The greatest common divisor of all numbers.
pub fn common_divisor(numbers: impl IntoIterator<Item = u32>) -> u32 {
    numbers.into_iter().fold(0, |a, b| {
        let (mut a, mut b) = (a, b);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights_up_to_the_limits() {
        assert_eq!(evenly(9, 2), [5, 4]);
        assert_eq!(in_proportion(12, &[8, 4], &[8, 4]), Some(vec![8, 4]));
        // 10 x 8/12 = 6.67 and 10 x 4/12 = 3.33.
        assert_eq!(in_proportion(10, &[8, 4], &[8, 4]), Some(vec![7, 3]));
        // 20 each, but the second holds 16: the rest goes to the first.
        assert_eq!(in_proportion(40, &[1, 1], &[32, 16]), Some(vec![24, 16]));
        assert_eq!(in_proportion(13, &[8, 4], &[8, 4]), None);
        assert_eq!(in_proportion(3, &[100, 1, 1], &[9, 9, 9]), Some(vec![1, 1, 1]));
    }

    fn vessels(of: &[(u64, u64)]) -> Vec<Vessel> {
        of.iter().map(|&(has, size)| Vessel { has, size, room: size - has }).collect()
    }

    #[test]
    fn vessels_are_filled_evenly() {
        // The thinnest first; then the first of equals.
        assert_eq!(fill(&vessels(&[(3, 8), (1, 8)]), 1, 2), Some(vec![0, 2]));
        assert_eq!(fill(&vessels(&[(3, 8), (1, 8)]), 1, 5), Some(vec![2, 3]));
        // Half of each: 4 of 8 and 2 of 4.
        assert_eq!(fill(&vessels(&[(0, 8), (0, 4)]), 1, 6), Some(vec![4, 2]));
        assert_eq!(fill(&vessels(&[(0, 8), (4, 4)]), 1, 9), None);
        assert_eq!(fill(&vessels(&[(0, 8), (4, 4)]), 1, 8), Some(vec![8, 0]));
        assert_eq!(fill(&[], 1, 0), Some(vec![]));
    }

    #[test]
    fn large_amounts_are_filled_in_little_time() {
        // 2^44 bytes in steps of 2 MiB on nodes of 2^45 and 2^44 bytes: two thirds and one third.
        let mib2 = 2 << 20;
        let of = |size: u64| Vessel { has: 0, size, room: size / mib2 };
        let taken = fill(&[of(1 << 45), of(1 << 44)], mib2, 1 << 23).expect("room");
        assert_eq!(taken, [5_592_405, 2_796_203]); // 2^23 / 3 = 2796202.67
    }

    #[test]
    fn common_divisors() {
        assert_eq!(common_divisor([10, 10, 10]), 10);
        assert_eq!(common_divisor([5, 4]), 1);
        assert_eq!(common_divisor([12, 8]), 4);
    }
}
