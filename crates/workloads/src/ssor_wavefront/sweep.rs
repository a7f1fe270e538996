//! The two triangular solves of an iteration. A point needs its neighbours before it along x, y and
//! z, so the work goes through the cube as a wave: in each stage a thread does one plane of its
//! part, one plane behind the thread before it, of which it gets the last row.

use super::cube::Cube;
use super::flow::{DIFFUSION, State, inviscid_change, solve_point, viscous_change};
use crate::crew::{Crew, cut};
use crate::kernel::fused;
use multiversion::{multiversion, target::target_cfg_f};
use std::ops::Range;

/// NPB's factor of over-relaxation.
pub(super) const OMEGA: f64 = 1.2;

/// Which way the wave goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wave {
    /// From the first point to the last: the lower triangle.
    Up,
    /// From the last point to the first: the upper triangle.
    Down,
}

/// What a sweep needs besides what it changes.
#[derive(Clone, Copy)]
struct Sweep<'a> {
    cube: Cube,
    wave: Wave,
    /// The length of a time step.
    dt: f64,
    u: &'a [State],
}

/// The last row that each thread did, for the one behind it; one for reading, one for writing.
pub(super) struct Edges([Vec<Vec<State>>; 2]);

impl Edges {
    pub(super) fn new(cube: Cube, threads: usize) -> Edges {
        let rows = || vec![vec![[0.0; 5]; cube.0]; threads];
        Edges([rows(), rows()])
    }
}

/// Solves with one triangle, in place. `places` are those along y of each thread.
pub(super) fn solve(
    (cube, dt, wave): (Cube, f64, Wave),
    u: &[State],
    change: &mut [State],
    (places, edges): (&[Range<usize>], &mut Edges),
    crew: &Crew,
) {
    let (threads, planes) = (crew.threads(), cube.0 - 2);
    let sweep = Sweep { cube, wave, dt, u };
    let shares: Vec<Range<usize>> = places.iter().map(|share| elements(cube, share)).collect();
    let none = vec![[0.0; 5]; cube.0];
    for stage in 0..planes + threads - 1 {
        let [before, after] = &mut edges.0;
        let parts = cut(change, &shares).into_iter().zip(after.iter_mut());
        crew.each(parts, |thread, (part, after)| {
            let turn = if wave == Wave::Up { thread } else { threads - 1 - thread };
            let Some(plane) = stage.checked_sub(turn).filter(|plane| *plane < planes) else { return };
            let plane = if wave == Wave::Up { 1 + plane } else { cube.0 - 2 - plane };
            let from = if turn == 0 {
                &none
            } else if wave == Wave::Up {
                &before[thread - 1]
            } else {
                &before[thread + 1]
            };
            // A thread without a place hands on what it gets.
            after.copy_from_slice(from);
            do_plane(sweep, places[thread].clone(), plane, part, after);
        });
        edges.0.swap(0, 1);
    }
}

/// The elements of some places along y.
pub(super) fn elements(cube: Cube, places: &Range<usize>) -> Range<usize> {
    let slice = cube.0 * cube.0;
    places.start * slice..places.end * slice
}

/// One plane of a part; `row` is the row before it, and then its last.
#[multiversion(targets = "simd")]
fn do_plane(sweep: Sweep<'_>, places: Range<usize>, plane: usize, part: &mut [State], row: &mut [State]) {
    let n = sweep.cube.0;
    let first = sweep.cube.index([0, places.start, 0]);
    let inside = places.start.max(1)..places.end.min(n - 1);
    let up = sweep.wave == Wave::Up;
    for at in 0..inside.len() {
        let y = if up { inside.start + at } else { inside.end - 1 - at };
        // The row's first neighbour along x is on a face, where nothing changes.
        let mut along_x = [0.0; 5];
        for step in 1..n - 1 {
            let x = if up { step } else { n - 1 - step };
            let index = sweep.cube.index([x, y, plane]);
            let own = index - first;
            let along_z = part[if up { own - n } else { own + n }];
            along_x = sweep.point::<{ target_cfg_f!(target_feature = "fma") }>(
                index,
                &part[own],
                [&along_x, &row[x], &along_z],
            );
            part[own] = along_x;
            row[x] = along_x;
        }
    }
}

impl Sweep<'_> {
    /// What a point becomes, from what its neighbours before it along x, y and z became.
    #[inline(always)]
    fn point<const FUSES: bool>(&self, index: usize, own: &State, [x, y, z]: [&State; 3]) -> State {
        let per_step = self.cube.per_step();
        let square = self.dt * per_step * per_step;
        let mut sum = [0.0; 5];
        // The neighbour along x was done just now: what does not need it goes first.
        self.add_change::<FUSES>(1, index, y, &mut sum);
        self.add_change::<FUSES>(2, index, z, &mut sum);
        self.add_change::<FUSES>(0, index, x, &mut sum);
        let u = &self.u[index];
        match self.wave {
            Wave::Up => {
                let right = std::array::from_fn(|m| fused::<FUSES>(-OMEGA, sum[m], own[m]));
                solve_point::<FUSES>(u, &[2.0 * square; 3], &right)
            }
            Wave::Down => {
                let part = solve_point::<FUSES>(u, &[2.0 * square; 3], &sum.map(|value| OMEGA * value));
                std::array::from_fn(|m| own[m] - part[m])
            }
        }
    }

    /// Adds the Jacobians along an axis, times the change of the neighbour there.
    #[inline(always)]
    fn add_change<const FUSES: bool>(&self, axis: usize, index: usize, change: &State, sum: &mut State) {
        let (stride, per_step) = (self.cube.strides()[axis], self.cube.per_step());
        let (square, half) = (self.dt * per_step * per_step, 0.5 * self.dt * per_step);
        let (neighbour, half) = if self.wave == Wave::Up { (index - stride, -half) } else { (index + stride, half) };
        let u = &self.u[neighbour];
        let inviscid = inviscid_change::<FUSES>(u, axis, change);
        let viscous = viscous_change::<FUSES>(u, axis, change);
        for m in 0..5 {
            let friction = fused::<FUSES>(DIFFUSION[axis], change[m], viscous[m]);
            sum[m] = fused::<FUSES>(half, inviscid[m], fused::<FUSES>(-square, friction, sum[m]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Anywhere, Placement};
    use std::sync::Arc;

    #[test]
    fn more_threads_than_places_give_the_same() {
        let cube = Cube(5);
        let u: Vec<State> = (0..125).map(|index| cube.start(cube.place(index))).collect();
        let of = |threads| {
            let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
            let crew = Crew::start(threads, &anywhere).unwrap();
            let inside = |index| if cube.is_inside(cube.place(index)) { index as f64 } else { 0.0 };
            let mut change: Vec<State> = (0..125).map(|index| [inside(index); 5]).collect();
            let (places, mut edges) = (crew.shares(5), Edges::new(cube, threads));
            for wave in [Wave::Up, Wave::Down] {
                solve((cube, 0.1, wave), &u, &mut change, (&places, &mut edges), &crew);
            }
            change
        };
        let one = of(1);
        assert!(one.iter().flatten().all(|value| value.is_finite()) && one[31] != [31.0; 5]);
        assert!([2, 3, 7].into_iter().all(|threads| of(threads) == one));
    }
}
