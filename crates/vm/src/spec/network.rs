//! Network cards.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Network {
    /// QEMU's user-mode network: outgoing connections, no privilege.
    User {
        /// Ports of the host's loopback that lead into the guest.
        #[serde(default)]
        forward: Vec<PortForward>,
    },
    /// A port of a switch that homenode keeps (`homenode switch create`).
    Switch {
        /// The switch.
        switch: SwitchName,
        /// What the guest sees.
        #[serde(default)]
        model: CardModel,
        /// Pairs of queues, for vCPUs that send and receive at once; virtio only.
        #[serde(default = "one_queue")]
        queues: u32,
        /// Its address. Default: one that follows from the VM's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<MacAddress>,
    },
}

impl Network {
    /// Ports of the host that lead into the guest by this card.
    pub fn forwards(&self) -> &[PortForward] {
        match self {
            Self::User { forward } => forward,
            Self::Switch { .. } => &[],
        }
    }

    /// The switch that it is plugged into.
    pub fn switch(&self) -> Option<&SwitchName> {
        match self {
            Self::User { .. } => None,
            Self::Switch { switch, .. } => Some(switch),
        }
    }
}

fn one_queue() -> u32 {
    1
}

/// A TCP port of the host's loopback address that leads into the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortForward {
    /// Port on 127.0.0.1.
    pub host: u16,
    /// Port in the guest.
    pub guest: u16,
}

/// What kind of card the guest sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardModel {
    /// A card that knows that it is virtual: the fastest.
    #[default]
    Virtio,
    /// Intel's 82540EM, as in ESXi of 2010. Debian's kernels for clouds have no driver for it.
    E1000,
    /// Intel's 82574L.
    E1000e,
}

impl fmt::Display for CardModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Virtio => "virtio",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
        })
    }
}

/// The address of one card, six bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// An address of our own (locally administered) for a card of a VM, from 0: the same at every
    /// start and on every host, other for other VMs. FNV-1a of name and number.
    pub fn of_card(vm: &str, card: usize) -> Self {
        let bytes = vm.bytes().chain((card as u64).to_le_bytes());
        let hash = bytes
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let [a, b, c, d, e, ..] = hash.to_be_bytes();
        Self([0x02, a, b, c, d, e])
    }
}

/// A text that is no address of a card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address of one card: expected six bytes such as 52:54:00:12:34:56, the first one even and not all zero"
)]
pub struct NoMacAddress(String);

impl FromStr for MacAddress {
    type Err = NoMacAddress;

    fn from_str(text: &str) -> Result<Self, NoMacAddress> {
        let fault = || NoMacAddress(text.to_owned());
        let byte = |text: &str| {
            let whole = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            whole.then(|| u8::from_str_radix(text, 16).ok()).flatten()
        };
        let bytes = text.split(':').map(byte).collect::<Option<Vec<u8>>>().ok_or_else(fault)?;
        let bytes = <[u8; 6]>::try_from(bytes).map_err(|_| fault())?;
        // An odd first byte is a group's address.
        if bytes[0].is_multiple_of(2) && bytes != [0; 6] { Ok(Self(bytes)) } else { Err(fault()) }
    }
}

impl TryFrom<String> for MacAddress {
    type Error = NoMacAddress;

    fn try_from(text: String) -> Result<Self, NoMacAddress> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}

/// Most letters of a switch's name: its bridge has the same, and the kernel takes 15 bytes.
const LONGEST_NAME: usize = 15;

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

impl TryFrom<String> for SwitchName {
    type Error = NoSwitchName;

    fn try_from(text: String) -> Result<Self, NoSwitchName> {
        text.parse()
    }
}

impl From<SwitchName> for String {
    fn from(name: SwitchName) -> Self {
        name.0
    }
}

impl fmt::Display for SwitchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for SwitchName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

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
    fn addresses_are_of_one_card() {
        let address: MacAddress = "52:54:00:ab:CD:ef".parse().unwrap();
        assert_eq!(address.to_string(), "52:54:00:AB:CD:EF");
        for text in
            ["", "52:54:00:12:34", "53:54:00:12:34:56", "00:00:00:00:00:00", "5:54:00:12:34:567", "52-54-00-12-34-56"]
        {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
        let (one, two) = (MacAddress::of_card("vm", 0), MacAddress::of_card("vm", 1));
        assert_ne!(one, two);
        assert_eq!(one.to_string().parse(), Ok(one));
    }
}
