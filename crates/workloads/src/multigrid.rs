//! V-cycles of a multigrid solver for Poisson's equation on a periodic cube: NPB's MG (Bailey et
//! al., "The NAS Parallel Benchmarks", RNR-94-007, 1994).
//!
//! The charge is +1 at ten random points and -1 at ten others. Each step is one V-cycle down to a
//! grid of 2 x 2 x 2 points and back, and the residual after it. Most of the time is bandwidth: the
//! finest grid is read and written several times in each cycle; the coarse grids are waiting for
//! each other. It stands for mgrid of SPEC OMP.

mod charge;
mod grid;

use crate::WorkloadError;
use crate::crew::Crew;
use crate::kernel::{Class, Demand, Description, Kernel, Verification, memory_of};
use grid::{Grid, Stencil};

pub(crate) const DESCRIPTION: Description =
    Description { name: "multigrid", stands_for: "mgrid (SPEC OMP)", demand, start };

/// The operator A by the distance of a point from the centre: itself, faces, edges, corners.
const OPERATOR: Stencil = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];

/// One class of NPB's.
struct Problem {
    /// The finest grid has `2^levels` points in each direction.
    levels: u32,
    steps: u32,
    /// The approximate inverse of A.
    smoother: Stencil,
    /// What the residual's L2 norm must be, from NPB's own verification.
    norm: f64,
}

fn problem(class: Class) -> Problem {
    let small = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0];
    let large = [-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0, 0.0];
    let (levels, steps, smoother, norm) = match class {
        Class::S => (5, 4, small, 0.5307707005734e-4),
        Class::W => (7, 4, small, 0.6467329375339e-5),
        Class::A => (8, 4, small, 0.2433365309069e-5),
        Class::B => (8, 20, large, 0.1800564401355e-5),
        Class::C => (9, 20, large, 0.5706732285740e-6),
    };
    Problem { levels, steps, smoother, norm }
}

struct Multigrid {
    problem: Problem,
    charge: Grid,
    /// The solution, and corrections of it; by level, the coarsest (2 x 2 x 2) first.
    solution: Vec<Grid>,
    residual: Vec<Grid>,
}

fn demand(class: Class) -> Demand {
    let problem = problem(class);
    // Three grids with borders; two of them have coarser ones, of together a seventh or so.
    let grid = |levels: u32| (1_usize << levels) * ((1 << levels) + 2_usize).pow(2);
    let coarser: usize = (1..problem.levels).map(grid).sum();
    Demand::of(3 * grid(problem.levels) + 2 * coarser, operations(&problem))
}

/// NPB's count.
fn operations(problem: &Problem) -> f64 {
    58.0 * f64::from(problem.steps) * (1_u64 << (3 * problem.levels)) as f64
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let problem = problem(class);
    let finest = 1 << problem.levels;
    let grids = || (1..=problem.levels).map(|level| Grid::new(1 << level, crew)).collect::<Result<Vec<_>, _>>();
    let (solution, residual, mut charge) = (grids()?, grids()?, Grid::new(finest, crew)?);
    charge::place(&mut charge, crew);
    Ok(Box::new(Multigrid { problem, charge, solution, residual }))
}

impl Kernel for Multigrid {
    fn steps(&self) -> u32 {
        self.problem.steps
    }

    fn operations(&self) -> f64 {
        operations(&self.problem)
    }

    fn reset(&mut self, crew: &Crew) {
        let finest = self.solution.len() - 1;
        self.solution[finest].clear(crew);
        self.find_residual(crew);
    }

    fn step(&mut self, crew: &Crew) {
        let finest = self.solution.len() - 1;
        for level in (1..=finest).rev() {
            let (coarse, fine) = self.residual.split_at_mut(level);
            coarse[level - 1].restrict(&fine[0], crew);
        }
        self.solution[0].clear(crew);
        self.smooth(0, crew);
        for level in 1..finest {
            self.solution[level].clear(crew);
            self.correct(level, crew);
            self.residual[level].subtract_stencil(None, &OPERATOR, &self.solution[level], crew);
            self.smooth(level, crew);
        }
        self.correct(finest, crew);
        self.find_residual(crew);
        self.smooth(finest, crew);
        self.find_residual(crew);
    }

    fn verify(&mut self, crew: &Crew) -> Vec<Verification> {
        let residual = &self.residual[self.residual.len() - 1];
        // The tolerance is NPB's.
        let (value, expected) = (residual.norm(crew), self.problem.norm);
        vec![Verification { quantity: "residual", value, expected, tolerance: 1e-8 }]
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        let grids = self.solution.iter().chain(&self.residual).chain([&self.charge]);
        grids.map(|grid| memory_of(grid.elements())).collect()
    }
}

impl Multigrid {
    /// `r = v - A u` on the finest grid.
    fn find_residual(&mut self, crew: &Crew) {
        let finest = self.solution.len() - 1;
        self.residual[finest].subtract_stencil(Some(&self.charge), &OPERATOR, &self.solution[finest], crew);
    }

    /// `u += S r`
    fn smooth(&mut self, level: usize, crew: &Crew) {
        self.solution[level].add_stencil(&self.problem.smoother, &self.residual[level], crew);
    }

    /// Adds what the next coarser grid found.
    fn correct(&mut self, level: usize, crew: &Crew) {
        let (coarse, fine) = self.solution.split_at_mut(level);
        fine[0].add_interpolated(&coarse[level - 1], crew);
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::Class;
    use crate::kernel::tests::verifies;

    #[test]
    fn the_residual_is_npbs_for_every_thread_count() {
        verifies("multigrid", Class::S, &[1, 2, 3]);
    }

    #[test]
    #[ignore = "takes long: make test-long and .ci/run run it"]
    fn the_residual_of_the_larger_classes_is_npbs() {
        verifies("multigrid", Class::W, &[2]);
        verifies("multigrid", Class::A, &[2]);
    }
}
