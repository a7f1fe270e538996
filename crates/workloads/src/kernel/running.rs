//! Kernels that are repeated for an experiment.

use super::{Class, Description, KernelRun, Repetition};
use crate::WorkloadError;
use crate::workload::{self, Host, Measured, Outcome, Prepared, Threads};
use std::time::Instant;
use topology::Bytes;

/// What is measured in a repetition of all kernels, by their runs.
pub(super) type Figures = Box<dyn Fn(&[Repetition]) -> Vec<Measured>>;

/// Kernels that run one after the other on the same CPUs. The arrays of all are there at the same
/// time.
pub(super) struct Running {
    kernels: Vec<(&'static Description, KernelRun)>,
    figures: Figures,
    /// What the first run that was not right left.
    wrong: Option<String>,
}

impl Running {
    pub(super) fn prepare(
        kernels: &[&'static Description],
        class: Class,
        threads: &Threads,
        host: &dyn Host,
        figures: Figures,
    ) -> Result<Running, WorkloadError> {
        let memory = kernels.iter().map(|kernel| (kernel.demand)(class).memory).sum::<Bytes>();
        host.check_memory("class", memory, threads.memory_node)?;
        let placement = host.place(threads)?;
        let prepared = |&kernel: &&'static Description| {
            Ok((kernel, KernelRun::prepare(kernel, class, threads.count as usize, &placement)?))
        };
        let kernels = kernels.iter().map(prepared).collect::<Result<_, WorkloadError>>()?;
        Ok(Running { kernels, figures, wrong: None })
    }
}

impl Prepared for Running {
    fn repetition(&mut self) -> Result<workload::Repetition, WorkloadError> {
        let (mut runs, mut phases) = (Vec::new(), Vec::new());
        for (kernel, run) in &mut self.kernels {
            // Start values and verification too: parts follow one another without a gap.
            let start = Instant::now();
            let done = run.repeat()?;
            phases.push(start.elapsed().as_secs_f64());
            let wrong = done.verifications.iter().find(|verification| !verification.passes());
            if let Some(wrong) = wrong.filter(|_| self.wrong.is_none()) {
                let super::Verification { quantity, value, expected, tolerance } = wrong;
                let reason = format!("{quantity} of {} is {value:e}, not {expected:e}", kernel.name);
                self.wrong = Some(format!("{reason}: wrong by more than {tolerance:e}"));
            }
            runs.push(done);
        }
        Ok(workload::Repetition { figures: (self.figures)(&runs), phases })
    }

    fn finish(&mut self) -> Result<Outcome, WorkloadError> {
        let (mut thread_cpus, mut pages) = (Vec::new(), Vec::new());
        for (_, run) in &mut self.kernels {
            let outcome = run.inspect()?;
            // Each kernel's threads are placed in the same way.
            thread_cpus = outcome.thread_cpus;
            pages.extend(outcome.pages_by_node);
        }
        let wrong = self.wrong.take().map(|reason| workload::Verification::Wrong { reason });
        Ok(Outcome {
            verification: wrong.unwrap_or(workload::Verification::Verified),
            thread_cpus,
            pages_by_node: crate::count_pages(pages),
        })
    }
}
