//! What a controller (homenode) and an agent (`homenode-guest`, natively over its standard input
//! and output, in a VM over a virtio-serial port) say to each other: one JSON object a line, in
//! both directions.
//!
//! ```text
//! agent       controller
//! hello    ->
//!          <- join             in a VM with cards in switches: names and addresses
//! joined   ->
//!          <- trust            where a program spans VMs: keys of all guests
//! trusted  ->
//!          <- run {job}
//! ready    ->               memory allocated and first-touched, threads placed
//!          <- go {job}      to all agents at once: the barrier before each repetition
//! repetition ->             then ready again, until the last repetition
//! done     ->
//!          <- finish        the agent exits, the guest powers off
//! ```

use crate::workload::{Repetition, Verification};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::Ipv4Addr;

/// Version of this protocol; a controller refuses an agent of another version.
pub const PROTOCOL_VERSION: u32 = 3;
/// Name of the virtio-serial port.
pub const PORT_NAME: &str = "org.homenode.agent";

/// From the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToAgent {
    /// Bring up your cards, and know these others.
    Join(Join),
    /// Let the first guest log in, and answer when it can.
    Trust(Trust),
    /// Prepare this workload.
    Run {
        /// Chosen by the controller; every answer carries it.
        job: u64,
        /// Name of one of [`crate::WORKLOADS`].
        workload: String,
        /// How often; the first repetition is not counted for the best.
        repetitions: u32,
        /// The workload's own [`crate::workload::Workload::Job`].
        parameters: Value,
    },
    /// Start the next repetition now.
    Go {
        /// The job.
        job: u64,
    },
    /// Stop: exit, or power the guest off.
    Finish,
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromAgent {
    /// The first line.
    Hello(Hello),
    /// The cards are up.
    Joined {
        /// Keys that were made for this run, where they were asked for.
        keys: Option<PublicKeys>,
    },
    /// The guest can be logged in to; of the first one: it can log in everywhere.
    Trusted,
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
        /// What the agent's clock says now, in seconds since the boot of its kernel; an agent of an
        /// older image does not say it.
        #[serde(default)]
        clock_seconds: Option<f64>,
        /// What was measured.
        #[serde(flatten)]
        measured: Repetition,
    },
    /// All repetitions are over.
    Done {
        /// The job.
        job: u64,
        /// Whether the result was right; a wrong one has no figure.
        verification: Verification,
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

/// What a guest is told of the network that it is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// What it is called.
    pub name: String,
    /// Its cards.
    pub cards: Vec<Address>,
    /// All guests, itself too, by their first cards.
    pub hosts: Vec<NamedAddress>,
    /// Whether to make keys, for programs that log in from one guest to another.
    pub makes_keys: bool,
}

/// Keys of a guest, as ssh writes them. The other halves never leave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKeys {
    /// Of its user.
    pub user: String,
    /// Of itself.
    pub host: String,
}

/// What a guest needs for logins from the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// The key of the first guest's user.
    pub user: String,
    /// Name and key of each guest.
    pub hosts: Vec<(String, String)>,
    /// The network that programs talk over, such as `10.77.0.0/16`.
    pub network: String,
    /// Whether to try a login to each guest: of the first one, when all others can be reached.
    pub tries: bool,
}

/// The address of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The card, by its Ethernet address, such as `02:00:00:00:00:01`.
    pub mac: String,
    /// What kind of card it is, for an error.
    pub model: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Bits of it that name the network.
    pub prefix: u8,
}

/// A guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedAddress {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
}

/// Who the agent is and what machine it sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeenMachine {
    /// By id.
    pub nodes: Vec<SeenNode>,
    /// CPUs of each last-level cache, in list format.
    pub llcs: Vec<String>,
    /// Size of one last-level cache in bytes; `None` where `/sys` does not say.
    pub llc_bytes: Option<u64>,
    /// CPUs of each socket, in list format.
    pub sockets: Vec<String>,
    /// CPUs of each core, in list format; empty where the agent is older.
    #[serde(default)]
    pub cores: Vec<String>,
    /// Online CPUs, in list format.
    pub online: String,
    /// What contradicts itself, as sentences.
    pub complaints: Vec<String>,
}

/// A node as the agent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
