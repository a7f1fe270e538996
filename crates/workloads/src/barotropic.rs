//! The surface of an ocean: an elliptic equation in two dimensions, solved in every step by
//! preconditioned conjugate gradients in the form of Chronopoulos and Gear ("s-step iterative
//! methods for symmetric linear systems", J. Comput. Appl. Math. 25, 1989), which needs one global
//! sum in each iteration. So does the barotropic solver of the Parallel Ocean Program (Smith et
//! al., LAUR-10-01853, 2010), whose three usual grids are classes S, W and C.
//!
//! An iteration is two short loops, and after each all threads wait for each other: on the small
//! grids that is most of the time. It stands for pop2 of SPEC MPI.
//!
//! The equation is `c h - div (H grad h) = b` with depth `H` and no flux through the edges. `b` is
//! made of a surface that is known, so the solution is known.

mod grid;

use crate::WorkloadError;
use crate::crew::{Crew, cut, scaled};
use crate::kernel::{Class, Demand, Description, Kernel, Verification, memory_of};
use grid::{Coefficients, Vectors, advance, apply, apply_and_sum};
use std::f64::consts::PI;
use std::ops::Range;

pub(crate) const DESCRIPTION: Description =
    Description { name: "barotropic", stands_for: "pop2 (SPEC MPI)", demand, start };

/// An iteration ends when the residual is so small relative to the right-hand side.
const SMALL: f64 = 1e-12;
/// Where the equation is right the iteration ends long before.
const MOST_ITERATIONS: u32 = 1000;
/// About so many it takes.
const USUAL_ITERATIONS: u64 = 100;

/// Columns and rows.
fn size(class: Class) -> [usize; 2] {
    match class {
        Class::S => [100, 116],
        Class::W => [320, 384],
        Class::A => [900, 600],
        Class::B => [1800, 1200],
        Class::C => [3600, 2400],
    }
}

struct Barotropic {
    /// Columns and rows.
    n: [usize; 2],
    steps: u32,
    /// Rows of each thread, and their elements.
    rows: Vec<Range<usize>>,
    shares: Vec<Range<usize>>,
    coefficients: Coefficients,
    /// The surface, the right-hand side, and the vectors of the iteration.
    surface: Vec<f64>,
    right: Vec<f64>,
    r: Vec<f64>,
    /// The residual by the diagonal, and the operator's product with it.
    scaled: Vec<f64>,
    product: Vec<f64>,
    s: Vec<f64>,
    p: Vec<f64>,
    done: u32,
    iterations: u64,
    not_solved: u32,
}

/// Each step has a surface of its own.
fn steps(class: Class) -> u32 {
    if class == Class::S { 2 } else { 10 }
}

/// Counted: 27 for each point in each iteration.
fn operations([columns, rows]: [usize; 2], iterations: u64) -> f64 {
    27.0 * iterations as f64 * (columns * rows) as f64
}

fn demand(class: Class) -> Demand {
    let n = size(class);
    Demand::of(11 * (n[0] + 2) * n[1], operations(n, u64::from(steps(class)) * USUAL_ITERATIONS))
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let n = size(class);
    let rows = crew.shares(n[1]);
    let shares = scaled(&rows, n[0] + 2);
    let coefficients = Coefficients::new(n, &shares, crew)?;
    let zeros = || crew.array(&shares, |_| 0.0);
    let (surface, right, r, scaled, product, s, p) =
        (zeros()?, zeros()?, zeros()?, zeros()?, zeros()?, zeros()?, zeros()?);
    let (done, iterations, not_solved) = (0, 0, 0);
    Ok(Box::new(Barotropic {
        n,
        steps: steps(class),
        rows,
        shares,
        coefficients,
        surface,
        right,
        r,
        scaled,
        product,
        s,
        p,
        done,
        iterations,
        not_solved,
    }))
}

/// The surface of a step, at an element of an array.
fn known([columns, rows]: [usize; 2], step: u32, index: usize) -> f64 {
    let (x, y) = (index % (columns + 2), index / (columns + 2));
    if x == 0 || x > columns {
        return 0.0;
    }
    let (x, y) = (2.0 * PI * x as f64 / columns as f64, 2.0 * PI * y as f64 / rows as f64);
    let turn = f64::from(step);
    (3.0 * x + turn).sin() * (2.0 * y).cos() + 0.5 * (11.0 * x).cos() * (7.0 * y + turn).sin()
}

impl Kernel for Barotropic {
    fn steps(&self) -> u32 {
        self.steps
    }

    fn operations(&self) -> f64 {
        operations(self.n, self.iterations)
    }

