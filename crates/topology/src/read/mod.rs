//! Reading a [`Machine`] from wherever one is described.
//!
//! | function | reads |
//! |---|---|
//! | [`live`], [`from_root`] | `/sys` and `/proc`, of this host or as a directory |
//! | [`from_archive`] | what [`capture`] packed |
//! | [`from_hwloc_xml`] | the XML of `lstopo --of xml`, hwloc 1.x and 2.x |
//! | [`from_libvirt_capabilities`] | the XML of `virsh capabilities` |
//! | [`from_xml`] | either, by the root element |
//! | [`from_toml`], [`shipped`] | a machine file, and those that come with homenode |
//! | [`described`], [`shipped_described`] | the same, with the rates |
//! | [`from_synthetic`] | a string in hwloc's synthetic grammar |

mod archive;
mod capacity;
mod cards;
mod cpu_model;
mod cpus;
mod error;
mod hmat;
mod homes;
mod hwloc_cpukinds;
mod hwloc_distances;
mod hwloc_xml;
mod isolation;
mod libvirt_capabilities;
mod libvirt_capabilities_caches;
mod limits;
mod machine_file;
mod masks;
mod memory;
mod rates;
mod shape;
mod shipped;
mod sockets;
mod synthetic;
mod synthetic_grammar;
mod synthetic_indexes;
mod sysfs;
mod tree;
mod xml;

pub use archive::{capture, from_archive};
pub use cards::nodes_of_card;
pub use error::ReadError;
pub use hwloc_xml::from_hwloc_xml;
pub use libvirt_capabilities::from_libvirt_capabilities;
pub use machine_file::{Described, described, from_toml};
pub use memory::free_memory;
pub use rates::missing_rates;
pub use shipped::{shipped, shipped_described, shipped_names, shipped_text};
pub use synthetic::{DEFAULT_NODE_MEMORY, from_synthetic};
pub use sysfs::{from_root, host_name, live};
pub use xml::{from_xml, second_document};

/// The most hardware threads that a machine may have: Linux's own bound (`NR_CPUS`).
pub const MOST_THREADS: usize = 8192;
/// The most NUMA nodes that a machine may have: Linux's `MAX_NUMNODES` is 1024.
pub const MOST_NODES: usize = 1024;

/// The note for a machine of several nodes without a whole table of distances.
fn no_distances() -> String {
    format!(
        "No complete and valid table of distances: {} is assumed within a node and {} between nodes.",
        crate::Distances::LOCAL,
        crate::Distances::REMOTE
    )
}

/// A file's name without directories and extension: what to call a machine that has no name of its
/// own.
fn stem(file: &str) -> String {
    std::path::Path::new(file).file_stem().map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
