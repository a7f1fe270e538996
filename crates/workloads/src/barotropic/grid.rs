//! The operator, and the loops of an iteration, each over the rows of one thread.
//!
//! A row has a column of land at each end, where everything is 0, so that the inner loops need no
//! special case. Over the first and the last row stands no row, and nothing flows there.

use crate::WorkloadError;
use crate::crew::Crew;
use multiversion::multiversion;
use std::f64::consts::PI;
use std::ops::Range;

/// What holds the surface back where it is; depths are about 1, so the operator's condition is
/// about 8 / 0.1.
const INERTIA: f64 = 0.1;

/// The operator's coefficients at each point.
pub(super) struct Coefficients {
    /// Elements of a row.
    line: usize,
    /// Depth between a point and the next one in its row; and in its column.
    east: Vec<f64>,
    north: Vec<f64>,
    diagonal: Vec<f64>,
    /// One over the diagonal; 0 on land.
    pub(super) inverse: Vec<f64>,
}

impl Coefficients {
    pub(super) fn new(
        [columns, rows]: [usize; 2],
        shares: &[Range<usize>],
        crew: &Crew,
    ) -> Result<Coefficients, WorkloadError> {
        let line = columns + 2;
        let depth = |x: f64, y: f64| {
            let (x, y) = (2.0 * PI * x / columns as f64, 2.0 * PI * y / rows as f64);
            1.0 + 0.25 * (2.0 * x).sin() * y.cos() + 0.2 * (5.0 * x + 3.0 * y).cos()
        };
        let east = |index: usize| {
            let (x, y) = (index % line, index / line);
            if x == 0 || x >= columns { 0.0 } else { depth(x as f64 + 0.5, y as f64) }
        };
        let north = |index: usize| {
            let (x, y) = (index % line, index / line);
            let land = x == 0 || x > columns || y + 1 == rows;
            if land { 0.0 } else { depth(x as f64, y as f64 + 0.5) }
        };
        let diagonal = |index: usize| {
            let (x, y) = (index % line, index / line);
            if x == 0 || x > columns {
                return 0.0;
            }
            let south = if y == 0 { 0.0 } else { north(index - line) };
            INERTIA + east(index) + east(index - 1) + north(index) + south
        };
        let inverse = |index: usize| if diagonal(index) == 0.0 { 0.0 } else { 1.0 / diagonal(index) };
        Ok(Coefficients {
            line,
            east: crew.array(shares, east)?,
            north: crew.array(shares, north)?,
            diagonal: crew.array(shares, diagonal)?,
            inverse: crew.array(shares, inverse)?,
        })
    }

    pub(super) fn arrays(&self) -> [&Vec<f64>; 4] {
        [&self.east, &self.north, &self.diagonal, &self.inverse]
    }
}

/// `to = A x` for some rows.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
pub(super) fn apply(a: &Coefficients, rows: Range<usize>, x: &[f64], to: &mut [f64]) {
    let line = a.line;
    let last = x.len() / line - 1;
    for (row, to) in rows.zip(to.chunks_exact_mut(line)) {
        let at = |row: usize| row * line..(row + 1) * line;
        // Where no row stands the depth between is 0, or is taken for 0.
        let (south_row, north_row) = (row.saturating_sub(1), (row + 1).min(last));
        let (south, here, north) = (&x[at(south_row)], &x[at(row)], &x[at(north_row)]);
        let (depth_east, depth_north) = (&a.east[at(row)], &a.north[at(row)]);
        let diagonal = &a.diagonal[at(row)];
        let (depth_south, has_south) = (&a.north[at(south_row)], if row == 0 { 0.0 } else { 1.0 });
        for j in 1..line - 1 {
            to[j] = diagonal[j] * here[j]
                - depth_east[j] * here[j + 1]
                - depth_east[j - 1] * here[j - 1]
                - depth_north[j] * north[j]
                - has_south * depth_south[j] * south[j];
        }
    }
}

/// `(r, scaled)`, `(product, scaled)` and `(r, r)`.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
pub(super) fn sums(r: &[f64], scaled: &[f64], product: &[f64]) -> [f64; 3] {
    let mut sums = [[0.0; 4]; 3];
    let (r, r_rest) = r.as_chunks::<4>();
    let (scaled, scaled_rest) = scaled.as_chunks::<4>();
    let (product, product_rest) = product.as_chunks::<4>();
    for ((r, scaled), product) in r.iter().zip(scaled).zip(product) {
        for lane in 0..4 {
            sums[0][lane] += r[lane] * scaled[lane];
            sums[1][lane] += product[lane] * scaled[lane];
            sums[2][lane] += r[lane] * r[lane];
        }
    }
    for ((r, scaled), product) in r_rest.iter().zip(scaled_rest).zip(product_rest) {
        sums[0][0] += r * scaled;
        sums[1][0] += product * scaled;
        sums[2][0] += r * r;
    }
    sums.map(|sum| sum.iter().sum())
}

/// One step of the iteration: `s = scaled + beta s`, `p = product + beta p`, `x += alpha s`,
/// `r -= alpha p`, `scaled = inverse r`.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
pub(super) fn advance([alpha, beta]: [f64; 2], product: &[f64], inverse: &[f64], vectors: [&mut [f64]; 5]) {
    let [x, r, scaled, s, p] = vectors;
    let length = product.len();
    let (x, r, scaled, s, p) =
        (&mut x[..length], &mut r[..length], &mut scaled[..length], &mut s[..length], &mut p[..length]);
    let inverse = &inverse[..length];
    for at in 0..length {
        s[at] = scaled[at] + beta * s[at];
        p[at] = product[at] + beta * p[at];
        x[at] += alpha * s[at];
        r[at] -= alpha * p[at];
        scaled[at] = inverse[at] * r[at];
    }
}
