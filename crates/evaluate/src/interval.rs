//! 95 % confidence intervals of ratios, by resampling.
//!
//! **Rule.** What is compared is measured in turns, so that a round of both makes a pair: what the
//! machine did to one it mostly did to the other. Pairs are drawn with replacement, each whole, and
//! their geometric mean is taken again and again. The interval follows from how far the means of
//! the draws are from the mean of the pairs, in standard errors of their own (bootstrap-t; Efron
//! and Tibshirani 1993, chapter 12). Draws come from a fixed seed: the same figures give the same
//! interval.
//!
//! **Why so.** Of a few pairs the percentiles of the means are too narrow: on normally distributed
//! pairs they hold the true ratio 74 times in 100 with three pairs, 83 with five. Bootstrap-t holds
//! it about 95 times from four pairs on. Of three, one draw in nine repeats a single pair, and it
//! has no end: then there is no interval.
//!
//! **Example.** Pairs 0.90, 0.92, 0.94, 0.96, 0.98: their geometric mean is 0.940, the interval
//! 0.89 to 0.98.

use serde::{Deserialize, Serialize};
use simulator::traces::Random;

/// Fewest pairs of which there is an interval.
pub const FEWEST_PAIRS: usize = 4;
/// Draws: the ends are the 250th from either side.
const DRAWS: usize = 10_000;
/// Of all draws, what lies beyond either end.
const BEYOND: usize = DRAWS / 40;
/// An interval whose upper end is more times its lower one says nothing of the ratio.
const WIDEST: f64 = 10.0;
const SEED: u64 = 1;

/// Where a ratio is, with a confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether it holds a ratio.
    pub fn holds(&self, ratio: f64) -> bool {
        self.low <= ratio && ratio <= self.high
    }

    /// From end to end, in per cent of the ratio.
    pub fn width_percent(&self, ratio: f64) -> f64 {
        100.0 * (self.high - self.low) / ratio
    }
}

/// The geometric mean of ratios; `None` of none.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    mean(&logarithms).map(f64::exp)
}

/// The mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of what the values are drawn from; `None` of fewer than two.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    // That of equal values is nothing, not what rounding makes of it.
    if values.iter().all(|value| *value == values[0]) {
        return Some(0.0);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The interval of the geometric mean of ratios of pairs; `None` where they are too few, too many
/// of few are the same, or they differ so much that it says nothing.
pub fn of_pairs(ratios: &[f64]) -> Option<Interval> {
    of_samples(&[logarithms(ratios)?])
}

/// The interval of the geometric mean of `over` divided by that of `of`: of two runs, whose rounds
/// are no pairs, so that each draws its own.
pub fn of_runs(over: &[f64], of: &[f64]) -> Option<Interval> {
    let of: Vec<f64> = logarithms(of)?.iter().map(|value| -value).collect();
    of_samples(&[logarithms(over)?, of])
}

/// `None` where there are too few, or one has no logarithm.
fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    let all = values.iter().map(|value| Some(value.ln()).filter(|logarithm| logarithm.is_finite()));
    (values.len() >= FEWEST_PAIRS).then(|| all.collect()).flatten()
}

/// The sum of the samples' means, and its standard error.
fn sum_of_means(samples: &[Vec<f64>]) -> (f64, f64) {
    let (mut sum, mut variance) = (0.0, 0.0);
    for sample in samples {
        sum += mean(sample).unwrap_or_default();
        variance += standard_deviation(sample).unwrap_or_default().powi(2) / sample.len() as f64;
    }
    (sum, variance.sqrt())
}

