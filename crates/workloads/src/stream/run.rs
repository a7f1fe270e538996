//! One STREAM job: a team of threads that each own their share of the arrays, and repeat the
//! kernels when told.

use super::kernels::Kernels;
use super::part::Part;
use super::{Kernel, StreamJob, TOLERANCE, check_job, share};
use crate::team::{Barrier, Member, Team};
use crate::workload::{Measured, Outcome, Prepared, Repetition, Verification};
use crate::{Placement, WorkloadError, count_pages};
use std::sync::Arc;

enum Order {
    Repeat,
    Inspect { repetitions: u32 },
}

enum Answer {
    Seconds([f64; 4]),
    State { error: f64, cpus: String, pages: Vec<(u32, u64)> },
}

/// A STREAM job whose arrays are allocated and touched.
pub(super) struct StreamRun {
    team: Team<Order, Answer>,
    elements: u64,
    done: u32,
}

impl StreamRun {
    /// Starts the threads, places them, allocates and first-touches the arrays.
    pub(super) fn prepare(
        job: &StreamJob,
        repetitions: u32,
        placement: &Arc<dyn Placement>,
    ) -> Result<StreamRun, WorkloadError> {
        check_job(job, repetitions)?;
        let kernels = Kernels::new(job.stores)?;
        let barrier = Arc::new(Barrier::new(job.threads.count as usize));
        let (elements, threads) = (job.elements, job.threads.count);
        let placement = Arc::clone(placement);
        let team = Team::start(threads as usize, move |index| {
            placement.place_thread(index)?;
            let share = share(elements, threads, index as u32);
            let part = Part::new((share.end - share.start) as usize)?;
            Ok(Worker { part, kernels, barrier: Arc::clone(&barrier), placement: Arc::clone(&placement) })
        })?;
        Ok(StreamRun { team, elements, done: 0 })
    }

    /// Runs the four kernels once; seconds of Copy, Scale, Add, Triad.
    fn repeat(&mut self) -> Result<[f64; 4], WorkloadError> {
        let answers = self.team.all(|| Order::Repeat)?;
        self.done += 1;
        // Every thread reads the same clock at the same barriers.
        match answers.into_iter().next() {
            Some(Answer::Seconds(seconds)) => Ok(seconds),
            _ => Err(WorkloadError::ThreadLost),
        }
    }
}

impl Prepared for StreamRun {
    fn repetition(&mut self) -> Result<Repetition, WorkloadError> {
        let phases = self.repeat()?.to_vec();
        let measured = |(kernel, &seconds): (Kernel, &f64)| Measured {
            quantity: kernel.name().to_owned(),
            value: kernel.mb_per_second(self.elements, seconds),
        };
        Ok(Repetition { figures: Kernel::ALL.into_iter().zip(&phases).map(measured).collect(), phases })
    }

    fn finish(&mut self) -> Result<Outcome, WorkloadError> {
        let repetitions = self.done;
        let answers = self.team.all(|| Order::Inspect { repetitions })?;
        let (mut largest, mut thread_cpus, mut pages_of_all) = (0.0_f64, Vec::new(), Vec::new());
        for answer in answers {
            let Answer::State { error, cpus, pages } = answer else { return Err(WorkloadError::ThreadLost) };
            largest = largest.max(error);
            thread_cpus.push(cpus);
            pages_of_all.extend(pages);
        }
        let verification = if largest <= TOLERANCE {
            Verification::Verified
        } else {
            let reason = format!("an element of the arrays is wrong by {largest:e} of its value, over {TOLERANCE:e}");
            Verification::Wrong { reason }
        };
        Ok(Outcome { verification, thread_cpus, pages_by_node: count_pages(pages_of_all) })
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
    use crate::stream::Stores;
    use crate::workload::{Pinning, Threads};

    fn prepare(
        (elements, count, repetitions): (u64, u32, u32),
        placement: &Arc<dyn Placement>,
    ) -> Result<StreamRun, WorkloadError> {
        let threads = Threads { count, pinning: Pinning::None, cpu_node: None, memory_node: None };
        StreamRun::prepare(&StreamJob { elements, stores: Stores::Ordinary, threads }, repetitions, placement)
    }

    fn anywhere() -> Arc<dyn Placement> {
        Arc::new(Anywhere)
    }

    #[test]
    fn every_thread_count_verifies() {
        for threads in [1, 2, 3, 8] {
            let mut run = prepare((10_007, threads, 5), &anywhere()).unwrap();
            for _ in 0..5 {
                let seconds = run.repeat().unwrap();
                assert!(seconds.iter().all(|&seconds| seconds > 0.0), "{seconds:?}");
            }
            let outcome = run.finish().unwrap();
            assert_eq!(outcome.verification, Verification::Verified, "{outcome:?}");
            assert_eq!(outcome.thread_cpus.len(), threads as usize);
        }
    }

    #[test]
    fn figures_are_the_bytes_that_stream_counts_over_the_seconds_of_each_kernel() {
        let repetition = prepare((1_000_000, 1, 2), &anywhere()).unwrap().repetition().unwrap();
        let names: Vec<&str> = repetition.figures.iter().map(|figure| figure.quantity.as_str()).collect();
        assert_eq!(names, ["Copy", "Scale", "Add", "Triad"]);
        // Triad counts 24 bytes an element: 24 MB in so many seconds.
        assert_eq!(repetition.figures[3].value, 24.0 / repetition.phases[3]);
    }

    #[test]
    fn a_missing_repetition_fails_the_verification() {
        let mut run = prepare((1000, 2, 3), &anywhere()).unwrap();
        run.repeat().unwrap();
        run.done = 2;
        assert!(matches!(run.finish().unwrap().verification, Verification::Wrong { .. }));
    }

    #[test]
    fn a_job_that_cannot_be_run_names_the_field() {
        for (bad, field) in [
            ((0, 1, 3), "elements"),
            ((3, 4, 3), "elements"),
            ((u64::MAX, 1, 3), "elements"),
            ((100, 0, 3), "threads"),
            ((100, 1, 1), "repetitions"),
            ((100, 1, MAX + 1), "repetitions"),
        ] {
            let error = prepare(bad, &anywhere()).err().unwrap().to_string();
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
        let error = prepare((1000, 3, 3), &refusing).err().unwrap().to_string();
        assert!(error.contains("no such CPU"), "{error}");
    }
}
