//! A domain of libvirt, judged ([`judge`]), with the cures as patches of its XML.

mod edits;
mod from_domain;
mod patch;

pub use from_domain::shaped;
pub use patch::CheckedDomain;
