//! The cube of points, and the right-hand side of the equations on it. Rows along x, then planes
//! along z, then y: each thread has consecutive places along y.

use super::flow::{DIFFUSION, DISSIPATION, State, inviscid, solution, viscous};
use crate::kernel::fused;
use multiversion::{multiversion, target::target_cfg_f};
use std::ops::Range;

/// Points along each side.
#[derive(Clone, Copy)]
pub(super) struct Cube(pub(super) usize);

impl Cube {
    /// Where a point is in an array.
    pub(super) fn index(self, [x, y, z]: [usize; 3]) -> usize {
        (y * self.0 + z) * self.0 + x
    }

    pub(super) fn place(self, index: usize) -> [usize; 3] {
        [index % self.0, index / (self.0 * self.0), index / self.0 % self.0]
    }

    /// From a point to its neighbour along x, y and z.
    pub(super) fn strides(self) -> [usize; 3] {
        [1, self.0 * self.0, self.0]
    }

    /// Whether a point is inside, where the equations hold.
    pub(super) fn is_inside(self, place: [usize; 3]) -> bool {
        place.iter().all(|at| (1..self.0 - 1).contains(at))
    }

    /// 1 / dx.
    pub(super) fn per_step(self) -> f64 {
        (self.0 - 1) as f64
    }

    /// The steady solution at a point.
    pub(super) fn solution(self, place: [usize; 3]) -> State {
        solution(place.map(|at| at as f64 / self.per_step()))
    }

    /// NPB's start values: the steady solution on the faces, and inside what these imply.
    pub(super) fn start(self, place: [usize; 3]) -> State {
        if !self.is_inside(place) {
            return self.solution(place);
        }
        let between = |axis: usize| -> State {
            let at = |end: usize| {
                let mut face = place;
                face[axis] = end;
                self.solution(face)
            };
            let (share, low, high) = (place[axis] as f64 / self.per_step(), at(0), at(self.0 - 1));
            std::array::from_fn(|m| (1.0 - share) * low[m] + share * high[m])
        };
        let [x, y, z] = [between(0), between(1), between(2)];
        std::array::from_fn(|m| x[m] + y[m] + z[m] - x[m] * y[m] - y[m] * z[m] - z[m] * x[m] + x[m] * y[m] * z[m])
    }
}

/// `to = R(u) - forcing` for the points of a part that begins at `points.start`; 0 on the faces.
#[multiversion(targets = "simd")]
pub(super) fn residual(cube: Cube, u: &[State], forcing: &[State], points: Range<usize>, to: &mut [State]) {
    for (index, (to, forcing)) in points.zip(to.iter_mut().zip(forcing)) {
        let place = cube.place(index);
        *to = [0.0; 5];
        if cube.is_inside(place) {
            *to = right_hand_side::<{ target_cfg_f!(target_feature = "fma") }>(cube, u, place, index);
            (0..5).for_each(|m| to[m] -= forcing[m]);
        }
    }
}

#[inline(always)]
fn right_hand_side<const FUSES: bool>(cube: Cube, u: &[State], place: [usize; 3], index: usize) -> State {
    let mut sum = [0.0; 5];
    // Not a loop: what is known of an axis is known when this is compiled.
    add_along::<FUSES>(0, cube, u, place[0], index, &mut sum);
    add_along::<FUSES>(1, cube, u, place[1], index, &mut sum);
    add_along::<FUSES>(2, cube, u, place[2], index, &mut sum);
    sum
}

/// Adds what an axis contributes, on which the point is at `at`.
#[inline(always)]
fn add_along<const FUSES: bool>(axis: usize, cube: Cube, u: &[State], at: usize, index: usize, sum: &mut State) {
    let (n, per_step, stride) = (cube.0, cube.per_step(), cube.strides()[axis]);
    let (below, here, above) = (&u[index - stride], &u[index], &u[index + stride]);
    let (flux_below, flux_above) = (inviscid::<FUSES>(below, axis), inviscid::<FUSES>(above, axis));
    let (viscous_below, viscous_above) = (viscous::<FUSES>(below, here, axis), viscous::<FUSES>(here, above, axis));
    // The dissipation is one-sided beside the faces.
    let centre = if at == 1 || at == n - 2 { 5.0 } else { 6.0 };
    let (near_below, near_above) = (if at > 1 { 4.0 } else { 0.0 }, if at < n - 2 { 4.0 } else { 0.0 });
    let far_below = if at > 2 { &u[index - 2 * stride] } else { &[0.0; 5] };
    let far_above = if at < n - 3 { &u[index + 2 * stride] } else { &[0.0; 5] };
    let (half, square) = (0.5 * per_step, per_step * per_step);
    for m in 0..5 {
        let fluxes = fused::<FUSES>(-half, flux_above[m] - flux_below[m], sum[m]);
        let viscous = fused::<FUSES>(square, viscous_above[m] - viscous_below[m], fluxes);
        let second = fused::<FUSES>(-2.0, here[m], below[m] + above[m]);
        let far = fused::<FUSES>(centre, here[m], far_below[m] + far_above[m]);
        let fourth = fused::<FUSES>(-near_below, below[m], fused::<FUSES>(-near_above, above[m], far));
        sum[m] = fused::<FUSES>(-DISSIPATION, fourth, fused::<FUSES>(DIFFUSION[axis] * square, second, viscous));
    }
}
