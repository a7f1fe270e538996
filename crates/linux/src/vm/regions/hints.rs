//! What is known of where a VM's memory is beside its mappings and its command line.
//!
//! **Problem.** A DIMM that was plugged in as large as the first memory looks like it: from the
//! mappings alone nobody can tell which is which.
//!
//! **Rule.** A block that an earlier look knew is where it was, as long as such a mapping is there.
//! What the monitor says of memory devices tells them from the rest.

use super::{Candidate, Region, RegionEvidence, fits, region};
use crate::vm::{Given, PluggedMemory, RunningVm};
use ::vm::qemu::Backend;
use std::collections::BTreeMap;
use std::ops::Range;

/// What is known from elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Where a block is, by its backend's `id`; of the block that QEMU makes by itself that is
    /// empty.
    known: BTreeMap<String, Range<u64>>,
    /// Memory devices, as a monitor said.
    devices: Vec<(Option<String>, Range<u64>)>,
}

impl Hints {
    /// What an earlier look knew, and what the monitor said since.
    pub(crate) fn of(vm: &RunningVm, said: Option<&[PluggedMemory]>) -> Self {
        let mut known = BTreeMap::<String, Range<u64>>::new();
        let regions = vm.clients.iter().flat_map(|client| &client.regions);
        for one in regions.filter(|one| one.backend.is_some() || one.given == Given::All) {
            // Virtual nodes without backends of their own have parts of one block.
            let whole = known.entry(one.backend.clone().unwrap_or_default()).or_insert_with(|| one.addresses.clone());
            *whole = whole.start.min(one.addresses.start)..whole.end.max(one.addresses.end);
        }
        let device = |block: &PluggedMemory| (block.backend.clone(), block.addresses());
        Self { known, devices: said.unwrap_or_default().iter().map(device).collect() }
    }

    /// Takes the mapping of a backend of the command line whose place is known.
    pub(super) fn take(&self, backend: &Backend, free: &mut Vec<Candidate>) -> Option<Region> {
        let said = self.devices.iter().find(|(id, _)| id.as_ref() == Some(&backend.id)).map(|(_, place)| place);
        let place = said.or_else(|| self.known.get(&backend.id))?;
        let is_it = |candidate: &Candidate| {
            fits(candidate, &backend.kind)
                && candidate.addresses.end == place.end
                && candidate.addresses.start <= place.start
        };
        let position = free.iter().position(is_it).filter(|_| place.end - place.start == backend.size.0)?;
        Some(region(backend, &free.remove(position), RegionEvidence::Known))
    }

    /// Takes the mappings of devices that are on no command line.
    pub(super) fn take_devices(&self, backends: &[Backend], free: &mut Vec<Candidate>) -> Vec<Candidate> {
        let is_later =
            |(id, _): &&(Option<String>, Range<u64>)| !backends.iter().any(|backend| Some(&backend.id) == id.as_ref());
        let places: Vec<&Range<u64>> = self.devices.iter().filter(is_later).map(|(_, place)| place).collect();
        let is_device = |candidate: &mut Candidate| {
            let Range { start, end } = candidate.addresses;
            places.iter().any(|place| !place.is_empty() && start <= place.start && place.end <= end)
        };
        free.extract_if(.., is_device).collect()
    }
}
