//! What a VM is: its spec, its virtual topology, its placement, who manages it, and what QEMU's
//! command line means. Pure: text in, data out.

mod accelerator;
mod added;
pub mod backend;
mod call_off;
pub mod history;
mod launch;
pub mod life;
mod manager;
pub mod manifest;
mod placement;
mod plan;
pub mod qemu;
pub mod qemu_user;
mod residence;
mod resize;
#[cfg(test)]
mod samples;
pub mod sending;
pub mod spec;
pub mod stated;
pub mod truth;
mod virtual_topology;

pub use accelerator::{Accelerator, TcgThreads};
pub use added::{Added, MemoryDevice, MemoryDeviceKind, NodeSize};
pub use backend::{Backend, BackendError, Vm};
pub use call_off::{CallOff, End};
pub use launch::{Carries, ConsoleTo, Launch, Tap, Taps};
pub use manager::{Manager, Origin};
pub use manifest::Manifest;
pub use placement::{CacheGroup, Client, MemoryPolicy, NodeUse, Placement};
pub use plan::{Expected, Plan, Reason};
pub use residence::{MemoryResidence, Residence, VcpuResidence};
pub use resize::{NoSuchMemory, Resize, Resized};
pub use spec::{Shape, VmSpec};
pub use stated::Stated;
pub use virtual_topology::{Misfit, VirtualNode, VirtualTopology};
