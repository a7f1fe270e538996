//! The lines of `records.jsonl`: everything that was measured, raw. `schema/records-2.json` is the
//! JSON schema of these types.

use crate::carried::Carried;
use crate::point::Point;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::protocol::Hello;
use workloads::workload::{Repetition as Measured, Verification};

/// Version of the lines. A reader refuses another one.
pub const SCHEMA: u32 = 2;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: u32,
    /// What happened.
    #[serde(flatten)]
    pub record: Record,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// An evaluation began, or was continued.
    Session {
        /// Version of homenode.
        homenode: String,
        /// When, in UTC, RFC 3339.
        at: String,
        /// Whether it continues an earlier session.
        resumed: bool,
    },
    /// A participant (a VM, or an agent on the host) said its first line.
    Start(Box<Start>),
    /// One repetition, of all participants together.
    Repetition(Repetition),
    /// A participant finished a job.
    Done(Done),
    /// One visit is complete; `--resume` does not repeat it.
    Visit {
        /// Name of the configuration.
        configuration: String,
        /// What was measured.
        point: Point,
        /// From 0.
        round: u32,
        /// How long it took, with the start of what had to be started.
        #[serde(default)]
        seconds: f64,
        /// What the configuration's switches carried meanwhile.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carried: Vec<Carried>,
        /// Why nobody knows what they carried, where that is so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uncounted: Option<String>,
    },
    /// The session ended.
    End {
        /// When, in UTC, RFC 3339.
        at: String,
        /// `complete`, `interrupted`, or the error.
        why: String,
    },
}

/// A participant said its first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Start {
    /// Name of the configuration.
    pub configuration: String,
    /// From 0 in the configuration.
    pub participant: usize,
    /// Name of the VM, or `native`.
    pub name: String,
    /// Process on the host.
    pub pid: u32,
    /// `kvm`, `tcg`, or `none` for an agent on the host.
    pub accelerator: String,
    /// QEMU's version; `None` on the host.
    pub qemu: Option<String>,
    /// Seconds from its start to its first line.
    pub boot_seconds: f64,
    /// The machine that it sees.
    pub hello: Hello,
    /// The plan that it was started by; `None` on the host.
    pub plan: Option<serde_json::Value>,
    /// Where it really is, read back; `None` on the host.
    pub residence: Option<serde_json::Value>,
}

/// One repetition, of all participants together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Repetition {
    /// Name of the configuration.
    pub configuration: String,
    /// What was measured.
    pub point: Point,
    /// From 0.
    pub round: u32,
    /// The job, unique in the file.
    pub job: u64,
    /// From 0 in the job; 0 is not counted for the best.
    pub repetition: u32,
    /// What each participant measured, in the order of participants.
    pub participants: Vec<Measured>,
    /// Share of the time in which all ran the same kernel, of the worst kernel.
    pub overlap: f64,
    /// CPU time of other processes meanwhile, in per cent of one CPU.
    pub other_cpu_percent: f64,
    /// CPU time stolen by a hypervisor below, in per cent of one CPU.
    pub steal_percent: f64,
    /// CPU time of homenode, its VMs and its agents meanwhile, in per cent of one CPU; `None` in
    /// older records.
    #[serde(default)]
    pub own_cpu_percent: Option<f64>,
    /// Seconds by the host's clock from the word to begin to the last participant's result; `None`
    /// in older records.
    #[serde(default)]
    pub host_seconds: Option<f64>,
    /// What the participants' clocks said, and the host's; of each, or of none: in older records,
    /// and of older agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<Clock>,
    /// Whether other processes took too much: not counted, and made again.
    pub rejected: bool,
}

/// What a participant's clock said when it answered, and the host's monotonic one before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// The participant's own, in seconds since the boot of its kernel.
    pub own_seconds: f64,
    /// The host's when the repetition was asked for, in seconds since the session began.
    pub asked_seconds: f64,
    /// The host's when the answer was heard, since the same moment.
    pub heard_seconds: f64,
}

/// A participant finished a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Name of the configuration.
    pub configuration: String,
    /// The job.
    pub job: u64,
    /// From 0 in the configuration.
    pub participant: usize,
    /// Whether the result was right.
    pub verification: Verification,
    /// The CPUs that each thread might use, as the participant numbers them.
    pub thread_cpus: Vec<String>,
    /// The job's pages on each node, as the participant numbers them.
    pub pages_by_node: Vec<(u32, u64)>,
    /// Share of the VM's memory that lies on its home nodes, read back from the host; `None` where
    /// nobody can say.
    pub local_share: Option<f64>,
    /// Share of the VM's memory, or of the agent's, that the host maps by pages larger than the
    /// smallest; `None` where nobody can say.
    #[serde(default)]
    pub large_page_share: Option<f64>,
    /// Where the VM really is after the job, read back; `None` on the host.
    pub residence: Option<serde_json::Value>,
}
