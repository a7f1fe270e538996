//! What can go wrong with switches.

use crate::switch::SwitchFault;
use std::io;
use std::path::PathBuf;
use vm::spec::MacAddress;

/// Why something about switches was not done. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The switch does not fit beside the others.
    #[error(transparent)]
    Switch(#[from] SwitchFault),
    /// No switch has that name.
    #[error("switch {name}: there is no such switch; there is {there}")]
    NoSuchSwitch {
        /// The name that was asked for.
        name: String,
        /// The switches that there are, as text.
        there: String,
    },
    /// A switch is in use.
    #[error("switch {name} is in use by {by}: stop or delete that first")]
    InUse {
        /// The switch.
        name: String,
        /// What is plugged in, as text.
        by: String,
    },
    /// Two cards of one address: frames find neither.
    #[error("{mac} is the address of {by}, which frames to it could reach too: write another `mac`, or none")]
    AddressTaken {
        /// The address.
        mac: MacAddress,
        /// Who has it, as text.
        by: String,
    },
    /// This process may not have a network namespace.
    #[error(
        "cannot make a network namespace: {source}. Root needs CAP_SYS_ADMIN and CAP_NET_ADMIN; other users need \
        user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, and no AppArmor \
        rule against them). A switch of kind \"vde\" needs neither"
    )]
    NoNamespace {
        /// The kernel's answer.
        source: io::Error,
    },
    /// No tap device.
    #[error("cannot make a tap device for {port}: /dev/net/tun: {source}{cure}")]
    NoTap {
        /// What it was for.
        port: String,
        /// The kernel's answer.
        source: io::Error,
        /// What helps, as a sentence; empty where nothing is known.
        cure: &'static str,
    },
    /// An interface of the host's is not there.
    #[error("{what} {name}: this host has no such {what}; it has {there}")]
    NoSuchInterface {
        /// What it should be.
        what: &'static str,
        /// Its name.
        name: String,
        /// Those that there are, as text.
        there: String,
    },
    /// A bridge of Open vSwitch, whose database keeps a port after its VM has ended.
    #[error(
        "bridge {bridge} is one of Open vSwitch, whose database keeps each port after its VM has ended, so homenode \
        plugs nothing into it. Join a Linux bridge to it and name that one: ip link add {name} type bridge; ip link \
        add \
        {name}0 type veth peer name {name}1; ip link set {name}0 master {name} up; ip link set {name}1 up; ip link set \
        {name} up; ovs-vsctl add-port {bridge} {name}1",
        name = "br-vms"
    )]
    OpenVswitch {
        /// Its name.
        bridge: String,
    },
    /// This user may plug nothing into a bridge of the host's.
    #[error(
        "cannot plug {port} into the bridge {bridge}: that needs CAP_NET_ADMIN, or QEMU's helper ({said}). Root makes \
         the helper ready: echo 'allow {bridge}' >>/etc/qemu/bridge.conf, chmod u+s qemu-bridge-helper. \
         `kind = \"switch\"` and `kind = \"user\"` need neither"
    )]
    NoBridgeRight {
        /// What it was for.
        port: String,
        /// The bridge.
        bridge: String,
        /// What the helper says.
        said: String,
    },
    /// A device that was made could not be plugged in; it is gone again.
    #[error("cannot plug {port} in: {why}")]
    Unplugged {
        /// What it was for.
        port: String,
        /// Why, as text.
        why: String,
    },
    /// This user may join nothing to the host's own network.
    #[error("cannot join a switch to the host's network: {source}. That needs CAP_SYS_ADMIN and CAP_NET_ADMIN there")]
    NoHostRight {
        /// The kernel's answer.
        source: io::Error,
    },
    /// The host would lose what it uses a card for.
    #[error(
        "card {card}: {problem}, and a switch takes the card for itself. Make a bridge with that card as a port, and \
         join the switch to the bridge (--bridge)"
    )]
    CardInUse {
        /// The card.
        card: String,
        /// What it is used for.
        problem: String,
    },
    /// No place for locks.
    #[error("cannot use {place} for sockets and locks: {source}", place = place.display())]
    NoPlace {
        /// A directory or a file.
        place: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A program that is needed does not run.
    #[error("cannot run `{program}`: {source}. It is of Debian's package iproute2")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The kernel refuses what a program asked for.
    #[error("`{program}` says: {said}{cure}")]
    Refused {
        /// The program.
        program: &'static str,
        /// Its words.
        said: String,
        /// What helps, as a sentence; empty where nothing is known.
        cure: &'static str,
    },
    /// The process that keeps switches is not there, or does not answer.
    #[error("the process that keeps the switches {problem}")]
    Keeper {
        /// What it does or does not.
        problem: String,
    },
    /// No `vde_switch`.
    #[error("cannot run `vde_switch`: {source}. It is of Debian's package vde2")]
    NoVde {
        /// Why.
        source: io::Error,
    },
    /// A `vde_switch` does not do what it should.
    #[error("switch {switch}: `vde_switch` {problem}")]
    Vde {
        /// The switch.
        switch: String,
        /// What it does or does not.
        problem: String,
    },
    /// What the keeper says of what it was asked for.
    #[error("{0}")]
    Input(String),
    /// What the keeper says of this host.
    #[error("{0}")]
    Told(String),
}

impl NetworkError {
    /// Whether it is the asker's input that is wrong, rather than the host.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Input(_)
                | Self::Switch(_)
                | Self::NoSuchSwitch { .. }
                | Self::AddressTaken { .. }
                | Self::NoSuchInterface { .. }
                | Self::OpenVswitch { .. }
                | Self::CardInUse { .. }
                | Self::InUse { .. }
        )
    }

    pub(crate) fn no_tap(port: String, source: io::Error) -> Self {
        let cure = match source.kind() {
            io::ErrorKind::NotFound => {
                ". `modprobe tun` makes it; a switch of kind \"vde\" and `kind = \"user\"` need none"
            }
            io::ErrorKind::PermissionDenied => {
                ". Your user must be allowed to open it, or start the VM as root; a switch of kind \"vde\" and \
                 `kind = \"user\"` need none"
            }
            _ => "",
        };
        Self::NoTap { port, source, cure }
    }

    pub(crate) fn keeper(problem: impl Into<String>) -> Self {
        Self::Keeper { problem: problem.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_tap_device_is_told_what_helps_and_what_works_without() {
        for (kind, helps) in [
            (io::ErrorKind::NotFound, "`modprobe tun` makes it"),
            (io::ErrorKind::PermissionDenied, "Your user must be allowed to open it"),
        ] {
            let said = NetworkError::no_tap("vm/0".to_owned(), kind.into()).to_string();
            assert!(said.starts_with("cannot make a tap device for vm/0: /dev/net/tun: "), "{said}");
            assert!(said.contains(helps) && said.contains("a switch of kind \"vde\""), "{said}");
        }
    }
}
