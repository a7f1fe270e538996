//! A neural network that recognizes images: ART 2 (Carpenter and Grossberg, "ART 2: self-
//! organization of stable category recognition codes for analog input patterns", Applied Optics 26,
//! 1987).
//!
//! A layer F1 of neurons, one for each point of an image, cleans the image by sweeps over its
//! vectors, each of which needs the lengths of three vectors before it can go on. A layer F2 has a
//! neuron for each image that was learnt; which of them answers best takes one sweep over all
//! weights. So it is short loops with global sums, then a long stream. It stands for art of SPEC
//! OMP.
//!
//! Images are learnt before the run. In the run they come again, with noise. Each must be
//! recognized, and resemble what was learnt more than the vigilance asks.

use crate::WorkloadError;
use crate::crew::Crew;
use crate::kernel::{Class, Demand, Description, Kernel, Random, Verification, memory_of};
use multiversion::multiversion;
use std::ops::Range;

pub(crate) const DESCRIPTION: Description =
    Description { name: "adaptive_resonance", stands_for: "art (SPEC OMP)", demand, start };

/// Images that are shown in a run.
const STEPS: u32 = 20;
/// Sweeps of F1 for each image.
const SWEEPS: u32 = 10;
/// Feedback within F1, and from F2 to F1: the letters of the paper, with the values that it uses.
const A: f64 = 10.0;
const B: f64 = 10.0;
const C: f64 = 0.1;
const D: f64 = 0.9;
/// How alike an image and its category must be, 0 to 1.
const VIGILANCE: f64 = 0.9;
/// Amplitude of the noise; images are between 0 and 1.
const NOISE: f64 = 0.3;

/// Points of an image, and images.
fn size(class: Class) -> [usize; 2] {
    match class {
        Class::S => [2_000, 10],
        Class::W => [20_000, 20],
        Class::A => [100_000, 50],
        Class::B => [500_000, 100],
        Class::C => [2_000_000, 200],
    }
}

/// What a thread has of F1, of the image, and of the weights.
struct Part {
    points: Range<usize>,
    image: Vec<f64>,
    u: Vec<f64>,
    v: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
    /// Of each learnt image its points here.
    weights: Vec<Vec<f64>>,
}

struct AdaptiveResonance {
    n: usize,
    images: usize,
    /// The noise's amplitude where a point is suppressed: 1 / root n, as the paper has it.
    threshold: f64,
    parts: Vec<Part>,
    shown: u32,
    recognized: u32,
}

fn demand(class: Class) -> Demand {
    let [n, images] = size(class);
    Demand::of((5 + images) * n, f64::from(STEPS) * operations_of_an_image(n, images))
}

/// Counted: 24 for each point in a sweep, 2 for each weight, 6 for each point of the match.
fn operations_of_an_image(n: usize, images: usize) -> f64 {
    (f64::from(SWEEPS) * 24.0 + 2.0 * images as f64 + 6.0) * n as f64
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let [n, images] = size(class);
    let parts = crew.each(crew.shares(n), |_, points| Part::new(points, images));
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let threshold = 1.0 / (n as f64).sqrt();
    let mut network = AdaptiveResonance { n, images, threshold, parts, shown: 0, recognized: 0 };
    network.learn(crew);
    Ok(Box::new(network))
}

/// The numbers that an image is made of, from a point on.
fn drawn(image: usize, from: usize) -> Random {
    Random::new(314_159_265).ahead(((image as u64) << 32) + from as u64)
}

/// Memory of so many elements that is touched by the thread that calls this.
fn zeros(length: usize) -> Result<Vec<f64>, WorkloadError> {
    let mut array = Vec::new();
    array.try_reserve_exact(length).map_err(|_| WorkloadError::Memory { bytes: 8 * length })?;
    array.resize(length, 0.0);
    Ok(array)
}

impl Part {
    fn new(points: Range<usize>, images: usize) -> Result<Part, WorkloadError> {
        let vector = || zeros(points.len());
        let weights = (0..images).map(|_| vector()).collect::<Result<_, _>>()?;
        Ok(Part { image: vector()?, u: vector()?, v: vector()?, p: vector()?, q: vector()?, weights, points })
    }

    fn show(&mut self, image: usize, noise: f64, shown: u32) {
        let mut drawn = drawn(image, self.points.start);
        let mut random = Random::new(271_828_183).ahead((u64::from(shown) << 32) + self.points.start as u64);
        for value in &mut self.image {
            // About half of the points are dark.
            *value = (2.0 * drawn.next() - 1.0).max(0.0) + noise * (random.next() - 0.5);
        }
        for vector in [&mut self.u, &mut self.v, &mut self.p, &mut self.q] {
            vector.fill(0.0);
        }
    }
}

impl Kernel for AdaptiveResonance {
    fn steps(&self) -> u32 {
        STEPS
    }

