//! How fast and how late a modelled link is.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bits of a unit of rate. Decimal, as network cards are sold.
const UNITS: [(&str, u64); 4] = [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];

/// The slowest link: slower, and one frame takes longer than a queue may hold it.
const LEAST_BITS: u64 = 64_000;
/// The fastest one that the kernel's token bucket is exact for.
const MOST_BITS: u64 = 400_000_000_000;
/// The latest link: longer than once round the earth.
const MOST_DELAY: Duration = Duration::from_secs(1);

/// Bits a second on the wire, in one direction.
///
/// ```
/// assert_eq!("1 Gbit/s".parse::<network::Rate>().unwrap().bits_per_second(), 1_000_000_000);
/// assert!("1 GB/s".parse::<network::Rate>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(u64);

impl Rate {
    /// Bits in a second.
    pub fn bits_per_second(self) -> u64 {
        self.0
    }
}

/// Time that a frame is held back, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Delay(u64);

impl Delay {
    /// In microseconds.
    pub fn microseconds(self) -> u64 {
        self.0
    }
}

/// A rate or a delay that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: expected {valid}")]
pub struct NoMeasure {
    text: String,
    what: &'static str,
    valid: &'static str,
}

impl FromStr for Rate {
    type Err = NoMeasure;

    fn from_str(text: &str) -> Result<Self, NoMeasure> {
        let bits = measured(text, &UNITS).filter(|bits| (LEAST_BITS..=MOST_BITS).contains(bits));
        let valid = "64 kbit/s to 400 Gbit/s, as in \"1 Gbit/s\"; the units are bit/s, kbit/s, Mbit/s and Gbit/s";
        bits.map(Self).ok_or_else(|| NoMeasure { text: text.to_owned(), what: "rate", valid })
    }
}

impl FromStr for Delay {
    type Err = NoMeasure;

    fn from_str(text: &str) -> Result<Self, NoMeasure> {
        let most = MOST_DELAY.as_micros() as u64;
        let microseconds = measured(text, &[("ms", 1_000), ("us", 1)]).filter(|it| (1..=most).contains(it));
        let valid = "1 us to 1000 ms, as in \"0.5 ms\"; the units are us and ms";
        microseconds.map(Self).ok_or_else(|| NoMeasure { text: text.to_owned(), what: "delay", valid })
    }
}

/// A number with one of some units, in the smallest of them; `None` where it is none, or no whole
/// number of the smallest.
fn measured(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let (unit, scale) = units.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number = text.strip_suffix(unit)?.trim_end();
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let parts = if part.is_empty() { 0 } else { part.parse::<u64>().ok()? * scale };
    let tens = 10u64.pow(part.len() as u32);
    let whole = whole.parse::<u64>().ok()?.checked_mul(*scale)?;
    if parts.is_multiple_of(tens) { whole.checked_add(parts / tens) } else { None }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, bits) = UNITS.into_iter().find(|(_, bits)| self.0.is_multiple_of(*bits)).unwrap_or(("bit/s", 1));
        write!(f, "{} {unit}", self.0 / bits)
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1_000) { write!(f, "{} ms", self.0 / 1_000) } else { write!(f, "{} us", self.0) }
    }
}

impl TryFrom<String> for Rate {
    type Error = NoMeasure;

    fn try_from(text: String) -> Result<Self, NoMeasure> {
        text.parse()
    }
}

impl TryFrom<String> for Delay {
    type Error = NoMeasure;

    fn try_from(text: String) -> Result<Self, NoMeasure> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

impl From<Delay> for String {
    fn from(delay: Delay) -> Self {
        delay.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_with_a_unit_of_bits() {
        // 2.5 x 1000000000 = 2500000000; 64 x 1000 = 64000.
        for (text, bits) in [("2.5 Gbit/s", 2_500_000_000), ("100Mbit/s", 100_000_000), ("64 kbit/s", 64_000)] {
            assert_eq!(text.parse::<Rate>().unwrap().0, bits, "{text}");
        }
        for text in ["1 GB/s", "1 Gbit", "0 bit/s", "63999 bit/s", "-1 Gbit/s", "Gbit/s", "1e3 Gbit/s", "1.5 bit/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        // 18446744073800000000 is 90448384 more than 2^64.
        for text in ["18446744073.8 Gbit/s", "1000 Gbit/s", "\u{663} Gbit/s", "1 Gbit/s\0", ""] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        let error = "1 GB/s".parse::<Rate>().unwrap_err().to_string();
        assert!(error.starts_with("`1 GB/s` is no rate: expected 64 kbit/s to 400 Gbit/s"), "{error}");
    }

    #[test]
    fn a_delay_is_a_number_of_milliseconds_or_microseconds() {
        for (text, microseconds) in [("1 ms", 1_000), ("0.5 ms", 500), ("20us", 20), ("1000 ms", 1_000_000)] {
            assert_eq!(text.parse::<Delay>().unwrap().0, microseconds, "{text}");
        }
        for text in ["0 us", "0.0001 ms", "1 s", "1001 ms", "18446744073709551615 ms"] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
    }

    properties::properties! {
        #[test]
        fn what_is_written_is_read_again(bits in LEAST_BITS..=MOST_BITS, microseconds in 1u64..=1_000_000) {
            proptest::prop_assert_eq!(Rate(bits).to_string().parse(), Ok(Rate(bits)));
            proptest::prop_assert_eq!(Delay(microseconds).to_string().parse(), Ok(Delay(microseconds)));
        }
    }
}
