//! Virtual switches of an experiment: which there are, which VM is plugged into which, and what
//! each guest is called and addressed by. Pure; `real` makes them.
//!
//! **Rule.** `switches = N` of a configuration means N switches, VM i in switch i modulo N. One
//! alone joins all VMs in the host's memory. Several are joined as by cards and a physical switch
//! of Gigabit Ethernet, which every frame between two of them crosses. `switches = ["a", "b"]`
//! names switches of `[[switch]]` instead, given to the VMs in turn.
//!
//! VM i (from 1) is called `vm<i>`, and its card c (from 0) has the address 10.(77 + c).0.i/16,
//! carried into the third byte beyond 255. Each configuration's switches are in a network of their
//! own, so that experiments at the same time do not meet, unless the file joins them to a bridge or
//! a card of the host.
//!
//! **Example.** Four VMs with `switches = 4`: `vm3` has the address 10.77.0.3 on `switch-3`, which
//! has a link of 1 Gbit/s to `physical`, as the other three have.

use network::{Delay, Outside, Rate, Switch, SwitchKind, SwitchName, Uplink};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use vm::spec::{self, CardModel, InterfaceName, MacAddress, Network, Outlet, Vhost};
use workloads::protocol::{Address, Join, NamedAddress};

/// Most switches of a configuration that are only counted.
const MOST_SWITCHES: u32 = 64;
/// Most cards of a VM: each has a network of its own.
const MOST_CARDS: usize = 8;
/// The second byte of the first cards' addresses.
const FIRST_NETWORK: u8 = 77;
/// Bits of an address that name the network.
const PREFIX: u8 = 16;
/// What joins counted switches.
const PHYSICAL: &str = "physical";
const GIGABIT: &str = "1 Gbit/s";

/// `[[switch]]`: the words of `homenode switch create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchSection {
    /// Its name.
    pub name: SwitchName,
    /// What moves its frames.
    #[serde(default, skip_serializing_if = "SwitchKind::is_kernel")]
    pub kind: SwitchKind,
    /// A switch above it in the file that it is joined to, as by a physical link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<SwitchName>,
    /// Bits a second of that link, each way. Default: as fast as memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Time that a frame takes over it. Default: none of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// A bridge of the host that it is joined to, for as long as the configuration runs. Whoever is
    /// on it reaches the VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<InterfaceName>,
    /// A card of the host that it is joined to, which the host does not use meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<InterfaceName>,
}

impl SwitchSection {
    fn switch(&self) -> Switch {
        let uplink = |to: &SwitchName| Uplink { to: to.clone(), rate: self.rate, delay: self.delay };
        let uplinks = self.uplink.iter().map(uplink).collect();
        let bridge = self.bridge.iter().cloned().map(Outside::Bridge);
        let outside = bridge.chain(self.card.iter().cloned().map(Outside::Card)).collect();
        Switch { name: self.name.clone(), kind: self.kind, uplinks, outside }
    }
}

/// What VMs of a configuration are plugged into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switches {
    /// So many, joined by a modelled physical switch.
    Count(u32),
    /// Of each VM in turn, the switch of each of its cards.
    Named(Vec<Vec<SwitchName>>),
}

impl Switches {
    /// How many the first cards of so many VMs are spread over.
    pub fn among(&self, vms: u32) -> u32 {
        match self {
            Self::Count(count) => *count,
            Self::Named(_) => {
                let first = (0..vms).filter_map(|vm| self.named(vm)?.first());
                first.collect::<BTreeSet<_>>().len() as u32
            }
        }
    }

    fn named(&self, vm: u32) -> Option<&Vec<SwitchName>> {
        let Self::Named(turns) = self else { return None };
        turns.get(vm as usize % turns.len().max(1))
    }

    /// The switches of a VM's cards.
    fn of_vm(&self, vm: u32) -> Vec<SwitchName> {
        match self {
            Self::Count(count) => counted(vm % (*count).max(1)).into_iter().collect(),
            Self::Named(_) => self.named(vm).cloned().unwrap_or_default(),
        }
    }

    /// What is made for it, in this order.
    pub(crate) fn made(&self, sections: &[SwitchSection]) -> Vec<Switch> {
        match self {
            Self::Named(_) => sections.iter().map(SwitchSection::switch).collect(),
            Self::Count(1) => counted(0).map(|name| joined(name, Vec::new())).into_iter().collect(),
            Self::Count(count) => {
                let Ok(physical) = PHYSICAL.parse::<SwitchName>() else { return Vec::new() };
                let cable = Uplink { to: physical.clone(), rate: GIGABIT.parse().ok(), delay: None };
                let below = (0..*count).filter_map(counted);
                let below = below.map(|name| joined(name, vec![cable.clone()]));
                [joined(physical, Vec::new())].into_iter().chain(below).collect()
            }
        }
    }