    fn operations(&self) -> f64 {
        f64::from(STEPS) * operations_of_an_image(self.n, self.images)
    }

    fn reset(&mut self, _: &Crew) {
        (self.shown, self.recognized) = (0, 0);
    }

    fn step(&mut self, crew: &Crew) {
        let (shown, image) = (self.shown, (self.shown as usize * 7 + 3) % self.images);
        crew.each(&mut self.parts, |_, part| part.show(image, NOISE, shown));
        for _ in 0..SWEEPS {
            self.sweep(crew);
        }
        let answers = self.answers(crew);
        let best = (0..self.images).fold(0, |best, other| if answers[other] > answers[best] { other } else { best });
        let alike = self.alike(best, crew);
        self.recognized += u32::from(best == image && alike >= VIGILANCE);
        self.shown += 1;
    }

    fn verify(&mut self, crew: &Crew) -> Vec<Verification> {
        // What is learnt has the length 1 / (1 - D): u has the length 1.
        let lengths = (0..self.images)
            .map(|image| crew.sum(&self.parts, |_, part| dot(&part.weights[image], &part.weights[image])).sqrt());
        let worst = lengths.map(|length| (length * (1.0 - D) - 1.0).abs()).fold(0.0, f64::max);
        let (shown, recognized) = (f64::from(STEPS), f64::from(self.recognized));
        vec![
            Verification { quantity: "images recognized", value: recognized, expected: shown, tolerance: 0.0 },
            Verification { quantity: "error of the weights", value: worst, expected: 0.0, tolerance: 1e-9 },
        ]
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        let vectors = |part: &Part| [&part.image, &part.u, &part.v, &part.p, &part.q].map(|array| memory_of(array));
        let weights = self.parts.iter().flat_map(|part| &part.weights).map(|weights| memory_of(weights));
        self.parts.iter().flat_map(vectors).chain(weights).collect()
    }
}

impl AdaptiveResonance {
    /// Shows each image without noise, and sets its weights to where fast learning ends:
    /// `u / (1 - D)`.
    fn learn(&mut self, crew: &Crew) {
        for image in 0..self.images {
            crew.each(&mut self.parts, |_, part| part.show(image, 0.0, 0));
            for _ in 0..SWEEPS {
                self.sweep(crew);
            }
            crew.each(&mut self.parts, |_, part| {
                for (weight, u) in part.weights[image].iter_mut().zip(&part.u) {
                    *weight = u / (1.0 - D);
                }
            });
        }
    }

    /// One sweep of F1, without an answer of F2: w = image + a u; v = f(w / |w|) + b f(q); u = v /
    /// |v|; p = u; q = p / |p|.
    fn sweep(&mut self, crew: &Crew) {
        let threshold = self.threshold;
        let ww = crew.sum(&mut self.parts, |_, part| squares_of_w(&part.image, &part.u));
        let by_w = 1.0 / ww.sqrt();
        let vv =
            crew.sum(&mut self.parts, |_, part| filter([by_w, threshold], &part.image, &part.u, &part.q, &mut part.v));
        let by_v = 1.0 / vv.sqrt();
        let pp = crew.sum(&mut self.parts, |_, part| normalize(by_v, &part.v, &mut part.u, &mut part.p));
        let by_p = 1.0 / pp.sqrt();
        crew.each(&mut self.parts, |_, part| scale(by_p, &part.p, &mut part.q));
    }

    /// What each neuron of F2 answers.
    fn answers(&self, crew: &Crew) -> Vec<f64> {
        let parts = crew.each(&self.parts, |_, part| -> Vec<f64> {
            part.weights.iter().map(|weights| dot(weights, &part.p)).collect()
        });
        (0..self.images).map(|image| parts.iter().map(|part| part[image]).sum()).collect()
    }

    /// How alike F1 and a category are: the length of `(u + c p) / (|u| + c |p|)`, where p has the
    /// category's answer, `u + D z`.
    fn alike(&self, image: usize, crew: &Crew) -> f64 {
        let sums = crew.each(&self.parts, |_, part| matching(&part.u, &part.weights[image]));
        let [uu, pp, both] = sums.into_iter().fold([0.0; 3], |sum, part| std::array::from_fn(|at| sum[at] + part[at]));
        both.sqrt() / (uu.sqrt() + C * pp.sqrt())
    }
}

#[inline(always)]
fn total<const N: usize>(lanes: [f64; N]) -> f64 {
    lanes.iter().sum()
}

