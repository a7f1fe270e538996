//! What is said between a [`Fabric`](crate::Fabric) and the keeper: one line of JSON each way.
//! Behind [`Answer::Tap`] come as many bytes as the tap has queues, each with a descriptor; behind
//! [`Answer::Socket`] two.

use crate::seen::SwitchSeen;
use crate::switch::Switch;
use serde::{Deserialize, Serialize};
use vm::spec::{MacAddress, SwitchName};

/// What is asked of the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Enter a network namespace, for switches of the kernel's.
    Enter,
    /// Make a switch.
    Add(Switch),
    /// Remove one that nothing is plugged into.
    Remove(String),
    /// Make a tap device on a switch. `mac`: the address that no other VM may have there.
    Tap {
        switch: SwitchName,
        port: String,
        queues: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<MacAddress>,
    },
    /// Make a macvtap device, and remove it.
    TryMacvtap,
    /// Tell what there is.
    Show,
}

/// What the keeper answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It is done; the first word of a keeper too.
    Done,
    /// Descriptors follow.
    Tap { queues: u32 },
    /// A socket for frames follows, and what keeps its port.
    Socket,
    /// What there is.
    Switches(Vec<SwitchSeen>),
    /// Nothing was done: another card has the address.
    AddressTaken { mac: MacAddress, by: String },
    /// Nothing was done.
    Refused { input: bool, why: String },
}
