//! The smallest eigenvalue of a sparse matrix by inverse iteration, each step of which solves a
//! system with 25 iterations of the conjugate gradient method: NPB's CG (Bailey et al., "The NAS
//! Parallel Benchmarks", RNR-94-007, 1994).
//!
//! Nearly all of the time goes to the product of the matrix with a vector: the matrix is streamed,
//! the vector is gathered at random. This is what solvers on unstructured grids do; it stands for
//! equake of SPEC OMP.

mod matrix;

use crate::WorkloadError;
use crate::crew::{Crew, cut};
use crate::kernel::{Class, Demand, Description, Kernel, Verification, memory_of};
use matrix::Rows;
use multiversion::multiversion;
use std::ops::Range;

pub(crate) const DESCRIPTION: Description =
    Description { name: "conjugate_gradient", stands_for: "equake (SPEC OMP)", demand, start };

/// Iterations of the conjugate gradient method in each step.
const ITERATIONS: u32 = 25;

/// One class of NPB's.
#[derive(Clone, Copy)]
struct Problem {
    /// Rows of the matrix.
    order: usize,
    /// Elements of each of the sparse vectors that the matrix is the sum of products of.
    nonzeros: usize,
    /// Outer steps.
    steps: u32,
    shift: f64,
    /// What zeta must be, from NPB's own verification.
    zeta: f64,
}

fn problem(class: Class) -> Problem {
    let (order, nonzeros, steps, shift, zeta) = match class {
        Class::S => (1400, 7, 15, 10.0, 8.5971775078648),
        Class::W => (7000, 8, 15, 12.0, 10.362595087124),
        Class::A => (14_000, 11, 15, 20.0, 17.130235054029),
        Class::B => (75_000, 13, 75, 60.0, 22.712745482631),
        Class::C => (150_000, 15, 75, 110.0, 28.973605592845),
    };
    Problem { order, nonzeros, steps, shift, zeta }
}

struct ConjugateGradient {
    problem: Problem,
    /// The rows of each thread.
    rows: Vec<Rows>,
    shares: Vec<Range<usize>>,
    x: Vec<f64>,
    z: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
    r: Vec<f64>,
    zeta: f64,
}

fn demand(class: Class) -> Demand {
    let problem = problem(class);
    let Problem { order, nonzeros, .. } = problem;
    // 12 bytes for each element of the matrix, and five vectors; 20 for each element of the sparse
    // vectors while it is made.
    let each = 12 * (nonzeros + 1).pow(2) + 5 * 8 + 20 * (nonzeros + 1);
    Demand::of(order * each / 8, operations(&problem))
}

/// NPB's count.
fn operations(problem: &Problem) -> f64 {
    let Problem { order, nonzeros, steps, .. } = *problem;
    let elements = (nonzeros * (nonzeros + 1)) as f64;
    2.0 * f64::from(steps) * order as f64 * (3.0 + elements + 25.0 * (5.0 + elements) + 3.0)
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let problem = problem(class);
    let shares = crew.shares(problem.order);
    let rows = matrix::rows(problem.order, problem.nonzeros, problem.shift, &shares, crew);
    let zeros = || crew.array(&shares, |_| 0.0);
    let (x, z, p, q, r) = (zeros()?, zeros()?, zeros()?, zeros()?, zeros()?);
    Ok(Box::new(ConjugateGradient { problem, rows, shares, x, z, p, q, r, zeta: 0.0 }))
}

impl Kernel for ConjugateGradient {
    fn steps(&self) -> u32 {
        self.problem.steps
    }

    fn operations(&self) -> f64 {
        operations(&self.problem)
    }

    fn reset(&mut self, crew: &Crew) {
        crew.each(cut(&mut self.x, &self.shares), |_, x| x.fill(1.0));
        self.zeta = 0.0;
    }

    fn step(&mut self, crew: &Crew) {
        self.solve(crew);
        let (x, z) = (&self.x, &self.z);
        let sums = crew.each(self.shares.iter().cloned(), |_, share| {
            (dot(&x[share.clone()], &z[share.clone()]), dot(&z[share.clone()], &z[share]))
        });
        let (xz, zz) = sums.into_iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        self.zeta = self.problem.shift + 1.0 / xz;
        let scale = 1.0 / zz.sqrt();
        crew.each(cut(&mut self.x, &self.shares), |thread, x| {
            for (x, z) in x.iter_mut().zip(&z[self.shares[thread].clone()]) {
                *x = scale * z;
            }
        });
    }

