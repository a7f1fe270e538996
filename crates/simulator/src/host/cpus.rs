//! CPUs inside a node, shared fairly by weight.

/// Who wants CPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Claim {
    /// CPUs that it would use.
    pub(crate) demand: f64,
    /// CPUs of the node that it may use at all.
    pub(crate) most: f64,
    /// Its weight.
    pub(crate) weight: f64,
}

impl Claim {
    fn wants(&self) -> f64 {
        self.demand.min(self.most)
    }
}

/// CPUs for each claim: all that it wants where there is enough, otherwise in proportion to weight,
/// no one more than it wants.
pub(crate) fn share(capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let mut given: Vec<f64> = claims.iter().map(Claim::wants).collect();
    if given.iter().sum::<f64>() <= capacity {
        return given;
    }
    // Whoever wants least for its weight is satisfied first; the rest shares what is left.
    let mut order: Vec<usize> = (0..claims.len()).filter(|&index| given[index] > 0.0).collect();
    let level = |index: usize| claims[index].wants() / claims[index].weight;
    order.sort_by(|&one, &other| level(one).total_cmp(&level(other)).then(one.cmp(&other)));
    let mut weight: f64 = order.iter().map(|&index| claims[index].weight).sum();
    let mut left = capacity;
    for index in order {
        let claim = &claims[index];
        given[index] = claim.wants().min(left * claim.weight / weight).max(0.0);
        left -= given[index];
        weight -= claim.weight;
    }
    given
}

/// As [`share`], on a node whose caches have `capacity` CPUs. A claim with a place keeps to that;
/// the others go where CPUs are left.
pub(crate) fn share_over(capacity: &[f64], claims: &[(Claim, Option<usize>)]) -> Vec<f64> {
    let only: Vec<Claim> = claims.iter().map(|(claim, _)| *claim).collect();
    let mut given = share(capacity.iter().sum(), &only);
    let mut full = vec![false; capacity.len()];
    // A place that its own claims fill is theirs; what is left is shared again.
    loop {
        let mut bound = vec![0.0; capacity.len()];
        for ((_, place), given) in claims.iter().zip(&given) {
            place.iter().for_each(|&place| bound[place] += given);
        }
        let over = (0..capacity.len()).find(|&place| !full[place] && bound[place] > capacity[place] + 1e-9);
        let Some(over) = over else { return given };
        full[over] = true;
        let is_in = |place: &Option<usize>| *place == Some(over);
        give(capacity[over], claims, is_in, &mut given);
        let left = (0..capacity.len()).filter(|&place| !full[place]).map(|place| capacity[place]).sum();
        give(left, claims, |place| !place.is_some_and(|place| full[place]), &mut given);
    }
}

/// Shares CPUs among those claims whose place is meant.
fn give(
    capacity: f64,
    claims: &[(Claim, Option<usize>)],
    is_meant: impl Fn(&Option<usize>) -> bool,
    given: &mut [f64],
) {
    let meant: Vec<usize> = (0..claims.len()).filter(|&index| is_meant(&claims[index].1)).collect();
    let only: Vec<Claim> = meant.iter().map(|&index| claims[index].0).collect();
    for (index, cpus) in meant.into_iter().zip(share(capacity, &only)) {
        given[index] = cpus;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(demand: f64, weight: f64) -> Claim {
        Claim { demand, most: 100.0, weight }
    }

    #[test]
    fn all_get_what_they_want_where_there_is_enough() {
        assert_eq!(share(8.0, &[claim(3.0, 1.0), claim(5.0, 9.0)]), [3.0, 5.0]);
        assert_eq!(share(8.0, &[Claim { demand: 6.0, most: 2.0, weight: 1.0 }]), [2.0]);
    }

    #[test]
    fn a_small_claim_is_met_and_the_rest_divided_by_weight() {
        // 8 CPUs: the claim of 1 is below its part (8/4 = 2); 7 are left for weights 1 and 2: 2.33
        // and 4.67.
        let given = share(8.0, &[claim(6.0, 1.0), claim(1.0, 1.0), claim(6.0, 2.0)]);
        assert!((given[0] - 7.0 / 3.0).abs() < 1e-12 && (given[2] - 14.0 / 3.0).abs() < 1e-12, "{given:?}");
        assert_eq!(given[1], 1.0);
    }

    #[test]
    fn nothing_is_given_twice() {
        let given = share(4.0, &[claim(3.0, 1.0), claim(3.0, 3.0), claim(3.0, 1e-3)]);
        assert!((given.iter().sum::<f64>() - 4.0).abs() < 1e-9, "{given:?}");
    }

    #[test]
    fn who_is_bound_to_a_full_cache_waits_though_another_is_idle() {
        // Two caches of 4 CPUs. Two claims of 4 keep to the first: 2 each. One of 5 may use all: 4
        // are left for it.
        let bound = (claim(4.0, 1.0), Some(0));
        assert_eq!(share_over(&[4.0, 4.0], &[bound, bound, (claim(5.0, 1.0), None)]), [2.0, 2.0, 4.0]);
        // One of 4 keeps to each: all is given.
        let apart = [bound, (claim(4.0, 1.0), Some(1))];
        assert_eq!(share_over(&[4.0, 4.0], &apart), [4.0, 4.0]);
        // Who may go anywhere leaves a cache to those who may not.
        assert_eq!(share_over(&[4.0, 4.0], &[bound, (claim(4.0, 1.0), None)]), [4.0, 4.0]);
    }
}
