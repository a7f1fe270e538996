//! Names of what cards are plugged into.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A name is read from a text, and is one.
macro_rules! as_text {
    ($name:ident, $fault:ident) => {
        impl TryFrom<String> for $name {
            type Error = $fault;

            fn try_from(text: String) -> Result<Self, $fault> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

/// Most letters of a switch's name: its bridge has the same, and the kernel takes 15 bytes.
const LONGEST_NAME: usize = 15;
/// Most letters of a network's name: libvirt has no limit, and people need one.
const LONGEST_NETWORK: usize = 50;

/// The name of a switch: 1 to 15 small letters, digits and hyphens, of which the first is a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SwitchName(String);

/// A name that no switch can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no name of a switch: expected 1 to 15 small letters, digits and hyphens, a letter first, other than \
    `lo`, `p` or `u` with a number behind it"
)]
pub struct NoSwitchName(String);

impl FromStr for SwitchName {
    type Err = NoSwitchName;

    fn from_str(text: &str) -> Result<Self, NoSwitchName> {
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let valid = (1..=LONGEST_NAME).contains(&text.len())
            && text.bytes().all(letters)
            && text.as_bytes()[0].is_ascii_lowercase()
            && text != "lo"
            && !is_of_a_port(text);
        if valid { Ok(Self(text.to_owned())) } else { Err(NoSwitchName(text.to_owned())) }
    }
}

/// Ports are called `p` and a number, ends of uplinks `u` and a number.
fn is_of_a_port(name: &str) -> bool {
    let number = name.strip_prefix(['p', 'u']);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

as_text!(SwitchName, NoSwitchName);

/// The name of an interface of the host's, such as a bridge or a card: 1 to 15 letters, digits,
/// dots, hyphens and underscores, of which the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

/// A name that no interface has here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no name of an interface: expected 1 to 15 letters, digits, `.`, `-` and `_`, a letter or a digit first"
)]
pub struct NoInterfaceName(String);

impl FromStr for InterfaceName {
    type Err = NoInterfaceName;

    fn from_str(text: &str) -> Result<Self, NoInterfaceName> {
        if is_name(text, LONGEST_NAME) { Ok(Self(text.to_owned())) } else { Err(NoInterfaceName(text.to_owned())) }
    }
}

as_text!(InterfaceName, NoInterfaceName);

/// Letters, digits, dots, hyphens and underscores, of which the first is a letter or a digit.
fn is_name(text: &str, longest: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=longest).contains(&text.len()) && text.bytes().all(allowed) && text.as_bytes()[0].is_ascii_alphanumeric()
}

/// The name of a network of libvirt's: 1 to 50 letters, digits, dots, hyphens and underscores, of
/// which the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LibvirtNetworkName(String);

/// A name that no network of libvirt has here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no name of a network of libvirt: expected 1 to 50 \
     letters, digits, `.`, `-` and `_`, a letter or digit first"
)]
pub struct NoLibvirtNetworkName(String);

impl FromStr for LibvirtNetworkName {
    type Err = NoLibvirtNetworkName;

    fn from_str(text: &str) -> Result<Self, NoLibvirtNetworkName> {
        if is_name(text, LONGEST_NETWORK) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NoLibvirtNetworkName(text.to_owned()))
        }
    }
}

as_text!(LibvirtNetworkName, NoLibvirtNetworkName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_interfaces() {
        for name in ["lan", "l", "rack-7", "p", "p7x", "abcdefghijklmno"] {
            assert!(name.parse::<SwitchName>().is_ok(), "{name}");
        }
        for name in ["", "lo", "p7", "u12", "7lan", "LAN", "a b", "a/b", "-a", "abcdefghijklmnop", "län"] {
            assert!(name.parse::<SwitchName>().is_err(), "{name}");
        }
    }

    #[test]
    fn interfaces_of_the_host_may_have_more_letters() {
        for name in ["br0", "enp1s0", "eth0.100", "vmbr_1", "Lan-1", "7x"] {
            assert!(name.parse::<InterfaceName>().is_ok(), "{name}");
        }
        for name in ["", "..", "-a", "a b", "a/b", "a:b", "abcdefghijklmnop", "br0,up=1", "br0\n"] {
            assert!(name.parse::<InterfaceName>().is_err(), "{name}");
        }
    }
}
