//! The random numbers of NPB: a linear congruential generator modulo 2^46.

/// `x' = 5^13 x mod 2^46`, as NPB's report has it (Bailey et al., RNR-94-007).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

const MULTIPLIER: u64 = 1_220_703_125;
const MASK: u64 = (1 << 46) - 1;

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed & MASK)
    }

    /// The next number, in (0, 1).
    #[inline]
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER) & MASK;
        // Signed: the same number, and one instruction on every x86-64.
        self.0 as i64 as f64 / (1_u64 << 46) as f64
    }

    /// The generator so many numbers further on.
    pub(crate) fn ahead(self, numbers: u64) -> Random {
        let (mut state, mut power, mut left) = (self.0, MULTIPLIER, numbers);
        while left > 0 {
            if left & 1 == 1 {
                state = state.wrapping_mul(power) & MASK;
            }
            power = power.wrapping_mul(power) & MASK;
            left >>= 1;
        }
        Random(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_ahead_is_so_many_numbers() {
        let start = Random::new(314_159_265);
        let mut walked = start;
        for numbers in 0..100 {
            assert_eq!(walked.0, start.ahead(numbers).0);
            walked.next();
        }
        // 314159265 * 1220703125 = 383495197296142578125, whose lowest 46 bits are this.
        assert_eq!(start.ahead(1).0, (314_159_265_u128 * 1_220_703_125 % (1 << 46)) as u64);
    }
}
