//! What a workload is. Adding one is a folder that implements [`Workload`], and a line in
//! [`crate::WORKLOADS`]: experiments, agents, records, tables and charts know it from then on.
//!
//! **Two sides.** A value of a type that implements [`Workload`] is the workload's section of an
//! experiment file. The *controller* settles it on a host and makes a [`Workload::Job`] for each
//! participant at each point. An *agent*, on the host or in a guest, prepares that job
//! ([`Workload::prepare`]), repeats it ([`Prepared::repetition`]) and says whether its result is
//! right ([`Prepared::finish`]).
//!
//! **Example.** `crates/evaluate/tests/example_workload.rs` is a whole workload, and measures with
//! it.

use crate::command::Programs;
use crate::{Placement, WorkloadError};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use topology::{Bytes, Machine};

/// A workload with its parameters, as the section of its name in an experiment file has them.
pub trait Workload: Clone + Serialize + DeserializeOwned + Default + Send + Sync + 'static {
    /// Its name in experiments (`workload = "stream"`, `[stream]`), in the protocol and in records.
    const NAME: &'static str;

    /// At which points of a configuration it is measured.
    const OVER: Over = Over::Threads;

    /// What one participant is told to run.
    type Job: Serialize + DeserializeOwned;

    /// Whether the values can be used, beyond what their types say.
    ///
    /// # Errors
    /// The first that cannot.
    fn check(&self) -> Result<(), ParameterFault> {
        Ok(())
    }

    /// What it measures in each repetition. The last one stands for all where there is room for one
    /// only.
    fn quantities(&self) -> Vec<Quantity>;

    /// The same parameters with every `"auto"` decided for a host.
    ///
    /// # Errors
    /// The host cannot run it.
    fn settle(self, site: &Site) -> Result<Settled<Self>, ParameterFault> {
        let _ = site;
        Ok(Settled { parameters: self, about: String::new(), notes: Vec::new() })
    }

    /// Memory that the job of one of `participants` needs at most, without its program.
    fn memory(&self, participants: u32) -> Bytes;

    /// Roughly how many seconds a repetition takes with `threads` over all participants.
    fn seconds(&self, threads: u32, emulated: bool) -> f64;

    /// Whether [`Self::seconds`] is more than a guess: of a program of the user's nobody knows it.
    fn is_time_known(&self) -> bool {
        true
    }

    /// Whether one participant can run it with so many threads.
    fn suits(&self, threads: u32) -> bool {
        threads > 0
    }

    /// Seconds after which an agent itself gives up a repetition, besides what every answer of one
    /// may take.
    fn patience(&self) -> u32 {
        0
    }

    /// Programs, files and directories of the host that the tiny guest needs too. A name without
    /// `/` is a program in `PATH`.
    fn guest_needs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Of these, the files that it reads and that no distribution has: a system of packages needs
    /// them too.
    fn input_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The job of one participant.
    fn job(&self, share: &Share) -> Self::Job;

    /// Places threads and memory, so that repetitions only measure. In the agent.
    ///
    /// # Errors
    /// The job cannot be run here; the message names the field.
    fn prepare(job: &Self::Job, repetitions: u32, host: &dyn Host) -> Result<Box<dyn Prepared>, WorkloadError>;
}

/// A job whose repetitions can start.
pub trait Prepared {
    /// Runs it once.
    ///
    /// # Errors
    /// It could not be run to its end.
    fn repetition(&mut self) -> Result<Repetition, WorkloadError>;

    /// Checks the result, and reads back where threads and memory are. Called once, after the last
    /// repetition.
    ///
    /// # Errors
    /// The result cannot be looked at.
    fn finish(&mut self) -> Result<Outcome, WorkloadError>;
}

/// At which points of a configuration a workload is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// At each number of threads of the experiment.
    Threads,
    /// From the CPUs of each node to the memory of each node.
    NodePairs,
}

/// Something that is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// Its name in tables: `Triad`, `latency`.
    pub name: String,
    /// `MB/s`, `ns`, `s`, ...
    pub unit: String,
    /// Which of two values is the better one.
    pub better: Better,
    /// What the values of participants that run at the same time make together.
    pub together: Together,
    /// Digits after the point in tables.
    pub decimals: usize,
    /// Of a series: what it was counted at. Its name then says that too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
}

/// Where in a series a quantity stands: `bandwidth` at a `message size` of 64 `B`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    /// The quantity, without where.
    pub series: String,
    /// What rises along the series.
    pub parameter: String,
    /// Its unit.
    pub unit: String,
    /// Its value here.
    pub value: u64,
}

/// Which of two values is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The larger one: a bandwidth.
    More,
    /// The smaller one: a time.
    Less,
}

impl Better {
    /// The best of some values; `None` of none.
    pub fn best(self, values: impl IntoIterator<Item = f64>) -> Option<f64> {
        values.into_iter().reduce(|a, b| match self {
            Self::More => a.max(b),
            Self::Less => a.min(b),
        })
    }

    /// How many times as good a value is as another: over 1 if it is better.
    pub fn ratio(self, value: f64, other: f64) -> f64 {
        match self {
            Self::More => value / other,
            Self::Less => other / value,
        }
    }
}

/// What the values of participants that run at the same time make together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Together {
    /// Their sum: bandwidths.
    Sum,
    /// Their mean: latencies.
    Mean,
    /// The largest: the time until the last one is done.
    Largest,
}

