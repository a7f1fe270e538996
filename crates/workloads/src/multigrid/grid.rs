//! A periodic cube of points, and what a V-cycle does with it.
//!
//! A plane of n x n points has a border of one point, which repeats the opposite side, so that the
//! inner loops need no special case. Planes themselves have none: the neighbour of the last plane
//! is the first. Each thread has consecutive planes.

use crate::WorkloadError;
use crate::crew::{Crew, cut, scaled};
use crate::kernel::fused;
use multiversion::{multiversion, target::target_cfg_f};
use std::ops::Range;

/// Weights by distance: the point itself, its faces, edges and corners.
pub(super) type Stencil = [f64; 4];

/// Grids that are this small are one thread's work: the others would wait longer than it works.
const SMALL: usize = 8;

pub(super) struct Grid {
    /// Points in each direction.
    n: usize,
    elements: Vec<f64>,
    planes: Vec<Range<usize>>,
}

/// A plane with those before and behind it.
type Around<'a> = [&'a [f64]; 3];

impl Grid {
    pub(super) fn new(n: usize, crew: &Crew) -> Result<Grid, WorkloadError> {
        let mut planes = crew.shares(n);
        if n <= SMALL {
            planes.fill(n..n);
            planes[0] = 0..n;
        }
        let elements = crew.array(&scaled(&planes, (n + 2) * (n + 2)), |_| 0.0)?;
        Ok(Grid { n, elements, planes })
    }

    /// Points in each direction.
    pub(super) fn points(&self) -> usize {
        self.n
    }

    /// All elements, borders too.
    pub(super) fn elements(&self) -> &[f64] {
        &self.elements
    }

    /// Sets a point: plane, row, column.
    pub(super) fn set(&mut self, [plane, row, column]: [usize; 3], value: f64) {
        let line = self.n + 2;
        self.elements[(plane * line + row + 1) * line + column + 1] = value;
    }

    pub(super) fn clear(&mut self, crew: &Crew) {
        self.each_plane(crew, |_, plane, _| plane.fill(0.0));
    }

    /// Makes all borders repeat the opposite sides.
    pub(super) fn wrap(&mut self, crew: &Crew) {
        let n = self.n;
        self.each_plane(crew, |_, plane, _| {
            for row in 1..=n {
                wrap_row(row, plane, n);
            }
            wrap_rows(plane, n);
        });
    }

    /// `self = of - stencil(u)`, or `self -= stencil(u)`.
    pub(super) fn subtract_stencil(&mut self, of: Option<&Grid>, stencil: &Stencil, u: &Grid, crew: &Crew) {
        let n = self.n;
        self.each_plane(crew, |index, plane, scratch| {
            residual(n, stencil, u.around(index), of.map(|of| of.plane(index)), plane, scratch);
        });
    }

    /// `self += stencil(r)`, for a stencil without corners.
    pub(super) fn add_stencil(&mut self, stencil: &Stencil, r: &Grid, crew: &Crew) {
        let n = self.n;
        self.each_plane(crew, |index, plane, scratch| smooth(n, stencil, r.around(index), plane, scratch));
    }

    /// Takes a finer grid's weighted means.
    pub(super) fn restrict(&mut self, fine: &Grid, crew: &Crew) {
        let n = self.n;
        self.each_plane(crew, |index, plane, scratch| restrict(n, fine.around(2 * index + 1), plane, scratch));
    }

    /// Adds a coarser grid, trilinearly interpolated.
    pub(super) fn add_interpolated(&mut self, coarse: &Grid, crew: &Crew) {
        let half = coarse.n;
        self.each_plane(crew, |index, plane, scratch| {
            let here = coarse.plane(index / 2);
            let other = (index % 2 == 0).then(|| coarse.plane((index / 2 + half - 1) % half));
            interpolate(half, here, other, plane, scratch);
        });
    }

    /// The L2 norm of the mean.
    pub(super) fn norm(&self, crew: &Crew) -> f64 {
        let n = self.n;
        let sum = crew.sum(self.planes.iter().cloned(), |_, planes| {
            let rows = planes.flat_map(|plane| self.plane(plane).chunks_exact(n + 2).skip(1).take(n));
            rows.flat_map(|row| &row[1..=n]).map(|value| value * value).sum()
        });
        (sum / (n * n * n) as f64).sqrt()
    }

