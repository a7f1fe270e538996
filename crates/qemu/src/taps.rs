//! Tap devices that a QEMU inherits: copies of the caller's, so that a start that failed may be
//! tried again.

use crate::QemuError;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use vm::Launch;

/// By card, a descriptor for each queue.
pub(crate) struct Inherited(BTreeMap<usize, Vec<OwnedFd>>);

impl Inherited {
    /// # Errors
    /// Too many files are open.
    pub(crate) fn of(launch: &Launch) -> Result<Self, QemuError> {
        let copy = |(card, taps): (&usize, &Vec<std::sync::Arc<OwnedFd>>)| {
            let copies = taps.iter().map(|tap| tap.try_clone()).collect::<Result<Vec<_>, _>>();
            copies.map(|copies| (*card, copies))
        };
        let copies = launch.taps.iter().map(copy).collect::<Result<_, _>>();
        copies.map(Self).map_err(QemuError::io(&launch.spec.name, "copy a tap device"))
    }

    /// Their numbers, which QEMU's command line says.
    pub(crate) fn numbers(&self) -> BTreeMap<usize, Vec<i32>> {
        let numbers = |taps: &Vec<OwnedFd>| taps.iter().map(AsRawFd::as_raw_fd).collect();
        self.0.iter().map(|(card, taps)| (*card, numbers(taps))).collect()
    }

    pub(crate) fn descriptors(self) -> impl Iterator<Item = OwnedFd> {
        self.0.into_values().flatten()
    }
}
