//! The firmware that boots a VM's first disk.

use super::Boot;
use serde::{Deserialize, Serialize};

/// What a VM has in place of a computer's firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Firmware {
    /// BIOS (QEMU's SeaBIOS): it starts what the disk's first sector holds.
    #[default]
    Bios,
    /// UEFI (OVMF), without Secure Boot: it starts a file of the disk's EFI system partition, and
    /// has variables of its own that outlive the guest.
    Uefi,
}

impl Firmware {
    /// Whether it is what a VM has that says nothing.
    pub fn is_bios(&self) -> bool {
        *self == Self::Bios
    }
}

impl Boot {
    /// The first disk, by BIOS.
    pub const BIOS_DISK: Self = Self::Disk { firmware: Firmware::Bios };

    /// Whether the firmware boots the first disk.
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::Disk { .. })
    }

    /// What firmware the VM has. A kernel that QEMU loads is entered from BIOS.
    pub fn firmware(&self) -> Firmware {
        match self {
            Self::Disk { firmware } => *firmware,
            Self::TinyGuest { .. } | Self::Kernel { .. } | Self::Definition => Firmware::Bios,
        }
    }
}
