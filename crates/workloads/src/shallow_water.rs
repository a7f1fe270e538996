//! The shallow water equations on a periodic plane, by finite differences: the scheme of Sadourny
//! ("The dynamics of finite-difference models of the shallow-water equations", J. Atmos. Sci. 32,
//! 1975), with the start values and the time filter of the benchmark that Hoffmann, Swarztrauber
//! and Sweet describe ("Aspects of using multiprocessors for meteorological modelling", 1988).
//!
//! 14 arrays, three sweeps over them in each step, nearly no arithmetic for each byte: all of it is
//! bandwidth. It stands for swim of SPEC OMP.
//!
//! That flow is nearly at rest with itself, so a step that did nothing would hardly be seen. We add
//! a small gravity wave, whose crests lie along the rows, and know where it must be after the run.
//! Mass is conserved but for rounding. Energy is conserved but for what steps of finite length and
//! the filter cost, which is of second order in the wave.

mod sweeps;

use crate::WorkloadError;
use crate::crew::{Crew, cut, scaled};
use crate::kernel::{Class, Demand, Description, Kernel, Verification, memory_of};
use std::f64::consts::PI;
use std::ops::Range;
use sweeps::{DX, DY, Row, fluxes, smooth, update};

pub(crate) const DESCRIPTION: Description =
    Description { name: "shallow_water", stands_for: "swim (SPEC OMP)", demand, start };

/// Steps of a run.
const STEPS: u32 = 100;
/// Seconds of a step.
const DT: f64 = 90.0;
/// Amplitude of the stream function.
const A: f64 = 1e6;

/// Height of the gravity wave's crests, relative to the mean pressure.
const WAVE: f64 = 1e-3;
/// The mean pressure, in m^2/s^2.
const MEAN: f64 = 5e4;

/// Rows and columns.
fn size(class: Class) -> usize {
    match class {
        Class::S => 64,
        Class::W => 512,
        Class::A => 1334,
        Class::B => 3802,
        Class::C => 7702,
    }
}

/// Three fields: velocity in both directions, pressure (which is the height of the water).
struct Fields {
    u: Vec<f64>,
    v: Vec<f64>,
    p: Vec<f64>,
}

struct ShallowWater {
    n: usize,
    /// Rows of each thread.
    rows: Vec<Range<usize>>,
    now: Fields,
    new: Fields,
    old: Fields,
    /// Mass fluxes in both directions.
    cu: Vec<f64>,
    cv: Vec<f64>,
    /// Potential vorticity.
    z: Vec<f64>,
    /// Bernoulli's head: pressure and kinetic energy.
    h: Vec<f64>,
    psi: Vec<f64>,
    done: u32,
    /// Mass, energy and the wave's height at the start.
    at_start: [f64; 3],
}

fn demand(class: Class) -> Demand {
    let n = size(class);
    Demand::of(14 * n * (n + 2), operations(n))
}

/// Counted in the three sweeps: 24, 26 and 15 for each point.
fn operations(n: usize) -> f64 {
    65.0 * f64::from(STEPS) * (n * n) as f64
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let n = size(class);
    let rows = crew.shares(n);
    let elements = scaled(&rows, n + 2);
    let zeros = || crew.array(&elements, |_| 0.0);
    let fields = || Ok(Fields { u: zeros()?, v: zeros()?, p: zeros()? });
    let (now, new, old) = (fields()?, fields()?, fields()?);
    let (cu, cv, z, h, psi) = (zeros()?, zeros()?, zeros()?, zeros()?, zeros()?);
    Ok(Box::new(ShallowWater { n, rows, now, new, old, cu, cv, z, h, psi, done: 0, at_start: [0.0; 3] }))
}

impl Kernel for ShallowWater {
    fn steps(&self) -> u32 {
        STEPS
    }

    fn operations(&self) -> f64 {
        operations(self.n)
    }

