//! What a switch is: plain data, and the rule that switches form no ring.

use crate::rate::{Delay, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use vm::spec::{InterfaceName, SwitchName};

/// A switch, and what joins it to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Its name.
    pub name: SwitchName,
    /// What moves its frames.
    #[serde(default, skip_serializing_if = "SwitchKind::is_kernel")]
    pub kind: SwitchKind,
    /// Links to other switches, which must be there before.
    #[serde(default, rename = "uplink", skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<Uplink>,
    /// What of the host's own network it is joined to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<Outside>,
}

/// What moves a switch's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchKind {
    /// A bridge of the kernel, in a network namespace of ours.
    #[default]
    Kernel,
    /// `vde_switch` (vde_switch(1)), a program of the user: no right, no namespace.
    Vde,
}

impl SwitchKind {
    /// Whether it is a bridge of the kernel.
    pub fn is_kernel(&self) -> bool {
        *self == Self::Kernel
    }
}

impl fmt::Display for SwitchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Vde => "vde",
        })
    }
}

impl FromStr for SwitchKind {
    type Err = NoSwitchKind;

    fn from_str(text: &str) -> Result<Self, NoSwitchKind> {
        match text {
            "kernel" => Ok(Self::Kernel),
            "vde" => Ok(Self::Vde),
            _ => Err(NoSwitchKind(text.to_owned())),
        }
    }
}

/// A text that is no kind of switch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no kind of switch: expected `kernel` or `vde`")]
pub struct NoSwitchKind(String);

/// Something of the host's own network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// A bridge. The host and whoever is on it reach the VMs.
    Bridge(InterfaceName),
    /// A card, which the host itself does not use meanwhile.
    Card(InterfaceName),
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bridge(name) => write!(f, "bridge {name}"),
            Self::Card(name) => write!(f, "card {name}"),
        }
    }
}

/// A modelled physical link to another switch. Rate and delay hold for each direction alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// The other switch.
    pub to: SwitchName,
    /// Bits a second. Default: as fast as memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Time that a frame takes. Default: none of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
}

/// Why a switch cannot be made beside those that are there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchFault {
    /// Its name is taken.
    #[error("switch {0} is there already: choose another name, or delete it first")]
    Taken(SwitchName),
    /// An uplink leads to nothing.
    #[error(
        "switch {name}: uplink to `{to}`: no such switch; there is {there}. An uplink leads to a switch that was made \
        before; `homenode switch create` joins a card or a bridge of the host by --card or --bridge"
    )]
    NoSuchSwitch {
        /// The new switch.
        name: SwitchName,
        /// Where its uplink leads.
        to: SwitchName,
        /// The switches that there are, as text.
        there: String,
    },
    /// A switch of that kind stands alone.
    #[error(
        "switch {name}: {vde} is of kind \"vde\", which is joined to nothing but VMs: leave its links out, or leave \
        kind = \"vde\" out, for a switch of the kernel's (docs/network.md)"
    )]
    Alone {
        /// The new switch.
        name: SwitchName,
        /// The one of that kind.
        vde: SwitchName,
    },
    /// Frames would go round for ever.
    #[error(
        "switch {name}: its uplinks to {first} and {second} would make a ring, in which frames go round for ever: \
        {first} and {second} are joined already, so one of the two uplinks is enough"
    )]
    Ring {
        /// The new switch.
        name: SwitchName,
        /// Where one uplink leads.
        first: String,
        /// Where the other one leads.
        second: String,
    },
}

/// Names with commas between, or `none`.
pub fn listed<'a>(names: impl Iterator<Item = &'a SwitchName>) -> String {
    let names: Vec<&str> = names.map(AsRef::as_ref).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Whether a switch may be made beside those that are there. Bridges here learn addresses and know
/// no spanning tree, so switches must form trees: a new switch may join trees, and reach each of
/// them by one uplink only.
///
/// # Errors
/// The first reason against it.
pub fn check(switch: &Switch, there: &[Switch]) -> Result<(), SwitchFault> {
    let name = || switch.name.clone();
    if there.iter().any(|other| other.name == switch.name) {
        return Err(SwitchFault::Taken(name()));
    }
    for uplink in &switch.uplinks {
        if !there.iter().any(|other| other.name == uplink.to) {
            let there = listed(there.iter().map(|other| &other.name));
            return Err(SwitchFault::NoSuchSwitch { name: name(), to: uplink.to.clone(), there });
        }
    }
    let leads_to = |other: &&Switch| switch.uplinks.iter().any(|uplink| uplink.to == other.name);
    let joined = ends(switch).next().map(|_| switch).into_iter().chain(there.iter().filter(leads_to));
    if let Some(vde) = joined.into_iter().find(|switch| !switch.kind.is_kernel()) {
        return Err(SwitchFault::Alone { name: name(), vde: vde.name.clone() });
    }
    let ends: Vec<End<'_>> = ends(switch).collect();
    for (index, end) in ends.iter().enumerate() {
        let tree = tree_of(*end, there);
        if let Some(first) = ends[..index].iter().find(|before| tree.contains(before)) {
            return Err(SwitchFault::Ring { name: name(), first: first.to_string(), second: end.to_string() });
        }
    }
    Ok(())
}

/// The switches that frames of one reach, itself among them.
pub(crate) fn reached_from<'a>(switch: &'a SwitchName, there: &'a [Switch]) -> BTreeSet<&'a SwitchName> {
    let switch_at = |end| match end {
        End::Switch(name) => Some(name),
        End::Outside(_) => None,
    };
    tree_of(End::Switch(switch), there).into_iter().filter_map(switch_at).collect()
}

/// What frames may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End<'a> {
    Switch(&'a SwitchName),
    Outside(&'a Outside),
}

impl fmt::Display for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(name) => name.fmt(f),
            Self::Outside(outside) => outside.fmt(f),
        }
    }
}

