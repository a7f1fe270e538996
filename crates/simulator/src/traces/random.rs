//! Random numbers from a seed, the same on every machine: SplitMix64 (Steele, Lea, Flood 2014).

/// A stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A stream of its own for a part, so that a draw more in one part changes nothing in another.
    pub fn part(seed: u64, part: u64) -> Self {
        Self { state: Self { state: seed }.bits() ^ part.wrapping_mul(0xd134_2543_de82_ef95) }
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From 0 up to, but not, 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `least` up to, but not, `most`.
    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.unit()
    }

    /// A number below `count`; 0 where `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponentially distributed around this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// One of these, by weight.
    pub fn weighted<'a, T>(&mut self, choices: &'a [(f64, T)]) -> &'a T {
        let mut left = self.unit() * choices.iter().map(|(weight, _)| weight).sum::<f64>();
        for (weight, choice) in choices {
            left -= weight;
            if left < 0.0 {
                return choice;
            }
        }
        &choices[choices.len() - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_published_generator() {
        // First outputs of SplitMix64 for seed 1234567, from its reference implementation.
        let mut random = Random::new(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn draws_stay_in_their_ranges() {
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            assert!((2.0..3.0).contains(&random.between(2.0, 3.0)));
            assert!(random.below(3) < 3);
            assert!(random.exponential(1.0) >= 0.0);
        }
        assert_eq!(random.below(0), 0);
    }
}
