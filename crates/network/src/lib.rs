//! Virtual switches for VMs, and the modelled physical links that join them.
//!
//! **Problem.** VMs on one host talk over bridges and taps. Made in the host's own network they
//! meet the host's names, its firewall and its traffic, and whoever is killed leaves them there.
//!
//! **Rule.** Switches live in a network namespace of their own, which a small process of ours keeps
//! (the *keeper*, [`keep`]); nothing of the host's network is touched. A VM's card is a tap device
//! there, whose descriptor QEMU gets: QEMU itself stays where it is, with no right over the
//! network. A tap goes when QEMU closes it, the namespace when keeper and taps have gone. So
//! nothing is left behind, however any of them ends. The keeper remembers what links switches;
//! what is plugged in, and how much went through, is the kernel's answer each time.
//!
//! A switch of kind `vde` is a program of the user's in its place (`vde_switch`), for hosts without
//! such namespaces: its cards are sockets, and it is joined to nothing else.
//!
//! **Properties.** Switches form trees ([`check`]): bridges here know no spanning tree. A rate and
//! a delay hold for each direction alone. Root needs CAP_NET_ADMIN and CAP_SYS_ADMIN; other users
//! need a host that allows user namespaces and lets them open `/dev/net/tun`.
//!
//! **Example.** Two switches joined as by cards of 1 Gbit/s:
//!
//! ```text
//! homenode switch create core
//! homenode switch create lan --uplink core --rate "1 Gbit/s"
//! ```
//!
//! See docs/network.md. Sources: bridge(8), tc-tbf(8), tc-netem(8), veth(4), the kernel's
//! Documentation/networking/tuntap.rst.

mod card_name;
mod error;
mod fabric;
mod home;
pub mod host;
mod keeper;
mod kernel;
mod rate;
mod seen;
mod survey;
mod switch;
mod vde;
mod words;

pub use error::NetworkError;
pub use fabric::Fabric;
pub use keeper::keep;
pub use rate::{Delay, NoMeasure, Rate};
pub use seen::{LinkSeen, PortSeen, SwitchSeen, Traffic};
pub use survey::{Kind, survey};
pub use switch::{NoSwitchKind, Outside, Switch, SwitchFault, SwitchKind, Uplink, check, listed};
pub use vm::spec::{InterfaceName, NoSwitchName, SwitchName};