    /// The cards of a VM called `name`, whose addresses are the same in each run.
    pub(crate) fn cards(&self, card: &Card, name: &str, vm: u32) -> Vec<Network> {
        let Card { model, queues, vhost } = *card;
        let plugged = |(index, switch): (usize, SwitchName)| Network::Plugged {
            into: Outlet::Switch(switch),
            card: spec::Card { model, queues, vhost, mac: Some(MacAddress::of_card(name, index)) },
        };
        self.of_vm(vm).into_iter().enumerate().map(plugged).collect()
    }
}

fn joined(name: SwitchName, uplinks: Vec<Uplink>) -> Switch {
    Switch { name, kind: SwitchKind::Kernel, uplinks, outside: Vec::new() }
}

/// The name of a counted switch.
fn counted(index: u32) -> Option<SwitchName> {
    format!("switch-{}", index + 1).parse().ok()
}

impl Serialize for Switches {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Named(turns) => turns.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Switches {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = toml::Value::deserialize(deserializer)?;
        let bad = || {
            D::Error::custom(format!(
                "switches = {value} is not valid: write a number from 1 to {MOST_SWITCHES}, or names of [[switch]], \
                 one for each VM in turn, such as [\"lan\"]; in the place of a name a list gives a VM several cards"
            ))
        };
        let name = |value: &toml::Value| value.as_str().and_then(|text| text.parse::<SwitchName>().ok());
        let turn = |value: &toml::Value| match value {
            toml::Value::Array(cards) => cards.iter().map(name).collect::<Option<Vec<_>>>(),
            one => name(one).map(|name| vec![name]),
        };
        match &value {
            toml::Value::Integer(count) => u32::try_from(*count).map(Self::Count).map_err(|_| bad()),
            toml::Value::Array(turns) => {
                let turns: Option<Vec<_>> = turns.iter().map(turn).collect();
                turns.filter(|turns| !turns.is_empty()).map(Self::Named).ok_or_else(bad)
            }
            _ => Err(bad()),
        }
    }
}

/// What guests see of their cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Card {
    /// The model.
    pub model: CardModel,
    /// Pairs of queues; virtio only.
    pub queues: u32,
    /// Whether the host's kernel serves them.
    pub vhost: Vhost,
}

impl Default for Card {
    fn default() -> Self {
        Self { model: CardModel::default(), queues: 1, vhost: Vhost::default() }
    }
}

/// The address of a VM's card, both from 0.
pub fn address(vm: u32, card: u32) -> Ipv4Addr {
    let [_, _, high, low] = (vm + 1).to_be_bytes();
    Ipv4Addr::new(10, FIRST_NETWORK + card as u8, high, low)
}

/// The network of all first cards, as MPI and others take it: `10.77.0.0/16`.
pub fn first_network() -> String {
    format!("10.{FIRST_NETWORK}.0.0/{PREFIX}")
}

/// What the guest of a VM is called.
pub fn host_name(vm: u32) -> String {
    format!("vm{}", vm + 1)
}

/// How many switches the first cards of VMs are plugged into, in words.
pub(crate) fn plugged(of_vms: &[&[Network]]) -> String {
    let first = of_vms.iter().filter_map(|cards| cards.iter().find_map(Network::switch));
    match first.collect::<BTreeSet<_>>().len() {
        0 => String::new(),
        1 => " on 1 switch".to_owned(),
        several => format!(" on {several} switches"),
    }
}

/// What each guest of a configuration is told, from the cards of all of them; `None` where they
/// have none.
pub(crate) fn joins(of_vms: &[&[Network]], makes_keys: bool) -> Option<Vec<Join>> {
    let plugged = of_vms.iter().any(|cards| cards.iter().any(|card| card.switch().is_some()));
    let hosts = || (0..of_vms.len() as u32).map(|vm| NamedAddress { name: host_name(vm), address: address(vm, 0) });
    let join = |(vm, cards): (usize, &&[Network])| {
        let card = |(index, card): (usize, &Network)| match card {
            Network::Plugged { card: spec::Card { mac: Some(mac), model, .. }, .. } => Some(Address {
                mac: mac.to_string(),
                model: model.to_string(),
                address: address(vm as u32, index as u32),
                prefix: PREFIX,
            }),
            _ => None,
        };
        let cards = cards.iter().enumerate().filter_map(card).collect();
        Join { name: host_name(vm as u32), cards, hosts: hosts().collect(), makes_keys }
    };
    plugged.then(|| of_vms.iter().enumerate().map(join).collect())
}

/// A field, what it holds, and what would be valid.
type Fault = Option<(String, String, String)>;

/// What of all `[[switch]]` cannot be made.
pub(crate) fn of_sections(sections: &[SwitchSection]) -> Fault {
    let mut above: Vec<Switch> = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        let fault =
            |field: &str, value: String, valid: String| Some((format!("switch[{index}].{field}"), value, valid));
        if section.uplink.is_none() && (section.rate.is_some() || section.delay.is_some()) {
            let field = if section.rate.is_some() { "rate" } else { "delay" };
            let valid = "an uplink too: rate and delay are those of the link to another switch";
            return fault(field, "without uplink".to_owned(), valid.to_owned());
        }
        let switch = section.switch();
        if let Err(why) = network::check(&switch, &above) {
            return fault("name", format!("\"{}\"", section.name), format!("other switches: {why}"));
        }
        above.push(switch);
    }
    None
}