    fn verify(&mut self, _: &Crew) -> Vec<Verification> {
        // The tolerance is NPB's.
        vec![Verification { quantity: "zeta", value: self.zeta, expected: self.problem.zeta, tolerance: 1e-10 }]
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        let vectors = [&self.x, &self.z, &self.p, &self.q, &self.r].map(|vector| memory_of(vector));
        let rows = self.rows.iter().flat_map(|rows| [memory_of(&rows.values), memory_of(&rows.columns)]);
        vectors.into_iter().chain(rows).collect()
    }
}

impl ConjugateGradient {
    /// Solves `A z = x`.
    fn solve(&mut self, crew: &Crew) {
        let Self { rows, shares, x, z, p, q, r, .. } = self;
        let parts = cut(z, shares).into_iter().zip(cut(p, shares)).zip(cut(r, shares));
        let mut rho = crew.sum(parts, |thread, ((z, p), r)| {
            let x = &x[shares[thread].clone()];
            z.fill(0.0);
            p.copy_from_slice(x);
            r.copy_from_slice(x);
            dot(x, x)
        });
        for _ in 0..ITERATIONS {
            let pq = crew.sum(cut(q, shares), |thread, q| {
                multiply(&rows[thread], p, q);
                dot(&p[shares[thread].clone()], q)
            });
            let alpha = rho / pq;
            let before = rho;
            rho = crew.sum(cut(z, shares).into_iter().zip(cut(r, shares)), |thread, (z, r)| {
                let share = shares[thread].clone();
                descend(alpha, &p[share.clone()], &q[share], z, r)
            });
            let beta = rho / before;
            crew.each(cut(p, shares), |thread, p| {
                for (p, r) in p.iter_mut().zip(&r[shares[thread].clone()]) {
                    *p = r + beta * *p;
                }
            });
        }
    }
}

/// `q = A p`, for the rows of one thread.
#[multiversion(targets = "simd")]
fn multiply(rows: &Rows, p: &[f64], q: &mut [f64]) {
    for (q, ends) in q.iter_mut().zip(rows.starts.windows(2)) {
        let range = ends[0] as usize..ends[1] as usize;
        let (values, columns) = (&rows.values[range.clone()], &rows.columns[range]);
        // Four sums, so that an addition need not wait for the one before.
        let mut sums = [0.0; 4];
        let (fours, rest) = values.as_chunks::<4>();
        let (columns, columns_left) = columns.as_chunks::<4>();
        for (values, columns) in fours.iter().zip(columns) {
            for lane in 0..4 {
                sums[lane] += values[lane] * p[columns[lane] as usize];
            }
        }
        let left = rest.iter().zip(columns_left).map(|(value, &column)| value * p[column as usize]);
        *q = left.sum::<f64>() + (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
}

/// `z += alpha p; r -= alpha q`; the sum of the squares of r.
#[multiversion(targets = "simd")]
fn descend(alpha: f64, p: &[f64], q: &[f64], z: &mut [f64], r: &mut [f64]) -> f64 {
    for (((z, p), q), r) in z.iter_mut().zip(p).zip(q).zip(r.iter_mut()) {
        *z += alpha * p;
        *r -= alpha * q;
    }
    dot(r, r)
}

/// The inner product, in eight sums that are added at the end.
#[multiversion(targets = "simd")]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use crate::kernel::Class;
    use crate::kernel::tests::verifies;

    #[test]
    fn zeta_is_npbs_for_one_thread_and_two() {
        verifies("conjugate_gradient", Class::S, &[1, 2]);
    }

    #[test]
    #[ignore = "takes long: make test-long and .ci/run run it"]
    fn zeta_of_the_larger_classes_is_npbs() {
        verifies("conjugate_gradient", Class::W, &[2]);
        verifies("conjugate_gradient", Class::A, &[2]);
    }
}
