//! What a VM is: its spec, its virtual topology, its placement, who manages it, and what QEMU's
//! command line means. Pure: text in, data out.

mod accelerator;
mod manager;
mod placement;
mod plan;
pub mod qemu;
pub mod qemu_user;
mod residence;
pub mod spec;
mod virtual_topology;

pub use accelerator::{Accelerator, TcgThreads};
pub use manager::{Manager, Origin};
pub use placement::{Client, MemoryPolicy, NodeUse, Placement};
pub use plan::{Plan, Reason};
pub use residence::{MemoryResidence, Residence, VcpuResidence};
pub use spec::{Shape, VmSpec};
pub use virtual_topology::{VirtualNode, VirtualTopology};
