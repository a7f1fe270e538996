//! The host's own network, from within a namespace that switches are in.

use crate::NetworkError;
use crate::host::{above_all, bridge_of_host};
use crate::kernel::{self, Interface};
use crate::switch::Outside;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use vm::spec::{InterfaceName, MacAddress};

/// The way to the network that a keeper came from, and back.
#[derive(Debug)]
pub(crate) struct Home {
    home: File,
    own: File,
}

impl Home {
    /// For a keeper that came from `home` and is in its own network now.
    pub(crate) fn new(home: File) -> io::Result<Self> {
        Ok(Self { home, own: linux::sys::own_network()? })
    }

    /// Makes an interface `here` of our namespace that leads outside. `label`: what its other end
    /// says of itself. All of it goes with our namespace, so whoever kills a keeper leaves nothing.
    ///
    /// # Errors
    /// This user may not, or there is nothing to join.
    pub(crate) fn join(&self, outside: &Outside, here: &str, label: &str) -> Result<(), NetworkError> {
        let (us, own) = (std::process::id(), self.own.as_raw_fd());
        let ours = format!("netns /proc/{us}/fd/{own}");
        self.visit(|| match outside {
            Outside::Bridge(bridge) => {
                let mtu = bridge_of_host(bridge)?.mtu;
                // Of the host's names, with one that is a number of ours: 15 letters at most.
                let there = format!("hn{us}-{}", &here[1..]);
                // A bridge takes the lowest address of its ports: never this one.
                let address = above_all(MacAddress::of_card(&there, 0));
                let lines = format!(
                    "link add name {there} address {address} mtu {mtu} type veth peer name {here} mtu {mtu} {ours}\n\
                     link set dev {there} alias homenode:{label} addrgenmode none master {bridge} up\n"
                );
                let made = kernel::batch("ip", &lines);
                if made.is_err() {
                    // It may not have come to be.
                    let _ = kernel::batch("ip", &format!("link delete dev {there}\n"));
                }
                made
            }
            Outside::Card(card) => {
                let known = known(card)?;
                if let Some(problem) = in_use(&known) {
                    return Err(NetworkError::CardInUse { card: card.to_string(), problem });
                }
                let line = format!("link add link {card} name {here} {ours} type macvlan mode passthru\n");
                kernel::batch("ip", &line).map_err(|error| match error {
                    // So the kernel says that there are such devices on it already.
                    NetworkError::Refused { said, .. } if said.contains("Invalid argument") => {
                        let problem = "another switch or a macvtap device has it".to_owned();
                        NetworkError::CardInUse { card: card.to_string(), problem }
                    }
                    error => error,
                })
            }
        })
    }

    /// Does something in the host's own network.
    fn visit(&self, act: impl FnOnce() -> Result<(), NetworkError>) -> Result<(), NetworkError> {
        linux::sys::enter_network(&self.home).map_err(|source| NetworkError::NoHostRight { source })?;
        let done = act();
        if linux::sys::enter_network(&self.own).is_err() {
            // What comes next would be made in the host's network.
            std::process::abort();
        }
        done
    }
}

fn known(name: &InterfaceName) -> Result<Interface, NetworkError> {
    let there = kernel::addresses()?;
    let names: Vec<&str> = there.iter().map(|known| known.ifname.as_str()).filter(|name| *name != "lo").collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let found = there.into_iter().find(|known| known.ifname == name.as_ref());
    found.ok_or_else(|| NetworkError::NoSuchInterface { what: "card", name: name.to_string(), there: names })
}

/// Why a card is not to be given to a switch: the host would lose what it uses it for.
fn in_use(card: &Interface) -> Option<String> {
    let addresses = card.addresses();
    if !addresses.is_empty() {
        return Some(format!("the host has the address {} on it", addresses.join(", ")));
    }
    if let Some(master) = &card.master {
        return Some(format!("it is a port of {master}"));
    }
    (!card.is_up()).then(|| "it is down (`ip link set up` brings it up)".to_owned())
}
