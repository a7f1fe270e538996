//! What counts the memory traffic of VMs on a host.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What counts memory traffic on a host, and what it misses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficMeter {
    /// `None`: nothing does, and traffic is unknown.
    pub source: Option<TrafficSource>,
    /// Why nothing does, or of which VMs it is unknown and why, as sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Hardware that counts memory traffic, by how the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficSource {
    /// The CPU's resource monitoring: traffic that left the last-level cache.
    Resctrl,
    /// Event counters of single threads: misses of the last-level cache. What hardware fetched
    /// ahead is only partly in them.
    Perf,
}

impl fmt::Display for TrafficSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resctrl => "resctrl",
            Self::Perf => "perf",
        })
    }
}

impl TrafficMeter {
    /// `memory traffic is counted by resctrl`, and what it misses.
    pub fn sentences(&self) -> impl Iterator<Item = String> + '_ {
        let first = match self.source {
            Some(source) => format!("memory traffic is counted by {source}"),
            None => "memory traffic is not counted".to_owned(),
        };
        std::iter::once(first).chain(self.notes.iter().cloned())
    }
}
