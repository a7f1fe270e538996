//! What is to change of a VM while it runs, and what came of it.

use crate::backend::Patience;
use crate::spec::Backing;
use crate::{Added, Placement, VirtualTopology};
use std::collections::BTreeMap;
use topology::Bytes;

/// What to add to a VM that runs, or to take from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resize {
    /// What the guest sees; it stays as it is.
    pub topology: VirtualTopology,
    /// Where its clients live now: new threads and new memory go there.
    pub placement: Placement,
    /// What new memory is made of, and when it is taken: as the rest of the VM's.
    pub backing: Backing,
    /// What was plugged before, as far as it was written down.
    pub added: Added,
    /// Indices of vCPUs to plug.
    pub plug: Vec<u32>,
    /// Indices of vCPUs to unplug: of those that were plugged.
    pub unplug: Vec<u32>,
    /// The new memory of each virtual node whose memory changes.
    pub memory: BTreeMap<u32, Bytes>,
    /// How long the guest may do nothing of what it should.
    pub patience: Patience,
}

impl Resize {
    /// Whether each virtual node can have the memory that it is to have, where `added` is plugged
    /// in now.
    ///
    /// # Errors
    /// One cannot.
    pub fn check_memory(&self, added: &Added) -> Result<(), NoSuchMemory> {
        let dimms = added.dimms();
        for (&virtual_node, &wanted) in &self.memory {
            let node = self.topology.nodes.iter().find(|node| node.id == virtual_node);
            let node = node.ok_or(NoSuchMemory::Node { virtual_node })?;
            let most = node.memory.saturating_add(node.growth);
            if wanted > most {
                return Err(NoSuchMemory::TooMuch { virtual_node, most, wanted });
            }
            let least = node.memory.saturating_add(dimms.get(&virtual_node).copied().unwrap_or_default());
            if wanted < least {
                return Err(NoSuchMemory::TooLittle { virtual_node, least, wanted });
            }
        }
        Ok(())
    }
}

/// Memory that a virtual node cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchMemory {
    /// There is no such node.
    #[error("it has no virtual node {virtual_node}")]
    Node {
        /// Its number.
        virtual_node: u32,
    },
    /// More than it may ever have.
    #[error("virtual node {virtual_node} may have {most} at most, not {wanted}")]
    TooMuch {
        /// Its number.
        virtual_node: u32,
        /// What it may have.
        most: Bytes,
        /// What was asked for.
        wanted: Bytes,
    },
    /// Less than what cannot be taken away.
    #[error(
        "virtual node {virtual_node} keeps {least} while it runs, not {wanted}: that was there at power-on or is \
        in DIMMs"
    )]
    TooLittle {
        /// Its number.
        virtual_node: u32,
        /// What it keeps.
        least: Bytes,
        /// What was asked for.
        wanted: Bytes,
    },
}

/// What became of a [`Resize`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// All that is plugged in now.
    pub added: Added,
    /// What the guest has not done in its time, as sentences; empty where it has done everything.
    pub undone: Vec<String>,
    /// What else its owner should know, as sentences.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDeviceKind, samples};

    fn checked(virtual_node: u32, mib: u64, kind: MemoryDeviceKind) -> Result<(), NoSuchMemory> {
        let mut device = samples::device();
        device.kind = kind;
        let resize = Resize {
            topology: samples::topology(),
            placement: Placement { clients: Vec::new() },
            backing: Backing::default(),
            added: Added::default(),
            plug: Vec::new(),
            unplug: Vec::new(),
            memory: BTreeMap::from([(virtual_node, Bytes::from_mib(mib))]),
            patience: Patience::ZERO,
        };
        resize.check_memory(&Added { memory: vec![device], ..Added::default() })
    }

    /// Each node has 512 MiB from power-on and may get 1024 more: 512 to 1536. Node 1 has a device
    /// of 1024 MiB: as a DIMM it stays, so that 1536 is all that the node can have.
    #[test]
    fn a_node_keeps_what_it_began_with_and_its_dimms() {
        let (virtual_node, mib) = (1, Bytes::from_mib);
        for size in [512, 1536] {
            assert_eq!(checked(1, size, MemoryDeviceKind::VirtioMem), Ok(()));
        }
        let too_much = NoSuchMemory::TooMuch { virtual_node, most: mib(1536), wanted: mib(1537) };
        assert_eq!(checked(1, 1537, MemoryDeviceKind::VirtioMem), Err(too_much));
        let too_little = NoSuchMemory::TooLittle { virtual_node, least: mib(512), wanted: mib(511) };
        assert_eq!(checked(1, 511, MemoryDeviceKind::VirtioMem), Err(too_little));
        let in_a_dimm = NoSuchMemory::TooLittle { virtual_node, least: mib(1536), wanted: mib(1535) };
        assert_eq!(checked(1, 1535, MemoryDeviceKind::Dimm), Err(in_a_dimm));
        assert_eq!(checked(0, 512, MemoryDeviceKind::Dimm), Ok(()), "the DIMM is the other node's");
        assert_eq!(checked(2, 512, MemoryDeviceKind::Dimm), Err(NoSuchMemory::Node { virtual_node: 2 }));
    }
}
