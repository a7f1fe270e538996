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
}
