//! Network cards.

use super::names::{InterfaceName, LibvirtNetworkName, SwitchName};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Network {
    /// QEMU's user-mode network: outgoing connections, no privilege.
    User {
        /// Ports of the host's loopback that lead into the guest.
        forward: Vec<PortForward>,
    },
    /// A card that others reach.
    Plugged {
        /// Where its cable ends.
        into: Outlet,
        /// What the guest sees.
        card: Card,
    },
}

/// Where the cable of a card ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlet {
    /// A switch that homenode keeps (`homenode switch create`).
    Switch(SwitchName),
    /// A bridge in the host's own network.
    Bridge(InterfaceName),
    /// The bridge of a network of the host's libvirt.
    LibvirtNetwork(LibvirtNetworkName),
    /// A card of the host, which the VM shares with it.
    Macvtap(InterfaceName),
}

/// What the guest sees of a card that is plugged in somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// What kind it is.
    pub model: CardModel,
    /// Pairs of queues, for vCPUs that send and receive at once; virtio only.
    pub queues: u32,
    /// Its address. `None`: one that follows from the VM's name.
    pub mac: Option<MacAddress>,
    /// Whether the host's kernel serves it.
    pub vhost: Vhost,
}

impl Default for Card {
    fn default() -> Self {
        Self { model: CardModel::default(), queues: 1, mac: None, vhost: Vhost::default() }
    }
}

impl Card {
    /// Its address; `vm` and `index` say whose card it is.
    pub fn address(&self, vm: &str, index: usize) -> MacAddress {
        self.mac.unwrap_or_else(|| MacAddress::of_card(vm, index))
    }
}

/// Whether the host's kernel serves a virtio card (vhost-net), rather than QEMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vhost {
    /// Where it can.
    #[default]
    Auto,
    /// A host where it cannot starts no such VM.
    On,
    /// Never.
    Off,
}

impl Vhost {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl Network {
    /// A card of the usual kind in a switch.
    pub fn in_switch(switch: SwitchName) -> Self {
        Self::Plugged { into: Outlet::Switch(switch), card: Card::default() }
    }

    /// Ports of the host that lead into the guest by this card.
    pub fn forwards(&self) -> &[PortForward] {
        match self {
            Self::User { forward } => forward,
            Self::Plugged { .. } => &[],
        }
    }

    /// The bridge or card of the host that it is plugged into, where the spec names one.
    pub fn device(&self) -> Option<&InterfaceName> {
        match self {
            Self::Plugged { into: Outlet::Bridge(device) | Outlet::Macvtap(device), .. } => Some(device),
            _ => None,
        }
    }

    /// The switch that it is plugged into.
    pub fn switch(&self) -> Option<&SwitchName> {
        match self {
            Self::Plugged { into: Outlet::Switch(switch), .. } => Some(switch),
            _ => None,
        }
    }
}

/// A card as it is written: one table, of which each kind takes a part.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forward: Option<Vec<PortForward>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    switch: Option<SwitchName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bridge: Option<InterfaceName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<LibvirtNetworkName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    card: Option<InterfaceName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<CardModel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queues: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<MacAddress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vhost: Option<Vhost>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    User,
    Switch,
    Bridge,
    Macvtap,
}

/// A card that is written as none can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCard {
    /// What its kind must have is missing.
    #[error("kind = \"{kind}\" needs {needed}")]
    Lacks {
        /// The kind.
        kind: &'static str,
        /// What it must have, with an example.
        needed: &'static str,
    },
    /// It has what another kind has.
    #[error("kind = \"{kind}\" takes no `{field}`; it takes {takes}")]
    Strange {
        /// The kind.
        kind: &'static str,
        /// What is written.
        field: &'static str,
        /// What could be.
        takes: &'static str,
    },
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Switch => "switch",
            Self::Bridge => "bridge",
            Self::Macvtap => "macvtap",
        }
    }

    /// What may be written for it.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::User => &["forward"],
            Self::Switch => &["switch", "model", "queues", "mac", "vhost"],
            Self::Bridge => &["bridge", "network", "model", "queues", "mac", "vhost"],
            Self::Macvtap => &["card", "model", "queues", "mac", "vhost"],
        }
    }

    fn takes(self) -> &'static str {
        match self {
            Self::User => "`forward`",
            Self::Switch => "`switch`, `model`, `queues`, `mac` and `vhost`",
            Self::Bridge => "`bridge` or `network`, `model`, `queues`, `mac` and `vhost`",
            Self::Macvtap => "`card`, `model`, `queues`, `mac` and `vhost`",
        }
    }

    fn needs(self) -> &'static str {
        match self {
            Self::User => "nothing",
            Self::Switch => "a switch, as in switch = \"lan\"",
            Self::Bridge => {
                "one of a bridge, as in bridge = \"br0\", and a network of libvirt, as in network = \"default\""
            }
            Self::Macvtap => "a card of the host, as in card = \"enp1s0\"",
        }
    }
}

