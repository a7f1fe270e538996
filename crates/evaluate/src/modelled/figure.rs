//! A figure that the model gives.

use serde::{Deserialize, Serialize};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// MB/s, 10^6 bytes a second: more is better.
    MbPerS,
    /// Seconds of a run: less is better.
    Seconds,
    /// Nanoseconds of a load: less is better.
    Ns,
    /// A ratio or a share.
    Ratio,
}

impl Unit {
    /// As it stands in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::MbPerS => "MB/s",
            Self::Seconds => "s",
            Self::Ns => "ns",
            Self::Ratio => "",
        }
    }
}

/// A figure of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The configuration.
    pub configuration: String,
    /// A kernel (`copy`), an application (`swim`), or what a matrix shows (`latency 0 to 1`).
    pub figure: String,
    /// Threads or processes over all VMs.
    pub threads: Option<u32>,
    /// Of both figures.
    pub unit: Unit,
    /// By the closed queueing network.
    pub modelled: f64,
    /// By max-min fairness; filled in by [`super::predict`], which runs the same prediction with
    /// both solvers.
    pub cross_check: Option<f64>,
}
