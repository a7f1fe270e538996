//! One STREAM job: a team of threads that each own their share of the arrays, and repeat the
//! kernels when told.

use super::kernels::Kernels;
use super::part::Part;
use super::{Kernel, TOLERANCE, check_job, share};
use crate::protocol::StreamJob;
use crate::team::{Barrier, Member, Team};
use crate::{Placement, WorkloadError, count_pages};
use std::sync::Arc;

/// What a job leaves besides its times.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamOutcome {
    /// Whether every element is what it must be.
    pub verified: bool,
    /// The largest relative error of any element.
    pub error: f64,
    /// The CPUs that each thread might use, read back, in list format.
    pub thread_cpus: Vec<String>,
    /// Pages on each node, read back: (node, pages).
    pub pages_by_node: Vec<(u32, u64)>,
}

enum Order {
    Repeat,
    Inspect { repetitions: u32 },
}

enum Answer {
    Seconds([f64; 4]),
    State { error: f64, cpus: String, pages: Vec<(u32, u64)> },
}

/// A STREAM job whose arrays are allocated and touched.
pub struct StreamRun {
    team: Team<Order, Answer>,
    done: u32,
}

impl StreamRun {
    /// Starts the threads, places them, allocates and first-touches the arrays.
    pub fn prepare(job: &StreamJob, placement: &Arc<dyn Placement>) -> Result<StreamRun, WorkloadError> {
        check_job(job)?;
        let kernels = Kernels::new(job.stores)?;
        let barrier = Arc::new(Barrier::new(job.threads as usize));
        let (elements, threads) = (job.elements, job.threads);
        let placement = Arc::clone(placement);
        let team = Team::start(threads as usize, move |index| {
            placement.place_thread(index)?;
            let share = share(elements, threads, index as u32);
            let part = Part::new((share.end - share.start) as usize)?;
            Ok(Worker { part, kernels, barrier: Arc::clone(&barrier), placement: Arc::clone(&placement) })
        })?;
        Ok(StreamRun { team, done: 0 })
    }

    /// Runs the four kernels once; seconds of Copy, Scale, Add, Triad.
    pub fn repeat(&mut self) -> Result<[f64; 4], WorkloadError> {
        let answers = self.team.all(|| Order::Repeat)?;
        self.done += 1;
        // Every thread reads the same clock at the same barriers.
        match answers.into_iter().next() {
            Some(Answer::Seconds(seconds)) => Ok(seconds),
            _ => Err(WorkloadError::ThreadLost),
        }
    }

    /// Verifies the arrays and reads back where threads and memory are.
    pub fn inspect(&mut self) -> Result<StreamOutcome, WorkloadError> {
        let repetitions = self.done;
        let answers = self.team.all(|| Order::Inspect { repetitions })?;
        let mut outcome = StreamOutcome { verified: false, error: 0.0, thread_cpus: vec![], pages_by_node: vec![] };
        let mut all_pages = Vec::new();
        for answer in answers {
            let Answer::State { error, cpus, pages } = answer else { return Err(WorkloadError::ThreadLost) };
            outcome.error = outcome.error.max(error);
            outcome.thread_cpus.push(cpus);
            all_pages.extend(pages);
        }
        outcome.pages_by_node = count_pages(all_pages);
        outcome.verified = outcome.error <= TOLERANCE;
        Ok(outcome)
    }
}

struct Worker {
    part: Part,
    kernels: Kernels,
    barrier: Arc<Barrier>,
    placement: Arc<dyn Placement>,
}

impl Member<Order, Answer> for Worker {
    fn carry_out(&mut self, order: Order) -> Answer {
        match order {
            Order::Repeat => Answer::Seconds(self.repeat()),
            Order::Inspect { repetitions } => Answer::State {
                error: self.part.error_after(repetitions),
                cpus: self.placement.thread_cpus(),
                pages: self.part.pages_by_node(&*self.placement),
            },
        }
    }
}

impl Worker {
    fn repeat(&mut self) -> [f64; 4] {
        let mut before = self.barrier.wait();
        Kernel::ALL.map(|kernel| {
            self.part.run(kernel, &self.kernels);
            let after = self.barrier.wait();
            let seconds = (after - before).as_secs_f64();
            before = after;
            seconds
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Anywhere;
    use crate::protocol::{Pinning, Stores};

    fn job(elements: u64, threads: u32, repetitions: u32) -> StreamJob {
        let (stores, pinning) = (Stores::Ordinary, Pinning::None);
        StreamJob { elements, threads, repetitions, stores, pinning, cpu_node: None, memory_node: None }
    }

    fn anywhere() -> Arc<dyn Placement> {
        Arc::new(Anywhere)
    }

    #[test]
    fn every_thread_count_verifies() {
        for threads in [1, 2, 3, 8] {
            let mut run = StreamRun::prepare(&job(10_007, threads, 5), &anywhere()).unwrap();
            for _ in 0..5 {
                let seconds = run.repeat().unwrap();
                assert!(seconds.iter().all(|&seconds| seconds > 0.0), "{seconds:?}");
            }
            let outcome = run.inspect().unwrap();
            assert!(outcome.verified, "{outcome:?}");
            assert_eq!(outcome.thread_cpus.len(), threads as usize);
        }
    }

    #[test]
    fn a_missing_repetition_fails_the_verification() {
        let mut run = StreamRun::prepare(&job(1000, 2, 3), &anywhere()).unwrap();
        run.repeat().unwrap();
        run.done = 2;
        assert!(!run.inspect().unwrap().verified);
    }

    #[test]
    fn a_job_that_cannot_be_run_names_the_field() {
        for (bad, field) in [
            (job(0, 1, 3), "elements"),
            (job(3, 4, 3), "elements"),
            (job(u64::MAX, 1, 3), "elements"),
            (job(100, 0, 3), "threads"),
            (job(100, 1, 1), "repetitions"),
            (job(100, 1, MAX + 1), "repetitions"),
        ] {
            let error = StreamRun::prepare(&bad, &anywhere()).err().unwrap().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
    const MAX: u32 = crate::MAX_REPETITIONS;

    struct Refusing;
    impl Placement for Refusing {
        fn place_thread(&self, index: usize) -> Result<(), WorkloadError> {
            if index == 1 { Err(WorkloadError::Placement("no such CPU".into())) } else { Ok(()) }
        }
    }

    #[test]
    fn a_thread_that_cannot_be_placed_ends_the_job_without_hanging_the_others() {
        let refusing: Arc<dyn Placement> = Arc::new(Refusing);
        let error = StreamRun::prepare(&job(1000, 3, 3), &refusing).err().unwrap().to_string();
        assert!(error.contains("no such CPU"), "{error}");
    }
}
