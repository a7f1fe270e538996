//! The equations of NPB's LU, BT and SP (RNR-94-007): a compressible viscous flow on a cube, five
//! values at a point (density, three momenta, energy), with a forcing term that makes a polynomial
//! the steady solution.
//!
//! Along each direction: `du/dt = - dF/dx + dV/dx + d2u/dx2`, with the inviscid fluxes `F`, the
//! viscous ones `V`, and numerical dissipation.

use crate::kernel::fused;

/// Density, momentum along x, y and z, energy.
pub(super) type State = [f64; 5];

/// The ratio of the specific heats; NPB's `c1` and `c5`.
const GAMMA: f64 = 1.4;
/// NPB's `c2`.
const C2: f64 = 0.4;
/// The viscosity; NPB's `c3 c4`.
const VISCOSITY: f64 = 0.1;
/// NPB's `c1 c3 c4 c5`: of the conduction of heat.
const CONDUCTION: f64 = GAMMA * VISCOSITY * GAMMA;
/// Numerical diffusion along x, y and z.
pub(super) const DIFFUSION: [f64; 3] = [0.75, 0.75, 1.0];
/// Numerical dissipation of fourth order: the largest of [`DIFFUSION`] by 4.
pub(super) const DISSIPATION: f64 = 0.25;

/// Of NPB's steady solution, the coefficients of 1, x, y, z, x^2, ... z^4 for each value.
const SOLUTION: [[f64; 13]; 5] = [
    [2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3],
    [1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3],
    [5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2],
];

/// The steady solution at a place of the unit cube.
pub(super) fn solution(place: [f64; 3]) -> State {
    SOLUTION.map(|c| {
        let along = |axis: usize| {
            let x = place[axis];
            x * (c[1 + axis] + x * (c[4 + axis] + x * (c[7 + axis] + x * c[10 + axis])))
        };
        c[0] + along(0) + along(1) + along(2)
    })
}

/// The pressure.
pub(super) fn pressure(u: &State) -> f64 {
    C2 * (u[4] - kinetic(u))
}

fn kinetic(u: &State) -> f64 {
    0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0]
}

/// The inviscid flux along an axis.
#[inline(always)]
pub(super) fn inviscid<const FUSES: bool>(u: &State, axis: usize) -> State {
    let inverse = 1.0 / u[0];
    let square = fused::<FUSES>(u[3], u[3], fused::<FUSES>(u[2], u[2], u[1] * u[1]));
    let (speed, kinetic) = (u[1 + axis] * inverse, 0.5 * square * inverse);
    let energy = fused::<FUSES>(-C2, kinetic, GAMMA * u[4]);
    let mut flux = [u[1 + axis], u[1] * speed, u[2] * speed, u[3] * speed, energy * speed];
    flux[1 + axis] = fused::<FUSES>(C2, u[4] - kinetic, flux[1 + axis]);
    flux
}

/// The viscous flux between two neighbours, without the factors 1 / dx.
#[inline(always)]
pub(super) fn viscous<const FUSES: bool>(below: &State, above: &State, axis: usize) -> State {
    let over_density = |u: &State| {
        let inverse = 1.0 / u[0];
        [u[1] * inverse, u[2] * inverse, u[3] * inverse, u[4] * inverse]
    };
    let (a, b) = (over_density(above), over_density(below));
    let square = |v: &[f64; 4]| fused::<FUSES>(v[2], v[2], fused::<FUSES>(v[1], v[1], v[0] * v[0]));
    let mut flux = [0.0, VISCOSITY * (a[0] - b[0]), VISCOSITY * (a[1] - b[1]), VISCOSITY * (a[2] - b[2]), 0.0];
    flux[1 + axis] *= 4.0 / 3.0;
    let along = fused::<FUSES>(a[axis], a[axis], -b[axis] * b[axis]);
    let conducted = VISCOSITY * GAMMA * GAMMA * (a[3] - b[3]);
    let energy = fused::<FUSES>(0.5 * VISCOSITY * (1.0 - GAMMA * GAMMA), square(&a) - square(&b), conducted);
    flux[4] = fused::<FUSES>(VISCOSITY / 6.0, along, energy);
    flux
}

