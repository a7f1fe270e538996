//! Who else has to know where the threads of a VM may run.

use crate::vm::RunningVm;
use topology::CpuSet;

/// Lets threads of a VM run on certain CPUs only through the program that manages the VM, so that
/// what it says of the VM stays true. `None`: nobody manages it. Called in the balancer's loop:
/// must not wait for long.
pub type AffinityManager =
    Box<dyn Fn(&RunningVm, Managed<'_>, &CpuSet) -> Option<Result<(), Box<dyn std::error::Error>>> + Send>;

/// Threads that a manager binds together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed<'a> {
    /// Those of vCPUs, by index.
    Vcpus(&'a [u32]),
    /// QEMU's main thread and its workers.
    Emulator,
    /// An I/O thread, by its manager's number.
    Iothread(u32),
}

/// Why a manager was not asked to bind them: they stay where their VM's definition puts them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} may use CPUs {cpus}: its definition says so, and they stay there")]
pub struct ChosenByDefinition {
    /// Which threads.
    pub what: String,
    /// What the definition says.
    pub cpus: CpuSet,
}
