//! What a machine's memory system can do: latencies, bandwidths, links. The model of `simulator` is
//! built of these; a machine file holds them in its table `[rates]`, each with where it comes from.

use crate::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of source a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A document that describes this very machine.
    Document,
    /// The maker's figure for the part, from a data sheet or manual, or from a review that quotes
    /// it.
    Datasheet,
    /// Measured on such a machine.
    Measured,
    /// Fitted so that the model reproduces a figure; `from` names the figure.
    Calibrated,
    /// None of these: a plausible value.
    Assumed,
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// What kind of source.
    pub source: Source,
    /// Which document, part, measurement or figure; for an assumption, why it is plausible.
    pub from: String,
}

/// Where a link ends: a NUMA node, or something between nodes, such as a node controller or an I/O
/// die.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the number of a NUMA node, or the name of a switch in quotes")]
pub enum Vertex {
    /// A NUMA node.
    Node(NodeId),
    /// A switch, by its name in the file.
    Switch(String),
}

impl fmt::Display for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "{node}"),
            Self::Switch(name) => f.write_str(name),
        }
    }
}

/// Two directed links between the same ends, one each way, of the same speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its ends.
    pub between: (Vertex, Vertex),
    /// Bytes of payload that a direction carries in a nanosecond (= GB/s, 10^9). A QPI link of 6.4
    /// GT/s carries 8 bytes in 0.625 ns: 12.8.
    pub gb_per_s: f64,
    /// What one passage adds to the latency of a line, both ways together, in nanoseconds.
    pub latency_ns: f64,
    /// What kind of source both have; of two kinds, the weaker.
    pub source: Source,
    /// Which.
    pub from: String,
}

/// A route that is not the one of least latency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// From a node over links to a node. The way back is the same, reversed, unless it has an entry
    /// of its own.
    pub path: Vec<Vertex>,
}

/// What one cache line costs a link, in multiples of 8 bytes ("flits" on QPI): towards the memory,
/// and back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flits {
    /// A line read from a remote node.
    pub remote_read: (f64, f64),
    /// A line written to a remote node.
    pub remote_write: (f64, f64),
    /// A line read from local memory, on each link of the node: its snoop and the answer. Zero
    /// where a directory filters.
    pub local_read_snoop: (f64, f64),
}

impl Default for Flits {
    /// QPI with source snooping: a header is one flit, a line eight; a request and its snoop two.
    fn default() -> Self {
        Self { remote_read: (2.0, 9.0), remote_write: (10.0, 1.0), local_read_snoop: (1.0, 1.0) }
    }
}

/// Unloaded latencies between all nodes, where they are known better than as a sum over links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    /// `rows[i][j]`: nanoseconds of a load by a CPU of the i-th node from memory of the j-th.
    pub rows: Vec<Vec<f64>>,
    /// What kind of source.
    pub source: Source,
    /// Which.
    pub from: String,
    /// Why `rows` is not symmetric, if it is not.
    pub asymmetric_because: Option<String>,
}

/// What a machine's memory system can do. GB/s is 10^9 bytes a second, that is, bytes in a
/// nanosecond.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Cache lines that a core can have in flight, over both its hardware threads (line fill
    /// buffers).
    pub lines_in_flight_per_core: Sourced<f64>,
    /// Work of a core with two busy hardware threads, in multiples of that with one. Needed where
    /// `threads_per_core` is above 1.
    pub smt_yield: Option<Sourced<f64>>,
    /// Unloaded latency of a load from the own node's memory, in nanoseconds, transfer included.
    pub local_latency_ns: Sourced<f64>,
    /// Traffic that one node's memory sustains, reads and writes together, in GB/s.
    pub node_bandwidth_gb_per_s: Sourced<f64>,
    /// Memory channels of a node.
    pub channels_per_node: Option<Sourced<u32>>,
    /// Transfers of 8 bytes a second on a channel, in millions.
    pub channel_mt_per_s: Option<Sourced<f64>>,
    /// Traffic between one last-level cache and the rest of the machine, in GB/s; absent where it
    /// never binds.
    pub llc_bandwidth_gb_per_s: Option<Sourced<f64>>,
    /// Latency of a hit in a last-level cache, in nanoseconds; absent: what fits into a cache is
    /// not modelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_latency_ns: Option<Sourced<f64>>,
    /// Share of a controller's bandwidth that each doubling of the threads that stream through it
    /// costs (row conflicts), counted from 4 threads, for which `node_bandwidth_gb_per_s` stands.
    /// Absent: none.
    pub row_conflict_droop: Option<Sourced<f64>>,
    /// What a line costs a link. Absent: [`Flits::default`].
    pub flits: Option<Sourced<Flits>>,
    /// Latencies between nodes. Absent: the local latency and those of the links on the route.
    pub latencies: Option<Latencies>,
    /// Links; none on a machine of one node.
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
    /// Routes that are not those of least latency.
    #[serde(default, rename = "route")]
    pub routes: Vec<Route>,
    /// What a message between VMs costs. Absent: programs over several VMs that exchange messages
    /// are not modelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRates>,
}

/// What a message between VMs costs, by what it passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRates {
    /// One virtual switch, in the machine's memory.
    pub switch: Way,
    /// From one virtual switch over its uplink to another.
    pub uplink: Way,
}

/// A way that messages take: one costs `latency + bytes / bandwidth`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Of a small message, one way, in microseconds.
    pub latency_us: Sourced<f64>,
    /// Of large messages, in GB/s.
    pub gb_per_s: Sourced<f64>,
}

impl Way {
    /// Seconds of so many messages, one after the other, of so many GB together.
    pub fn seconds(&self, messages: f64, gb: f64) -> f64 {
        messages * self.latency_us.value / 1e6 + gb / self.gb_per_s.value
    }
}

impl Rates {
    /// The sources of all values that are there, in the order of the fields; a link counts once.
    pub fn sources(&self) -> Vec<Source> {
        let numbers = [
            Some(&self.lines_in_flight_per_core),
            self.smt_yield.as_ref(),
            Some(&self.local_latency_ns),
            Some(&self.node_bandwidth_gb_per_s),
            self.channel_mt_per_s.as_ref(),
            self.llc_bandwidth_gb_per_s.as_ref(),
            self.llc_latency_ns.as_ref(),
            self.row_conflict_droop.as_ref(),
        ];
        let numbers = numbers.into_iter().flatten().map(|sourced| sourced.source);
        let channels = self.channels_per_node.as_ref().map(|sourced| sourced.source);
        let flits = self.flits.as_ref().map(|sourced| sourced.source);
        let latencies = self.latencies.as_ref().map(|latencies| latencies.source);
        let links = self.links.iter().map(|link| link.source);
        let ways = self.network.iter().flat_map(|network| [&network.switch, &network.uplink]);
        let ways = ways.flat_map(|way| [way.latency_us.source, way.gb_per_s.source]);
        numbers.chain(channels).chain(flits).chain(latencies).chain(links).chain(ways).collect()
    }
}

/// Bytes of a cache line, the unit of all traffic.
pub const LINE_BYTES: f64 = 64.0;
/// Bytes of payload of a flit.
pub const FLIT_BYTES: f64 = 8.0;
