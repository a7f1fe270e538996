//! A field that is written as `"auto"` or as a value.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use topology::Bytes;

/// `"auto"` or a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice<T> {
    /// Derived from the host.
    #[default]
    Auto,
    /// Fixed by the user.
    Fixed(T),
}

impl<T> Choice<T> {
    /// The fixed value.
    pub fn fixed(&self) -> Option<&T> {
        match self {
            Self::Auto => None,
            Self::Fixed(value) => Some(value),
        }
    }
}

/// A value that a [`Choice`] may hold.
pub trait Choosable: Sized {
    /// What would be valid, for the error.
    const VALID: &'static str;
    /// Reads the value.
    fn from_value(value: &toml::Value) -> Option<Self>;
}

impl Choosable for u32 {
    const VALID: &'static str = "a whole number from 1";
    fn from_value(value: &toml::Value) -> Option<Self> {
        value.as_integer().and_then(|number| Self::try_from(number).ok()).filter(|&number| number > 0)
    }
}

impl Choosable for u64 {
    const VALID: &'static str = "a whole number from 1";
    fn from_value(value: &toml::Value) -> Option<Self> {
        value.as_integer().and_then(|number| Self::try_from(number).ok()).filter(|&number| number > 0)
    }
}

impl Choosable for Bytes {
    const VALID: &'static str = "an amount of memory with its unit, for example \"4 GiB\"";
    fn from_value(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::String(text) => text.parse().ok(),
            toml::Value::Integer(bytes) => u64::try_from(*bytes).ok().map(Self),
            _ => None,
        }
    }
}

impl Choosable for Vec<u32> {
    const VALID: &'static str = "a list of whole numbers from 1, for example [1, 2, 4]";
    fn from_value(value: &toml::Value) -> Option<Self> {
        value.as_array()?.iter().map(u32::from_value).collect()
    }
}

impl<T: Serialize> Serialize for Choice<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Choosable> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        if value.as_str() == Some("auto") {
            return Ok(Self::Auto);
        }
        T::from_value(&value)
            .map(Self::Fixed)
            .ok_or_else(|| serde::de::Error::custom(format!("{value} is not valid: write \"auto\" or {}", T::VALID)))
    }
}
