//! The VMs that homenode keeps: of each its spec, its virtual topology, its placement and its life,
//! on disk, also while it does not run.
//!
//! **Problem.** A VM that was stopped must start again with the same virtual topology, perhaps
//! after the host did; and homenode may be killed at any moment of writing that down.
//!
//! **Rule.** A VM is a directory with one file each:
//!
//! ```text
//! NAME/spec.toml        what its owner wrote; paths in it are absolute
//! NAME/topology.json    what the guest sees; from the first power-on, for life
//! NAME/placement.json   where its clients live, and what was plugged in since power-on
//! NAME/life.json        its state, and how it came there
//! NAME/memory.homenode  its guest, while it is suspended and nobody named another file
//! NAME/uefi-variables.fd what its UEFI firmware keeps, written by QEMU; from the first power-on
//! ```
//!
//! Each file is replaced whole ([`linux::named_file::replace`]). What a start changes of the first
//! three lies beside them, as `next-...`, until `life.json` says that they are it. While a VM is
//! made or deleted its `life.json` is called `unfinished-life.json`: it is no VM then, and what a
//! killed homenode left of one is cleaned up by whoever looks next. Files without either are a VM
//! whose `life.json` somebody removed: they stay, and whoever wants the VM is told. Who changes a
//! VM holds its directory's lock ([`Inventory::hold`]); readers need none.
//!
//! **Properties.** A reader sees of each file the old one or the new one. Nothing is removed that
//! is not one of these files. Nobody waits for a lock longer than a look takes (half a second): who
//! has it is busy with that VM.
//!
//! **Example.** `homenode run web.toml --daemonize`, `homenode vm stop web`, a reboot, `homenode vm
//! start web`: the guest sees the nodes that it saw before.

mod directory;
mod error;
mod files;
mod held;
mod record;

pub use directory::{Inventory, Room, STATE_VARIABLE};
pub use error::InventoryError;
pub use held::{Held, Proposal};
pub use record::{Kept, Record};

use std::time::{SystemTime, UNIX_EPOCH};
use vm::history::UnixSeconds;

/// The time now, as it is written into a VM's life.
pub fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}
