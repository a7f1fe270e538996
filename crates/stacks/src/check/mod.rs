//! Definitions of other stacks, judged ([`judge`]): domains of libvirt, with the cures as patches
//! of their XML, and configurations of Proxmox VE.

mod definition;
mod edits;
mod from_domain;
mod guest_system;
mod movable;
mod patch;
mod proxmox;
mod refusals;

pub use definition::Definition;
pub use from_domain::shaped;
pub use movable::movable;
pub use patch::CheckedDomain;
