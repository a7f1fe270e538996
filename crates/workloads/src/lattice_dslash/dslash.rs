//! The operator, and the vector operations of the iteration, on blocks of four sites.
//!
//! ```text
//! M psi(x) = psi(x) - kappa sum over mu of (1 - gamma_mu) U_mu(x) psi(x + mu)
//!                                        + (1 + gamma_mu) U_mu(x - mu)^+ psi(x - mu)
//! ```
//!
//! `M^+` has the other signs of gamma. The lower half of `(1 +- gamma_mu) psi` follows from the
//! upper half, so only half spinors are multiplied by matrices.

use super::lattice::{Lattice, Neighbour};
use crate::kernel::fused;
use multiversion::{multiversion, target::target_cfg_f};
use std::ops::Range;

/// Sites of a block.
pub(super) const LANES: usize = 4;

/// One number of each site: real and imaginary parts.
type Complex = [[f64; LANES]; 2];
/// Four spins of three colours.
pub(super) type Spinor = [Complex; 12];
/// The matrices that lead forward in each direction, by rows.
pub(super) type Links = [[Complex; 9]; 4];

pub(super) const ZERO: Spinor = [[[0.0; LANES]; 2]; 12];

/// A factor 1, i, -1 or -i.
#[derive(Clone, Copy)]
enum Turn {
    One,
    I,
    MinusOne,
    MinusI,
}

/// A gamma matrix: for each of the four rows, the column of its one element and the element. The
/// upper rows have theirs in the lower columns, and the other way round (the chiral basis).
const GAMMA: [[(usize, Turn); 4]; 4] = [
    [(3, Turn::I), (2, Turn::I), (1, Turn::MinusI), (0, Turn::MinusI)],
    [(3, Turn::MinusOne), (2, Turn::One), (1, Turn::One), (0, Turn::MinusOne)],
    [(2, Turn::I), (3, Turn::MinusI), (0, Turn::MinusI), (1, Turn::I)],
    [(2, Turn::One), (3, Turn::One), (0, Turn::One), (1, Turn::One)],
];

const NONE: Complex = [[0.0; LANES]; 2];

/// `sum += turn a`, or `sum -= turn a`.
#[inline(always)]
fn add_turned(turn: Turn, plus: bool, a: &Complex, sum: &mut Complex) {
    let [re, im] = a;
    for lane in 0..LANES {
        let (re, im) = match (turn, plus) {
            (Turn::One, true) | (Turn::MinusOne, false) => (re[lane], im[lane]),
            (Turn::One, false) | (Turn::MinusOne, true) => (-re[lane], -im[lane]),
            (Turn::I, true) | (Turn::MinusI, false) => (-im[lane], re[lane]),
            (Turn::I, false) | (Turn::MinusI, true) => (im[lane], -re[lane]),
        };
        sum[0][lane] += re;
        sum[1][lane] += im;
    }
}

/// Each lane gets what the lane so many further on has.
#[inline(always)]
fn rotate(value: &mut Complex, by: usize) {
    for part in value {
        *part = [part[by % LANES], part[(by + 1) % LANES], part[(by + 2) % LANES], part[(by + 3) % LANES]];
    }
}

/// A passage along a link.
struct Passage<'a> {
    gamma: &'a [(usize, Turn); 4],
    plus: bool,
    link: &'a [Complex; 9],
    /// Whether sites and their neighbours are in lanes beside each other.
    turned: bool,
}

/// Adds `(1 +- gamma) U psi`, or that with the adjoint of `U`.
#[inline(always)]
fn add_passage<const ADJOINT: bool, const FUSES: bool>(passage: &Passage<'_>, psi: &Spinor, sum: &mut Spinor) {
    add_spin::<0, ADJOINT, FUSES>(passage, psi, sum);
    add_spin::<1, ADJOINT, FUSES>(passage, psi, sum);
}

/// What follows from one of the upper spins of the projected half: so little at once stays in
/// registers. The lower half of the product follows from the upper.
#[inline(always)]
fn add_spin<const SPIN: usize, const ADJOINT: bool, const FUSES: bool>(
    passage: &Passage<'_>,
    psi: &Spinor,
    sum: &mut Spinor,
) {
    let Passage { gamma, plus, link, turned } = *passage;
    let (column, turn) = gamma[SPIN];
    let lower = if gamma[2].0 == SPIN { 2 } else { 3 };
    let mut half = [NONE; 3];
    for colour in 0..3 {
        half[colour] = psi[3 * SPIN + colour];
        add_turned(turn, plus, &psi[3 * column + colour], &mut half[colour]);
        if turned && !ADJOINT {
            rotate(&mut half[colour], 1);
        }
    }
    for row in 0..3 {
        let mut product = NONE;
        for column in 0..3 {
            let a = &link[if ADJOINT { 3 * column + row } else { 3 * row + column }];
            for lane in 0..LANES {
                let imaginary = if ADJOINT { -a[1][lane] } else { a[1][lane] };
                let (b, [re, im]) = (&half[column], product);
                let re = fused::<FUSES>(a[0][lane], b[0][lane], re[lane]);
                let im = fused::<FUSES>(a[0][lane], b[1][lane], im[lane]);
                product[0][lane] = fused::<FUSES>(-imaginary, b[1][lane], re);
                product[1][lane] = fused::<FUSES>(imaginary, b[0][lane], im);
            }
        }
        if turned && ADJOINT {
            rotate(&mut product, LANES - 1);
        }
        add_turned(Turn::One, true, &product, &mut sum[3 * SPIN + row]);
        add_turned(gamma[lower].1, plus, &product, &mut sum[3 * lower + row]);
    }
}