/// The Jacobian of [`inviscid`], times a vector.
#[inline(always)]
pub(super) fn inviscid_change<const FUSES: bool>(u: &State, axis: usize, change: &State) -> State {
    let inverse = 1.0 / u[0];
    let w = [u[1] * inverse, u[2] * inverse, u[3] * inverse];
    let half_square = 0.5 * fused::<FUSES>(w[2], w[2], fused::<FUSES>(w[1], w[1], w[0] * w[0]));
    let m = [change[1], change[2], change[3]];
    let along = fused::<FUSES>(w[1], m[1], w[0] * m[0]);
    let kinetic = fused::<FUSES>(w[2], m[2], fused::<FUSES>(-half_square, change[0], along));
    let speed = fused::<FUSES>(-w[axis], change[0], m[axis]) * inverse;
    let momentum = |at: usize| fused::<FUSES>(w[axis], fused::<FUSES>(-w[at], change[0], m[at]), w[at] * m[axis]);
    let carried = fused::<FUSES>(-C2, kinetic, GAMMA * change[4]) * w[axis];
    let energy = fused::<FUSES>(fused::<FUSES>(-C2 * half_square, u[0], GAMMA * u[4]), speed, carried);
    let mut product = [m[axis], momentum(0), momentum(1), momentum(2), energy];
    product[1 + axis] = fused::<FUSES>(C2, change[4] - kinetic, product[1 + axis]);
    product
}

/// The Jacobian of one side of [`viscous`], times a vector.
#[inline(always)]
pub(super) fn viscous_change<const FUSES: bool>(u: &State, axis: usize, change: &State) -> State {
    let inverse = 1.0 / u[0];
    let mut product = [0.0; 5];
    product[4] = CONDUCTION * inverse * fused::<FUSES>(-u[4] * inverse, change[0], change[4]);
    for at in 0..3 {
        let w = u[1 + at] * inverse;
        let relative = fused::<FUSES>(-w, change[0], change[1 + at]);
        let viscosity = VISCOSITY * if at == axis { 4.0 / 3.0 } else { 1.0 };
        product[1 + at] = viscosity * inverse * relative;
        product[4] = fused::<FUSES>((viscosity - CONDUCTION) * w * inverse, relative, product[4]);
    }
    product
}

/// Solves `x + sum over axes of factor (viscous_change x + diffusion x) = b`, a lower triangle.
#[inline(always)]
pub(super) fn solve_point<const FUSES: bool>(u: &State, factors: &[f64; 3], b: &State) -> State {
    let inverse = 1.0 / u[0];
    let sum = factors[0] + factors[1] + factors[2];
    let diagonal = 1.0 + (0..3).map(|axis| factors[axis] * DIFFUSION[axis]).sum::<f64>();
    // `b` is known last: the divisions do not wait for it.
    let by_diagonal = 1.0 / diagonal;
    let by_energy = 1.0 / (diagonal + sum * CONDUCTION * inverse);
    let mut x = [b[0] * by_diagonal, 0.0, 0.0, 0.0, 0.0];
    let mut energy = fused::<FUSES>(sum * CONDUCTION * u[4] * inverse * inverse, x[0], b[4]);
    for at in 0..3 {
        let (w, viscosity) = (u[1 + at] * inverse, VISCOSITY * (sum + factors[at] * (1.0 / 3.0)));
        let by_momentum = 1.0 / (diagonal + viscosity * inverse);
        x[1 + at] = fused::<FUSES>(viscosity * inverse * w, x[0], b[1 + at]) * by_momentum;
        let factor = (viscosity - CONDUCTION * sum) * w * inverse;
        energy = fused::<FUSES>(-factor, fused::<FUSES>(-w, x[0], x[1 + at]), energy);
    }
    x[4] = energy * by_energy;
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: State = [2.0, 0.3, -0.4, 0.5, 6.0];
    const CHANGE: State = [0.1, 0.2, -0.3, 0.4, 0.5];

    fn moved(by: f64) -> State {
        std::array::from_fn(|at| U[at] + by * CHANGE[at])
    }

    fn is_near(a: State, b: State) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} {b:?}");
    }

    #[test]
    fn the_jacobians_are_those_of_the_fluxes() {
        let step = 1e-4;
        for axis in 0..3 {
            let difference = |f: &dyn Fn(&State) -> State| {
                let (above, below) = (f(&moved(step)), f(&moved(-step)));
                std::array::from_fn(|at| (above[at] - below[at]) / (2.0 * step))
            };
            is_near(inviscid_change::<false>(&U, axis, &CHANGE), difference(&|u| inviscid::<false>(u, axis)));
            is_near(viscous_change::<false>(&U, axis, &CHANGE), difference(&|u| viscous::<false>(&U, u, axis)));
        }
    }

    #[test]
    fn a_point_is_solved() {
        let factors = [0.3, 0.5, 0.7];
        let mut b = CHANGE;
        for (axis, factor) in factors.into_iter().enumerate() {
            let change = viscous_change::<false>(&U, axis, &CHANGE);
            for at in 0..5 {
                b[at] += factor * (change[at] + DIFFUSION[axis] * CHANGE[at]);
            }
        }
        is_near(solve_point::<false>(&U, &factors, &b), CHANGE);
    }

    #[test]
    fn the_solution_is_npbs_at_a_corner() {
        // 2 + 4 + 5 + 3 + 0.5 + 0.02 + 0.01 + 0.03 + 0.5 + 0.4 + 0.3.
        assert!((solution([1.0; 3])[0] - 15.76).abs() < 1e-12);
    }
}
