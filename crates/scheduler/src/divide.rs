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

    #[test]
    fn common_divisors() {
        assert_eq!(common_divisor([10, 10, 10]), 10);
        assert_eq!(common_divisor([5, 4]), 1);
        assert_eq!(common_divisor([12, 8]), 4);
    }
}
