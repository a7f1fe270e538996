//! Amounts of memory with their unit.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// An amount of memory in bytes. Written with binary units (`48 GiB`); serialised as a number of
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// 1024^2.
    pub const MIB: Bytes = Bytes(1 << 20);
    /// 1024^3.
    pub const GIB: Bytes = Bytes(1 << 30);

    /// `mib` x 1024^2 bytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }
    /// `kib` x 1024 bytes.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib << 10)
    }
    /// Whole mebibytes, rounded down.
    pub const fn mib(self) -> u64 {
        self.0 >> 20
    }
    /// The sum, stopping at the largest amount.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    /// The difference, stopping at zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Bytes {
    /// This amount and another as texts that differ where the amounts differ: in the usual form,
    /// else with more digits, else in smaller units. For messages in which the difference decides:
    /// never "needs 16.0 GiB, has 16.0 GiB".
    pub fn told_apart(self, other: Self) -> (String, String) {
        let larger = self.max(other);
        let (first, _) = unit(larger);
        let from = UNITS.iter().position(|(name, _)| *name == first).unwrap_or(0);
        let exact = |digits: usize, &(unit, shift): &(&str, u32)| {
            let text = |bytes: Self| format!("{:.digits$} {unit}", bytes.0 as f64 / (1u64 << shift) as f64);
            (text(self), text(other))
        };
        let mut forms = UNITS[from..].iter().flat_map(|unit| (1..=3).map(move |digits| (digits, unit)));
        let apart = forms.find(|(digits, unit)| {
            let (one, two) = exact(*digits, unit);
            one != two
        });
        match apart {
            // Equal, or one digit tells them apart: the usual form.
            None => (self.to_string(), other.to_string()),
            Some((1, unit)) if unit.0 == first => (self.to_string(), other.to_string()),
            Some((digits, unit)) => exact(digits, unit),
        }
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self(0), Self::saturating_add)
    }
}

const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// The largest unit of which the amount has at least one.
fn unit(bytes: Bytes) -> (&'static str, u32) {
    UNITS.into_iter().find(|&(_, shift)| bytes.0 >> shift > 0).unwrap_or(("B", 0))
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = unit(*self);
        let whole = 1u64 << shift;
        let text = if self.0.is_multiple_of(whole) {
            format!("{} {unit}", self.0 / whole)
        } else {
            format!("{:.1} {unit}", self.0 as f64 / whole as f64)
        };
        f.pad(&text)
    }
}

/// Text that is not an amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an amount of memory: {advice}")]
pub struct BytesError {
    text: String,
    advice: String,
}

impl FromStr for Bytes {
    type Err = BytesError;
    /// Accepts `4 GiB`, `4GiB`, `4G`, `512M`, `100 B`. All units are binary; `GB` is refused, since
    /// it might mean either.
    fn from_str(text: &str) -> Result<Self, BytesError> {
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        let fail = || BytesError { text: crate::input::excerpt(text), advice: advice(trimmed) };
        let number: u64 = number.parse().map_err(|_| fail())?;
        let unit = unit.trim();
        let (_, shift) = UNITS
            .into_iter()
            .find(|(name, _)| unit == *name || (unit.len() == 1 && name.starts_with(unit)))
            .ok_or_else(fail)?;
        number.checked_mul(1 << shift).map(Bytes).ok_or_else(fail)
    }
}

/// What to write instead.
fn advice(text: &str) -> String {
    let usual = || "write a whole number and a unit, for example `4 GiB` or `512 MiB`".to_owned();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let decimal = ["kB", "MB", "GB", "TB"].iter().zip(1..).find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let binary = UNITS.into_iter().find(|(name, _)| unit == *name);
    match (number.parse::<f64>(), decimal, binary) {
        (Ok(amount), Some((name, power)), _) => {
            let likely = format!("{} {}iB", number, &name[..1].to_uppercase());
            let mebibytes = amount * 1000_f64.powi(power) / Bytes::MIB.0 as f64;
            format!(
                "{name} may mean powers of 1024 or of 1000: write `{likely}` for the first (what memory is sold in), \
                `{} MiB` for the second",
                mebibytes.floor()
            )
        }
        (Ok(amount), None, Some((_, shift))) if number.contains('.') => {
            let mebibytes = amount * (1_u64 << shift) as f64 / Bytes::MIB.0 as f64;
            format!("write a whole number, for example `{} MiB`", mebibytes.floor())
        }
        _ => usual(),
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    /// A number of bytes, or text with a unit.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "an amount of memory such as \"4 GiB\"")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Bytes(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_round_trip() {
        assert_eq!("4 GiB".parse(), Ok(Bytes(4 << 30)));
        assert_eq!("512M".parse(), Ok(Bytes::from_mib(512)));
        assert_eq!(Bytes::from_mib(1536).to_string(), "1.5 GiB"); // 1536 / 1024 = 1.5
        assert_eq!(Bytes(0).to_string(), "0 B");
    }

    #[test]
    fn amounts_that_differ_are_told_apart() {
        let gib16 = Bytes(16 << 30);
        let apart = |other: Bytes| gib16.told_apart(other);
        let texts = |one: &str, two: &str| (one.to_owned(), two.to_owned());
        assert_eq!(apart(Bytes(15 << 30)), texts("16 GiB", "15 GiB"));
        assert_eq!(apart(Bytes(gib16.0 - (5 << 20))), texts("16.000 GiB", "15.995 GiB"));
        assert_eq!(apart(Bytes(gib16.0 - 4096)), texts("16384.000 MiB", "16383.996 MiB"));
        assert_eq!(apart(Bytes(gib16.0 - 1)), texts("16777216.000 KiB", "16777215.999 KiB"));
        assert_eq!(apart(Bytes(1 << 20)), texts("16 GiB", "1 MiB"));
        assert_eq!(apart(gib16), texts("16 GiB", "16 GiB"));
    }

    #[test]
    fn a_unit_that_could_mean_two_things_is_refused() {
        for text in ["4 GB", "-1 GiB", "GiB", "4.5 GiB", "99999999999 TiB", ""] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        let error = |text: &str| text.parse::<Bytes>().expect_err(text).to_string();
        // 16 x 10^9 / 2^20 = 15258.8
        assert!(error("16 GB").contains("write `16 GiB` for the first"), "{}", error("16 GB"));
        assert!(error("16 GB").ends_with("`15258 MiB` for the second"), "{}", error("16 GB"));
        assert!(error("4.5 GiB").ends_with("`4608 MiB`"), "{}", error("4.5 GiB")); // 4.5 x 1024
        assert!(error(&"9".repeat(100_000)).len() < 300);
    }
}
