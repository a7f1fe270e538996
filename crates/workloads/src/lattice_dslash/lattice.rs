//! Where sites lie, and the fields of which everything is known.
//!
//! Four sites with the same y, z and t are worked on at once, each in one lane of a vector. They
//! lie a quarter of the lattice apart along x, so that their neighbours are again four sites of one
//! block; only at the end of the quarter these are in the lanes beside.

use super::dslash::{LANES, Links, Spinor, ZERO};
use super::su3::{self, Matrix};
use crate::kernel::Random;
use std::f64::consts::PI;

/// A lattice that is periodic in all directions.
#[derive(Clone, Copy)]
pub(super) struct Lattice {
    n: [usize; 4],
}

/// Four neighbours of a block's sites.
#[derive(Clone, Copy)]
pub(super) struct Neighbour {
    pub(super) block: usize,
    /// They are in the lanes beside.
    pub(super) turned: bool,
}

impl Lattice {
    /// Sites along x, a multiple of [`LANES`], y, z and t.
    pub(super) fn new(n: [usize; 4]) -> Lattice {
        assert_eq!(n[0] % LANES, 0, "whole blocks along x");
        Lattice { n }
    }

    pub(super) fn sites(self) -> usize {
        self.n.iter().product()
    }

    pub(super) fn blocks(self) -> usize {
        self.sites() / LANES
    }

    /// Blocks in each direction.
    fn extent(self, direction: usize) -> usize {
        if direction == 0 { self.n[0] / LANES } else { self.n[direction] }
    }

    /// The block's place in each direction.
    #[inline(always)]
    pub(super) fn place(self, block: usize) -> [usize; 4] {
        let (x, rest) = (block % self.extent(0), block / self.extent(0));
        let (y, rest) = (rest % self.n[1], rest / self.n[1]);
        [x, y, rest % self.n[2], rest / self.n[2]]
    }

    #[inline(always)]
    fn stride(self, direction: usize) -> usize {
        (0..direction).map(|direction| self.extent(direction)).product()
    }

    /// The neighbours one step forward.
    #[inline(always)]
    pub(super) fn forward(self, block: usize, place: [usize; 4], direction: usize) -> Neighbour {
        let (stride, extent) = (self.stride(direction), self.extent(direction));
        if place[direction] + 1 < extent {
            Neighbour { block: block + stride, turned: false }
        } else {
            Neighbour { block: block - (extent - 1) * stride, turned: direction == 0 }
        }
    }

    /// The neighbours one step back.
    #[inline(always)]
    pub(super) fn backward(self, block: usize, place: [usize; 4], direction: usize) -> Neighbour {
        let (stride, extent) = (self.stride(direction), self.extent(direction));
        if place[direction] > 0 {
            Neighbour { block: block - stride, turned: false }
        } else {
            Neighbour { block: block + (extent - 1) * stride, turned: direction == 0 }
        }
    }

    /// The site of a lane: its place in each direction.
    fn site(self, block: usize, lane: usize) -> [usize; 4] {
        let [x, y, z, t] = self.place(block);
        [lane * self.extent(0) + x, y, z, t]
    }

    fn number(self, [x, y, z, t]: [usize; 4]) -> usize {
        ((t * self.n[2] + z) * self.n[1] + y) * self.n[0] + x
    }

    fn next(self, site: [usize; 4], direction: usize) -> [usize; 4] {
        let mut next = site;
        next[direction] = (site[direction] + 1) % self.n[direction];
        next
    }

    /// `U_mu(x) = g(x) g(x + mu)^+` for the sites of a block.
    pub(super) fn links(self, block: usize) -> Links {
        let mut links = [[[[0.0; LANES]; 2]; 9]; 4];
        for lane in 0..LANES {
            let site = self.site(block, lane);
            let here = su3::random(self.number(site));
            for (direction, link) in links.iter_mut().enumerate() {
                let there = su3::random(self.number(self.next(site, direction)));
                let matrix = su3::product(&here, &su3::adjoint(&there));
                for (at, element) in link.iter_mut().enumerate() {
                    element[0][lane] = matrix[at / 3][at % 3][0];
                    element[1][lane] = matrix[at / 3][at % 3][1];
                }
            }
        }
        links
    }

