//! What runs a guest.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What runs the guest's instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Accelerator {
    /// The CPU itself, through `/dev/kvm`.
    Kvm,
    /// QEMU's software emulation. Its speeds and ratios say nothing about hardware virtualization.
    Tcg {
        /// How many host threads run the vCPUs.
        threads: TcgThreads,
        /// Why not KVM.
        because: String,
    },
}

/// How TCG runs vCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TcgThreads {
    /// All vCPUs in turn on one host thread.
    Single,
    /// Each vCPU on a host thread of its own.
    Multi,
}

impl Accelerator {
    /// Whether the CPU itself runs the guest.
    pub fn is_hardware(&self) -> bool {
        matches!(self, Self::Kvm)
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kvm => f.write_str("KVM"),
            Self::Tcg { because, .. } => write!(f, "TCG, software emulation ({because})"),
        }
    }
}