impl Together {
    /// Of the values of all participants; `None` of none.
    pub fn of(self, values: &[f64]) -> Option<f64> {
        let sum: f64 = values.iter().sum();
        match self {
            _ if values.is_empty() => None,
            Self::Sum => Some(sum),
            Self::Mean => Some(sum / values.len() as f64),
            Self::Largest => values.iter().copied().reduce(f64::max),
        }
    }
}

/// A value of a quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Name of the [`Quantity`].
    pub quantity: String,
    /// In its unit.
    pub value: f64,
}

/// What one repetition measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Repetition {
    /// A value of each quantity.
    pub figures: Vec<Measured>,
    /// Seconds of each part, one after the other, the last one ending now. From them follows how
    /// long participants ran the same part at the same time.
    pub phases: Vec<f64>,
}

/// Whether a result is right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Verification {
    /// It was checked, and is right.
    Verified,
    /// It was checked, and is wrong: there is no figure.
    Wrong {
        /// What is wrong, for people.
        reason: String,
    },
    /// Nobody said how to check it: the figure is shown as `not verified`.
    NotChecked,
}

/// What is known of a job after its last repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether its result is right.
    pub verification: Verification,
    /// The CPUs that each thread might use, read back, in list format.
    pub thread_cpus: Vec<String>,
    /// Pages of the job's memory on each node, read back: (node, pages). Empty where nobody can
    /// say.
    pub pages_by_node: Vec<(u32, u64)>,
}

/// What a job of one participant is made of besides the workload's own parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Participants that run at the same time.
    pub participants: u32,
    /// Threads and memory of this one.
    pub threads: Threads,
    /// Where one program spans all participants: which this is, from 0. The first starts it.
    pub of_span: Option<u32>,
}

/// How many threads a job has, and where they and its memory are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    /// How many.
    pub count: u32,
    /// In which order they take CPUs.
    pub pinning: Pinning,
    /// They run only on CPUs of this node. Default: anywhere.
    pub cpu_node: Option<u32>,
    /// Memory is bound to this node. Default: first touch.
    pub memory_node: Option<u32>,
}

/// Where a workload's threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pinning {
    /// Where the scheduler likes.
    None,
    /// Neighbouring cores first: fill a node before the next.
    Compact,
    /// Round robin over nodes, one thread a core first.
    Scatter,
    /// One thread on each last-level cache first.
    OnePerLlc,
}

/// What of a host decides what is `"auto"`.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Memory that can be taken now.
    pub available: Bytes,
    /// Whether a part of it runs by software emulation.
    pub emulated: bool,
    /// What programs find in their environment, where the workload says nothing else.
    pub environment: &'a BTreeMap<String, String>,
}

/// Parameters without any `"auto"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled<P> {
    /// The parameters.
    pub parameters: P,
    /// What was decided, in one line for people.
    pub about: String,
    /// What a reader of the tables has to know.
    pub notes: Vec<String>,
}

/// The agent's own machine, as a job needs it.
pub trait Host {
    /// Whether there is so much memory, on a node if one is given. Memory that is not there would
    /// not fail: the kernel would kill the agent later.
    ///
    /// # Errors
    /// There is not; the message names `field`, which asks for it.
    fn check_memory(&self, field: &str, wanted: Bytes, node: Option<u32>) -> Result<(), WorkloadError>;

    /// A placement of threads and their memory.
    ///
    /// # Errors
    /// A node is not there, or has no CPU.
    fn place(&self, threads: &Threads) -> Result<Arc<dyn Placement>, WorkloadError>;

    /// What runs programs where `threads` would be.
    ///
    /// # Errors
    /// A node is not there, or has no CPU; or nothing here runs programs.
    fn programs(&self, threads: &Threads) -> Result<Arc<dyn Programs>, WorkloadError> {
        let _ = threads;
        Err(WorkloadError::BadJob("programs cannot be run here".to_owned()))
    }
}

/// A value of a section that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterFault {
    /// Its place in the section: `elements`, `figure[0].regex`.
    pub field: String,
    /// What is written there.
    pub value: String,
    /// What is wrong, and what would be valid.
    pub problem: String,
}

impl ParameterFault {
    /// A fault.
    pub fn new(field: impl Into<String>, value: impl fmt::Display, problem: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.to_string(), problem: problem.into() }
    }
}

impl fmt::Display for ParameterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.field, self.value, self.problem)
    }
}

impl std::error::Error for ParameterFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_of_two_times_is_the_shorter_one() {
        assert_eq!((Better::More.best([1.0, 3.0, 2.0]), Better::Less.best([1.0, 3.0, 2.0])), (Some(3.0), Some(1.0)));
        assert_eq!(Better::More.best([]), None);
        // Twice the bandwidth, and half the time, are each twice as good.
        assert_eq!((Better::More.ratio(20.0, 10.0), Better::Less.ratio(5.0, 10.0)), (2.0, 2.0));
    }

    #[test]
    fn participants_add_up_or_share_or_wait_for_the_last() {
        let values = [1.0, 2.0, 6.0];
        let of = |together: Together| together.of(&values);
        assert_eq!((of(Together::Sum), of(Together::Mean), of(Together::Largest)), (Some(9.0), Some(3.0), Some(6.0)));
        assert_eq!(Together::Sum.of(&[]), None);
    }
}
