//! libvirt as a way to start, see and change VMs, here and on other hosts.
//!
//! Everything goes through libvirt's own client program `virsh`: homenode builds and runs without
//! libvirt, and reaches every host that `virsh` reaches.

mod adopt;
mod affinity;
mod backend;
mod capabilities;
mod connection;
mod domains;
mod error;
mod job;
mod local;
mod refused;
pub mod remote;
mod residence;
mod resize;
mod run_by;
mod save;
mod send;
mod stalled;
mod start;
mod virsh;
mod xml;
mod xml_facts;

/// Answers of virsh, read: for those who try the readers.
#[doc(hidden)]
pub mod answers {
    pub use crate::capabilities::{free_memory, free_pages};
    pub use crate::remote::{cached, cpu_times, domstats};
}

pub use adopt::{Adopted, NotAdopted, adopted};
pub use affinity::{Pins, affinity_manager, affinity_manager_of, pins, pins_of};
pub use backend::Domains;
pub use connection::Connection;
pub use domains::{DomainState, ListedDomain, local_names, local_process, local_process_of};
pub use error::{LibvirtError, Which};
pub use local::LocalLibvirt;
pub use save::is_whole;
pub use send::{is_over, leave, where_it_is};
pub use start::new_uuid;
