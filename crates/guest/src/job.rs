//! A workload between `run` and `done`.

use crate::pinning::cpu_sets;
use crate::place::LinuxPlacement;
use anyhow::{bail, ensure};
use std::sync::Arc;
use topology::{Bytes, Machine, NodeId};
use workloads::Placement;
use workloads::chase::ChaseRun;
use workloads::protocol::{ChaseJob, Figures, FromAgent, Pinning, StreamJob, Workload};
use workloads::stream::{ELEMENT_BYTES, StreamRun};

/// What the kernel and this program need besides a job's arrays.
const SPARE: Bytes = Bytes::from_mib(16);

enum Run {
    Stream(StreamRun),
    Chase(ChaseRun, u64),
}

/// A job that is prepared.
pub(crate) struct Job {
    pub(crate) id: u64,
    run: Run,
    pub(crate) repetitions: u32,
    pub(crate) next: u32,
}

impl Job {
    /// Checks, places, allocates and touches.
    pub(crate) fn prepare(id: u64, workload: &Workload, machine: &Machine) -> anyhow::Result<Job> {
        let (run, repetitions) = match workload {
            Workload::Stream(job) => (Run::Stream(prepare_stream(job, machine)?), job.repetitions),
            Workload::Chase(job) => (Run::Chase(prepare_chase(job, machine)?, job.loads), job.repetitions),
        };
        Ok(Job { id, run, repetitions, next: 0 })
    }

    /// Runs the next repetition.
    pub(crate) fn repeat(&mut self) -> anyhow::Result<FromAgent> {
        let figures = match &mut self.run {
            Run::Stream(run) => Figures::Stream { seconds: run.repeat()? },
            Run::Chase(run, loads) => Figures::Chase { seconds: run.repeat()?, loads: *loads },
        };
        let repetition = self.next;
        self.next += 1;
        Ok(FromAgent::Repetition { job: self.id, repetition, figures })
    }

    /// Verifies the result and reads back where threads and memory are.
    pub(crate) fn conclude(&mut self) -> anyhow::Result<FromAgent> {
        let job = self.id;
        Ok(match &mut self.run {
            Run::Stream(run) => {
                let outcome = run.inspect()?;
                let (verified, thread_cpus) = (outcome.verified, outcome.thread_cpus);
                // JSON has no infinity, which is what a NaN in an array counts as.
                let error = outcome.error.min(f64::MAX);
                FromAgent::Done { job, verified, error, thread_cpus, pages_by_node: outcome.pages_by_node }
            }
            Run::Chase(run, _) => {
                let outcome = run.inspect()?;
                let error = if outcome.verified { 0.0 } else { 1.0 };
                let (verified, thread_cpus) = (outcome.verified, vec![outcome.thread_cpus]);
                FromAgent::Done { job, verified, error, thread_cpus, pages_by_node: outcome.pages_by_node }
            }
        })
    }
}

fn prepare_stream(job: &StreamJob, machine: &Machine) -> anyhow::Result<StreamRun> {
    let bytes = job.elements.saturating_mul(3 * ELEMENT_BYTES);
    check_memory("elements", Bytes(bytes), job.memory_node, machine)?;
    let placement = placement(machine, job.pinning, job.threads as usize, job.cpu_node, job.memory_node)?;
    Ok(StreamRun::prepare(job, &placement)?)
}

fn prepare_chase(job: &ChaseJob, machine: &Machine) -> anyhow::Result<ChaseRun> {
    check_memory("buffer_bytes", Bytes(job.buffer_bytes), job.memory_node, machine)?;
    let placement = placement(machine, Pinning::None, 1, job.cpu_node, job.memory_node)?;
    Ok(ChaseRun::prepare(job, &placement)?)
}

fn placement(
    machine: &Machine,
    pinning: Pinning,
    threads: usize,
    cpu_node: Option<u32>,
    memory_node: Option<u32>,
) -> anyhow::Result<Arc<dyn Placement>> {
    let cpus = cpu_sets(machine, pinning, threads, cpu_node.map(NodeId))?;
    Ok(Arc::new(LinuxPlacement { cpus, memory_node: memory_node.map(NodeId) }))
}

/// Memory that is not there would not fail: the kernel would kill this program later.
fn check_memory(field: &str, wanted: Bytes, node: Option<u32>, machine: &Machine) -> anyhow::Result<()> {
    let wanted = wanted.saturating_add(SPARE);
    let available = linux::room::available()?.available;
    ensure!(wanted <= available, "`{field}` asks for {wanted} of memory, but only {available} are available here");
    let Some(node) = node else { return Ok(()) };
    let Some(found) = machine.node(NodeId(node)) else {
        bail!("`memory_node` is {node}; this machine has nodes {}", machine.node_ids());
    };
    let free = found.free.unwrap_or(found.memory);
    ensure!(wanted <= free, "`{field}` asks for {wanted} on node {node}, but only {free} are available there");
    Ok(())
}
