//! What only a VM's monitor can say: whoever may ask it gives this to
//! [`HostOptions`](super::HostOptions).

use scheduler::{RunState, VmKey};
use std::collections::BTreeMap;

/// Asks the monitor of a VM. `None`: it may not be asked, or does not answer at once.
pub trait AskMonitor: Send {
    /// The thread that runs each vCPU; asked for VMs whose threads have no names.
    fn vcpu_threads(&self, vm: &VmKey) -> Option<BTreeMap<u32, u32>>;

    /// Memory that the guest has as devices; asked where a block was plugged into a VM of several
    /// virtual nodes.
    fn plugged_memory(&self, vm: &VmKey) -> Option<Vec<PluggedMemory>>;

    /// Whether its vCPUs are stopped; asked for VMs that used no CPU time, where
    /// [`HostOptions::run_states`](super::HostOptions) wants it.
    fn run_state(&self, vm: &VmKey) -> Option<RunState>;
}

/// A memory device of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluggedMemory {
    /// The virtual node that it was plugged into.
    pub virtual_node: u32,
    /// Where it begins in QEMU's address space.
    pub address: u64,
}
