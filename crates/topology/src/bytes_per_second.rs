//! Traffic with its unit.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes a second. Written in decimal units (`12 GB/s` is 12 x 10^9), as memory is sold; serialised
/// as a number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BytesPerSecond(pub u64);

impl BytesPerSecond {
    /// 10^9 bytes a second, times so many.
    pub fn from_gb(gb_per_second: f64) -> Self {
        Self((gb_per_second.max(0.0) * 1e9).round() as u64)
    }

    /// In units of 10^9 bytes a second.
    pub fn gb(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum, stopping at the largest amount.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = if self.0 >= 1_000_000_000 { ("GB/s", 1e9) } else { ("MB/s", 1e6) };
        let tenths = (self.0 as f64 / size * 10.0).round() / 10.0;
        f.pad(&format!("{tenths} {unit}"))
    }
}

/// Text that is no number of bytes a second.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of traffic: write a number and its unit, such as `12 GB/s` or `800 MB/s`")]
pub struct BytesPerSecondError(String);

impl FromStr for BytesPerSecond {
    type Err = BytesPerSecondError;

    /// Accepts `12 GB/s`, `1.5GB/s`, `800 MB/s`; 1 byte to 10^15 bytes a second.
    fn from_str(text: &str) -> Result<Self, BytesPerSecondError> {
        let fail = || BytesPerSecondError(crate::input::excerpt(text));
        let units = [("GB/s", 1e9), ("MB/s", 1e6)];
        let of = |(unit, size): (&str, f64)| text.trim().strip_suffix(unit).map(|number| (number.trim(), size));
        let (number, size) = units.into_iter().find_map(of).ok_or_else(fail)?;
        let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let bytes = number.parse::<f64>().ok().filter(|_| plain).ok_or_else(fail)? * size;
        if (1.0..=1e15).contains(&bytes) { Ok(Self(bytes.round() as u64)) } else { Err(fail()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_written_with_its_unit() {
        for (text, bytes) in [("12 GB/s", 12_000_000_000), ("1.5GB/s", 1_500_000_000), ("800 MB/s", 800_000_000)] {
            assert_eq!(text.parse::<BytesPerSecond>().unwrap(), BytesPerSecond(bytes), "{text}");
        }
        for text in ["12", "12 GiB/s", "-1 GB/s", "0 GB/s", "1e3 GB/s", "inf GB/s", "GB/s", "", "9999999 GB/s"] {
            let error = text.parse::<BytesPerSecond>().unwrap_err().to_string();
            assert!(error.contains("12 GB/s"), "{text}: {error}");
        }
        assert_eq!(BytesPerSecond(12_340_000_000).to_string(), "12.3 GB/s");
        assert_eq!(BytesPerSecond(800_000_000).to_string(), "800 MB/s");
    }
}
