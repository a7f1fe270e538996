//! Kernels of our own that stand for programs of SPEC OMP and SPEC MPI, which nobody may ship.
//!
//! A kernel is named after what it computes, and written from the published algorithm. Its sizes
//! are called S, W, A, B and C as those of the NAS Parallel Benchmarks (NPB). A run starts from the
//! same values each time, takes the class's number of steps, and is verified: against NPB's own
//! values where NPB has the kernel, else against what the algorithm conserves or against a known
//! solution. A run that is not verified has no figure.
//!
//! A new kernel is a module with a `DESCRIPTION`, and a line in [`KERNELS`].

mod class;
mod fused;
mod programs;
mod random;
mod run;
mod running;
mod workload;

pub use class::Class;
pub(crate) use fused::fused;
pub use programs::{Program, Programs};
pub(crate) use random::Random;
pub use run::{KernelOutcome, KernelRun, Repetition};
pub use workload::{KernelJob, KernelSection};

use crate::WorkloadError;
use crate::crew::Crew;
use topology::Bytes;

/// All of them.
pub const KERNELS: [&Description; 9] = [
    &crate::adaptive_resonance::DESCRIPTION,
    &crate::barotropic::DESCRIPTION,
    &crate::conjugate_gradient::DESCRIPTION,
    &crate::explicit_elements::DESCRIPTION,
    &crate::fft3d::DESCRIPTION,
    &crate::lattice_dslash::DESCRIPTION,
    &crate::multigrid::DESCRIPTION,
    &crate::shallow_water::DESCRIPTION,
    &crate::ssor_wavefront::DESCRIPTION,
];

/// What a kernel of a class needs, as known before it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Its arrays.
    pub memory: Bytes,
    /// Floating-point operations of a run, roughly.
    pub operations: f64,
}

impl Demand {
    /// Of arrays of so many doubles together.
    pub(crate) fn of(doubles: usize, operations: f64) -> Demand {
        Demand { memory: Bytes(8 * doubles as u64), operations }
    }
}

/// Operations a second of one thread, and of any number, on the host or under KVM.
const HARDWARE: (f64, f64) = (1e9, 50e9);
/// The same under software emulation.
const EMULATED: (f64, f64) = (0.05e9, 5e9);

/// Makes a kernel ready on a crew.
pub type Start = fn(Class, &Crew) -> Result<Box<dyn Kernel>, WorkloadError>;

/// What is known of a kernel before it runs.
pub struct Description {
    /// Its name in experiments.
    pub name: &'static str,
    /// The programs that it stands for.
    pub stands_for: &'static str,
    /// What it needs.
    pub demand: fn(Class) -> Demand,
    /// Reserves and first-touches its arrays, each part by its thread.
    pub start: Start,
}

impl Description {
    /// The kernel of this name.
    pub fn named(name: &str) -> Result<&'static Description, WorkloadError> {
        KERNELS.into_iter().find(|kernel| kernel.name == name).ok_or_else(|| {
            let valid = KERNELS.map(|kernel| kernel.name).join(", ");
            WorkloadError::BadJob(format!("`kernel` is `{name}`; valid are {valid}"))
        })
    }

    /// Roughly how many seconds a run takes.
    pub fn seconds(&self, class: Class, threads: u32, emulated: bool) -> f64 {
        let (one, all) = if emulated { EMULATED } else { HARDWARE };
        (self.demand)(class).operations / (one * f64::from(threads)).min(all)
    }
}

/// A kernel whose arrays are there.
pub trait Kernel {
    /// Steps of one run.
    fn steps(&self) -> u32;
    /// Floating-point operations of one run, as published with the algorithm, else counted.
    fn operations(&self) -> f64;
    /// Back to the start values. Not timed.
    fn reset(&mut self, crew: &Crew);
    /// One step. A run takes `steps()` of them.
    fn step(&mut self, crew: &Crew);
    /// What a run left, beside what it must leave.
    fn verify(&mut self, crew: &Crew) -> Vec<Verification>;
    /// Where its large arrays are: first address, bytes.
    fn memory(&self) -> Vec<(*const u8, usize)>;
}

/// A quantity that tells whether a run was right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verification {
    /// What it is.
    pub quantity: &'static str,
    /// What the run computed.
    pub value: f64,
    /// What is right.
    pub expected: f64,
    /// The largest difference that is still right, relative to `expected` (absolute if that is 0).
    pub tolerance: f64,
}

impl Verification {
    /// The difference from what is right, relative to it.
    pub fn error(&self) -> f64 {
        let scale = if self.expected == 0.0 { 1.0 } else { self.expected.abs() };
        (self.value - self.expected).abs() / scale
    }

    /// Whether the run was right. No number is never right.
    pub fn passes(&self) -> bool {
        self.error() <= self.tolerance
    }
}

/// Where an array is, for [`Kernel::memory`].
pub(crate) fn memory_of<T>(array: &[T]) -> (*const u8, usize) {
    (array.as_ptr().cast(), size_of_val(array))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Anywhere, Placement};
    use std::sync::Arc;

    #[test]
    fn arrays_have_room_in_what_a_kernel_is_said_to_need() {
        let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
        let crew = Crew::start(2, &anywhere).unwrap();
        for (kernel, class) in KERNELS.into_iter().flat_map(|kernel| [(kernel, Class::S), (kernel, Class::W)]) {
            let started = (kernel.start)(class, &crew).unwrap();
            let held: usize = started.memory().iter().map(|(_, bytes)| bytes).sum();
            let said = (kernel.demand)(class).memory.0 as f64 / held as f64;
            assert!((1.0..1.6).contains(&said), "{} {class:?}: said {said} times what it holds", kernel.name);
        }
    }

    #[test]
    fn operations_are_about_those_that_a_kernel_is_said_to_need() {
        for kernel in KERNELS {
            let ran = prepared(kernel.name, Class::S, 2).repeat().unwrap().operations;
            let said = (kernel.demand)(Class::S).operations / ran;
            assert!((0.5..2.0).contains(&said), "{}: said {said} times what it needs", kernel.name);
        }
    }

    /// Runs a kernel once with each number of threads; all must be right.
    pub(crate) fn verifies(name: &str, class: Class, threads: &[usize]) {
        for &threads in threads {
            let mut run = prepared(name, class, threads);
            let repetition = run.repeat().unwrap();
            assert!(!repetition.verifications.is_empty());
            assert!(repetition.verified(), "{name} {class:?}, {threads} threads: {:?}", repetition.verifications);
        }
    }

    pub(crate) fn prepared(name: &str, class: Class, threads: usize) -> KernelRun {
        let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
        KernelRun::prepare(Description::named(name).unwrap(), class, threads, &anywhere).unwrap()
    }

    #[test]
    fn what_is_not_a_number_is_not_right() {
        let right = Verification { quantity: "zeta", value: 8.6, expected: 8.6, tolerance: 1e-10 };
        assert!(right.passes());
        assert!(!Verification { value: f64::NAN, ..right }.passes());
        assert!(!Verification { value: 8.6 * (1.0 + 1e-9), ..right }.passes());
        // Nothing is relative to 0: 1e-11 differs from it by 1e-11.
        assert!(Verification { value: 1e-11, expected: 0.0, ..right }.passes());
    }

    #[test]
    fn a_name_that_is_none_names_the_valid_ones() {
        let error = Description::named("cg").err().unwrap().to_string();
        assert!(error.contains("`cg`") && error.contains("conjugate_gradient"), "{error}");
        let error = Class::named("D").err().unwrap().to_string();
        assert!(error.contains("`D`") && error.contains("S, W, A, B, C"), "{error}");
    }
}
