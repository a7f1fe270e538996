//! The heat equation on a periodic box, solved in the space of frequencies: NPB's FT (Bailey et
//! al., "The NAS Parallel Benchmarks", RNR-94-007, 1994).
//!
//! Random values are transformed once. Each step multiplies every frequency by its decay,
//! transforms back in three directions, and adds up 1024 of the values. The transforms along the
//! planes stay with a thread. The one across them reads and writes planes of all threads: on n
//! nodes (n - 1) / n of its traffic is remote. It stands for the spectral part of apsi of SPEC OMP.

mod checksums;
mod transform;

use crate::WorkloadError;
use crate::crew::{Crew, cut, scaled};
use crate::kernel::{Class, Demand, Description, Kernel, Random, Verification, memory_of};
use std::f64::consts::PI;
use std::ops::Range;
use transform::{Complex, LANES, Roots, Scratch};

pub(crate) const DESCRIPTION: Description = Description { name: "fft3d", stands_for: "apsi (SPEC OMP)", demand, start };

/// Points along x, y and z.
fn size(class: Class) -> [usize; 3] {
    match class {
        Class::S => [64, 64, 64],
        Class::W => [128, 128, 32],
        Class::A => [256, 256, 128],
        Class::B => [512, 256, 256],
        Class::C => [512, 512, 512],
    }
}

struct Fft3d {
    class: Class,
    n: [usize; 3],
    /// Planes of each thread, and rows of every plane.
    planes: Vec<Range<usize>>,
    rows: Vec<Range<usize>>,
    roots: [Roots; 3],
    frequencies: Vec<Complex>,
    values: Vec<Complex>,
    /// How much of each frequency is left by one step.
    decay: Vec<f64>,
    sums: Vec<Complex>,
}

fn demand(class: Class) -> Demand {
    let points = size(class).into_iter().product::<usize>();
    Demand::of(5 * points, operations(class))
}

fn steps(class: Class) -> u32 {
    if class < Class::B { 6 } else { 20 }
}

/// NPB's count, without the first transform, which belongs to the start values here.
fn operations(class: Class) -> f64 {
    let points = size(class).into_iter().product::<usize>() as f64;
    points * (5.23518 + 7.21113 * points.ln()) * f64::from(steps(class))
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let n = size(class);
    let [nx, ny, nz] = n;
    let (planes, rows) = (crew.shares(nz), crew.shares(ny));
    let elements = scaled(&planes, nx * ny);
    let zeros = || crew.array(&elements, |_| [0.0; 2]);
    let square = |at: usize, n: usize| (if at < n / 2 { at as f64 } else { at as f64 - n as f64 }).powi(2);
    let decay = crew.array(&elements, |index| {
        let (x, y, z) = (index % nx, index / nx % ny, index / (nx * ny));
        (-4.0 * 1e-6 * PI * PI * (square(x, nx) + square(y, ny) + square(z, nz))).exp()
    })?;
    let (frequencies, values, roots) = (zeros()?, zeros()?, n.map(transform::roots));
    Ok(Box::new(Fft3d { class, n, planes, rows, roots, frequencies, values, decay, sums: Vec::new() }))
}

impl Kernel for Fft3d {
    fn steps(&self) -> u32 {
        steps(self.class)
    }

    fn operations(&self) -> f64 {
        operations(self.class)
    }

    fn reset(&mut self, crew: &Crew) {
        let [nx, ny, _] = self.n;
        let (plane, planes) = (nx * ny, &self.planes);
        crew.each(cut(&mut self.frequencies, &scaled(planes, plane)), |thread, part| {
            let mut random = Random::new(314_159_265).ahead((2 * plane * planes[thread].start) as u64);
            for value in part {
                *value = [random.next(), random.next()];
            }
        });
        along_planes(&mut self.frequencies, 1.0, self.n, &self.planes, &self.roots, crew);
        across_planes(&mut self.frequencies, 1.0, self.n, &self.rows, &self.roots[2], crew);
        self.sums.clear();
    }

