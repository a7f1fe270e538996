//! A viscous flow on a cube, brought to its steady state by symmetric successive over-relaxation:
//! NPB's LU (Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, 1994). It stands for applu
//! of SPEC OMP and LU of SPEC MPI.
//!
//! Each of the two solves of an iteration goes through the cube as a wave, so that threads work one
//! behind the other and wait for each other at every plane.
//!
//! NPB makes a matrix of 5 x 5 for each point and its neighbours and factors it. Here only their
//! products with vectors are computed, and the matrix of a point is solved as the lower triangle
//! that it is. The result is the same; the operations are NPB's count, and fewer are done.

mod cube;
mod flow;
mod sweep;
mod verified;

use crate::WorkloadError;
use crate::crew::{Crew, cut};
use crate::kernel::{Class, Demand, Description, Kernel, Verification, memory_of};
use cube::{Cube, residual};
use flow::{State, pressure};
use std::ops::Range;
use sweep::{Edges, OMEGA, Wave, elements, solve};
use verified::{ERRORS, RESIDUALS, expected};

pub(crate) const DESCRIPTION: Description =
    Description { name: "ssor_wavefront", stands_for: "applu (SPEC OMP), lu (SPEC MPI)", demand, start };

/// Points along each side, iterations, and the length of a time step.
fn problem(class: Class) -> (usize, u32, f64) {
    match class {
        Class::S => (12, 50, 0.5),
        Class::W => (33, 300, 1.5e-3),
        Class::A => (64, 250, 2.0),
        Class::B => (102, 250, 2.0),
        Class::C => (162, 250, 2.0),
    }
}

struct SsorWavefront {
    class: Class,
    cube: Cube,
    dt: f64,
    /// Places along y of each thread, and their elements.
    places: Vec<Range<usize>>,
    shares: Vec<Range<usize>>,
    u: Vec<State>,
    forcing: Vec<State>,
    /// The residual, and then the change of `u`.
    change: Vec<State>,
    edges: Edges,
}

fn demand(class: Class) -> Demand {
    Demand::of(15 * problem(class).0.pow(3), operations(class))
}

/// NPB's count.
fn operations(class: Class) -> f64 {
    let (n, steps, _) = problem(class);
    let n = n as f64;
    f64::from(steps) * (1984.77 * n * n * n - 10_923.3 * n * n + 27_770.9 * n - 144_010.0)
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let (n, _, dt) = problem(class);
    let (cube, places) = (Cube(n), crew.shares(n));
    let shares: Vec<Range<usize>> = places.iter().map(|share| elements(cube, share)).collect();
    let zeros = || crew.array(&shares, |_| [0.0; 5]);
    let (u, forcing, change, edges) = (zeros()?, zeros()?, zeros()?, Edges::new(cube, crew.threads()));
    let mut kernel = SsorWavefront { class, cube, dt, places, shares, u, forcing, change, edges };
    // The forcing is the right-hand side of the solution, which so is steady.
    kernel.set(crew, |cube, place| cube.solution(place));
    kernel.find_residual(crew);
    std::mem::swap(&mut kernel.forcing, &mut kernel.change);
    Ok(Box::new(kernel))
}

impl Kernel for SsorWavefront {
    fn steps(&self) -> u32 {
        problem(self.class).1
    }

    fn operations(&self) -> f64 {
        operations(self.class)
    }

    fn reset(&mut self, crew: &Crew) {
        self.set(crew, Cube::start);
        self.find_residual(crew);
    }

    fn step(&mut self, crew: &Crew) {
        let dt = self.dt;
        crew.each(cut(&mut self.change, &self.shares), |_, part| {
            part.iter_mut().for_each(|change| *change = change.map(|value| dt * value));
        });
        for wave in [Wave::Up, Wave::Down] {
            let Self { cube, places, u, change, edges, .. } = self;
            solve((*cube, dt, wave), u, change, (places, edges), crew);
        }
        let Self { shares, u, change, .. } = self;
        crew.each(cut(u, shares), |thread, part| {
            for (u, change) in part.iter_mut().zip(&change[shares[thread].clone()]) {
                (0..5).for_each(|m| u[m] += change[m] / (OMEGA * (2.0 - OMEGA)));
            }
        });
        self.find_residual(crew);
    }

