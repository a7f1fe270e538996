//! A kernel that is ready to run: it lives on the first thread of its crew, and is told to repeat.

use super::{Class, Description, Kernel, Verification};
use crate::crew::Crew;
use crate::team::{Member, Team};
use crate::{Placement, WorkloadError, count_pages};
use std::sync::Arc;
use std::time::Instant;

/// One run of all steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Repetition {
    /// The time of all steps, without the reset and the verification.
    pub seconds: f64,
    /// Floating-point operations of the run.
    pub operations: f64,
    /// What it left, beside what is right.
    pub verifications: Vec<Verification>,
}

impl Repetition {
    /// Whether all that it left is right.
    pub fn verified(&self) -> bool {
        self.verifications.iter().all(Verification::passes)
    }

    /// 10^6 floating-point operations per second, NPB's Mop/s.
    pub fn mop_per_second(&self) -> f64 {
        self.operations / 1e6 / self.seconds
    }
}

/// Where a kernel ran.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelOutcome {
    /// The CPUs that each thread might use, read back, in list format.
    pub thread_cpus: Vec<String>,
    /// Pages on each node, read back: (node, pages).
    pub pages_by_node: Vec<(u32, u64)>,
}

enum Order {
    Repeat,
    Inspect,
}

enum Answer {
    Repetition(Repetition),
    Outcome(KernelOutcome),
}

/// A kernel whose arrays are reserved and touched.
pub struct KernelRun {
    team: Team<Order, Answer>,
}

impl KernelRun {
    /// Starts the threads, places them, reserves and first-touches the arrays.
    pub fn prepare(
        kernel: &'static Description,
        class: Class,
        threads: usize,
        placement: &Arc<dyn Placement>,
    ) -> Result<KernelRun, WorkloadError> {
        if threads == 0 {
            return Err(WorkloadError::BadJob("`threads` is 0; at least 1 is needed".into()));
        }
        let placement = Arc::clone(placement);
        let team = Team::start(1, move |_| {
            let crew = Crew::start(threads, &placement)?;
            let kernel = (kernel.start)(class, &crew)?;
            Ok(Lead { kernel, crew, placement: Arc::clone(&placement) })
        })?;
        Ok(KernelRun { team })
    }

    /// One run from the start values, and its verification.
    pub fn repeat(&mut self) -> Result<Repetition, WorkloadError> {
        match self.team.all(|| Order::Repeat)?.pop() {
            Some(Answer::Repetition(repetition)) => Ok(repetition),
            _ => Err(WorkloadError::ThreadLost),
        }
    }

    /// Reads back where threads and memory are.
    pub fn inspect(&mut self) -> Result<KernelOutcome, WorkloadError> {
        match self.team.all(|| Order::Inspect)?.pop() {
            Some(Answer::Outcome(outcome)) => Ok(outcome),
            _ => Err(WorkloadError::ThreadLost),
        }
    }
}

struct Lead {
    kernel: Box<dyn Kernel>,
    crew: Crew,
    placement: Arc<dyn Placement>,
}

impl Member<Order, Answer> for Lead {
    fn carry_out(&mut self, order: Order) -> Answer {
        match order {
            Order::Repeat => Answer::Repetition(self.repeat()),
            Order::Inspect => Answer::Outcome(self.inspect()),
        }
    }
}

impl Lead {
    fn repeat(&mut self) -> Repetition {
        self.kernel.reset(&self.crew);
        let start = Instant::now();
        for _ in 0..self.kernel.steps() {
            self.kernel.step(&self.crew);
        }
        let seconds = start.elapsed().as_secs_f64();
        let verifications = self.kernel.verify(&self.crew);
        Repetition { seconds, operations: self.kernel.operations(), verifications }
    }

    fn inspect(&self) -> KernelOutcome {
        let placement = &self.placement;
        let thread_cpus = self.crew.each(0..self.crew.threads(), |_, _| placement.thread_cpus());
        let memory = self.kernel.memory();
        let pages = memory.into_iter().flat_map(|(start, bytes)| self.placement.pages_by_node(start, bytes));
        KernelOutcome { thread_cpus, pages_by_node: count_pages(pages) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::prepared;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_run_can_be_repeated_and_gives_the_same() {
        let mut run = prepared("conjugate_gradient", Class::S, 2);
        let first = run.repeat().unwrap();
        let second = run.repeat().unwrap();
        assert_eq!(first.verifications, second.verifications);
        assert!(second.seconds > 0.0 && second.mop_per_second() > 0.0);
    }

    #[derive(Default)]
    struct Counting(AtomicUsize);
    impl Placement for Counting {
        fn thread_cpus(&self) -> String {
            std::thread::current().name().unwrap_or_default().into()
        }
        fn pages_by_node(&self, _: *const u8, bytes: usize) -> Vec<(u32, u64)> {
            self.0.fetch_add(1, Ordering::Relaxed);
            vec![(0, bytes as u64 >> 12)]
        }
    }

    #[test]
    fn threads_and_memory_are_read_back() {
        let counting: Arc<dyn Placement> = Arc::new(Counting::default());
        let kernel = Description::named("conjugate_gradient").unwrap();
        let mut run = KernelRun::prepare(kernel, Class::S, 3, &counting).unwrap();
        let outcome = run.inspect().unwrap();
        assert_eq!(outcome.thread_cpus, ["worker-0", "worker-1", "worker-2"]);
        assert!(outcome.pages_by_node[0].1 > 0);
    }

    #[test]
    fn no_threads_is_an_error() {
        let anywhere: Arc<dyn Placement> = Arc::new(crate::Anywhere);
        let kernel = Description::named("conjugate_gradient").unwrap();
        let error = KernelRun::prepare(kernel, Class::S, 0, &anywhere).err().unwrap().to_string();
        assert!(error.contains("threads"), "{error}");
    }
}
