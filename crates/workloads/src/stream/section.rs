//! STREAM as a workload: its section of an experiment, its jobs.

use super::arrays::{self, Bounds};
use super::run::StreamRun;
use super::{ELEMENT_BYTES, Kernel};
use crate::WorkloadError;
use crate::choice::Choice;
use crate::workload::{
    Better, Host, ParameterFault, Prepared, Quantity, Settled, Share, Site, Threads, Together, Workload,
};
use serde::{Deserialize, Serialize};
use topology::Bytes;

/// Elements that an experiment may ask for.
const ELEMENTS: std::ops::RangeInclusive<u64> = 1000..=1 << 40;
/// Stands in for a size that no host has decided on.
const ASSUMED_ELEMENTS: u64 = 1_000_000;
/// Bytes a second of one thread, and of any number, on the host or under KVM.
const HARDWARE: (f64, f64) = (8e9, 40e9);
/// The same under software emulation.
const EMULATED: (f64, f64) = (0.8e9, 20e9);

/// The section `[stream]`. The arrays are summed over all VMs of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stream {
    /// How kernels store.
    pub stores: Stores,
    /// Elements of 8 bytes of each array, or `"auto"`: at least 4 times the last-level caches.
    pub elements: Choice<u64>,
    /// `"auto"` takes at least so many, where memory allows.
    pub wanted_elements: Option<u64>,
    /// `"auto"` stops here.
    pub max_elements: Option<u64>,
    /// `"auto"` stops here under software emulation, where each repetition takes many times as
    /// long.
    pub max_elements_emulated: Option<u64>,
}

/// How a kernel stores its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stores {
    /// As `gcc -O2` compiles STREAM: a stored line is read first (write-allocate).
    #[default]
    Ordinary,
    /// Non-temporal: past the caches.
    Streaming,
}

/// STREAM of one participant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamJob {
    /// Elements (8 bytes each) in each of the three arrays.
    pub elements: u64,
    /// How results are stored.
    pub stores: Stores,
    /// Threads, and where they and the arrays are.
    pub threads: Threads,
}

impl Stream {
    /// Elements of each array over all participants, once a host has decided on them.
    pub fn elements(&self) -> u64 {
        self.elements.fixed().copied().unwrap_or(ASSUMED_ELEMENTS)
    }
}

impl Workload for Stream {
    const NAME: &'static str = "stream";
    type Job = StreamJob;

    fn check(&self) -> Result<(), ParameterFault> {
        let given = [
            ("elements", self.elements.fixed().copied()),
            ("wanted_elements", self.wanted_elements),
            ("max_elements", self.max_elements),
            ("max_elements_emulated", self.max_elements_emulated),
        ];
        let wrong =
            given.into_iter().find_map(|(field, value)| Some((field, value.filter(|n| !ELEMENTS.contains(n))?)));
        match wrong {
            Some((field, value)) => Err(ParameterFault::new(field, value, "expected 1000 to 2^40 elements")),
            None => Ok(()),
        }
    }

    fn quantities(&self) -> Vec<Quantity> {
        let quantity = |kernel: Kernel| Quantity {
            name: kernel.name().to_owned(),
            unit: "MB/s".to_owned(),
            better: Better::More,
            together: Together::Sum,
            decimals: 0,
            at: None,
        };
        Kernel::ALL.map(quantity).to_vec()
    }

    fn settle(mut self, site: &Site) -> Result<Settled<Self>, ParameterFault> {
        let llc = arrays::llc_sum(site.machine);
        let size = if let Some(&elements) = self.elements.fixed() {
            let needed = arrays::footprint(elements);
            if needed.0 > site.available.0 / 10 * 9 {
                let problem =
                    format!("three such arrays need {needed}, and only {} of memory is available", site.available);
                return Err(ParameterFault::new("elements", elements, problem));
            }
            arrays::fixed(elements, llc)
        } else {
            let emulated = self.max_elements_emulated.filter(|_| site.emulated);
            arrays::automatic(&Bounds {
                llc,
                available: site.available,
                wanted_elements: self.wanted_elements.unwrap_or(0),
                max_elements: self.max_elements.into_iter().chain(emulated).min(),
            })
        };
        self.elements = Choice::Fixed(size.elements);
        let about = format!(
            "3 arrays x {} elements, {} together, {:.2} x the last-level caches each",
            size.elements,
            size.bytes(),
            size.llc_multiple
        );
        Ok(Settled { parameters: self, about, notes: size.note.into_iter().collect() })
    }

    fn memory(&self, participants: u32) -> Bytes {
        arrays::footprint(self.elements() / u64::from(participants.max(1)))
    }

    fn seconds(&self, threads: u32, emulated: bool) -> f64 {
        let (one, all) = if emulated { EMULATED } else { HARDWARE };
        let counted: u64 = Kernel::ALL.iter().map(|kernel| kernel.account().counted_bytes).sum();
        (counted * self.elements()) as f64 / (one * f64::from(threads)).min(all)
    }

    fn job(&self, share: &Share) -> StreamJob {
        let elements = self.elements() / u64::from(share.participants.max(1));
        StreamJob { elements, stores: self.stores, threads: share.threads }
    }

    fn prepare(job: &StreamJob, repetitions: u32, host: &dyn Host) -> Result<Box<dyn Prepared>, WorkloadError> {
        let bytes = Bytes(job.elements.saturating_mul(3 * ELEMENT_BYTES));
        host.check_memory("elements", bytes, job.threads.memory_node)?;
        Ok(Box::new(StreamRun::prepare(job, repetitions, &host.place(&job.threads)?)?))
    }
}