    fn verify(&mut self, _: &Crew) -> Vec<Verification> {
        let expected = expected(self.class);
        let errors = self.inside().map(|(place, index)| {
            let right = self.cube.solution(place);
            std::array::from_fn(|m| right[m] - self.u[index][m])
        });
        let errors = self.root_mean_square(errors);
        let residuals = self.root_mean_square(self.inside().map(|(_, index)| self.change[index]));
        let of = |(quantity, (value, expected)): (&'static str, (f64, f64))| {
            // The tolerance is NPB's.
            Verification { quantity, value, expected, tolerance: 1e-8 }
        };
        let residuals = RESIDUALS.into_iter().zip(residuals.into_iter().zip(expected.residuals));
        let errors = ERRORS.into_iter().zip(errors.into_iter().zip(expected.errors));
        let surface = ("surface integral", (self.surface(), expected.surface));
        residuals.chain(errors).chain([surface]).map(of).collect()
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        [&self.u, &self.forcing, &self.change].map(|array| memory_of(array)).to_vec()
    }
}

impl SsorWavefront {
    fn set(&mut self, crew: &Crew, value: impl Fn(Cube, [usize; 3]) -> State + Sync) {
        let (cube, shares) = (self.cube, &self.shares);
        crew.each(cut(&mut self.u, shares), |thread, part| {
            for (index, u) in shares[thread].clone().zip(part) {
                *u = value(cube, cube.place(index));
            }
        });
    }

    fn find_residual(&mut self, crew: &Crew) {
        let Self { cube, shares, u, forcing, change, .. } = self;
        crew.each(cut(change, shares), |thread, part| {
            let points = shares[thread].clone();
            residual(*cube, u, &forcing[points.clone()], points, part);
        });
    }

    fn inside(&self) -> impl Iterator<Item = ([usize; 3], usize)> {
        let cube = self.cube;
        let places = (0..cube.0.pow(3)).map(move |index| (cube.place(index), index));
        places.filter(move |(place, _)| cube.is_inside(*place))
    }

    fn root_mean_square(&self, all: impl Iterator<Item = State>) -> State {
        let add = |sum: State, one: State| std::array::from_fn(|m| sum[m] + one[m] * one[m]);
        all.fold([0.0; 5], add).map(|sum| (sum / ((self.cube.0 - 2) as f64).powi(3)).sqrt())
    }

    /// NPB's integral of the pressure over the faces of a box inside.
    fn surface(&self) -> f64 {
        let n = self.cube.0;
        // The box's first and last points along x, y and z.
        let ends = [[1, n - 2], [1, n - 3], [2, n - 2]];
        let mut sum = 0.0;
        for axis in 0..3 {
            let (one, other) = ((axis + 1) % 3, (axis + 2) % 3);
            for (end, a, b) in ends[axis].into_iter().flat_map(|end| {
                let a = ends[one][0]..ends[one][1];
                a.flat_map(move |a| (ends[other][0]..ends[other][1]).map(move |b| (end, a, b)))
            }) {
                for corner in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                    let mut place = [0; 3];
                    (place[axis], place[one], place[other]) = (end, a + corner[0], b + corner[1]);
                    sum += pressure(&self.u[self.cube.index(place)]);
                }
            }
        }
        0.25 * sum / self.cube.per_step().powi(2)
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::Class;
    use crate::kernel::tests::verifies;

    #[test]
    fn residuals_errors_and_the_surface_integral_are_npbs() {
        verifies("ssor_wavefront", Class::S, &[1, 2, 3]);
    }

    #[test]
    #[ignore = "takes long: make test-long and .ci/run run it"]
    fn those_of_the_larger_class_are_npbs() {
        verifies("ssor_wavefront", Class::W, &[2]);
    }
}
