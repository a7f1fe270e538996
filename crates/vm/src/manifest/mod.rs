//! What a program that takes a guest over must agree on with the one that it leaves: from a file or
//! from another host.
//!
//! **Problem.** QEMU's migration stream has names and sizes of memory blocks and the states of
//! devices. It has neither the virtual topology nor the distances, and QEMU takes a guest into a
//! machine whose vCPUs lie in other virtual nodes without a word: the guest believes the old one.
//!
//! **Rule.** A [`Manifest`] goes with the guest. Whoever takes it over makes the manifest of the
//! machine that it has built and asks for the [`Manifest::differences`]. One that
//! [refuses](Verdict::Refuses) ends it before a byte of the guest is read. What belongs to the host
//! (homes, where memory is bound, ports of the host, the console's file) is no difference.
//!
//! **Properties.** A manifest has no difference with itself. Every change of a field that the guest
//! can see is found, with both values. What was written is read as it was.
//!
//! **Example.** "vCPUs of virtual node 1: 2-3 where it ran, 4-5 where it would go on: QEMU takes
//! that without a word, and the guest would believe what it saw before".

mod differences;
mod file;

pub use differences::{Difference, Verdict};
pub use file::{MOST_BYTES, ManifestError};

use crate::{Added, VirtualTopology, VmSpec};
use serde::{Deserialize, Serialize};
use topology::Bytes;

/// A memory block of the guest, as QEMU names it in a migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryBlock {
    /// The id of its backend.
    pub id: String,
    /// Its size.
    pub size: Bytes,
}

/// Where a memory device that was plugged in is, as the guest knows it. The order of what is
/// plugged in does not say so: what was there before it may have been taken away since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DevicePlace {
    /// Its id.
    pub id: String,
    /// The guest address that its memory begins at.
    pub address: u64,
    /// The number of its root port; none of a DIMM.
    pub port: Option<u32>,
}

/// What runs a guest, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunBy {
    /// QEMU's version, in its own words.
    pub qemu: String,
    /// Its machine type with its version, `pc-q35-7.2`: what `q35` meant when it was started.
    pub machine: String,
    /// What it was asked for with `-cpu`.
    pub cpu_model: String,
    /// The host's CPU by name, where the guest sees that one (`-cpu host`).
    pub host_cpu: Option<String>,
    /// Whether hardware runs its instructions (KVM).
    pub hardware: bool,
    /// The guest's memory blocks, by id.
    pub memory: Vec<MemoryBlock>,
    /// Where the memory devices are that were plugged in, by id. An earlier homenode did not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<DevicePlace>,
    /// Sizes of the spec's disks as the guest sees them, in order.
    pub disk_sizes: Vec<Bytes>,
    /// Sizes of the firmware's flash, code and variables; none with BIOS. QEMU sends what is in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flash_sizes: Vec<Bytes>,
    /// Whether it has the port of homenode's agent.
    pub agent: bool,
}

/// What two programs must agree on for one to take over the other's guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the homenode that wrote it.
    pub homenode: String,
    /// What runs the guest.
    pub run_by: RunBy,
    /// What its owner wrote: its disks, its network cards, what it boots at its next reset.
    pub spec: VmSpec,
    /// What the guest sees of NUMA, with the virtual node of each vCPU.
    pub topology: VirtualTopology,
    /// What was plugged in since power-on, in order.
    pub added: Added,
}

impl Manifest {
    /// The manifest of a guest that runs, or of a machine that was built for it.
    pub fn of(spec: &VmSpec, topology: &VirtualTopology, added: &Added, mut run_by: RunBy) -> Self {
        run_by.memory.sort_by(|one, other| one.id.cmp(&other.id));
        run_by.places.sort_by(|one, other| one.id.cmp(&other.id));
        let homenode = env!("CARGO_PKG_VERSION").to_owned();
        // The process that takes it over has had none taken away.
        let added = Added { taken_away: 0, ..added.clone() };
        Self { homenode, run_by, spec: spec.clone(), topology: topology.clone(), added }
    }

    /// The guest's memory: that of its virtual nodes at power-on, and what its devices can give.
    pub fn memory(&self) -> Bytes {
        self.run_by.memory.iter().map(|block| block.size).sum()
    }
}

#[cfg(test)]
mod tests;