    fn reset(&mut self, crew: &Crew) {
        let (n, row) = (self.n, self.row());
        let angle = 2.0 * PI / n as f64;
        self.each_row(
            crew,
            |fields| &mut fields.psi,
            |_, i, psi| {
                row.fill(psi, |j| A * ((i as f64 + 0.5) * angle).sin() * ((j as f64 + 0.5) * angle).sin());
            },
        );
        let length = n as f64 * DX;
        let pressure = PI * PI * A * A / (length * length);
        self.each_row(
            crew,
            |fields| &mut fields.now.p,
            |_, i, p| {
                let mean = MEAN * (1.0 + WAVE * crest(n, i));
                row.fill(p, |j| mean + pressure * ((2.0 * i as f64 * angle).cos() + (2.0 * j as f64 * angle).cos()));
            },
        );
        // The velocity is the curl of the stream function.
        self.each_row(
            crew,
            |fields| &mut fields.now.u,
            |psi, i, u| {
                let psi = row.of(psi, i);
                row.fill(u, |j| -(psi[j + 1] - psi[j]) / DY);
            },
        );
        self.each_row(
            crew,
            |fields| &mut fields.now.v,
            |psi, i, v| {
                let (here, before) = (row.of(psi, i), row.of(psi, i + n - 1));
                row.fill(v, |j| (here[j + 1] - before[j + 1]) / DX);
            },
        );
        for (old, now) in
            [(&mut self.old.u, &self.now.u), (&mut self.old.v, &self.now.v), (&mut self.old.p, &self.now.p)]
        {
            let shares = scaled(&self.rows, n + 2);
            crew.each(cut(old, &shares), |thread, old| old.copy_from_slice(&now[shares[thread].clone()]));
        }
        self.done = 0;
        self.at_start = self.conserved(crew);
    }

    fn step(&mut self, crew: &Crew) {
        // The first step has no step before it to leap from.
        let seconds = if self.done == 0 { DT } else { 2.0 * DT };
        self.sweep_fluxes(crew);
        self.sweep_update(seconds, crew);
        self.sweep_smooth(self.done == 0, crew);
        self.done += 1;
    }

    fn verify(&mut self, crew: &Crew) -> Vec<Verification> {
        let now = self.conserved(crew);
        let [mass, energy, wave] = [0, 1, 2].map(|index| (now[index], self.at_start[index]));
        let verification =
            |quantity, (value, expected), tolerance| Verification { quantity, value, expected, tolerance };
        vec![
            // Fluxes cancel in the sum: what is left is rounding.
            verification("mass", mass, 1e-12),
            // The wave's share of the energy is WAVE^2: this is a hundredth of it.
            verification("energy", energy, 0.01 * WAVE * WAVE),
            // The rest of the flow, the filter and the first step move it by less than 0.1%.
            verification("wave", (wave.0, wave.1 * amplitude(self.n)), 0.002),
        ]
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        let fields = [&self.now, &self.new, &self.old].map(|fields| [&fields.u, &fields.v, &fields.p]);
        let others = [&self.cu, &self.cv, &self.z, &self.h, &self.psi];
        fields.iter().flatten().copied().chain(others).map(|array| memory_of(array)).collect()
    }
}

impl ShallowWater {
    fn row(&self) -> Row {
        Row { n: self.n }
    }

    /// Fills an array row by row; the stream function is at hand unless it is itself filled.
    fn each_row(
        &mut self,
        crew: &Crew,
        array: impl Fn(&mut ShallowWater) -> &mut Vec<f64>,
        fill: impl Fn(&[f64], usize, &mut [f64]) + Sync,
    ) {
        let (line, shares) = (self.n + 2, scaled(&self.rows, self.n + 2));
        let rows = self.rows.clone();
        let mut filled = std::mem::take(array(self));
        let psi = &self.psi;
        crew.each(cut(&mut filled, &shares), |thread, part| {
            for (index, row) in rows[thread].clone().zip(part.chunks_exact_mut(line)) {
                fill(psi, index, row);
            }
        });
        *array(self) = filled;
    }

    fn sweep_fluxes(&mut self, crew: &Crew) {
        let (row, shares) = (self.row(), scaled(&self.rows, self.n + 2));
        let Self { now: Fields { u, v, p }, cu, cv, z, h, rows, .. } = self;
        let parts = cut(cu, &shares).into_iter().zip(cut(cv, &shares)).zip(cut(z, &shares)).zip(cut(h, &shares));
        crew.each(parts, |thread, (((cu, cv), z), h)| fluxes(row, rows[thread].clone(), [u, v, p], [cu, cv, z, h]));
    }