    fn step(&mut self, crew: &Crew) {
        let shares = scaled(&self.planes, self.n[0] * self.n[1]);
        let decay = &self.decay;
        let parts = cut(&mut self.frequencies, &shares).into_iter().zip(cut(&mut self.values, &shares));
        crew.each(parts, |thread, (frequencies, values)| {
            transform::evolve(frequencies, values, &decay[shares[thread].clone()]);
        });
        across_planes(&mut self.values, -1.0, self.n, &self.rows, &self.roots[2], crew);
        along_planes(&mut self.values, -1.0, self.n, &self.planes, &self.roots, crew);
        let sum = self.checksum();
        self.sums.push(sum);
    }

    fn verify(&mut self, _: &Crew) -> Vec<Verification> {
        let expected = checksums::of(self.class);
        let last = self.sums.len().min(expected.len()) - 1;
        let all = self.sums.iter().zip(expected).take(last + 1);
        // Of all steps the worst, by NPB's measure; the tolerance is NPB's.
        let distance = |a: &Complex, b: &Complex| (a[0] - b[0]).hypot(a[1] - b[1]) / b[0].hypot(b[1]);
        let worst = all.map(|(sum, expected)| distance(sum, expected)).fold(0.0, f64::max);
        let worst = if self.sums.iter().flatten().all(|part| part.is_finite()) { worst } else { f64::NAN };
        vec![Verification { quantity: "error of the checksums", value: worst, expected: 0.0, tolerance: 1e-12 }]
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        vec![memory_of(&self.frequencies), memory_of(&self.values), memory_of(&self.decay)]
    }
}

impl Fft3d {
    fn checksum(&self) -> Complex {
        let [nx, ny, nz] = self.n;
        let mut sum = [0.0; 2];
        for j in 1..=1024 {
            let value = self.values[(5 * j % nz * ny + 3 * j % ny) * nx + j % nx];
            sum = [sum[0] + value[0], sum[1] + value[1]];
        }
        sum.map(|part| part / (nx * ny * nz) as f64)
    }
}

/// Transforms along x and y: each thread its planes. Forward x comes first, back it comes last;
/// the result is the same but for rounding.
fn along_planes(
    values: &mut [Complex],
    sign: f64,
    [nx, ny, _]: [usize; 3],
    planes: &[Range<usize>],
    roots: &[Roots; 3],
    crew: &Crew,
) {
    crew.each(cut(values, &scaled(planes, nx * ny)), |_, part| {
        let mut scratch = Scratch::new(nx.max(ny));
        for plane in part.chunks_exact_mut(nx * ny) {
            for rows in plane.chunks_exact_mut(LANES * nx) {
                scratch.rows(sign, &roots[0], rows);
            }
            let mut rows: Vec<&mut [Complex]> = plane.chunks_exact_mut(nx).collect();
            scratch.columns(sign, &roots[1], &mut rows);
        }
    });
}

/// Transforms along z: each thread some rows of every plane.
fn across_planes(
    values: &mut [Complex],
    sign: f64,
    [nx, ny, nz]: [usize; 3],
    rows: &[Range<usize>],
    roots: &Roots,
    crew: &Crew,
) {
    let mut parts: Vec<Vec<&mut [Complex]>> = rows.iter().map(|_| Vec::with_capacity(nz)).collect();
    let shares = scaled(rows, nx);
    for plane in values.chunks_exact_mut(nx * ny) {
        for (part, rows) in parts.iter_mut().zip(cut(plane, &shares)) {
            part.push(rows);
        }
    }
    crew.each(parts, |thread, mut part| {
        let mut scratch = Scratch::new(nz);
        for row in 0..rows[thread].len() {
            let mut column: Vec<&mut [Complex]> = part.iter_mut().map(|rows| &mut rows[row * nx..][..nx]).collect();
            scratch.columns(sign, roots, &mut column);
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::kernel::Class;
    use crate::kernel::tests::verifies;

    #[test]
    fn the_checksums_are_npbs() {
        verifies("fft3d", Class::S, &[1, 2]);
    }

    #[test]
    #[ignore = "takes long: make test-long and .ci/run run it"]
    fn the_checksums_of_the_larger_classes_are_npbs() {
        verifies("fft3d", Class::W, &[2]);
        verifies("fft3d", Class::A, &[2]);
    }
}
