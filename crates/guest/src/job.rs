//! A workload between `run` and `done`.

use crate::host::ThisMachine;
use anyhow::{Context, ensure};
use topology::Machine;
use workloads::protocol::FromAgent;
use workloads::workload::Prepared;
use workloads::{Kind, MAX_REPETITIONS};

/// A job that is prepared.
pub(crate) struct Job {
    pub(crate) id: u64,
    prepared: Box<dyn Prepared>,
    pub(crate) repetitions: u32,
    pub(crate) next: u32,
}

impl Job {
    /// Checks, places, allocates and touches.
    pub(crate) fn prepare(
        id: u64,
        workload: &str,
        repetitions: u32,
        parameters: serde_json::Value,
        machine: &Machine,
    ) -> anyhow::Result<Job> {
        let names = || workloads::WORKLOADS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        let kind =
            Kind::named(workload).with_context(|| format!("`workload` is {workload:?}; this agent has {}", names()))?;
        ensure!(
            (1..=MAX_REPETITIONS).contains(&repetitions),
            "`repetitions` is {repetitions}; valid are 1 to {MAX_REPETITIONS}"
        );
        let prepared = kind.prepare(parameters, repetitions, &ThisMachine { machine })?;
        Ok(Job { id, prepared, repetitions, next: 0 })
    }

    /// Runs the next repetition.
    pub(crate) fn repeat(&mut self) -> anyhow::Result<FromAgent> {
        let measured = self.prepared.repetition()?;
        let repetition = self.next;
        self.next += 1;
        let clock_seconds = Some(linux::sys::since_boot_ns() as f64 / 1e9);
        Ok(FromAgent::Repetition { job: self.id, repetition, clock_seconds, measured })
    }

    /// Verifies the result and reads back where threads and memory are.
    pub(crate) fn conclude(&mut self) -> anyhow::Result<FromAgent> {
        let outcome = self.prepared.finish()?;
        Ok(FromAgent::Done {
            job: self.id,
            verification: outcome.verification,
            thread_cpus: outcome.thread_cpus,
            pages_by_node: outcome.pages_by_node,
        })
    }
}