    fn plane(&self, index: usize) -> &[f64] {
        let size = (self.n + 2) * (self.n + 2);
        &self.elements[index * size..(index + 1) * size]
    }

    fn around(&self, index: usize) -> Around<'_> {
        [(index + self.n - 1) % self.n, index, (index + 1) % self.n].map(|index| self.plane(index))
    }

    /// Each thread goes through its planes: index, plane, and room for some rows of the finer grid.
    fn each_plane(&mut self, crew: &Crew, work: impl Fn(usize, &mut [f64], &mut [f64]) + Sync) {
        let (n, size) = (self.n, (self.n + 2) * (self.n + 2));
        let through = |planes: Range<usize>, part: &mut [f64]| {
            let mut scratch = vec![0.0; 2 * (2 * n + 2)];
            for (index, plane) in planes.zip(part.chunks_exact_mut(size)) {
                work(index, plane, &mut scratch);
            }
        };
        if n <= SMALL {
            return through(0..n, &mut self.elements);
        }
        let parts = cut(&mut self.elements, &scaled(&self.planes, size));
        crew.each(parts, |thread, part| through(self.planes[thread].clone(), part));
    }
}

#[inline(always)]
fn wrap_row(row: usize, plane: &mut [f64], n: usize) {
    let row = &mut plane[row * (n + 2)..(row + 1) * (n + 2)];
    row[0] = row[n];
    row[n + 1] = row[1];
}

#[inline(always)]
fn wrap_rows(plane: &mut [f64], n: usize) {
    let line = n + 2;
    plane.copy_within(n * line..(n + 1) * line, 0);
    plane.copy_within(line..2 * line, (n + 1) * line);
}

/// Of each column around a row: the sum of its four faces, and of its four edges.
#[inline(always)]
fn columns([before, here, behind]: Around<'_>, row: usize, line: usize, faces: &mut [f64], edges: &mut [f64]) {
    let take = |row: usize| row * line..(row + 1) * line;
    let (north, south) = (&here[take(row - 1)], &here[take(row + 1)]);
    let (front, back) = (&before[take(row)], &behind[take(row)]);
    let (a, b) = (&before[take(row - 1)], &before[take(row + 1)]);
    let (c, d) = (&behind[take(row - 1)], &behind[take(row + 1)]);
    let (faces, edges) = (&mut faces[..line], &mut edges[..line]);
    for i in 0..line {
        faces[i] = north[i] + south[i] + front[i] + back[i];
        edges[i] = a[i] + b[i] + c[i] + d[i];
    }
}

/// One plane of `r = v - A u`, or of `r -= A u`. The weight of the faces is 0 in NPB's operator.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
#[allow(clippy::needless_range_loop, reason = "five rows are read at one place: with iterators half as fast")]
fn residual(n: usize, a: &Stencil, u: Around<'_>, v: Option<&[f64]>, r: &mut [f64], scratch: &mut [f64]) {
    const FUSES: bool = target_cfg_f!(target_feature = "fma");
    let line = n + 2;
    let at = |i: usize, of: f64, here: &[f64], faces: &[f64], edges: &[f64]| {
        let of = fused::<FUSES>(-a[0], here[i], of);
        let of = fused::<FUSES>(-a[2], edges[i] + faces[i - 1] + faces[i + 1], of);
        fused::<FUSES>(-a[3], edges[i - 1] + edges[i + 1], of)
    };
    let (faces, edges) = scratch.split_at_mut(line);
    for row in 1..=n {
        columns(u, row, line, faces, edges);
        let here = &u[1][row * line..][..line];
        let (faces, edges) = (&faces[..line], &edges[..line]);
        let to = &mut r[row * line..][..line];
        if let Some(v) = v {
            let v = &v[row * line..][..line];
            for i in 1..line - 1 {
                to[i] = at(i, v[i], here, faces, edges);
            }
        } else {
            for i in 1..line - 1 {
                to[i] = at(i, to[i], here, faces, edges);
            }
        }
        wrap_row(row, r, n);
    }
    wrap_rows(r, n);
}