impl TryFrom<Written> for Network {
    type Error = NoCard;

    fn try_from(written: Written) -> Result<Self, NoCard> {
        let kind = written.kind;
        let there = [
            ("forward", written.forward.is_some()),
            ("switch", written.switch.is_some()),
            ("bridge", written.bridge.is_some()),
            ("network", written.network.is_some()),
            ("card", written.card.is_some()),
            ("model", written.model.is_some()),
            ("queues", written.queues.is_some()),
            ("mac", written.mac.is_some()),
            ("vhost", written.vhost.is_some()),
        ];
        let strange = there.into_iter().find(|(field, there)| *there && !kind.fields().contains(field));
        if let Some((field, _)) = strange {
            return Err(NoCard::Strange { kind: kind.word(), field, takes: kind.takes() });
        }
        let lacks = NoCard::Lacks { kind: kind.word(), needed: kind.needs() };
        let into = match kind {
            Kind::User => return Ok(Self::User { forward: written.forward.unwrap_or_default() }),
            Kind::Switch => written.switch.map(Outlet::Switch),
            Kind::Bridge => match (written.bridge, written.network) {
                (Some(bridge), None) => Some(Outlet::Bridge(bridge)),
                (None, Some(network)) => Some(Outlet::LibvirtNetwork(network)),
                _ => None,
            },
            Kind::Macvtap => written.card.map(Outlet::Macvtap),
        };
        let usual = Card::default();
        let card = Card {
            model: written.model.unwrap_or(usual.model),
            queues: written.queues.unwrap_or(usual.queues),
            mac: written.mac,
            vhost: written.vhost.unwrap_or(usual.vhost),
        };
        Ok(Self::Plugged { into: into.ok_or(lacks)?, card })
    }
}

impl From<Network> for Written {
    fn from(network: Network) -> Self {
        let (into, card) = match network {
            Network::User { forward } => return Self { forward: Some(forward), ..Self::default() },
            Network::Plugged { into, card } => (into, card),
        };
        let Card { model, queues, mac, vhost } = card;
        let vhost = Some(vhost).filter(|vhost| !vhost.is_auto());
        let card = Self { model: Some(model), queues: Some(queues), mac, vhost, ..Self::default() };
        match into {
            Outlet::Switch(switch) => Self { kind: Kind::Switch, switch: Some(switch), ..card },
            Outlet::Bridge(bridge) => Self { kind: Kind::Bridge, bridge: Some(bridge), ..card },
            Outlet::LibvirtNetwork(network) => Self { kind: Kind::Bridge, network: Some(network), ..card },
            Outlet::Macvtap(host) => Self { kind: Kind::Macvtap, card: Some(host), ..card },
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Network, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_takes_its_own_and_says_what_it_lacks() {
        let read_again = |text: &str| {
            let network = read(text).unwrap();
            assert_eq!(toml::from_str::<Network>(&toml::to_string(&network).unwrap()).unwrap(), network, "{text}");
            network
        };
        let plugged = |into| Network::Plugged { into, card: Card::default() };
        let bridge = read_again("kind = 'bridge'\nbridge = 'br0'");
        assert_eq!(bridge, plugged(Outlet::Bridge("br0".parse().unwrap())));
        let network = read_again("kind = 'bridge'\nnetwork = 'default'");
        assert_eq!(network, plugged(Outlet::LibvirtNetwork("default".parse().unwrap())));
        read_again("kind = 'macvtap'\ncard = 'enp1s0'\nvhost = 'off'\nmac = '52:54:00:00:00:01'");
        read_again("kind = 'user'\nforward = [{ host = 1, guest = 2 }]");
        for (text, says) in [
            ("kind = 'bridge'", "needs one of a bridge"),
            ("kind = 'bridge'\nbridge = 'br0'\nnetwork = 'default'", "needs one of a bridge"),
            ("kind = 'user'\nswitch = 'lan'", "kind = \"user\" takes no `switch`; it takes `forward`"),
            ("kind = 'switch'\nswitch = 'lan'\nforward = []", "takes no `forward`"),
            ("kind = 'macvtap'", "needs a card of the host"),
            ("kind = 'bridge'\nbridge = 'a/b'", "`a/b` is no name of an interface"),
            ("kind = 'bridge'\nnetwork = 'a<b'", "`a<b` is no name of a network of libvirt"),
            ("kind = 'switch'\nswitch = 'lan'\nvhost = 'yes'", "unknown variant `yes`"),
            ("kind = 'switch'\nswitch = 'lan'\nspeed = 1", "unknown field `speed`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
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
