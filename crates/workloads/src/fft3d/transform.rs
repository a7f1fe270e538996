//! Complex Fourier transforms of lengths that are powers of two: Stockham's algorithm, eight
//! transforms at a time, so that each vector register holds the same element of several.

use crate::kernel::fused;
use multiversion::{multiversion, target::target_cfg_f};

/// Real and imaginary part.
pub(super) type Complex = [f64; 2];

/// Transforms at a time.
pub(super) const LANES: usize = 8;

/// One element of so many transforms: real parts, imaginary parts.
type Block = [[f64; LANES]; 2];

/// For each stage its roots of unity.
pub(super) type Roots = Vec<Vec<Complex>>;

/// The roots for transforms of length `n`, a power of two. Stage `s` has `n / 2^(s+1)` of them:
/// `exp(i pi k / (n / 2^(s+1)))`.
pub(super) fn roots(n: usize) -> Roots {
    let stage = |stage: u32| {
        let count = n >> (stage + 1);
        let root = |k: usize| {
            let angle = std::f64::consts::PI * k as f64 / count as f64;
            [angle.cos(), angle.sin()]
        };
        (0..count).map(root).collect()
    };
    (0..n.trailing_zeros()).map(stage).collect()
}

/// Room for the transforms that are under way.
pub(super) struct Scratch {
    from: Vec<Block>,
    to: Vec<Block>,
}

impl Scratch {
    /// For transforms of at most this length.
    pub(super) fn new(longest: usize) -> Scratch {
        Scratch { from: vec![[[0.0; LANES]; 2]; longest], to: vec![[[0.0; LANES]; 2]; longest] }
    }

    /// Transforms each of `LANES` consecutive rows.
    pub(super) fn rows(&mut self, sign: f64, roots: &Roots, rows: &mut [Complex]) {
        rows_at_once(sign, roots, rows, &mut self.from, &mut self.to);
    }

    /// Transforms each column of rows that lie apart.
    pub(super) fn columns(&mut self, sign: f64, roots: &Roots, rows: &mut [&mut [Complex]]) {
        columns_at_once(sign, roots, rows, &mut self.from, &mut self.to);
    }
}

#[multiversion(targets = "simd")]
fn rows_at_once(sign: f64, roots: &Roots, rows: &mut [Complex], from: &mut [Block], to: &mut [Block]) {
    let n = rows.len() / LANES;
    let (from, to) = (&mut from[..n], &mut to[..n]);
    for (lane, row) in rows.chunks_exact(n).enumerate() {
        for (block, value) in from.iter_mut().zip(row) {
            block[0][lane] = value[0];
            block[1][lane] = value[1];
        }
    }
    let done = stages::<{ target_cfg_f!(target_feature = "fma") }>(sign, roots, from, to);
    for (lane, row) in rows.chunks_exact_mut(n).enumerate() {
        for (block, value) in done.iter().zip(row) {
            *value = [block[0][lane], block[1][lane]];
        }
    }
}

#[multiversion(targets = "simd")]
fn columns_at_once(sign: f64, roots: &Roots, rows: &mut [&mut [Complex]], from: &mut [Block], to: &mut [Block]) {
    let n = rows.len();
    let (from, to) = (&mut from[..n], &mut to[..n]);
    for at in (0..rows[0].len()).step_by(LANES) {
        for (block, row) in from.iter_mut().zip(rows.iter()) {
            let values = row[at..].first_chunk::<LANES>().expect("rows are as long as whole blocks");
            let values = *values;
            *block = [values.map(|value| value[0]), values.map(|value| value[1])];
        }
        let done = stages::<{ target_cfg_f!(target_feature = "fma") }>(sign, roots, from, to);
        for (block, row) in done.iter().zip(rows.iter_mut()) {
            let values = row[at..].first_chunk_mut::<LANES>().expect("rows are as long as whole blocks");
            let block = *block;
            *values = std::array::from_fn(|lane| [block[0][lane], block[1][lane]]);
        }
    }
}

/// All stages; the result lies in one of the two.
#[inline(always)]
fn stages<'a, const FUSES: bool>(
    sign: f64,
    roots: &Roots,
    mut from: &'a mut [Block],
    mut to: &'a mut [Block],
) -> &'a [Block] {
    let half = from.len() / 2;
    for (stage, roots) in roots.iter().enumerate() {
        let width = 1 << stage;
        let (lower, upper) = from.split_at(half);
        let pairs = lower.chunks_exact(width).zip(upper.chunks_exact(width));
        for (((a, b), out), root) in pairs.zip(to.chunks_exact_mut(2 * width)).zip(roots) {
            let (sums, differences) = out.split_at_mut(width);
            let root = [root[0], sign * root[1]];
            for (((a, b), sum), difference) in a.iter().zip(b).zip(sums).zip(differences) {
                // Whole blocks are read before any is written: the compiler does not see that they
                // are different ones.
                let (a, b) = (*a, *b);
                let (mut added, mut turned) = ([[0.0; LANES]; 2], [[0.0; LANES]; 2]);
                for lane in 0..LANES {
                    added[0][lane] = a[0][lane] + b[0][lane];
                    added[1][lane] = a[1][lane] + b[1][lane];
                    let (re, im) = (a[0][lane] - b[0][lane], a[1][lane] - b[1][lane]);
                    turned[0][lane] = fused::<FUSES>(root[0], re, -root[1] * im);
                    turned[1][lane] = fused::<FUSES>(root[0], im, root[1] * re);
                }
                (*sum, *difference) = (added, turned);
            }
        }
        std::mem::swap(&mut from, &mut to);
    }
    from
}

/// Lets all frequencies decay by one step, and copies them.
#[multiversion(targets = "simd")]
pub(super) fn evolve(frequencies: &mut [Complex], values: &mut [Complex], decay: &[f64]) {
    for ((frequency, value), decay) in frequencies.iter_mut().zip(values).zip(decay) {
        *frequency = [frequency[0] * decay, frequency[1] * decay];
        *value = *frequency;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_is_the_sum_of_its_definition() {
        for n in [8, 16, 32] {
            let value = |lane: usize, k: usize| [((k * 7 + lane) % 11) as f64, ((k * 3 + 2 * lane) % 5) as f64];
            let mut rows: Vec<Complex> = (0..LANES * n).map(|at| value(at / n, at % n)).collect();
            Scratch::new(n).rows(1.0, &roots(n), &mut rows);
            for (at, found) in rows.iter().enumerate() {
                let (lane, frequency) = (at / n, at % n);
                let mut sum = [0.0; 2];
                for k in 0..n {
                    let (sin, cos) = (2.0 * std::f64::consts::PI * (k * frequency) as f64 / n as f64).sin_cos();
                    let [re, im] = value(lane, k);
                    sum = [sum[0] + re * cos - im * sin, sum[1] + re * sin + im * cos];
                }
                assert!((found[0] - sum[0]).hypot(found[1] - sum[1]) < 1e-12 * 100.0, "{n} {at}: {found:?} {sum:?}");
            }
        }
    }
}
