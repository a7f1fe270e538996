//! A domain of libvirt, judged ([`judge`]), with the cures as patches of its XML.

mod definition;
mod edits;
mod from_domain;
mod patch;

pub use definition::Definition;
pub use from_domain::shaped;
pub use patch::CheckedDomain;
