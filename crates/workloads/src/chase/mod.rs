//! A chase of dependent loads: every load's address comes from the load before, so the time of one
//! is the latency of memory. The path is one random cycle over all cache lines of a buffer, so no
//! prefetcher sees a pattern. With 4 KiB pages a load also misses the TLB, natively as in a guest;
//! the figure includes the walk of the page table.
//!
//! It is taken twice: alone, and while the other threads of the job stream through arrays of their
//! own, which is what a load costs where all CPUs of a node are at work.

mod load;
mod run;

use crate::WorkloadError;
use crate::choice::Choice;
use crate::stream::arrays::llc_sum;
use crate::workload::{
    Better, Host, Over, ParameterFault, Prepared, Quantity, Settled, Share, Site, Threads, Together, Workload,
};
use run::ChaseRun;
use serde::{Deserialize, Serialize};
use topology::Bytes;

/// Bytes of a cache line, on every machine that homenode measures.
pub const LINE_BYTES: u64 = 64;
/// The time of a load while no other thread of the job works.
pub const LATENCY: &str = "latency";
/// The time of a load while all others stream. A job of one thread does not measure it.
pub const LOADED_LATENCY: &str = "loaded_latency";
/// Stands in for a buffer that no host has decided on.
const ASSUMED_BUFFER: Bytes = Bytes::from_mib(128);

/// The section `[chase]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chase {
    /// Buffer, or `"auto"`: 4 times the last-level caches of a node.
    pub buffer: Choice<Bytes>,
    /// `"auto"` stops here.
    pub max_buffer: Bytes,
    /// Loads in one repetition.
    pub loads: u64,
}

impl Default for Chase {
    fn default() -> Self {
        Self { buffer: Choice::Auto, max_buffer: Bytes::GIB, loads: 2_000_000 }
    }
}

/// A chase of one participant: the first thread chases, the others are the load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChaseJob {
    /// Bytes of the buffer: well above the last-level cache.
    pub buffer_bytes: u64,
    /// Loads in one repetition.
    pub loads: u64,
    /// Where the threads and their memory are.
    pub threads: Threads,
}

impl Chase {
    /// The buffer, once a host has decided on it.
    pub fn buffer_bytes(&self) -> Bytes {
        self.buffer.fixed().copied().unwrap_or(ASSUMED_BUFFER)
    }
}

impl Workload for Chase {
    const NAME: &'static str = "chase";
    const OVER: Over = Over::NodePairs;
    type Job = ChaseJob;

    fn check(&self) -> Result<(), ParameterFault> {
        if self.loads < 1000 {
            return Err(ParameterFault::new("loads", self.loads, "expected 1000 or more"));
        }
        Ok(())
    }

    fn quantities(&self) -> Vec<Quantity> {
        let quantity = |name: &str| Quantity {
            name: name.to_owned(),
            unit: "ns".to_owned(),
            better: Better::Less,
            together: Together::Mean,
            decimals: 1,
            at: None,
        };
        vec![quantity(LATENCY), quantity(LOADED_LATENCY)]
    }

    fn settle(mut self, site: &Site) -> Result<Settled<Self>, ParameterFault> {
        let machine = site.machine;
        let nodes = machine.nodes.iter().filter(|node| !machine.usable_cpus(node.id).is_empty()).count().max(1);
        let rule = 4 * llc_sum(machine).0 / nodes as u64;
        let automatic = Bytes(rule.min(self.max_buffer.0));
        let buffer = self.buffer.fixed().copied().unwrap_or(automatic);
        self.buffer = Choice::Fixed(buffer);
        let about = format!("{} dependent loads in a buffer of {buffer}", self.loads);
        Ok(Settled { parameters: self, about, notes: Vec::new() })
    }

    fn memory(&self, threads: u32) -> Bytes {
        let buffer = self.buffer_bytes();
        if threads > 1 { Bytes(2 * buffer.0) } else { buffer }
    }

    /// A loaded load takes about twice as long.
    fn seconds(&self, threads: u32, emulated: bool) -> f64 {
        let alone = self.loads as f64 * if emulated { 400e-9 } else { 150e-9 };
        if threads > 1 { 3.0 * alone } else { alone }
    }

    fn job(&self, share: &Share) -> ChaseJob {
        ChaseJob { buffer_bytes: self.buffer_bytes().0, loads: self.loads, threads: share.threads }
    }

    fn prepare(job: &ChaseJob, repetitions: u32, host: &dyn Host) -> Result<Box<dyn Prepared>, WorkloadError> {
        let arrays = if job.threads.count > 1 { job.buffer_bytes } else { 0 };
        host.check_memory("buffer_bytes", Bytes(job.buffer_bytes.saturating_add(arrays)), job.threads.memory_node)?;
        Ok(Box::new(ChaseRun::prepare(job, repetitions, &host.place(&job.threads)?)?))
    }
}