fn ends(switch: &Switch) -> impl Iterator<Item = End<'_>> {
    let switches = switch.uplinks.iter().map(|uplink| End::Switch(&uplink.to));
    switches.chain(switch.outside.iter().map(End::Outside))
}

/// All that frames of one end reach.
fn tree_of<'a>(end: End<'a>, there: &'a [Switch]) -> BTreeSet<End<'a>> {
    let (mut tree, mut next) = (BTreeSet::new(), vec![end]);
    while let Some(at) = next.pop() {
        if tree.insert(at) {
            next.extend(there.iter().filter(|switch| End::Switch(&switch.name) == at).flat_map(ends));
            let down = there.iter().filter(|switch| ends(switch).any(|end| end == at));
            next.extend(down.map(|switch| End::Switch(&switch.name)));
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str, to: &[&str]) -> Switch {
        let uplink = |to: &&str| Uplink { to: to.parse().unwrap(), rate: None, delay: None };
        let uplinks = to.iter().map(uplink).collect();
        Switch { name: name.parse().unwrap(), kind: SwitchKind::Kernel, uplinks, outside: Vec::new() }
    }

    fn joined(name: &str, to: &[&str], bridge: &str) -> Switch {
        Switch { outside: vec![Outside::Bridge(bridge.parse().unwrap())], ..switch(name, to) }
    }

    #[test]
    fn a_bridge_of_the_host_may_close_a_ring_too() {
        let there = [joined("a", &[], "br0"), switch("b", &["a"]), switch("alone", &[])];
        assert_eq!(check(&joined("c", &["alone"], "br0"), &there), Ok(()));
        assert_eq!(check(&joined("c", &["b"], "br1"), &there), Ok(()), "the first way to br1");
        let ring = check(&joined("c", &["b"], "br0"), &there).unwrap_err().to_string();
        assert!(ring.starts_with("switch c: its uplinks to b and bridge br0 would make a ring"), "{ring}");
    }

    #[test]
    fn a_star_is_a_tree_and_two_ways_are_a_ring() {
        let there = [switch("core", &[]), switch("a", &["core"]), switch("b", &["core"]), switch("alone", &[])];
        assert_eq!(check(&switch("c", &["core"]), &there), Ok(()));
        assert_eq!(check(&switch("c", &["a", "alone"]), &there), Ok(()), "it joins two trees");
        let ring = check(&switch("c", &["a", "b"]), &there).unwrap_err();
        let expected = "switch c: its uplinks to a and b would make a ring";
        assert!(ring.to_string().starts_with(expected), "{ring}");
        assert!(matches!(check(&switch("c", &["a", "a"]), &there), Err(SwitchFault::Ring { .. })), "two cables");
        assert!(matches!(check(&switch("a", &[]), &there), Err(SwitchFault::Taken(_))));
        let error = check(&switch("c", &["d"]), &there).unwrap_err().to_string();
        assert!(error.starts_with("switch c: uplink to `d`: no such switch; there is core, a, b, alone. A"), "{error}");
        assert!(check(&switch("c", &["c"]), &there).is_err(), "to itself");
    }

    #[test]
    fn a_switch_that_is_a_program_stands_alone() {
        let vde = |name: &str, to: &[&str]| Switch { kind: SwitchKind::Vde, ..switch(name, to) };
        let there = [switch("core", &[]), vde("own", &[])];
        assert_eq!(check(&vde("other", &[]), &there), Ok(()));
        for (wrong, alone) in [
            (vde("other", &["core"]), "other"),
            (switch("other", &["own"]), "own"),
            (Switch { kind: SwitchKind::Vde, ..joined("other", &[], "br0") }, "other"),
        ] {
            let fault = check(&wrong, &there).unwrap_err().to_string();
            assert!(fault.starts_with(&format!("switch other: {alone} is of kind \"vde\"")), "{fault}");
        }
        assert_eq!("vde".parse(), Ok(SwitchKind::Vde));
        assert!("bridge".parse::<SwitchKind>().is_err());
    }
}
