//! A kernel as a workload: `workload = "fft3d"`, with `class` in its section `[fft3d]`.
//!
//! Every participant solves the whole problem of the class: of two VMs at the same time each takes
//! its own time, of which the longest counts, and their speeds add up.

use super::running::Running;
use super::{Class, Description, KERNELS};
use crate::WorkloadError;
use crate::choice::Choice;
use crate::workload::{
    Better, Host, Measured, ParameterFault, Prepared, Quantity, Settled, Share, Site, Threads, Together, Workload,
};
use serde::{Deserialize, Deserializer, Serialize};
use topology::Bytes;

/// What is measured of a kernel.
const TIME: &str = "time";
const SPEED: &str = "speed";

/// The section of [`KERNELS`]`[INDEX]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelSection<const INDEX: usize> {
    /// How large the problem is, or `"auto"`: as large as the host does in about 10 s.
    pub class: Choice<Class>,
}

/// serde derives nothing for a type with a number in it.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    class: Choice<Class>,
}

impl<'de, const INDEX: usize> Deserialize<'de> for KernelSection<INDEX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer).map(|Written { class }| Self { class })
    }
}

/// A kernel of one participant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelJob {
    /// How large the problem is.
    pub class: Class,
    /// Where threads and memory are.
    pub threads: Threads,
}

impl<const INDEX: usize> KernelSection<INDEX> {
    const KERNEL: &'static Description = KERNELS[INDEX];

    fn class(&self) -> Class {
        self.class.fixed().copied().unwrap_or(Class::S)
    }
}

impl<const INDEX: usize> Workload for KernelSection<INDEX> {
    const NAME: &'static str = KERNELS[INDEX].name;
    type Job = KernelJob;

    fn quantities(&self) -> Vec<Quantity> {
        let quantity = |name: &str, unit: &str, better, together, decimals| {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            Quantity { name, unit, better, together, decimals, at: None }
        };
        vec![
            quantity(TIME, "s", Better::Less, Together::Largest, 3),
            quantity(SPEED, "Mop/s", Better::More, Together::Sum, 0),
        ]
    }

    fn settle(mut self, site: &Site) -> Result<Settled<Self>, ParameterFault> {
        let class = Class::settle(self.class, &[Self::KERNEL], site)?;
        self.class = Choice::Fixed(class);
        let about = format!(
            "{}, class {}: {} of arrays. It stands for {}",
            Self::NAME,
            class.name(),
            (Self::KERNEL.demand)(class).memory,
            Self::KERNEL.stands_for
        );
        Ok(Settled { parameters: self, about, notes: Vec::new() })
    }

    fn memory(&self, _: u32) -> Bytes {
        (Self::KERNEL.demand)(self.class()).memory
    }

    fn seconds(&self, threads: u32, emulated: bool) -> f64 {
        Self::KERNEL.seconds(self.class(), threads, emulated)
    }

    fn job(&self, share: &Share) -> KernelJob {
        KernelJob { class: self.class(), threads: share.threads }
    }

    fn prepare(job: &KernelJob, _: u32, host: &dyn Host) -> Result<Box<dyn Prepared>, WorkloadError> {
        let figures = |runs: &[super::Repetition]| {
            let figure = |quantity: &str, value| Measured { quantity: quantity.to_owned(), value };
            let of = |run: &super::Repetition| [figure(TIME, run.seconds), figure(SPEED, run.mop_per_second())];
            runs.iter().flat_map(of).collect()
        };
        Ok(Box::new(Running::prepare(&[Self::KERNEL], job.class, &job.threads, host, Box::new(figures))?))
    }
}
