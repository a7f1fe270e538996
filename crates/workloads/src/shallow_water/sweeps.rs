//! The three sweeps of a step, each over the rows of one thread.
//!
//! A row has a border of one point at each end that repeats the other end: column `j` stands at
//! `j + 1`. Rows have none: the row before the first is the last. On this staggered grid `u`, and
//! the mass flux `cu`, lie half a row before the pressure, `v` and `cv` half a column before it,
//! and the vorticity half of both.

use multiversion::multiversion;
use std::ops::Range;

/// Metres between two points.
pub(super) const DX: f64 = 1e5;
/// Metres between two points.
pub(super) const DY: f64 = 1e5;
/// How strong the time filter is.
const ALPHA: f64 = 0.001;

/// How rows lie in an array.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// Rows and columns.
    pub(super) n: usize,
}

impl Row {
    /// A row with its border; the index may be one turn too large.
    #[inline(always)]
    pub(super) fn of(self, array: &[f64], index: usize) -> &[f64] {
        let (index, line) = (if index >= self.n { index - self.n } else { index }, self.n + 2);
        &array[index * line..][..line]
    }

    /// Sets all columns and the border.
    pub(super) fn fill(self, row: &mut [f64], value: impl Fn(usize) -> f64) {
        for j in 0..self.n {
            row[j + 1] = value(j);
        }
        self.wrap(row);
    }

    #[inline(always)]
    fn wrap(self, row: &mut [f64]) {
        row[0] = row[self.n];
        row[self.n + 1] = row[1];
    }
}

/// Mass fluxes, potential vorticity and head, of velocities and pressure.
#[multiversion(targets = "simd")]
pub(super) fn fluxes(row: Row, rows: Range<usize>, [u, v, p]: [&[f64]; 3], to: [&mut [f64]; 4]) {
    let (n, line) = (row.n, row.n + 2);
    let (four_over_dx, four_over_dy) = (4.0 / DX, 4.0 / DY);
    let [cu, cv, z, h] = to.map(|array| array.chunks_exact_mut(line));
    for ((((i, cu), cv), z), h) in rows.zip(cu).zip(cv).zip(z).zip(h) {
        let (p_before, v_before, u_next) = (row.of(p, i + n - 1), row.of(v, i + n - 1), row.of(u, i + 1));
        let (u, v, p) = (row.of(u, i), row.of(v, i), row.of(p, i));
        let (cu, cv, z, h) = (&mut cu[..line], &mut cv[..line], &mut z[..line], &mut h[..line]);
        for j in 1..line - 1 {
            cu[j] = 0.5 * (p[j] + p_before[j]) * u[j];
            cv[j] = 0.5 * (p[j] + p[j - 1]) * v[j];
            z[j] = (four_over_dx * (v[j] - v_before[j]) - four_over_dy * (u[j] - u[j - 1]))
                / (p_before[j - 1] + p[j - 1] + p[j] + p_before[j]);
            h[j] = p[j] + 0.25 * (u_next[j] * u_next[j] + u[j] * u[j] + v[j + 1] * v[j + 1] + v[j] * v[j]);
        }
        for array in [cu, cv, z, h] {
            row.wrap(array);
        }
    }
}

/// New velocities and pressure, from those of the step before.
#[multiversion(targets = "simd")]
pub(super) fn update(
    row: Row,
    rows: Range<usize>,
    seconds: f64,
    [cu, cv, z, h]: [&[f64]; 4],
    [u_old, v_old, p_old]: [&[f64]; 3],
    to: [&mut [f64]; 3],
) {
    let (n, line) = (row.n, row.n + 2);
    let (eighth, by_dx, by_dy) = (seconds / 8.0, seconds / DX, seconds / DY);
    let [u, v, p] = to.map(|array| array.chunks_exact_mut(line));
    for (((i, u), v), p) in rows.zip(u).zip(v).zip(p) {
        let (cv_before, h_before) = (row.of(cv, i + n - 1), row.of(h, i + n - 1));
        let (cu_next, z_next) = (row.of(cu, i + 1), row.of(z, i + 1));
        let (cu, cv, z, h) = (row.of(cu, i), row.of(cv, i), row.of(z, i), row.of(h, i));
        let (u_old, v_old, p_old) = (row.of(u_old, i), row.of(v_old, i), row.of(p_old, i));
        let (u, v, p) = (&mut u[..line], &mut v[..line], &mut p[..line]);
        for j in 1..line - 1 {
            u[j] = u_old[j] + eighth * (z[j + 1] + z[j]) * (cv[j + 1] + cv_before[j + 1] + cv_before[j] + cv[j])
                - by_dx * (h[j] - h_before[j]);
            v[j] = v_old[j]
                - eighth * (z_next[j] + z[j]) * (cu_next[j] + cu[j] + cu[j - 1] + cu_next[j - 1])
                - by_dy * (h[j] - h[j - 1]);
            p[j] = p_old[j] - by_dx * (cu_next[j] - cu[j]) - by_dy * (cv[j + 1] - cv[j]);
        }
        for array in [u, v, p] {
            row.wrap(array);
        }
    }
}

/// Moves on in time: what is now becomes old, smoothed with what was and will be; what is new is
/// now. Borders are points as all others. Behind the first step nothing is smoothed.
#[multiversion(targets = "simd")]
pub(super) fn smooth(first: bool, now: &mut [f64], old: &mut [f64], new: &[f64]) {
    let alpha = if first { 0.0 } else { ALPHA };
    for ((now, old), new) in now.iter_mut().zip(old).zip(new) {
        *old = *now + alpha * (new - 2.0 * *now + *old);
        *now = *new;
    }
}
