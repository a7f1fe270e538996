//! Quarks on a lattice in four dimensions: conjugate gradients with the Wilson operator (Wilson,
//! "Confinement of quarks", Phys. Rev. D 10, 1974) on the normal equations. For each site eight
//! matrices of SU(3) are multiplied with half spinors of the neighbours.
//!
//! Matrices and spinors are streamed, so it is bandwidth once the lattice has left the caches, with
//! much more arithmetic for each byte than STREAM. It stands for wupwise of SPEC OMP and milc of
//! SPEC MPI.
//!
//! The field of matrices is `U_mu(x) = g(x) g(x + mu)^+` with a random `g(x)`: to the program a
//! field as any other, but one in which everything is known. Every plaquette is 1, and plane waves
//! that are turned by `g` are eigenvectors of the operator.

mod dslash;
mod lattice;
mod su3;

use crate::WorkloadError;
use crate::crew::{Crew, cut};
use crate::kernel::{Class, Demand, Description, Kernel, Verification, memory_of};
use dslash::{Links, Spinor, apply};
use lattice::Lattice;
use std::ops::Range;

pub(crate) const DESCRIPTION: Description =
    Description { name: "lattice_dslash", stands_for: "wupwise (SPEC OMP), milc (SPEC MPI)", demand, start };

/// Iterations of a run. Eigenvalues lie between (1 - 8 KAPPA)^2 and (1 + 8 KAPPA)^2, which are 0.04
/// and 3.24: the error falls by 0.8 in each, and by 2e-10 in 100.
const ITERATIONS: u32 = 100;
/// The hopping parameter.
const KAPPA: f64 = 0.1;

/// Sites along x, y, z and t.
fn size(class: Class) -> [usize; 4] {
    match class {
        Class::S => [8, 4, 4, 4],
        Class::W => [8, 8, 8, 16],
        Class::A => [16, 16, 16, 16],
        Class::B => [24, 24, 24, 32],
        Class::C => [32, 32, 32, 64],
    }
}

struct LatticeDslash {
    lattice: Lattice,
    /// Blocks of sites of each thread.
    shares: Vec<Range<usize>>,
    links: Vec<Links>,
    x: Vec<Spinor>,
    r: Vec<Spinor>,
    p: Vec<Spinor>,
    /// `M p`, and `M^+ M p`.
    half: Vec<Spinor>,
    q: Vec<Spinor>,
    rr: f64,
}

fn demand(class: Class) -> Demand {
    let sites = size(class).into_iter().product::<usize>();
    // Five spinors of 12 complex numbers, and four matrices of 9.
    Demand::of((5 * 24 + 4 * 18) * sites, operations(sites))
}

/// Two operators of 1320 (the usual count) and 48 for the rest of each, and 10 vectors' worth of 24
/// numbers, for each site.
fn operations(sites: usize) -> f64 {
    f64::from(ITERATIONS) * (2.0 * (1320.0 + 48.0) + 240.0) * sites as f64
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let lattice = Lattice::new(size(class));
    let shares = crew.shares(lattice.blocks());
    let links = crew.array(&shares, |block| lattice.links(block))?;
    let zeros = || crew.array(&shares, |_| dslash::ZERO);
    let (x, r, p, half, q) = (zeros()?, zeros()?, zeros()?, zeros()?, zeros()?);
    Ok(Box::new(LatticeDslash { lattice, shares, links, x, r, p, half, q, rr: 0.0 }))
}

impl Kernel for LatticeDslash {
    fn steps(&self) -> u32 {
        ITERATIONS
    }

    fn operations(&self) -> f64 {
        operations(self.lattice.sites())
    }

    /// The right-hand side is made of a known solution.
    fn reset(&mut self, crew: &Crew) {
        let (lattice, shares) = (self.lattice, &self.shares);
        fill(&mut self.p, shares, crew, |block| lattice.random(block));
        self.multiply(crew);
        let Self { x, r, p, q, shares, .. } = self;
        let parts = cut(x, shares).into_iter().zip(cut(r, shares)).zip(cut(p, shares));
        self.rr = crew.sum(parts, |thread, ((x, r), p)| {
            let q = &q[shares[thread].clone()];
            x.fill(dslash::ZERO);
            r.copy_from_slice(q);
            p.copy_from_slice(q);
            dslash::product(q, q)
        });
    }

