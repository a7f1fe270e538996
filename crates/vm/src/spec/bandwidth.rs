//! How much memory traffic a VM has.
//!
//! **Problem.** Before a VM runs nobody can measure its traffic; two VMs that stream then start on
//! one memory controller while another idles.
//!
//! **Rule.** Its owner may say: `low`, `high`, or an amount. Without a word it is unknown, and does
//! not count until it is measured.
//!
//! **Example.** `policy.bandwidth = "12 GB/s"`.

use super::Policy;
use super::check::{Checked, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use topology::BytesPerSecond;

/// Memory traffic of a VM that its owner states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BandwidthNeed {
    /// Not stated: what is measured counts, once it is.
    #[default]
    Auto,
    /// So little that it does not count.
    Low,
    /// Its vCPUs stream: each draws what a CPU draws that only waits for memory.
    High,
    /// All of its vCPUs together, when they work.
    Stated(BytesPerSecond),
}

/// A word that says nothing of traffic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not known: expected `auto`, `low`, `high`, or an amount such as `12 GB/s`")]
pub struct NoBandwidthNeed(String);

impl BandwidthNeed {
    /// Whether it is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a machine could give as much.
    pub(crate) fn is_possible(all: BytesPerSecond) -> bool {
        all <= MOST
    }

    /// Bytes a second of so many vCPUs, each of which draws `each` if it streams; `None` where
    /// nobody says.
    pub fn of(self, vcpus: f64, each: f64) -> Option<f64> {
        match self {
            Self::Auto => None,
            Self::Low => Some(0.0),
            Self::High => Some(vcpus * each),
            Self::Stated(all) => Some(all.0 as f64),
        }
    }
}

impl TryFrom<String> for BandwidthNeed {
    type Error = NoBandwidthNeed;

    fn try_from(text: String) -> Result<Self, NoBandwidthNeed> {
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            "low" => Ok(Self::Low),
            "high" => Ok(Self::High),
            _ => text.parse().map(Self::Stated).map_err(|_| NoBandwidthNeed(topology::input::excerpt(&text))),
        }
    }
}

impl fmt::Display for BandwidthNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Low => f.pad("low"),
            Self::High => f.pad("high"),
            // Read back it is the same number, whatever was rounded for people.
            Self::Stated(all) => f.pad(&format!("{} MB/s", all.0 as f64 / 1e6)),
        }
    }
}

impl From<BandwidthNeed> for String {
    fn from(need: BandwidthNeed) -> Self {
        need.to_string()
    }
}

/// Most traffic that a VM may be said to have: more than any machine gives.
const MOST: BytesPerSecond = BytesPerSecond(100_000_000_000_000);

pub(super) fn check(policy: &Policy) -> Checked {
    let too_much = matches!(policy.bandwidth, BandwidthNeed::Stated(all) if !BandwidthNeed::is_possible(all));
    ensure(!too_much, "policy.bandwidth", || format!("no machine gives as much: at most {MOST} is valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_amounts_are_read_and_written() {
        for (text, need) in [
            ("auto", BandwidthNeed::Auto),
            ("low", BandwidthNeed::Low),
            ("high", BandwidthNeed::High),
            ("12 GB/s", BandwidthNeed::Stated(BytesPerSecond(12_000_000_000))),
        ] {
            let read = BandwidthNeed::try_from(text.to_owned()).unwrap();
            assert_eq!(read, need, "{text}");
            assert_eq!(BandwidthNeed::try_from(String::from(read)), Ok(read));
        }
        let error = BandwidthNeed::try_from("much".to_owned()).unwrap_err().to_string();
        assert!(error.contains("`much`") && error.contains("12 GB/s"), "{error}");
    }

    #[test]
    fn a_vm_that_streams_draws_by_its_vcpus_and_one_that_is_not_stated_is_unknown() {
        let each = 2.0e9;
        assert_eq!(BandwidthNeed::Auto.of(4.0, each), None);
        assert_eq!(BandwidthNeed::Low.of(4.0, each), Some(0.0));
        assert_eq!(BandwidthNeed::High.of(4.0, each), Some(8.0e9));
        assert_eq!(BandwidthNeed::Stated(BytesPerSecond(5)).of(4.0, each), Some(5.0));
    }
}