/// One plane of `u += S r`. The weight of the corners is 0 in NPB's smoothers.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
fn smooth(n: usize, s: &Stencil, r: Around<'_>, u: &mut [f64], scratch: &mut [f64]) {
    const FUSES: bool = target_cfg_f!(target_feature = "fma");
    let line = n + 2;
    let (faces, edges) = scratch.split_at_mut(line);
    for row in 1..=n {
        columns(r, row, line, faces, edges);
        let here = &r[1][row * line..][..line];
        let (faces, edges) = (&faces[..line], &edges[..line]);
        let to = &mut u[row * line..][..line];
        for i in 1..line - 1 {
            let sum = fused::<FUSES>(s[0], here[i], to[i]);
            let sum = fused::<FUSES>(s[1], here[i - 1] + here[i + 1] + faces[i], sum);
            to[i] = fused::<FUSES>(s[2], edges[i] + faces[i - 1] + faces[i + 1], sum);
        }
        wrap_row(row, u, n);
    }
    wrap_rows(u, n);
}

/// One plane of a coarse grid of n points: weights 1/2, 1/4, 1/8, 1/16 by distance around the fine
/// point that is there. `fine` is the fine plane there, with those around it.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
fn restrict(n: usize, fine: Around<'_>, coarse: &mut [f64], scratch: &mut [f64]) {
    let (line, fine_line) = (n + 2, 2 * n + 2);
    let (faces, edges) = scratch.split_at_mut(fine_line);
    for row in 1..=n {
        columns(fine, 2 * row, fine_line, faces, edges);
        let here = &fine[1][2 * row * fine_line..][..fine_line];
        // Two fine points for each coarse one: a pair has the point itself and the next.
        let [here, faces, edges] = [here, &faces[..], &edges[..]].map(|row| &row.as_chunks::<2>().0[..line - 1]);
        let to = &mut coarse[row * line..][..line];
        for i in 1..line - 1 {
            to[i] = 0.5 * here[i][0]
                + 0.25 * (here[i - 1][1] + here[i][1] + faces[i][0])
                + 0.125 * (faces[i - 1][1] + faces[i][1] + edges[i][0])
                + 0.0625 * (edges[i - 1][1] + edges[i][1]);
        }
        wrap_row(row, coarse, n);
    }
    wrap_rows(coarse, n);
}

/// Adds one plane, interpolated from a coarse grid of `half` points: from the plane that lies
/// there, or from the two that it lies between. Borders are points as all others.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
fn interpolate(half: usize, here: &[f64], other: Option<&[f64]>, fine: &mut [f64], scratch: &mut [f64]) {
    let (line, fine_line) = (half + 2, 2 * half + 2);
    let (a, b) = scratch.split_at_mut(fine_line);
    let (mut a, mut b) = (&mut a[..line], &mut b[..line]);
    let load = |row: usize, to: &mut [f64]| match other {
        Some(other) => {
            let rows = here[row * line..][..line].iter().zip(&other[row * line..][..line]);
            for (to, (x, y)) in to.iter_mut().zip(rows) {
                *to = 0.5 * (x + y);
            }
        }
        None => to.copy_from_slice(&here[row * line..][..line]),
    };
    load(0, a);
    for (row, pair) in fine.chunks_exact_mut(2 * fine_line).enumerate() {
        load(row + 1, b);
        let (upper, lower) = pair.split_at_mut(fine_line);
        let (upper, lower) =
            (&mut upper.as_chunks_mut::<2>().0[..line - 1], &mut lower.as_chunks_mut::<2>().0[..line - 1]);
        let (above, below) = (&a[..line], &b[..line]);
        for i in 0..line - 1 {
            let (here, next) = (above[i] + below[i], above[i + 1] + below[i + 1]);
            upper[i] = [upper[i][0] + above[i], upper[i][1] + 0.5 * (above[i] + above[i + 1])];
            lower[i] = [lower[i][0] + 0.5 * here, lower[i][1] + 0.25 * (here + next)];
        }
        std::mem::swap(&mut a, &mut b);
    }
}