    /// One iteration.
    fn step(&mut self, crew: &Crew) {
        let alpha = self.rr / self.multiply(crew);
        let Self { x, r, p, q, shares, .. } = self;
        let before = self.rr;
        self.rr = crew.sum(cut(x, shares).into_iter().zip(cut(r, shares)), |thread, (x, r)| {
            let share = shares[thread].clone();
            dslash::add_scaled(alpha, &p[share.clone()], x);
            dslash::add_scaled(-alpha, &q[share], r);
            dslash::product(r, r)
        });
        let beta = self.rr / before;
        crew.each(cut(p, shares), |thread, p| dslash::scale_add(beta, p, &r[shares[thread].clone()]));
    }

    fn verify(&mut self, crew: &Crew) -> Vec<Verification> {
        let (lattice, shares) = (self.lattice, self.shares.clone());
        let x = &self.x;
        let sums = crew.each(shares.iter().cloned(), |_, share| {
            let parts = share.map(|block| lattice.difference(&x[block], &lattice.random(block)));
            parts.fold([0.0; 2], |sum, part| [sum[0] + part[0], sum[1] + part[1]])
        });
        let [wrong, all] = sums.into_iter().fold([0.0; 2], |sum, part| [sum[0] + part[0], sum[1] + part[1]]);
        let solution = (wrong / all).sqrt();
        let links = &self.links;
        let worst = crew.each(shares.iter().cloned(), |_, share| {
            share.map(|block| lattice.worst_plaquette(links, block)).fold(0.0, f64::max)
        });
        let plaquette = worst.into_iter().fold(0.0, f64::max);
        let wave = self.error_of_a_wave(crew);
        let verification = |quantity, value, tolerance| Verification { quantity, value, expected: 0.0, tolerance };
        vec![
            // 2e-10, times at most 9, the root of the operator's condition.
            verification("error of the solution", solution, 1e-8),
            verification("error of the plaquettes", plaquette, 1e-13),
            verification("error of a plane wave", wave, 1e-12),
        ]
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        let spinors = [&self.x, &self.r, &self.p, &self.half, &self.q].map(|spinors| memory_of(spinors));
        spinors.into_iter().chain([memory_of(&self.links)]).collect()
    }
}

fn fill(spinors: &mut [Spinor], shares: &[Range<usize>], crew: &Crew, value: impl Fn(usize) -> Spinor + Sync) {
    crew.each(cut(spinors, shares), |thread, part| {
        for (block, spinor) in shares[thread].clone().zip(part) {
            *spinor = value(block);
        }
    });
}

impl LatticeDslash {
    /// `q = M^+ M p`; the inner product of p and q.
    fn multiply(&mut self, crew: &Crew) -> f64 {
        let Self { lattice, shares, links, p, half, q, .. } = self;
        crew.each(cut(half, shares), |thread, half| {
            apply::<false>(lattice, KAPPA, links, p, shares[thread].clone(), half);
        });
        crew.sum(cut(q, shares), |thread, q| {
            apply::<true>(lattice, KAPPA, links, half, shares[thread].clone(), q);
            dslash::product(&p[shares[thread].clone()], q)
        })
    }

    /// How far `M^+ M` times a plane wave is from the wave times its eigenvalue, relative to it.
    fn error_of_a_wave(&mut self, crew: &Crew) -> f64 {
        let (lattice, shares) = (self.lattice, self.shares.clone());
        fill(&mut self.p, &shares, crew, |block| lattice.wave(block));
        self.multiply(crew);
        let (eigenvalue, q) = (lattice.eigenvalue(KAPPA), &self.q);
        let sums = crew.each(cut(&mut self.p, &shares), |thread, p| {
            let q = &q[shares[thread].clone()];
            let all = dslash::product(q, q);
            dslash::scale_add(-eigenvalue, p, q);
            [dslash::product(p, p), all]
        });
        let [wrong, all] = sums.into_iter().fold([0.0; 2], |sum, part| [sum[0] + part[0], sum[1] + part[1]]);
        (wrong / all).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::verifies;
    use crate::{Anywhere, Placement};
    use std::sync::Arc;

    #[test]
    fn solution_plaquettes_and_waves_are_right() {
        verifies("lattice_dslash", Class::S, &[1, 2]);
    }

    #[test]
    fn one_wrong_link_is_found() {
        let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
        let crew = Crew::start(1, &anywhere).unwrap();
        let lattice = Lattice::new(size(Class::S));
        let shares = crew.shares(lattice.blocks());
        let mut links = crew.array(&shares, |block| lattice.links(block)).unwrap();
        let worst = |links: &[Links]| {
            (0..lattice.blocks()).map(|block| lattice.worst_plaquette(links, block)).fold(0.0, f64::max)
        };
        assert!(worst(&links) < 1e-14);
        links[17][2][4][0][1] += 1e-9;
        assert!(worst(&links) > 1e-10);
    }
}