/// `(u, u)`, `(p, p)` and `(u + c p, u + c p)`.
#[multiversion(targets = "simd")]
fn matching(u: &[f64], weights: &[f64]) -> [f64; 3] {
    let mut sums = [[0.0; 8]; 3];
    let ((u, u_rest), (weights, weights_rest)) = (u.as_chunks::<8>(), weights.as_chunks::<8>());
    for (u, weights) in u.iter().zip(weights) {
        for lane in 0..8 {
            let squares = squares_of_match(u[lane], weights[lane]);
            for (sums, square) in sums.iter_mut().zip(squares) {
                sums[lane] += square;
            }
        }
    }
    let rest = u_rest.iter().zip(weights_rest).map(|(u, weight)| squares_of_match(*u, *weight));
    rest.fold(sums.map(total), |sums, squares| std::array::from_fn(|at| sums[at] + squares[at]))
}

#[inline(always)]
fn squares_of_match(u: f64, weight: f64) -> [f64; 3] {
    let p = u + D * weight;
    [u, p, u + C * p].map(|value| value * value)
}

#[multiversion(targets = "simd")]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    total(sums) + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

#[multiversion(targets = "simd")]
fn squares_of_w(image: &[f64], u: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let ((image, image_rest), (u, u_rest)) = (image.as_chunks::<8>(), u.as_chunks::<8>());
    for (image, u) in image.iter().zip(u) {
        for lane in 0..8 {
            let w = image[lane] + A * u[lane];
            sums[lane] += w * w;
        }
    }
    total(sums) + image_rest.iter().zip(u_rest).map(|(image, u)| (image + A * u).powi(2)).sum::<f64>()
}

/// What is not above the threshold is noise.
#[inline(always)]
fn f(threshold: f64, value: f64) -> f64 {
    if value > threshold { value } else { 0.0 }
}

/// `v = f(w / |w|) + b f(q)`; the sum of its squares.
#[multiversion(targets = "simd")]
fn filter([by_w, threshold]: [f64; 2], image: &[f64], u: &[f64], q: &[f64], v: &mut [f64]) -> f64 {
    let filtered = |image: f64, u: f64, q: f64| f(threshold, by_w * (image + A * u)) + B * f(threshold, q);
    let mut sums = [0.0; 8];
    let ((image, image_rest), (u, u_rest)) = (image.as_chunks::<8>(), u.as_chunks::<8>());
    let ((q, q_rest), (v, v_rest)) = (q.as_chunks::<8>(), v.as_chunks_mut::<8>());
    for (((v, image), u), q) in v.iter_mut().zip(image).zip(u).zip(q) {
        for lane in 0..8 {
            v[lane] = filtered(image[lane], u[lane], q[lane]);
            sums[lane] += v[lane] * v[lane];
        }
    }
    for (((v, image), u), q) in v_rest.iter_mut().zip(image_rest).zip(u_rest).zip(q_rest) {
        *v = filtered(*image, *u, *q);
    }
    total(sums) + v_rest.iter().map(|v| v * v).sum::<f64>()
}

/// `u = v / |v|` and `p = u`; the sum of the squares of p.
#[multiversion(targets = "simd")]
fn normalize(by_v: f64, v: &[f64], u: &mut [f64], p: &mut [f64]) -> f64 {
    let mut sums = [0.0; 8];
    let ((v, v_rest), (u, u_rest)) = (v.as_chunks::<8>(), u.as_chunks_mut::<8>());
    let (p, p_rest) = p.as_chunks_mut::<8>();
    for ((v, u), p) in v.iter().zip(u).zip(p) {
        for lane in 0..8 {
            u[lane] = by_v * v[lane];
            p[lane] = u[lane];
            sums[lane] += p[lane] * p[lane];
        }
    }
    for ((v, u), p) in v_rest.iter().zip(u_rest).zip(p_rest.iter_mut()) {
        *u = by_v * v;
        *p = *u;
    }
    total(sums) + p_rest.iter().map(|p| p * p).sum::<f64>()
}

#[multiversion(targets = "simd")]
fn scale(by: f64, from: &[f64], to: &mut [f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = by * from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::verifies;
    use crate::{Anywhere, Placement};
    use std::sync::Arc;

    #[test]
    fn every_image_is_recognized() {
        verifies("adaptive_resonance", Class::S, &[1, 2]);
    }

    #[test]
    fn an_image_that_was_never_learnt_is_not_like_any() {
        let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
        let crew = Crew::start(2, &anywhere).unwrap();
        let [n, images] = size(Class::S);
        let parts = crew.each(crew.shares(n), |_, points| Part::new(points, images).unwrap());
        let threshold = 1.0 / (n as f64).sqrt();
        let mut network = AdaptiveResonance { n, images, threshold, parts, shown: 0, recognized: 0 };
        network.learn(&crew);
        crew.each(&mut network.parts, |_, part| part.show(images, 0.0, 0));
        (0..SWEEPS).for_each(|_| network.sweep(&crew));
        for image in 0..images {
            let alike = network.alike(image, &crew);
            assert!(alike < VIGILANCE, "image {image}: {alike}");
        }
    }
}
