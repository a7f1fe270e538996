//! libvirt as a way to start, see and change VMs, here and on other hosts.
//!
//! Everything goes through libvirt's own client program `virsh`: homenode builds and runs without libvirt, and reaches every host that `virsh`
//! reaches.

mod affinity;
mod capabilities;
mod connection;
mod error;
mod remote;
mod start;

pub use connection::Connection;
pub use error::LibvirtError;
