//! What is plugged into a switch and how much went through, as the kernel counts it.

use crate::SwitchKind;
use crate::rate::{Delay, Rate};
use serde::{Deserialize, Serialize};

/// What one side of a link sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes of Ethernet frames.
    pub bytes: u64,
    /// Frames, as the kernel hands them on: one may be several on a wire.
    pub frames: u64,
    /// Frames that were not taken.
    pub dropped: u64,
}

/// A switch as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchSeen {
    /// Its name.
    pub name: String,
    /// What moves its frames, and counts them.
    #[serde(default)]
    pub kind: SwitchKind,
    /// Cards of VMs.
    pub ports: Vec<PortSeen>,
    /// Links to other switches, its own and theirs.
    pub links: Vec<LinkSeen>,
}

/// A card of a VM on a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSeen {
    /// Whose: VM and number of the card.
    pub port: String,
    /// What the VM sent.
    pub from_vm: Traffic,
    /// What it was sent. Frames are dropped where the guest does not take them.
    pub to_vm: Traffic,
}

/// A modelled link to another switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSeen {
    /// The other switch.
    pub to: String,
    /// Bits a second; `None`: as fast as memory.
    pub rate: Option<Rate>,
    /// Time that a frame takes.
    pub delay: Option<Delay>,
    /// What went to the other switch. Frames are dropped where more comes than the rate lets
    /// through: there the link saturates.
    pub sent: Traffic,
    /// Times that a frame had to wait for the rate.
    pub waits: u64,
}