/// What of a configuration with so many VMs (`None`: the host decides) cannot be plugged in.
pub(crate) fn of_configuration(switches: &Switches, vms: Option<u32>, sections: &[SwitchSection]) -> Fault {
    let fault = |value: String, valid: String| Some(("switches".to_owned(), value, valid));
    match switches {
        Switches::Count(count) => {
            let most = vms.unwrap_or(MOST_SWITCHES).min(MOST_SWITCHES);
            let valid = format!("1 to {most}, the number of VMs: one virtual switch joins all of them");
            if (1..=most).contains(count) { None } else { fault(count.to_string(), valid) }
        }
        Switches::Named(turns) => {
            let known = |name: &&SwitchName| !sections.iter().any(|section| section.name == **name);
            if let Some(name) = turns.iter().flatten().find(known) {
                let there = network::listed(sections.iter().map(|section| &section.name));
                return fault(format!("\"{name}\""), format!("names of [[switch]]; there is {there}"));
            }
            let wrong = turns.iter().find(|cards| !(1..=MOST_CARDS).contains(&cards.len()))?;
            fault(format!("{} cards of a VM", wrong.len()), format!("1 to {MOST_CARDS} cards"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches(text: &str) -> Switches {
        #[derive(Deserialize)]
        struct Written {
            switches: Switches,
        }
        toml::from_str::<Written>(&format!("switches = {text}")).expect(text).switches
    }

    #[test]
    fn a_named_switch_may_be_joined_to_the_hosts_network() {
        let text = "name = \"lan\"\nbridge = \"br0\"\ncard = \"enp1s0\"\n";
        let section: SwitchSection = toml::from_str(text).expect("a section");
        let made = switches("[\"lan\"]").made(&[section]);
        let outside: Vec<String> = made[0].outside.iter().map(ToString::to_string).collect();
        assert_eq!(outside, ["bridge br0", "card enp1s0"]);
        let twice: SwitchSection =
            toml::from_str("name = \"wan\"\nuplink = \"lan\"\ncard = \"enp1s0\"\n").expect("a section");
        let (field, _, why) = of_sections(&[toml::from_str(text).expect("a section"), twice]).expect("one ring");
        assert!(field == "switch[1].name" && why.contains("card enp1s0 would make a ring"), "{field}: {why}");
    }

    #[test]
    fn counted_switches_are_joined_by_a_physical_one() {
        assert_eq!(switches("1").made(&[]).len(), 1, "one alone joins all");
        let made = switches("2").made(&[]);
        let names: Vec<&str> = made.iter().map(|switch| switch.name.as_ref()).collect();
        assert_eq!(names, ["physical", "switch-1", "switch-2"]);
        let rate = made[1].uplinks[0].rate.expect("a rate").bits_per_second();
        assert_eq!((made[1].uplinks[0].to.as_ref(), rate), ("physical", 1_000_000_000));
        let on = |vm| switches("2").of_vm(vm)[0].to_string();
        assert_eq!([on(0), on(1), on(2)], ["switch-1", "switch-2", "switch-1"]);
    }

    #[test]
    fn named_switches_are_given_to_vms_in_turn() {
        let named = switches("[[\"lan\", \"store\"], \"wan\"]");
        let cards = named.cards(&Card::default(), "web-0-2", 2);
        let on: Vec<&str> = cards.iter().filter_map(|card| Some(card.switch()?.as_ref())).collect();
        assert_eq!(on, ["lan", "store"]);
        assert_eq!((named.among(1), named.among(2), named.among(3)), (1, 2, 2));
        assert_eq!(toml::Value::try_from(&named).expect("written").to_string(), "[[\"lan\", \"store\"], [\"wan\"]]");
    }

    #[test]
    fn each_card_has_an_address_of_its_own_and_each_guest_a_name() {
        assert_eq!(address(0, 0).to_string(), "10.77.0.1");
        // VM 300 is 1 x 256 + 44.
        assert_eq!(address(299, 1).to_string(), "10.78.1.44");
        let cards: Vec<Vec<Network>> =
            (0..2).map(|vm| switches("1").cards(&Card::default(), &format!("a-{vm}"), vm)).collect();
        let all: Vec<&[Network]> = cards.iter().map(Vec::as_slice).collect();
        let joins = joins(&all, true).expect("switches");
        assert_eq!((joins[1].name.as_str(), joins[1].cards[0].address.to_string()), ("vm2", "10.77.0.2".to_owned()));
        assert_eq!(joins[1].hosts[0], NamedAddress { name: "vm1".to_owned(), address: address(0, 0) });
        assert_ne!(joins[0].cards[0].mac, joins[1].cards[0].mac);
        assert_eq!(super::joins(&[&[]], false), None);
    }
}
