//! Command lines that no VM has.
//!
//! **Problem.** Any user may start a process that is called QEMU, with any command line: `-smp
//! 4294967295`, 6,000 virtual nodes of 65,536 vCPUs each. To take its word would cost gigabytes and
//! minutes.
//!
//! **Rule.** Every number is compared with [`topology::limits`] before work is done that grows with
//! it. Beyond, the whole command line is in doubt, and what is said of its process is one line.

use topology::input::excerpt;
use topology::limits::{MOST_OBJECTS, MOST_VCPUS, MOST_VIRTUAL_NODES};

/// Why a command line is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// `-smp`.
    #[error("-smp {}: no number, or more than {MOST_VCPUS} vCPUs, sockets or threads", excerpt(.0))]
    Vcpus(String),
    /// An option whose value is a size.
    #[error("{option} {}: no size that QEMU takes", excerpt(text))]
    Size {
        /// The option, or its key.
        option: &'static str,
        /// Its value.
        text: String,
    },
    /// `-numa node`.
    #[error("more than {MOST_VIRTUAL_NODES} virtual nodes")]
    Nodes,
    /// `cpus=` and `-numa cpu`.
    #[error("its virtual nodes name more than {MOST_VCPUS} vCPUs together")]
    VcpusOfNodes,
    /// `-object`, `-device`.
    #[error("more than {MOST_OBJECTS} memory backends or devices that are passed through")]
    Objects,
}
