//! The cube of points, and the right-hand side of the equations on it. Rows along x, then planes
//! along z, then y: each thread has consecutive places along y.

use super::flow::{DIFFUSION, DISSIPATION, State, inviscid, solution, viscous};
use multiversion::multiversion;
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
            *to = right_hand_side(cube, u, place, index);
            (0..5).for_each(|m| to[m] -= forcing[m]);
        }
    }
}

#[inline(always)]
fn right_hand_side(cube: Cube, u: &[State], place: [usize; 3], index: usize) -> State {
    let (n, per_step) = (cube.0, cube.per_step());
    let mut sum = [0.0; 5];
    for (axis, stride) in cube.strides().into_iter().enumerate() {
        let (below, here, above) = (&u[index - stride], &u[index], &u[index + stride]);
        let (flux_below, flux_above) = (inviscid(below, axis), inviscid(above, axis));
        let (viscous_below, viscous_above) = (viscous(below, here, axis), viscous(here, above, axis));
        for m in 0..5 {
            sum[m] -= 0.5 * per_step * (flux_above[m] - flux_below[m]);
            sum[m] += per_step * per_step * (viscous_above[m] - viscous_below[m]);
            sum[m] += DIFFUSION[axis] * per_step * per_step * (below[m] - 2.0 * here[m] + above[m]);
        }
        // One-sided beside the faces.
        let at = place[axis];
        for m in 0..5 {
            let centre = if at == 1 || at == n - 2 { 5.0 } else { 6.0 };
            let mut fourth = centre * here[m];
            if at > 1 {
                fourth += -4.0 * below[m];
            }
            if at > 2 {
                fourth += u[index - 2 * stride][m];
            }
            if at < n - 2 {
                fourth += -4.0 * above[m];
            }
            if at < n - 3 {
                fourth += u[index + 2 * stride][m];
            }
            sum[m] -= DISSIPATION * fourth;
        }
    }
    sum
}
