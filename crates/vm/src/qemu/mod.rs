//! QEMU's words: the options of its command line, and what they say of vCPUs and memory.

mod command_line;
mod doubt;
mod guest_cpus;
mod nics;
pub(crate) mod options;
mod qmp_socket;
mod vcpu_topology;
mod write;

pub use command_line::{Backend, BackendKind, CommandLine, NumaNode};
pub use doubt::Doubt;
pub use guest_cpus::{GuestCaches, GuestCpus};
pub use options::memory_size;
pub use qmp_socket::qmp_socket;
pub use vcpu_topology::{VcpuTopology, vcpu_id};
pub use write::{MONITOR, escape, memory_id, policy_word};

/// Whether a program of this path is QEMU as a VM: `qemu-system-x86_64`, `qemu-kvm` (Red Hat),
/// `kvm` (Proxmox, Debian).
pub fn is_qemu(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm"
}

/// Whether a command line is QEMU's, whatever its program is called.
pub fn has_qemus_options(arguments: &[impl AsRef<str>]) -> bool {
    let is_one = |argument: &str| {
        matches!(argument.trim_start_matches('-'), "machine" | "M" | "accel" | "enable-kvm" | "nodefaults" | "smp")
            && argument.starts_with('-')
    };
    arguments.iter().skip(1).any(|argument| is_one(argument.as_ref()))
}
