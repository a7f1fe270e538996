//! What a controller (homenode) and an agent (`homenode-guest`, natively over its standard input
//! and output, in a VM over a virtio-serial port) say to each other: one JSON object a line, in
//! both directions.
//!
//! ```text
//! agent       controller
//! hello    ->
//!          <- run {job}
//! ready    ->               memory allocated and first-touched, threads placed
//!          <- go {job}      to all agents at once: the barrier before each repetition
//! repetition ->             then ready again, until the last repetition
//! done     ->
//!          <- finish        the agent exits, the guest powers off
//! ```

use serde::{Deserialize, Serialize};

/// Version of this protocol; a controller refuses an agent of another version.
pub const PROTOCOL_VERSION: u32 = 1;
/// Name of the virtio-serial port.
pub const PORT_NAME: &str = "org.homenode.agent";

/// From the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToAgent {
    /// Prepare this workload.
    Run {
        /// Chosen by the controller; every answer carries it.
        job: u64,
        /// What to run.
        workload: Workload,
    },
    /// Start the next repetition now.
    Go {
        /// The job.
        job: u64,
    },
    /// Stop: exit, or power the guest off.
    Finish,
}

/// A workload with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Workload {
    /// STREAM's four kernels.
    Stream(StreamJob),
    /// Dependent loads: latency of each (CPU node, memory node) pair.
    Chase(ChaseJob),
}

/// STREAM by the rules of STREAM 5.10.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamJob {
    /// Elements (8 bytes each) in each of the three arrays.
    pub elements: u64,
    /// Threads.
    pub threads: u32,
    /// Repetitions; the first is not counted for the best.
    pub repetitions: u32,
    /// How results are stored.
    pub stores: Stores,
    /// Where threads run.
    pub pinning: Pinning,
    /// Threads run only on CPUs of this node. Default: anywhere.
    pub cpu_node: Option<u32>,
    /// Memory is bound to this node. Default: first touch.
    pub memory_node: Option<u32>,
}

/// How a kernel stores its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stores {
    /// As `gcc -O2` compiles STREAM: a stored line is read first (write-allocate).
    Ordinary,
    /// Non-temporal: past the caches.
    Streaming,
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

/// A dependent-load chase on one pair of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChaseJob {
    /// Bytes of the buffer: well above the last-level cache.
    pub buffer_bytes: u64,
    /// Loads in one repetition.
    pub loads: u64,
    /// Repetitions.
    pub repetitions: u32,
    /// The thread runs on this node. Default: anywhere.
    pub cpu_node: Option<u32>,
    /// The buffer lies on this node. Default: first touch.
    pub memory_node: Option<u32>,
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromAgent {
    /// The first line.
    Hello(Hello),
    /// The next repetition waits for `go`.
    Ready {
        /// The job.
        job: u64,
        /// The repetition that is next, from 0.
        repetition: u32,
    },
    /// One repetition is over.
    Repetition {
        /// The job.
        job: u64,
        /// From 0.
        repetition: u32,
        /// What was measured.
        figures: Figures,
    },
    /// All repetitions are over.
    Done {
        /// The job.
        job: u64,
        /// Whether the result was right; a job that is not verified has no figure.
        verified: bool,
        /// How wrong: the largest relative error of STREAM's arrays; 0 for a chase that visited
        /// every line once.
        error: f64,
        /// The CPUs that each thread might use, read back, in list format.
        thread_cpus: Vec<String>,
        /// Pages of the job's memory on each node, read back: (node, pages). Empty where the kernel
        /// cannot say.
        pages_by_node: Vec<(u32, u64)>,
    },
    /// The job or the message before could not be carried out.
    Failed {
        /// The job, if there is one.
        job: Option<u64>,
        /// Why, for people.
        message: String,
    },
}

/// What one repetition measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Figures {
    /// Seconds of Copy, Scale, Add, Triad.
    Stream {
        /// In the order Copy, Scale, Add, Triad.
        seconds: [f64; 4],
    },
    /// Time of the chase.
    Chase {
        /// Seconds of all loads together.
        seconds: f64,
        /// Loads done.
        loads: u64,
    },
}

/// Who the agent is and what machine it sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the agent.
    pub protocol: u32,
    /// Version of the program.
    pub version: String,
    /// Kernel release.
    pub kernel: String,
    /// Whether it is init of a guest.
    pub guest: bool,
    /// Seconds since boot when it said so.
    pub uptime_seconds: f64,
    /// What its `/sys` says.
    pub machine: SeenMachine,
}

/// The machine as the agent's own `/sys` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenMachine {
    /// By id.
    pub nodes: Vec<SeenNode>,
    /// CPUs of each last-level cache, in list format.
    pub llcs: Vec<String>,
    /// Size of one last-level cache in bytes; `None` where `/sys` does not say.
    pub llc_bytes: Option<u64>,
    /// CPUs of each socket, in list format.
    pub sockets: Vec<String>,
    /// Online CPUs, in list format.
    pub online: String,
    /// What contradicts itself, as sentences.
    pub complaints: Vec<String>,
}

/// A node as the agent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenNode {
    /// Its number.
    pub id: u32,
    /// Its CPUs, in list format.
    pub cpus: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// SLIT values to all nodes, in the order of `nodes`.
    pub distances: Vec<u32>,
}
