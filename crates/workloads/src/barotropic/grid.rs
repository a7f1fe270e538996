//! The operator, and the loops of an iteration, each over the rows of one thread.
//!
//! A row has a column of land at each end, where everything is 0, so that the inner loops need no
//! special case. Over the first and the last row stands no row, and nothing flows there.

use crate::WorkloadError;
use crate::crew::Crew;
use crate::kernel::fused;
use multiversion::{multiversion, target::target_cfg_f};
use std::f64::consts::PI;
use std::ops::Range;

/// What holds the surface back where it is; depths are about 1, so the operator's condition is
/// about 8 / 0.1.
const INERTIA: f64 = 0.1;

/// Elements that are added up side by side.
const LANES: usize = 8;
/// Elements of each vector in a piece: seven of them fit the first-level cache.
const PIECE: usize = 512;

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
    for (row, to) in rows.zip(to.chunks_exact_mut(a.line)) {
        apply_row::<{ target_cfg_f!(target_feature = "fma") }>(a, row, x, to);
    }
}

/// A row, of a length that the compiler sees: so the loop over it needs no checks.
#[inline(always)]
fn row_of(array: &[f64], row: usize, line: usize) -> &[f64] {
    &array[row * line..][..line]
}

#[inline(always)]
fn apply_row<const FUSES: bool>(a: &Coefficients, row: usize, x: &[f64], to: &mut [f64]) {
    let line = a.line;
    let last = x.len() / line - 1;
    // Where no row stands the depth between is 0, or is taken for 0.
    let (south_row, north_row) = (row.saturating_sub(1), (row + 1).min(last));
    let (south, here, north) = (row_of(x, south_row, line), row_of(x, row, line), row_of(x, north_row, line));
    let (depth_east, depth_north) = (row_of(&a.east, row, line), row_of(&a.north, row, line));
    let diagonal = row_of(&a.diagonal, row, line);
    let (depth_south, has_south) = (row_of(&a.north, south_row, line), if row == 0 { 0.0 } else { 1.0 });
    let to = &mut to[..line];
    for j in 1..line - 1 {
        let along = fused::<FUSES>(-depth_east[j], here[j + 1], diagonal[j] * here[j]);
        let along = fused::<FUSES>(-depth_east[j - 1], here[j - 1], along);
        let across = fused::<FUSES>(-depth_north[j], north[j], along);
        to[j] = fused::<FUSES>(-has_south * depth_south[j], south[j], across);
    }
}

/// `product = A scaled` for some rows, and the sums of `(r, scaled)`, `(product, scaled)` and `(r,
/// r)` over them, row by row, so that each comes from memory once.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
pub(super) fn apply_and_sum(
    a: &Coefficients,
    rows: Range<usize>,
    r: &[f64],
    scaled: &[f64],
    product: &mut [f64],
) -> [f64; 3] {
    const FUSES: bool = target_cfg_f!(target_feature = "fma");
    let line = a.line;
    let (mut rho, mut delta, mut residual) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    let mut rest = [0.0; 3];
    for ((row, r), product) in rows.zip(r.chunks_exact(line)).zip(product.chunks_exact_mut(line)) {
        apply_row::<FUSES>(a, row, scaled, product);
        let (r, r_rest) = r.as_chunks::<LANES>();
        let (scaled, scaled_rest) = row_of(scaled, row, line).as_chunks::<LANES>();
        let (product, product_rest) = product.as_chunks::<LANES>();
        // One after the other: together the compiler would pair sums that share a factor.
        add_products::<FUSES>(&mut rho, r, scaled);
        add_products::<FUSES>(&mut delta, product, scaled);
        add_products::<FUSES>(&mut residual, r, r);
        for ((r, scaled), product) in r_rest.iter().zip(scaled_rest).zip(product_rest) {
            rest = [rest[0] + r * scaled, rest[1] + product * scaled, rest[2] + r * r];
        }
    }
    let total = |lanes: [f64; LANES]| lanes.iter().sum::<f64>();
    [rest[0] + total(rho), rest[1] + total(delta), rest[2] + total(residual)]
}

#[inline(always)]
fn add_products<const FUSES: bool>(sums: &mut [f64; LANES], a: &[[f64; LANES]], b: &[[f64; LANES]]) {
    let mut all = *sums;
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            all[lane] = fused::<FUSES>(a[lane], b[lane], all[lane]);
        }
    }
    *sums = all;
}

/// The vectors that a step of the iteration changes, of some rows.
pub(super) struct Vectors<'a> {
    pub(super) surface: &'a mut [f64],
    pub(super) r: &'a mut [f64],
    pub(super) scaled: &'a mut [f64],
    pub(super) s: &'a mut [f64],
    pub(super) p: &'a mut [f64],
}

/// One step of the iteration: `s = scaled + beta s`, `p = product + beta p`, `surface += alpha s`,
/// `r -= alpha p`, `scaled = inverse r`. In pieces that stay in the cache from one loop to the
/// next: a loop over all of them at once would have to look whether they overlap.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
pub(super) fn advance([alpha, beta]: [f64; 2], product: &[f64], inverse: &[f64], vectors: Vectors<'_>) {
    const FUSES: bool = target_cfg_f!(target_feature = "fma");
    let Vectors { surface, r, scaled, s, p } = vectors;
    let pieces = surface.chunks_mut(PIECE).zip(r.chunks_mut(PIECE)).zip(scaled.chunks_mut(PIECE));
    let pieces = pieces.zip(s.chunks_mut(PIECE).zip(p.chunks_mut(PIECE)));
    for (((surface, r), scaled), (s, p), product, inverse) in pieces
        .zip(product.chunks(PIECE).zip(inverse.chunks(PIECE)))
        .map(|((first, second), (product, inverse))| (first, second, product, inverse))
    {
        for ((s, surface), scaled) in s.iter_mut().zip(surface).zip(scaled.iter()) {
            *s = fused::<FUSES>(beta, *s, *scaled);
            *surface = fused::<FUSES>(alpha, *s, *surface);
        }
        for ((p, r), product) in p.iter_mut().zip(r.iter_mut()).zip(product) {
            *p = fused::<FUSES>(beta, *p, *product);
            *r = fused::<FUSES>(-alpha, *p, *r);
        }
        for ((scaled, r), inverse) in scaled.iter_mut().zip(r.iter()).zip(inverse) {
            *scaled = inverse * r;
        }
    }
}