/// The interval of the sum of the samples' means, as a ratio.
fn of_samples(samples: &[Vec<f64>]) -> Option<Interval> {
    let (at, error) = sum_of_means(samples);
    if error == 0.0 {
        return Some(Interval { low: at.exp(), high: at.exp() });
    }
    let mut random = Random::new(SEED);
    let mut drawn: Vec<Vec<f64>> = samples.to_vec();
    let mut distances: Vec<f64> = (0..DRAWS)
        .map(|_| {
            for (draw, sample) in drawn.iter_mut().zip(samples) {
                draw.fill_with(|| sample[random.below(sample.len())]);
            }
            let (mean, error) = sum_of_means(&drawn);
            match (mean - at, error) {
                (0.0, _) => 0.0,
                (distance, 0.0) => distance.signum() * f64::INFINITY,
                (distance, error) => distance / error,
            }
        })
        .collect();
    distances.sort_by(f64::total_cmp);
    let (least, most) = (distances[BEYOND].min(0.0), distances[DRAWS - 1 - BEYOND].max(0.0));
    let interval = Interval { low: (at - most * error).exp(), high: (at - least * error).exp() };
    // Not where an end is nowhere.
    (interval.high <= WIDEST * interval.low).then_some(interval).filter(|interval| interval.low > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Normally distributed around 0, by Box and Muller.
    fn normal(random: &mut Random) -> f64 {
        (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
    }

    #[test]
    fn the_example_is_what_all_possible_draws_give() {
        let ratios: [f64; 5] = [0.90, 0.92, 0.94, 0.96, 0.98];
        let logarithms = ratios.map(f64::ln);
        let (at, error) = sum_of_means(&[logarithms.to_vec()]);
        // All 5^5 draws instead of some: the ends of 95 % of their distances.
        let draw = |number: usize| (0..5).map(|place| logarithms[number / 5usize.pow(place) % 5]).collect::<Vec<f64>>();
        let mut distances: Vec<f64> = (0..5usize.pow(5))
            .map(|number| {
                let (mean, error) = sum_of_means(&[draw(number)]);
                if mean == at { 0.0 } else { (mean - at) / error }
            })
            .collect();
        distances.sort_by(f64::total_cmp);
        let end = |share: f64| distances[(share * distances.len() as f64) as usize];
        let (low, high) = ((at - end(0.975) * error).exp(), (at - end(0.025) * error).exp());
        let interval = of_pairs(&ratios).expect("five pairs");
        assert!(
            (interval.low - low).abs() < 0.005 && (interval.high - high).abs() < 0.005,
            "{interval:?} {low} {high}"
        );
        let said = (geometric_mean(&ratios), interval);
        let rounded = |value: f64| (100.0 * value).round() / 100.0;
        assert_eq!((said.0.map(rounded), rounded(interval.low), rounded(interval.high)), (Some(0.94), 0.89, 0.98));
        assert_eq!(of_pairs(&ratios), Some(interval), "the same again");
    }

    #[test]
    fn of_too_few_pairs_there_is_none() {
        assert_eq!(of_pairs(&[]), None);
        assert_eq!(of_pairs(&[0.9, 1.0, 1.1]), None);
        assert!(of_pairs(&[0.9, 1.0, 1.1, 1.05]).is_some());
        assert_eq!(of_pairs(&[1.0, 1.0, 1.0, 1.1]), None, "three that are the same say little");
        assert_eq!(of_pairs(&[1.0, 1.0, 1.0, 0.0]), None, "no ratio");
        assert_eq!(of_pairs(&[1.0, 1.1, 0.9, 90.0]), None, "so wide that it says nothing");
        assert_eq!(of_runs(&[1.0, 1.1, 1.2, 1.3], &[1.0, 1.1, 1.2]), None);
        assert_eq!(of_pairs(&[2.0; 4]).map(|one| one.low), Some(2.0));
        assert_eq!(geometric_mean(&[]), None);
    }

    /// What share of the intervals that are given hold the ratio that the pairs were drawn around.
    fn held(times: usize, pairs: usize, interval: impl Fn(&mut Random, usize) -> Option<Interval>) -> f64 {
        let mut random = Random::new(pairs as u64);
        let given: Vec<Interval> = (0..times).filter_map(|_| interval(&mut random, pairs)).collect();
        given.iter().filter(|interval| interval.holds(0.9)).count() as f64 / given.len() as f64
    }

    /// Values whose noise is normally distributed.
    fn noisy(random: &mut Random, count: usize, at: f64, noise: f64) -> Vec<f64> {
        (0..count).map(|_| at * (noise * normal(random)).exp()).collect()
    }

    fn of_noisy_pairs(random: &mut Random, pairs: usize) -> Option<Interval> {
        of_pairs(&noisy(random, pairs, 0.9, 0.02))
    }

    /// Of two runs, of which one is steadier.
    fn of_noisy_runs(random: &mut Random, rounds: usize) -> Option<Interval> {
        let over = noisy(random, rounds, 1800.0, 0.03);
        of_runs(&over, &noisy(random, rounds, 2000.0, 0.01))
    }

    #[test]
    fn the_true_ratio_is_mostly_inside() {
        // 0.95 by right; by chance 0.06 less in one of 10 000 such tests.
        assert!(held(200, 5, of_noisy_pairs) > 0.89);
        assert!(held(200, 5, of_noisy_runs) > 0.89);
    }

    #[test]
    #[ignore = "takes long: make test-long and .ci/run run it"]
    fn the_true_ratio_is_inside_95_times_in_100() {
        for pairs in [4, 5, 8, 20] {
            // 0.95 by right; by chance 0.03 more or less in one of 150 such tests.
            let inside = held(400, pairs, of_noisy_pairs);
            assert!((0.92..0.98).contains(&inside), "{pairs} pairs: {inside}");
            let inside = held(400, pairs, of_noisy_runs);
            assert!((0.92..0.99).contains(&inside), "two runs of {pairs} rounds: {inside}");
        }
    }

    properties::properties! {
        #![cases(64)]

        #[test]
        fn an_interval_holds_its_ratio(ratios in prop::collection::vec(0.01f64..100.0, 4..12)) {
            if let Some(interval) = of_pairs(&ratios) {
                let mean = geometric_mean(&ratios).expect("some");
                prop_assert!(interval.low <= mean * (1.0 + 1e-12) && mean * (1.0 - 1e-12) <= interval.high);
            }
        }

        #[test]
        fn the_other_way_round_it_is_the_inverse(ratios in prop::collection::vec(0.5f64..2.0, 5..12)) {
            let inverse: Vec<f64> = ratios.iter().map(|ratio| 1.0 / ratio).collect();
            if let (Some(one), Some(other)) = (of_pairs(&ratios), of_pairs(&inverse)) {
                prop_assert!((one.low * other.high - 1.0).abs() < 1e-9 && (one.high * other.low - 1.0).abs() < 1e-9);
            }
        }
    }
}