    fn sweep_update(&mut self, seconds: f64, crew: &Crew) {
        let (row, shares) = (self.row(), scaled(&self.rows, self.n + 2));
        let Self { new, old, cu, cv, z, h, rows, .. } = self;
        let parts = cut(&mut new.u, &shares).into_iter().zip(cut(&mut new.v, &shares)).zip(cut(&mut new.p, &shares));
        let old = [&old.u, &old.v, &old.p].map(|old| &old[..]);
        crew.each(parts, |thread, ((u, v), p)| {
            update(row, rows[thread].clone(), seconds, [cu, cv, z, h], old, [u, v, p]);
        });
    }

    fn sweep_smooth(&mut self, first: bool, crew: &Crew) {
        let shares = scaled(&self.rows, self.n + 2);
        let (now, old, new) = (&mut self.now, &mut self.old, &self.new);
        let fields =
            [(&mut now.u, &mut old.u, &new.u), (&mut now.v, &mut old.v, &new.v), (&mut now.p, &mut old.p, &new.p)];
        let cuts = fields.map(|(now, old, new)| (cut(now, &shares), cut(old, &shares), new));
        let [(u, u_old, u_new), (v, v_old, v_new), (p, p_old, p_new)] = cuts;
        let parts = u.into_iter().zip(u_old).zip(v.into_iter().zip(v_old)).zip(p.into_iter().zip(p_old));
        crew.each(parts, |thread, ((u, v), p)| {
            let share = shares[thread].clone();
            for ((now, old), new) in [(u, u_new), (v, v_new), (p, p_new)] {
                smooth(first, now, old, &new[share.clone()]);
            }
        });
    }

    /// Mass, energy and the height of the wave where its crests were at the start.
    fn conserved(&self, crew: &Crew) -> [f64; 3] {
        let (row, n, Fields { u, v, p }) = (self.row(), self.n, &self.now);
        let sums = crew.each(self.rows.iter().cloned(), |_, rows| {
            let mut sums = [0.0; 3];
            for i in rows {
                let u_next = row.of(u, i + 1);
                let (u, v, p) = (row.of(u, i), row.of(v, i), row.of(p, i));
                // A row is added up for itself: fewer numbers, less rounding.
                let mut line = [0.0; 3];
                for j in 1..=n {
                    let kinetic = u[j].powi(2) + u_next[j].powi(2) + v[j].powi(2) + v[j + 1].powi(2);
                    line[0] += p[j];
                    line[1] += 0.5 * p[j] * (p[j] + 0.5 * kinetic);
                    line[2] += p[j] * crest(n, i);
                }
                sums = std::array::from_fn(|index| sums[index] + line[index]);
            }
            sums
        });
        sums.into_iter().fold([0.0; 3], |sum, part| std::array::from_fn(|index| sum[index] + part[index]))
    }
}

/// Radians of the gravity wave from one row to the next: its crests are about 8 rows apart.
fn turn(n: usize) -> f64 {
    2.0 * PI * (n / 8) as f64 / n as f64
}

/// The gravity wave at the start, at a row.
fn crest(n: usize, row: usize) -> f64 {
    (turn(n) * row as f64).cos()
}

/// The wave's height after a run where its crests were, relative to its height at the start.
///
/// Small waves of the differences, leaping over two steps, turn in each step by an angle whose sine
/// is `2 c DT / DX sin(turn / 2)`, where c is the root of the mean pressure. With 8 rows to a wave:
/// c = 223.6 m/s, so the sine is 0.4025 * 0.3827 = 0.1540, and 100 steps turn by 15.46 radians,
/// whose cosine is -0.970.
fn amplitude(n: usize) -> f64 {
    let sine = 2.0 * MEAN.sqrt() * DT / DX * (turn(n) / 2.0).sin();
    (f64::from(STEPS) * sine.asin()).cos()
}

#[cfg(test)]
mod tests {
    use super::amplitude;
    use crate::kernel::Class;
    use crate::kernel::tests::verifies;

    #[test]
    fn the_waves_height_is_worked_by_hand() {
        assert!((amplitude(512) + 0.970).abs() < 0.002, "{}", amplitude(512));
    }

    #[test]
    fn mass_and_energy_are_conserved_and_the_wave_is_where_it_must_be() {
        verifies("shallow_water", Class::S, &[1, 2, 3]);
    }
}
