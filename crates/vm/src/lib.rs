//! What a VM is: its spec, its virtual topology, its placement, who manages it, and what QEMU's
//! command line means. Pure: text in, data out.

mod manager;
mod placement;
mod plan;
pub mod qemu;
pub mod qemu_user;
pub mod spec;
mod virtual_topology;

pub use manager::{Manager, Origin};
pub use placement::{Client, MemoryPolicy, NodeUse, Placement};
pub use plan::{Plan, Reason};
pub use spec::{Shape, VmSpec};
pub use virtual_topology::{VirtualNode, VirtualTopology};