    fn reset(&mut self, crew: &Crew) {
        crew.each(cut(&mut self.surface, &self.shares), |_, part| part.fill(0.0));
        (self.done, self.iterations, self.not_solved) = (0, 0, 0);
    }

    fn step(&mut self, crew: &Crew) {
        self.force(crew);
        self.solve(crew);
        self.done += 1;
    }

    fn verify(&mut self, crew: &Crew) -> Vec<Verification> {
        let (n, step, surface) = (self.n, self.done - 1, &self.surface);
        let errors = crew.each(self.shares.iter().cloned(), |_, share| {
            let error = |index| (surface[index] - known(n, step, index)).abs();
            share.map(error).fold(0.0, |most: f64, error| if error.is_nan() { error } else { most.max(error) })
        });
        let worst =
            errors.into_iter().fold(0.0, |most: f64, error| if error.is_nan() { error } else { most.max(error) });
        let not_solved = f64::from(self.not_solved);
        vec![
            // The operator's condition is about 10^2, so a residual of 10^-12 leaves 10^-10.
            Verification { quantity: "error of the surface", value: worst, expected: 0.0, tolerance: 1e-10 },
            Verification { quantity: "steps not solved", value: not_solved, expected: 0.0, tolerance: 0.0 },
        ]
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        let vectors = [&self.surface, &self.right, &self.r, &self.scaled, &self.product, &self.s, &self.p];
        vectors.into_iter().chain(self.coefficients.arrays()).map(|array| memory_of(array)).collect()
    }
}

impl Barotropic {
    /// The right-hand side of this step: the operator's product with the surface that is known.
    fn force(&mut self, crew: &Crew) {
        let (n, step, shares) = (self.n, self.done, &self.shares);
        crew.each(cut(&mut self.s, shares), |thread, part| {
            for (index, value) in shares[thread].clone().zip(part) {
                *value = known(n, step, index);
            }
        });
        let (coefficients, known, rows) = (&self.coefficients, &self.s, &self.rows);
        crew.each(cut(&mut self.right, shares), |thread, part| {
            apply(coefficients, rows[thread].clone(), known, part);
        });
    }

    /// Begins with the surface of the step before.
    fn solve(&mut self, crew: &Crew) {
        let Self { coefficients, rows, shares, surface, right, r, scaled, product, s, p, .. } = self;
        let coefficients = &*coefficients;
        crew.each(cut(product, shares), |thread, part| apply(coefficients, rows[thread].clone(), surface, part));
        let parts = cut(r, shares).into_iter().zip(cut(scaled, shares)).zip(cut(s, shares)).zip(cut(p, shares));
        let limit = crew.sum(parts, |thread, (((r, scaled), s), p)| {
            let share = shares[thread].clone();
            let (right, product, inverse) =
                (&right[share.clone()], &product[share.clone()], &coefficients.inverse[share]);
            for at in 0..r.len() {
                r[at] = right[at] - product[at];
                scaled[at] = inverse[at] * r[at];
            }
            s.fill(0.0);
            p.fill(0.0);
            right.iter().map(|value| value * value).sum()
        }) * SMALL
            * SMALL;
        let (mut rho_before, mut sigma) = (f64::INFINITY, 0.0);
        for _ in 0..MOST_ITERATIONS {
            let sums = crew.each(cut(product, shares), |thread, part| {
                let share = shares[thread].clone();
                apply_and_sum(coefficients, rows[thread].clone(), &r[share], scaled, part)
            });
            let [rho, delta, residual] =
                sums.into_iter().fold([0.0; 3], |sum, part| std::array::from_fn(|at| sum[at] + part[at]));
            if residual <= limit {
                return;
            }
            let beta = rho / rho_before;
            sigma = delta - beta * beta * sigma;
            let alpha = rho / sigma;
            rho_before = rho;
            let vectors = cut(surface, shares).into_iter().zip(cut(r, shares)).zip(cut(scaled, shares));
            let parts = vectors.zip(cut(s, shares)).zip(cut(p, shares));
            crew.each(parts, |thread, ((((surface, r), scaled), s), p)| {
                let share = shares[thread].clone();
                let (product, inverse) = (&product[share.clone()], &coefficients.inverse[share]);
                advance([alpha, beta], product, inverse, Vectors { surface, r, scaled, s, p });
            });
            self.iterations += 1;
        }
        self.not_solved += 1;
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::Class;
    use crate::kernel::tests::verifies;

    #[test]
    fn the_surface_is_the_known_one() {
        verifies("barotropic", Class::S, &[1, 2]);
    }
}
