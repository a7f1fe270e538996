//! Memory that a VM got while it ran, as its monitor tells of it.
//!
//! **Problem.** From outside a block that was plugged in is a mapping like others of QEMU's, of
//! which virtual node nobody can tell; and of a virtio-mem device the guest has only a part.
//!
//! **Rule.** Where the monitor says where a block is, what was guessed of that place is replaced.
//! It is believed only of places where the process has such a mapping.
//!
//! **Example.** A VM of one virtual node with 256 MiB got a device of 512 MiB, of which its guest
//! was given 130. It has 386 MiB. Unless its monitor is asked, it has 256 MiB and what is resident
//! of the device.

use super::regions::{Given, Region};
use super::{RunningVm, VmClient};
use std::ops::Range;
use topology::Bytes;

/// A memory device of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluggedMemory {
    /// The `id` of its backend, where it has one that is said.
    pub backend: Option<String>,
    /// The virtual node that it was plugged into.
    pub virtual_node: u32,
    /// Where it begins in QEMU's address space.
    pub address: u64,
    /// Its length there.
    pub size: Bytes,
    /// How much of it the guest has.
    pub given: Bytes,
}

impl PluggedMemory {
    pub(crate) fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.size.0)
    }
}

impl VmClient {
    /// Memory that it may have, as far as somebody said so: without that of devices of which nobody
    /// said how much they give.
    pub fn known_memory(&self) -> Bytes {
        self.plugged().filter_map(Region::given).fold(self.fixed_memory, Bytes::saturating_add)
    }

    /// The devices that may give a part of their memory only, and blocks that may be such devices.
    pub fn plugged(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().filter(|region| region.given != Given::All)
    }
}

impl RunningVm {
    /// Whether it cannot be told where memory of a client is, that its command line speaks of.
    pub(crate) fn lacks_memory(&self) -> bool {
        self.unread.is_none() && self.clients.iter().any(|client| client.memory_unknown_because.is_some())
    }

    /// Takes over from its monitor where memory is plugged in, into which virtual nodes, and how
    /// much of it its guest has.
    pub fn told_of_plugged(&mut self, blocks: &[PluggedMemory]) {
        for block in blocks {
            let mut known = self.clients.iter_mut().flat_map(|client| &mut client.regions);
            let on_command_line =
                |region: &&mut Region| region.backend.is_some() && region.addresses.contains(&block.address);
            match known.find(on_command_line) {
                Some(region) if region.given == Given::All => {}
                Some(region) => region.given = Given::Part(block.given),
                None => self.place(block),
            }
        }
    }

    /// Gives a block to the client of its virtual node, in place of what was guessed of its
    /// addresses.
    fn place(&mut self, block: &PluggedMemory) {
        let addresses = block.addresses();
        let within =
            |region: &&Region| region.addresses.start <= addresses.start && addresses.end <= region.addresses.end;
        let Some(mapping) = self.left_over.iter().find(within).filter(|_| !addresses.is_empty()) else { return };
        let region = Region { addresses: addresses.clone(), given: Given::Part(block.given), ..mapping.clone() };
        let is_apart = |other: &Region| {
            let overlaps = other.addresses.start < addresses.end && addresses.start < other.addresses.end;
            other.backend.is_some() || !overlaps
        };
        self.unplaced.retain(is_apart);
        self.clients.iter_mut().for_each(|client| client.regions.retain(is_apart));
        // A part of a client's memory says nothing about the whole.
        let may_have = |client: &&mut VmClient| {
            client.virtual_node.is_none_or(|node| node == block.virtual_node) && client.memory_unknown_because.is_none()
        };
        match self.clients.iter_mut().find(may_have) {
            Some(client) => client.regions.push(region),
            None => self.unplaced.push(region),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::regions::{RegionEvidence, RegionKind};
    use super::*;
    use scheduler::ClientId;

    const MIB: u64 = 1 << 20;

    fn region(backend: Option<&str>, addresses: Range<u64>, given: Given) -> Region {
        let (backend, path) = (backend.map(str::to_owned), String::new());
        let (kind, evidence) = (RegionKind::Anonymous, RegionEvidence::Size);
        Region { backend, addresses, kind, path, page_size: None, evidence, given }
    }

    fn client(virtual_node: u32, regions: Vec<Region>) -> VmClient {
        let fixed_memory = Bytes::from_mib(256);
        let id = ClientId(virtual_node);
        VmClient { id, virtual_node: Some(virtual_node), fixed_memory, regions, ..VmClient::default() }
    }

    #[test]
    fn what_a_monitor_says_replaces_a_guess_and_what_it_says_next_replaces_that() {
        let base = |address: u64| region(Some("ram"), address..address + 256 * MIB, Given::All);
        // 320 MiB with 4 MiB of QEMU's own below: the upper 256 MiB look like a block.
        let mapping = region(None, 1000 * MIB - 4 * MIB..1320 * MIB, Given::Unknown);
        let guess = region(None, 1064 * MIB..1320 * MIB, Given::Unknown);
        let mut vm = RunningVm {
            clients: vec![client(0, vec![base(0)]), client(1, vec![base(512 * MIB)])],
            unplaced: vec![guess],
            left_over: vec![mapping],
            ..RunningVm::default()
        };
        let said = |given: u64| PluggedMemory {
            backend: None,
            virtual_node: 1,
            address: 1000 * MIB,
            size: Bytes::from_mib(320),
            given: Bytes::from_mib(given),
        };
        let known = |vm: &RunningVm| vm.clients.iter().map(|client| client.known_memory().mib()).collect::<Vec<_>>();
        for given in [6, 130, 0] {
            vm.told_of_plugged(&[said(given)]);
            assert_eq!((known(&vm), vm.unplaced.len()), (vec![256, 256 + given], 0));
        }
        assert_eq!(vm.clients[1].regions[1].addresses, 1000 * MIB..1320 * MIB);
        // Where nothing is mapped it is not believed.
        vm.told_of_plugged(&[PluggedMemory { address: 2000 * MIB, ..said(6) }]);
        assert_eq!((known(&vm), vm.clients[1].regions.len()), (vec![256, 256], 2));
        // A VM without virtual nodes is one client.
        vm.clients.truncate(1);
        vm.clients[0].virtual_node = None;
        vm.told_of_plugged(&[said(6)]);
        assert_eq!(known(&vm), [262]);
    }

    #[test]
    fn a_device_of_the_command_line_stays_where_it_is() {
        let regions = vec![
            region(Some("late"), 0..512 * MIB, Given::Unknown),
            region(Some("ram"), 512 * MIB..768 * MIB, Given::All),
        ];
        let mut vm = RunningVm { clients: vec![client(0, regions)], ..RunningVm::default() };
        let said = |address, given| PluggedMemory {
            backend: None,
            virtual_node: 0,
            address,
            size: Bytes::from_mib(512),
            given,
        };
        vm.told_of_plugged(&[said(0, Bytes::from_mib(130)), said(512 * MIB, Bytes::from_mib(1))]);
        assert_eq!(vm.clients[0].known_memory().mib(), 386); // 256 + 130
        assert_eq!(vm.clients[0].plugged().count(), 1);
    }
}