/// One direction, forward and back.
#[inline(always)]
fn hop<const DIRECTION: usize, const ADJOINT: bool, const FUSES: bool>(
    lattice: &Lattice,
    links: &[Links],
    from: &[Spinor],
    block: usize,
    place: [usize; 4],
    sum: &mut Spinor,
) {
    let gamma = const { &GAMMA[DIRECTION] };
    let turned = |there: Neighbour| DIRECTION == 0 && there.turned;
    let there = lattice.forward(block, place, DIRECTION);
    let passage = Passage { gamma, plus: ADJOINT, link: &links[block][DIRECTION], turned: turned(there) };
    add_passage::<false, FUSES>(&passage, &from[there.block], sum);
    let there = lattice.backward(block, place, DIRECTION);
    let passage = Passage { gamma, plus: !ADJOINT, link: &links[there.block][DIRECTION], turned: turned(there) };
    add_passage::<true, FUSES>(&passage, &from[there.block], sum);
}

/// `to = M from`, or `to = M^+ from`, for some blocks.
pub(super) fn apply<const ADJOINT: bool>(
    lattice: &Lattice,
    kappa: f64,
    links: &[Links],
    from: &[Spinor],
    blocks: Range<usize>,
    to: &mut [Spinor],
) {
    if ADJOINT {
        adjoint(lattice, kappa, links, from, blocks, to);
    } else {
        forward(lattice, kappa, links, from, blocks, to);
    }
}

#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
fn forward(l: &Lattice, kappa: f64, links: &[Links], from: &[Spinor], blocks: Range<usize>, to: &mut [Spinor]) {
    operator::<false, { target_cfg_f!(target_feature = "fma") }>(l, kappa, links, from, blocks, to);
}

#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
fn adjoint(l: &Lattice, kappa: f64, links: &[Links], from: &[Spinor], blocks: Range<usize>, to: &mut [Spinor]) {
    operator::<true, { target_cfg_f!(target_feature = "fma") }>(l, kappa, links, from, blocks, to);
}

#[inline(always)]
fn operator<const ADJOINT: bool, const FUSES: bool>(
    lattice: &Lattice,
    kappa: f64,
    links: &[Links],
    from: &[Spinor],
    blocks: Range<usize>,
    to: &mut [Spinor],
) {
    for (block, to) in blocks.zip(to) {
        let place = lattice.place(block);
        let mut sum = ZERO;
        hop::<0, ADJOINT, FUSES>(lattice, links, from, block, place, &mut sum);
        hop::<1, ADJOINT, FUSES>(lattice, links, from, block, place, &mut sum);
        hop::<2, ADJOINT, FUSES>(lattice, links, from, block, place, &mut sum);
        hop::<3, ADJOINT, FUSES>(lattice, links, from, block, place, &mut sum);
        for ((to, here), sum) in to.iter_mut().zip(&from[block]).zip(&sum) {
            for part in 0..2 {
                for lane in 0..LANES {
                    to[part][lane] = here[part][lane] - kappa * sum[part][lane];
                }
            }
        }
    }
}

/// The real part of the inner product.
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
pub(super) fn product(a: &[Spinor], b: &[Spinor]) -> f64 {
    let mut sums = [[0.0; LANES]; 2];
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        for part in 0..2 {
            for lane in 0..LANES {
                sums[part][lane] += a[part][lane] * b[part][lane];
            }
        }
    }
    sums.iter().flatten().sum()
}

/// `to += factor from`
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
pub(super) fn add_scaled(factor: f64, from: &[Spinor], to: &mut [Spinor]) {
    for (to, from) in to.as_flattened_mut().as_flattened_mut().iter_mut().zip(from.as_flattened().as_flattened()) {
        for lane in 0..LANES {
            to[lane] += factor * from[lane];
        }
    }
}

/// `to = factor to + from`
#[multiversion(targets("x86_64+avx2+fma+bmi2"))]
pub(super) fn scale_add(factor: f64, to: &mut [Spinor], from: &[Spinor]) {
    for (to, from) in to.as_flattened_mut().as_flattened_mut().iter_mut().zip(from.as_flattened().as_flattened()) {
        for lane in 0..LANES {
            to[lane] = factor * to[lane] + from[lane];
        }
    }
}
