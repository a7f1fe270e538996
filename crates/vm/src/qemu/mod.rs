//! QEMU's words: the options of its command line, and what they say of vCPUs and memory.

mod command_line;
mod guest_caches;
pub(crate) mod options;
mod vcpu_topology;

pub use command_line::{Backend, BackendKind, CommandLine, NumaNode};
pub use guest_caches::GuestCaches;
pub use options::memory_size;
pub use vcpu_topology::VcpuTopology;

/// Whether a program of this path is QEMU as a VM: `qemu-system-x86_64`, `qemu-kvm` (Red Hat), `kvm` (Proxmox, Debian).
pub fn is_qemu(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm"
}
