//! Kernels of our own that stand for programs of SPEC OMP and SPEC MPI, which nobody may ship.
//!
//! A kernel is named after what it computes, and written from the published algorithm. Its sizes
//! are called S, W, A, B and C as those of the NAS Parallel Benchmarks (NPB). A run starts from the
//! same values each time, takes the class's number of steps, and is verified: against NPB's own
//! values where NPB has the kernel, else against what the algorithm conserves or against a known
//! solution. A run that is not verified has no figure.
//!
//! A new kernel is a module with a `DESCRIPTION`, and a line in [`KERNELS`].

mod random;
mod run;

pub(crate) use random::Random;
pub use run::{KernelOutcome, KernelRun, Repetition};

use crate::WorkloadError;
use crate::crew::Crew;

/// All of them.
pub const KERNELS: [&Description; 3] =
    [&crate::conjugate_gradient::DESCRIPTION, &crate::multigrid::DESCRIPTION, &crate::shallow_water::DESCRIPTION];

/// How large a problem is. S is for tests; W fits the caches of one core or so; A to C are for
/// machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // NPB's names.
pub enum Class {
    S,
    W,
    A,
    B,
    C,
}

impl Class {
    /// All of them, the smallest first.
    pub const ALL: [Class; 5] = [Class::S, Class::W, Class::A, Class::B, Class::C];

    /// Its letter.
    pub fn name(self) -> &'static str {
        ["S", "W", "A", "B", "C"][self as usize]
    }

    /// The class of this letter.
    pub fn named(name: &str) -> Result<Class, WorkloadError> {
        let class = Class::ALL.into_iter().find(|class| class.name() == name);
        class.ok_or_else(|| WorkloadError::BadJob(format!("`class` is `{name}`; valid are S, W, A, B, C")))
    }
}

/// Makes a kernel ready on a crew.
pub type Start = fn(Class, &Crew) -> Result<Box<dyn Kernel>, WorkloadError>;

/// What is known of a kernel before it runs.
pub struct Description {
    /// Its name in experiments.
    pub name: &'static str,
    /// The programs that it stands for.
    pub stands_for: &'static str,
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