    fn link(self, links: &[Links], site: [usize; 4], direction: usize) -> Matrix {
        let quarter = self.extent(0);
        let (lane, x) = (site[0] / quarter, site[0] % quarter);
        let block = ((site[3] * self.n[2] + site[2]) * self.n[1] + site[1]) * quarter + x;
        let element = |at: usize| [0, 1].map(|part| links[block][direction][at][part][lane]);
        std::array::from_fn(|row| std::array::from_fn(|column| element(3 * row + column)))
    }

    /// How far the plaquettes at the sites of a block are from 1.
    pub(super) fn worst_plaquette(self, links: &[Links], block: usize) -> f64 {
        let mut worst: f64 = 0.0;
        for lane in 0..LANES {
            let site = self.site(block, lane);
            for (mu, nu) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
                let there = su3::product(&self.link(links, site, mu), &self.link(links, self.next(site, mu), nu));
                let other = su3::product(&self.link(links, site, nu), &self.link(links, self.next(site, nu), mu));
                worst = worst.max(su3::from_unit(&su3::product(&there, &su3::adjoint(&other))));
            }
        }
        worst
    }

    /// Random spinors, for a solution that is known.
    pub(super) fn random(self, block: usize) -> Spinor {
        let mut spinor = ZERO;
        let mut random = Random::new(161_803_399).ahead((24 * LANES * block) as u64);
        spinor.iter_mut().flatten().flatten().for_each(|value| *value = random.next() - 0.5);
        spinor
    }

    /// The squares of a difference, and of what it should be, added up.
    pub(super) fn difference(self, found: &Spinor, right: &Spinor) -> [f64; 2] {
        let pairs = found.iter().flatten().flatten().zip(right.iter().flatten().flatten());
        pairs.fold([0.0; 2], |sum, (found, right)| [sum[0] + (found - right).powi(2), sum[1] + right * right])
    }

    /// The wave's turn from one site to the next in each direction: one to four periods.
    fn momentum(self) -> [f64; 4] {
        std::array::from_fn(|direction| 2.0 * PI * (1 + direction % 2) as f64 / self.n[direction] as f64)
    }

    /// A plane wave, turned by `g`.
    pub(super) fn wave(self, block: usize) -> Spinor {
        let mut spinor = ZERO;
        for lane in 0..LANES {
            let site = self.site(block, lane);
            let angle: f64 = (0..4).map(|direction| self.momentum()[direction] * site[direction] as f64).sum();
            let turn = su3::random(self.number(site));
            for (at, element) in spinor.iter_mut().enumerate() {
                // Any constant spinor will do.
                let (spin, colour) = (at / 3, at % 3);
                let value = su3::times(turn[colour][spin % 3], [angle.cos(), angle.sin()]);
                element[0][lane] = value[0];
                element[1][lane] = value[1];
            }
        }
        spinor
    }

    /// What `M^+ M` multiplies that wave by: `(1 - 2 kappa sum cos p)^2 + 4 kappa^2 sum sin^2 p`.
    pub(super) fn eigenvalue(self, kappa: f64) -> f64 {
        let cosines: f64 = self.momentum().map(f64::cos).iter().sum();
        let sines: f64 = self.momentum().map(|p| p.sin().powi(2)).iter().sum();
        (1.0 - 2.0 * kappa * cosines).powi(2) + 4.0 * kappa * kappa * sines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_blocks_are_neighbours_of_sites() {
        let lattice = Lattice::new([12, 3, 4, 5]);
        for block in 0..lattice.blocks() {
            for direction in 0..4 {
                let there = lattice.forward(block, lattice.place(block), direction);
                for lane in 0..LANES {
                    let there_lane = (lane + usize::from(there.turned)) % LANES;
                    let site = lattice.next(lattice.site(block, lane), direction);
                    assert_eq!(site, lattice.site(there.block, there_lane));
                }
                let back = lattice.backward(there.block, lattice.place(there.block), direction);
                assert_eq!((back.block, back.turned), (block, there.turned));
            }
        }
    }

    #[test]
    fn the_wave_at_rest_has_the_eigenvalue_worked_by_hand() {
        // Two sites in a direction, one period: p = pi in x, z; two periods: p = 2 pi in y, t.
        // Cosines -1 + 1 - 1 + 1 = 0, no sines: (1 - 0)^2 = 1.
        assert!((Lattice { n: [2; 4] }.eigenvalue(0.1) - 1.0).abs() < 1e-14);
    }
}
